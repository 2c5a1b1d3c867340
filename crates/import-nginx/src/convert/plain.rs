//! Servers without TLS: redirects of the sites that have HTTPS, or sites of their own.

use super::context::Context;
use super::listeners::Listeners;
use crate::syntax::Directive;

/// The use of a server without TLS.
struct Contents<'a> {
    leads_to_https: bool,
    /// Directives that send or forward something.
    content: Vec<&'a Directive>,
}

impl<'a> Contents<'a> {
    fn of(server: &'a Directive) -> Self {
        let mut contents = Contents { leads_to_https: false, content: Vec::new() };
        contents.add(server.children());
        contents
    }

    fn add(&mut self, directives: &'a [Directive]) {
        for inner in directives {
            match inner.name.as_str() {
                "return" | "rewrite" if inner.arguments.iter().any(|argument| argument.starts_with("https://")) => {
                    self.leads_to_https = true
                }
                "root" | "proxy_pass" | "fastcgi_pass" | "grpc_pass" | "alias" | "uwsgi_pass" => {
                    self.content.push(inner)
                }
                // Of clients that reached the proxy in front without TLS.
                "if" if inner.arguments.iter().any(|argument| argument.contains("http_x_forwarded_proto")) => {}
                _ => self.add(inner.children()),
            }
        }
    }
}

/// The names that servers with TLS have.
#[derive(Debug, Default)]
pub(super) struct SecureNames {
    names: Vec<String>,
    /// Whether one of these servers has requests for any name.
    has_all: bool,
}

impl SecureNames {
    /// The names of these servers with TLS.
    pub(super) fn of<'a>(servers: impl Iterator<Item = &'a Directive>) -> Self {
        let mut all = SecureNames::default();
        for server in servers {
            let own = names(server);
            all.has_all |= own.is_empty() || own.iter().any(|name| name.contains(['~', '$']));
            all.names.extend(own);
        }
        all
    }

    fn are_none(&self) -> bool {
        self.names.is_empty() && !self.has_all
    }

    /// Whether a server with TLS has a name, or one that it covers.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.iter().any(|own| is_name_of(name, own) || is_name_of(own, name))
    }
}

/// The names of a server, in lower case, but for those that no request has.
fn names(server: &Directive) -> Vec<String> {
    let all = server.children().iter().filter(|inner| inner.name == "server_name").flat_map(|inner| &inner.arguments);
    all.filter(|name| !matches!(name.as_str(), "_" | "")).map(|name| name.to_ascii_lowercase()).collect()
}

/// Whether a name of `server_name`, `.example.org` and `*.example.org` included, covers a name.
pub(super) fn is_name_of(name: &str, pattern: &str) -> bool {
    let is_beneath = |domain: &str| name.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'));
    match (pattern.strip_prefix("*."), pattern.strip_prefix('.')) {
        (Some(domain), _) => is_beneath(domain),
        (_, Some(domain)) => name == domain || is_beneath(domain),
        _ => name == pattern,
    }
}

/// Whether a server without TLS leads its clients to the sites of servers with TLS: these have its names.
pub(super) fn is_redirect(server: &Directive, secure: &SecureNames) -> bool {
    let own = names(server);
    let is_had = own.iter().all(|name| secure.has_all || secure.has(name) || name.contains(['~', '$']));
    Contents::of(server).leads_to_https && !secure.are_none() && is_had
}

/// The names of a server without TLS, which leads to HTTPS, that sites with TLS have: these redirect.
pub(super) fn secure_names(server: &Directive, listeners: &Listeners) -> Vec<String> {
    if !Contents::of(server).leads_to_https {
        return Vec::new();
    }
    names(server).into_iter().filter(|name| listeners.has_secure(name)).collect()
}

/// Whether a server without TLS has to become a site: it does more than to lead to HTTPS, or to refuse what nothing else answers.
pub(super) fn has_content(server: &Directive, secure: &SecureNames) -> bool {
    let Contents { leads_to_https, content } = Contents::of(server);
    if leads_to_https {
        let own = names(server);
        let is_had = own.is_empty() || secure.has_all || own.iter().any(|name| secure.has(name));
        return secure.are_none() || !is_had;
    }
    // nginx has a default root.
    let returns = server.children().iter().find(|inner| inner.name == "return");
    let refuses = returns.is_some_and(|inner| inner.first().parse::<u16>().is_ok_and(|status| status >= 400));
    !content.is_empty() || !refuses
}

/// A server without TLS and without contents of its own: redirects to HTTPS are converted, the rest is reported.
pub(super) fn redirect(context: &mut Context, listeners: &mut Listeners, server: &Directive) {
    let Contents { leads_to_https, content } = Contents::of(server);
    if !leads_to_https {
        return context.report_with(server, "without TLS it only refuses: requests for names without a site get 421");
    }
    let all = names(server).into_iter().filter(|name| !name.contains(['~', '*', '$']));
    context.plain.push((server.clone(), all.map(|name| name.trim_start_matches('.').to_owned()).collect()));
    listeners.redirect(server);
    for other in content {
        let remedy = if other.name == "root" {
            "no files are sent over plain HTTP; [tls.acme] answers ACME challenges automatically"
        } else {
            "requests over plain HTTP are redirected, not forwarded"
        };
        context.report_with(other, remedy);
    }
}
