//! The URL of a `proxy_pass` or `grpc_pass`, and its change to the location's path.

use crate::convert::path::Path;

/// The parts of a URL; each may have placeholders.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) tls: bool,
    pub(super) authority: String,
    /// `None`: the path of the request. A question mark at its end: without the query of the request.
    pub(super) path: Option<String>,
}

/// The path that a server gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Sent {
    /// The path of the request.
    Same,
    /// The path behind another one: `to_prefix`.
    Behind(String),
    /// The path without the route's own, behind another one: `strip_prefix` and `to_prefix`.
    Stripped(String),
    /// A path of its own, as a template.
    Other(String),
    /// The rest of the path behind the route's text, appended to another path.
    Appended { own: String, to: String },
}

impl Url {
    /// `template`: the argument of `proxy_pass`, with placeholders. `has_variable`: whether nginx sends the path and the query of the URL alone.
    pub(super) fn of(template: &str, has_variable: bool) -> Result<Self, String> {
        // The path as the client wrote it, which is sent without a path too.
        let ends = ["{uri}", "{path}{is_args}{query}", "{path}?{query}", "{path}"];
        let end = ends.into_iter().find(|end| template.ends_with(end));
        let text = template.strip_suffix(end.unwrap_or_default()).unwrap_or(template);
        let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ if text.starts_with("{map.") => (false, text),
            _ => return Err("its URL begins neither with http:// nor https://".to_owned()),
        };
        let (authority, path) = match rest.strip_prefix("unix:") {
            Some(socket) => {
                let (socket, path) = socket.split_once(':').unwrap_or((socket, ""));
                (format!("unix:{socket}"), path)
            }
            None => {
                let (authority, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
                (authority.to_owned(), path)
            }
        };
        let path = match (path, end) {
            (path, Some("{path}")) if !path.contains('?') => Some(format!("{path}{{path}}?")),
            ("", _) => None,
            (path, None)
                if has_variable && !["?", "{is_args}", "{query}", "{uri}"].iter().any(|own| path.contains(own)) =>
            {
                Some(format!("{path}?"))
            }
            (path, None) => Some(path.to_owned()),
            // Behind a path of its own.
            (path, Some(_)) => Some(format!("{path}{{path}}")),
        };
        Ok(Url { tls, authority, path })
    }

    /// That of a `grpc_pass`, which has no path, and may do without a scheme.
    pub(super) fn of_grpc(text: &str) -> Self {
        let (tls, authority) = match (text.strip_prefix("grpc://"), text.strip_prefix("grpcs://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => (false, text),
        };
        Url { tls, authority: authority.to_owned(), path: None }
    }

    /// The path that a location sends. With a variable, the URL's path replaces all of the request's.
    pub(super) fn sent(&self, location: &Path, has_variable: bool) -> Sent {
        let Some(path) = &self.path else { return Sent::Same };
        let to = without_query(path);
        let before = to.strip_suffix('/').filter(|_| !path.contains('{') && !to.contains('%'));
        match (location, before) {
            _ if path.ends_with('?') && has_variable => Sent::Other(path.clone()),
            _ if has_variable => Sent::Other(to),
            (Path::Prefix { text, .. } | Path::Exact(text), _) if *text == to => Sent::Same,
            (Path::Exact(_), _) => Sent::Other(to),
            (Path::Prefix { text, .. }, Some(before)) if text == "/" => Sent::Behind(before.to_owned()),
            (Path::Prefix { text, .. }, Some(before)) if text.ends_with('/') => Sent::Stripped(before.to_owned()),
            (Path::Prefix { text, .. }, _) => Sent::Appended { own: text.clone(), to },
            _ => Sent::Other(to),
        }
    }
}

/// A path without the query of the request, which goes along anyway.
pub(in crate::convert) fn without_query(path: &str) -> String {
    let ends = ["{is_args}{query}", "?{query}", "{is_args}", "?"];
    ends.iter().find_map(|end| path.strip_suffix(end)).unwrap_or(path).to_owned()
}
