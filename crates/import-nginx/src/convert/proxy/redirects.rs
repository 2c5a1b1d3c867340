//! `proxy_redirect` and `proxy_cookie_*`, as texts that a rule replaces in Location and in cookies.

use toml::Value;

use super::{Place, Url};
use crate::convert::context::Context;
use crate::convert::path::Path;
use crate::syntax::Directive;
use crate::toml_text::{Table, inline_table};

/// A text and its replacement.
type Pair = (String, String);

/// The rule whose answers are changed.
pub(super) struct Forwarding<'a> {
    pub(super) place: Place<'a, 'a>,
    pub(super) url: &'a Url,
    /// Whether the URL has a variable, so that `proxy_redirect` has no default.
    pub(super) has_variable: bool,
}

/// Writes the replacements in Location and in cookies.
pub(super) fn write<'a>(
    context: &mut Context,
    table: &mut Table,
    forwarding: &Forwarding<'_>,
    all: &impl Fn(&str) -> Vec<&'a Directive>,
) {
    let redirects = all("proxy_redirect");
    let mut locations: Vec<Pair> = Vec::new();
    if redirects.is_empty() {
        locations.extend(forwarding.by_default());
    }
    if !redirects.iter().any(|directive| directive.arguments == ["off"]) {
        for directive in redirects {
            let pairs = match directive.arguments.as_slice() {
                [word] if word == "default" => Some(forwarding.by_default().into_iter().collect()),
                [from, to] => forwarding.replaced(context, from, to),
                _ => None,
            };
            match pairs {
                Some(pairs) => locations.extend(pairs),
                None => context.report_with(
                    directive,
                    "it replaces no constant text: let the application make relative redirects",
                ),
            }
        }
    }
    let (mut paths, mut domains, mut attributes) = (Vec::new(), Vec::new(), Vec::new());
    for directive in
        all("proxy_cookie_path").into_iter().chain(all("proxy_cookie_domain")).chain(all("proxy_cookie_flags"))
    {
        let is_written = match (directive.name.as_str(), directive.arguments.as_slice()) {
            (_, [off]) if off == "off" => true,
            ("proxy_cookie_path", [from, to]) => cookie_path(from, to, &mut paths, &mut attributes),
            ("proxy_cookie_domain", [from, to]) => forwarding.domain(from, to).map(|pair| domains.push(pair)).is_some(),
            // All cookies.
            ("proxy_cookie_flags", [name, flags @ ..]) if matches!(name.as_str(), "~" | "~.*" | "~.") => {
                flags.iter().all(|flag| add_attribute(flag, &mut attributes))
            }
            _ => false,
        };
        if !is_written {
            context.report_with(directive, "it has no counterpart: let the application set its cookies so");
        }
    }
    for (key, pairs) in [("locations", locations), ("cookie_paths", paths), ("cookie_domains", domains)] {
        let written = |(from, to): Pair| Value::from(inline_table([("from", from.into()), ("to", to.into())]));
        if !pairs.is_empty() {
            table.set(key, pairs.into_iter().map(written).collect::<Vec<_>>());
        }
    }
    if !attributes.is_empty() {
        table.set("cookie_attributes", attributes);
    }
}

/// `proxy_cookie_path from to`, whose `to` may have attributes behind the path.
fn cookie_path(from: &str, to: &str, paths: &mut Vec<Pair>, attributes: &mut Vec<String>) -> bool {
    let (path, rest) = to.split_once(';').unwrap_or((to, ""));
    let path = path.trim();
    if !from.starts_with('/') || !path.starts_with('/') || to.contains('$') || !rest.is_empty() && from != "/" {
        return false;
    }
    if path != from {
        paths.push((from.to_owned(), path.to_owned()));
    }
    rest.split(';').map(str::trim).filter(|own| !own.is_empty()).all(|own| add_attribute(own, attributes))
}

/// Adds an attribute of cookies in its usual spelling. `false`: no cookie can get it.
fn add_attribute(text: &str, attributes: &mut Vec<String>) -> bool {
    let lower = text.to_ascii_lowercase();
    let own = match lower.split_once('=') {
        None if lower == "secure" => "Secure".to_owned(),
        None if lower == "httponly" => "HttpOnly".to_owned(),
        Some(("samesite", "lax")) => "SameSite=Lax".to_owned(),
        Some(("samesite", "strict")) => "SameSite=Strict".to_owned(),
        Some(("samesite", "none")) => "SameSite=None".to_owned(),
        _ => return false,
    };
    if !attributes.contains(&own) {
        attributes.push(own);
    }
    true
}

impl Forwarding<'_> {
    /// The default of `proxy_redirect`: the URL of `proxy_pass` becomes the path of the location.
    fn by_default(&self) -> Option<Pair> {
        let Url { tls, authority, path } = self.url;
        let own = match (self.place.path, path) {
            _ if self.has_variable || authority.starts_with("unix:") => return None,
            (_, None) => "/",
            (Path::Prefix { text, .. } | Path::Exact(text), Some(_)) => text,
            _ => return None,
        };
        let scheme = if *tls { "https" } else { "http" };
        Some((format!("{scheme}://{authority}{}", path.as_deref().unwrap_or("/")), own.to_owned()))
    }

    /// The texts that a `proxy_redirect` replaces. `None`: they depend on the request.
    fn replaced(&self, context: &Context, from: &str, to: &str) -> Option<Vec<Pair>> {
        let variables = self.place.variables;
        let to = match split(to) {
            // Clients take a path for one of the same server.
            Some((authority, path)) if is_client(authority) && (context.is_tls || !to.starts_with("https:")) => {
                if path.is_empty() { "/" } else { path }.to_owned()
            }
            Some(("", "")) if to == "$scheme://" && context.is_tls => "https://".to_owned(),
            _ => to.to_owned(),
        };
        let is_target = to.starts_with('/') && !to.starts_with("//") || to.starts_with("http");
        if !is_target || to.contains('$') || from.starts_with('~') {
            return None;
        }
        let mut all = vec![from.replace("$proxy_host", &self.url.authority)];
        let ports = variables.port.map(|port| port.to_string());
        let names = || variables.server_names.iter().filter(|name| !name.contains(['~', '*'])).cloned();
        for (variable, values) in [
            ("$scheme", vec!["http".to_owned(), "https".to_owned()]),
            ("$http_host", names().collect()),
            ("$host", names().collect()),
            ("$server_name", variables.server_name.iter().cloned().collect()),
            ("$server_port", ports.into_iter().collect()),
        ] {
            if all.iter().any(|text| text.contains(variable)) {
                all = all.iter().flat_map(|text| values.iter().map(|value| text.replace(variable, value))).collect();
            }
        }
        let is_text = |text: &String| !text.contains('$') && !text.is_empty();
        (!all.is_empty() && all.iter().all(is_text)).then(|| all.into_iter().map(|from| (from, to.clone())).collect())
    }

    /// The domain that a `proxy_cookie_domain` replaces. Without a domain, a cookie is for the host that the client asked.
    fn domain(&self, from: &str, to: &str) -> Option<Pair> {
        let authority = &self.url.authority;
        let from = from.replace("$proxy_host", authority.rsplit_once(':').map_or(authority.as_str(), |(host, _)| host));
        let to = if is_client(to) { "" } else { to };
        (!from.contains(['~', '$']) && !to.contains(['$', ' ', ';'])).then(|| (from, to.to_owned()))
    }
}

/// Whether an authority is the host that the client asked.
fn is_client(authority: &str) -> bool {
    matches!(authority, "$host" | "$http_host" | "$server_name" | "$host:$server_port" | "$http_host:$server_port")
}

/// A URL's authority and path.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = ["http://", "https://", "$scheme://"].iter().find_map(|scheme| url.strip_prefix(scheme))?;
    Some(rest.split_at(rest.find('/').unwrap_or(rest.len())))
}
