//! The URL of a `proxy_pass` or `grpc_pass`, and what it and a rewrite make of the location's path.

use super::Kind;
use super::upstreams::{self, Options};
use crate::convert::Context;
use crate::convert::location::Scope;
use crate::syntax::Directive;

/// The parts of what `proxy_pass` says.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Url {
    pub(super) tls: bool,
    pub(super) authority: String,
    pub(super) path: Option<String>,
}

impl Url {
    pub(super) fn of(text: &str) -> Result<Self, String> {
        // The path as the client wrote it, which is sent without a path too.
        let text = text.strip_suffix("$request_uri").unwrap_or(text);
        if text.contains('$') {
            return Err("its URL has variables: name an [[upstream]], or write the URL".to_owned());
        }
        let (tls, rest) = match (text.strip_prefix("http://"), text.strip_prefix("https://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
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
        Ok(Url { tls, authority, path: (!path.is_empty()).then(|| path.to_owned()) })
    }

    /// That of a `grpc_pass`, which has no path, and may do without a scheme.
    pub(super) fn of_grpc(text: &str) -> Result<Self, String> {
        if text.contains('$') {
            return Err("its URL has variables: name an [[upstream]], or write the URL".to_owned());
        }
        let (tls, authority) = match (text.strip_prefix("grpc://"), text.strip_prefix("grpcs://")) {
            (Some(rest), _) => (false, rest),
            (_, Some(rest)) => (true, rest),
            _ => (false, text),
        };
        Ok(Url { tls, authority: authority.to_owned(), path: None })
    }
}

/// The URL that a `proxy_pass` in the location of this path asks, or the name of an upstream and a path. An error says why there is none.
pub(in crate::convert) fn url_of(
    context: &mut Context,
    pass: &Directive,
    path: &str,
) -> Result<(Option<String>, String), String> {
    let url = Url::of(pass.first())?;
    let target = upstreams::target(
        context,
        &url.authority,
        Options { scheme: if url.tls { "https" } else { "http" }, ..Options::default() },
    )?;
    let path = url.path.as_deref().unwrap_or(path);
    if !target.name.contains(':') {
        return Ok((Some(target.name), path.to_owned()));
    }
    let separator = if target.name.starts_with("unix:") { ":" } else { "" };
    Ok((None, format!("{}{separator}{path}", target.name)))
}

/// What the URL's path makes of the location's: whether that is left out, and what goes before the rest instead.
pub(super) fn replaces(path: &str, kind: Kind, scope: &Scope) -> Result<(bool, Option<String>), String> {
    let is_plain = !path.contains(['?', '#', '%']) && !path.contains("/.");
    let before = path.strip_suffix('/').filter(|_| is_plain).map(|path| (!path.is_empty()).then(|| path.to_owned()));
    match (scope, before) {
        (Scope::Everything, Some(before)) => Ok((false, before)),
        (Scope::Exact(own) | Scope::Prefix(own), _) if own == path && kind != Kind::Regex => Ok((false, None)),
        (Scope::Prefix(own), Some(before)) if own.ends_with('/') && kind != Kind::Regex => Ok((true, before)),
        _ => Err(format!(
            "{path} would replace the location's path: let the application answer at the path that clients ask for, or end both the location \
             and the URL with a slash"
        )),
    }
}

/// Whether a rewrite leaves the location's prefix out: `rewrite ^/api/(.*)$ /$1 break`.
pub(super) fn rewritten(location: &Directive, block: &Directive, scope: &Scope) -> Result<bool, String> {
    let of_block = block.children().iter().filter(|_| !std::ptr::eq(location, block));
    let rewrites: Vec<_> = location.children().iter().chain(of_block).filter(|inner| inner.name == "rewrite").collect();
    let (rewrite, path) = match (rewrites.as_slice(), scope) {
        ([], _) => return Ok(false),
        ([rewrite], Scope::Prefix(path)) if path.ends_with('/') => (rewrite, path),
        _ => return Err("rewrites inside a forwarded location apply to the whole site here: write it with a slash at its end, and strip_prefix".to_owned()),
    };
    let [regex, to, flag] = rewrite.arguments.as_slice() else {
        return Err("its rewrite has no break".to_owned());
    };
    let text = regex.trim_start_matches('^').trim_end_matches('$').replace('\\', "");
    let open = path.trim_end_matches('/');
    let leaves_out = text == format!("{path}(.*)") && to == "/$1" || text == format!("{open}(/.*)") && to == "$1";
    if leaves_out && flag == "break" {
        return Ok(true);
    }
    Err("its rewrite is not one that leaves the location's path out: let the application answer at the path that clients ask for".to_owned())
}
