//! `proxy_redirect` and `proxy_cookie_*`, as `redirects` of a rule: it changes Location and cookies together, and only by what the rule itself
//! does to paths and Host.

use super::Url;
use super::fields::Constants;
use super::upstreams;
use crate::convert::context::Context;
use crate::syntax::Directive;

/// What a rule does to paths, and whom it asks.
pub(super) struct Forwarding<'a> {
    /// What clients have before the path, without a slash at its end.
    pub(super) prefix: &'a str,
    /// What the server has there instead.
    pub(super) to_prefix: &'a str,
    pub(super) url: &'a Url,
    /// Whether nginx has no default for `proxy_redirect`, since the URL has a variable.
    pub(super) has_variable: bool,
    /// The rule's `host`.
    pub(super) host: &'a str,
    pub(super) constants: Constants<'a>,
}

/// What a rule does to Location and cookies.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Answers {
    /// `redirects = "rewrite"`
    Rewrite,
    /// `locations` and `cookie_paths`: beginnings, and what stands there instead.
    Replace { locations: Vec<(String, String)>, cookie_paths: Vec<(String, String)> },
}

/// What the rule does to Location and cookies. What it does not do as nginx does is reported.
pub(super) fn of_rule<'a>(
    context: &mut Context,
    pass: &Directive,
    forwarding: &Forwarding<'_>,
    all: &impl Fn(&str) -> Vec<&'a Directive>,
) -> Answers {
    let mut notes: Vec<(&Directive, &str)> = Vec::new();
    let redirects = all("proxy_redirect");
    let is_off = |directive: &&Directive| matches!(directive.arguments.as_slice(), [off] if off == "off");
    let is_turned_off = redirects.iter().any(is_off);
    let mut wanted = Wanted::default();
    let mut others = Vec::new();
    for directive in &redirects {
        match directive.arguments.as_slice() {
            [word] if word == "off" || word == "default" => {}
            [from, to] => match forwarding.of_redirect(context, from, to) {
                Some(found) if found.paths || forwarding.keeps_paths() => wanted.add(&found),
                // With a prefix, a rule changes all redirects or none.
                _ => others.push(*directive),
            },
            _ => others.push(directive),
        }
    }
    let has_default = redirects.is_empty() || redirects.iter().any(|directive| directive.arguments == ["default"]);
    // An application that gets the client's Host does not name another one.
    let is_named = forwarding.host != "client" && !forwarding.url.authority.starts_with("unix:");
    let by_default = has_default && is_named && !forwarding.has_variable;
    wanted.authorities |= by_default && forwarding.keeps_paths();
    if by_default && !forwarding.keeps_paths() && !wanted.paths {
        let remedy = "a Location with the server's name is sent as it is: set redirects = \"rewrite\" in the rule, by which the paths of \
                      all its redirects and cookies get the location's prefix";
        notes.push((pass, remedy));
    }
    let mut cookies = Vec::new();
    for directive in all("proxy_cookie_path").into_iter().chain(all("proxy_cookie_domain")) {
        let is_path = directive.name == "proxy_cookie_path";
        match directive.arguments.as_slice() {
            [off] if off == "off" => {}
            [from, to] if is_path && forwarding.is_cookie_path(from, to) => {
                wanted.cookies |= !forwarding.keeps_paths();
            }
            [from, to] if !is_path && forwarding.names_server(context, from) && forwarding.names_client(to) => {
                cookies.push(directive);
                wanted.authorities = true;
            }
            _ => {
                let remedy = match is_path {
                    true => {
                        "the paths of cookies are sent as the server wrote them: redirects = \"rewrite\" in the rule replaces the rule's own prefix alone"
                    }
                    false => {
                        "the domains of cookies are sent as the server wrote them: redirects = \"rewrite\" in the rule leaves out the server's own name alone"
                    }
                };
                notes.push((directive, remedy));
            }
        }
    }
    for flags in all("proxy_cookie_flags").into_iter().filter(|flags| flags.first() != "off") {
        notes.push((flags, "the flags of cookies are sent as the server wrote them: let the application set them"));
    }
    // Location would change, too.
    let is_against = is_turned_off || (!forwarding.keeps_paths() && !wanted.paths);
    if (wanted.cookies || !cookies.is_empty()) && is_against {
        let remedy = "cookies are changed together with Location here: set redirects = \"rewrite\" in the rule, if that may change too";
        for directive in all("proxy_cookie_path").into_iter().chain(cookies.iter().copied()) {
            if !notes.iter().any(|(noted, _)| *noted == directive) {
                notes.push((directive, remedy));
            }
        }
        wanted.cookies = false;
        wanted.authorities &= !is_turned_off;
    }
    if wanted.paths && !wanted.cookies && !forwarding.keeps_paths() {
        let directive = redirects.last().copied().unwrap_or(pass);
        notes.push((directive, "the paths of cookies get the location's prefix too, as redirects do"));
    }
    for directive in others {
        let remedy =
            "Location is sent as the server wrote it: let the application make redirects from Host, or relative ones";
        notes.push((directive, remedy));
    }
    let rewrites = match forwarding.keeps_paths() {
        true => wanted.authorities && !is_turned_off,
        false => wanted.paths,
    };
    if rewrites {
        notes.into_iter().for_each(|(directive, remedy)| context.note(directive, remedy));
        return Answers::Rewrite;
    }
    let (mut locations, mut cookie_paths) = (Vec::new(), Vec::new());
    let mut replaced: Vec<&Directive> = Vec::new();
    for directive in redirects.iter().copied().filter(|_| !is_turned_off) {
        if let [from, to] = directive.arguments.as_slice()
            && let Some(pair) = forwarding.replacement(from, to)
        {
            locations.push(pair);
            replaced.push(directive);
        }
    }
    // No client asks for the prefix of a route that lies elsewhere.
    let is_asked_for = !forwarding.prefix.starts_with(super::ELSEWHERE);
    if by_default && !forwarding.keeps_paths() && !is_turned_off && is_asked_for {
        let scheme = if forwarding.url.tls { "https" } else { "http" };
        let from = format!("{scheme}://{}{}/", forwarding.url.authority, forwarding.to_prefix);
        locations.push((from, format!("{}/", forwarding.prefix)));
        replaced.push(pass);
    }
    for directive in all("proxy_cookie_path") {
        if let [from, to] = directive.arguments.as_slice()
            && from.starts_with('/')
            && to.starts_with('/')
            && !to.contains('$')
        {
            cookie_paths.push((from.clone(), to.clone()));
            replaced.push(directive);
        }
    }
    let notes = notes.into_iter().filter(|(directive, _)| !replaced.contains(directive));
    notes.for_each(|(directive, remedy)| context.note(directive, remedy));
    Answers::Replace { locations, cookie_paths }
}

/// What directives ask for.
#[derive(Debug, Default)]
struct Wanted {
    /// Locations with the name of the server, or the client's host, become paths.
    authorities: bool,
    /// Paths of Locations get the prefix.
    paths: bool,
    /// Paths of cookies get it.
    cookies: bool,
}

impl Wanted {
    fn add(&mut self, other: &Wanted) {
        self.authorities |= other.authorities;
        self.paths |= other.paths;
    }
}

impl Forwarding<'_> {
    fn keeps_paths(&self) -> bool {
        self.prefix.is_empty() && self.to_prefix.is_empty()
    }

    /// What a `proxy_redirect` asks for. `None`: something else than a rule does.
    fn of_redirect(&self, context: &Context, from: &str, to: &str) -> Option<Wanted> {
        let to_https = matches!(to, "https://" | "$scheme://");
        if self.keeps_paths() && from == "http://" && to_https {
            return Some(Wanted { authorities: true, ..Wanted::default() });
        }
        let to = self.path_of_client(to)?;
        let (from, has_authority) = match split(from) {
            Some((authority, path)) => {
                let is_known = self.names_server(context, authority) || self.names_client(authority);
                (is_known.then_some(path)?, true)
            }
            None => (from, false),
        };
        // nginx replaces the beginning of a text: with or without slashes at both ends.
        let is_own = match (from.strip_suffix('/'), to.strip_suffix('/')) {
            (Some(from), Some(to)) => from == self.to_prefix && to == self.prefix,
            (None, None) => from == self.to_prefix && to == self.prefix,
            _ => false,
        };
        is_own.then_some(Wanted { authorities: has_authority, paths: !has_authority, cookies: false })
    }

    /// The beginning that a `proxy_redirect` replaces, and what stands there instead. `None`: they have variables, or an expression.
    fn replacement(&self, from: &str, to: &str) -> Option<(String, String)> {
        let from = from.replace("$proxy_host", &self.url.authority);
        let to = self.path_of_client(to).unwrap_or(to);
        let is_target = to.starts_with('/') && !to.starts_with("//") || to.starts_with("http");
        (is_target && !from.starts_with('~') && !from.contains('$') && !to.contains('$')).then(|| (from, to.to_owned()))
    }

    /// The path of a URL for clients.
    fn path_of_client<'t>(&self, to: &'t str) -> Option<&'t str> {
        match split(to) {
            Some((authority, path)) if self.names_client(authority) => Some(path),
            Some(_) => None,
            None => to.starts_with('/').then_some(to),
        }
    }

    /// Whether a `proxy_cookie_path` replaces the rule's own prefix.
    fn is_cookie_path(&self, from: &str, to: &str) -> bool {
        from.trim_end_matches('/') == self.to_prefix
            && to.trim_end_matches('/') == self.prefix
            && from.ends_with('/') == to.ends_with('/')
    }

    /// Whether a host, with or without a port, is that of the server.
    fn names_server(&self, context: &Context, authority: &str) -> bool {
        let is_host = self.host != "upstream" && self.host != "client" && authority == self.host;
        let is_own = match authority {
            "$proxy_host" | "$proxy_host:$proxy_port" => self.host != "client",
            _ => upstreams::has_server(context, &self.url.authority, authority),
        };
        is_host || is_own
    }

    fn names_client(&self, authority: &str) -> bool {
        let is_variable = matches!(
            authority,
            "$host" | "$http_host" | "$server_name" | "$host:$server_port" | "$http_host:$server_port"
        );
        is_variable || self.constants.name == Some(authority)
    }
}

/// A URL's authority and path.
fn split(url: &str) -> Option<(&str, &str)> {
    let rest = ["http://", "https://", "$scheme://"].iter().find_map(|scheme| url.strip_prefix(scheme))?;
    Some(rest.split_at(rest.find('/').unwrap_or(rest.len())))
}
