//! Servers without TLS: redirects to HTTPS, or content for a proxy in front.

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

/// Whether a server sends its clients to HTTPS.
pub(super) fn leads_to_https(server: &Directive) -> bool {
    Contents::of(server).leads_to_https
}

/// Whether a server without TLS is there for more than redirects to HTTPS and refusals.
pub(super) fn has_content(server: &Directive) -> bool {
    let contents = Contents::of(server);
    // nginx has a default root.
    let answers = || !server.children().iter().any(|inner| inner.name == "return");
    !contents.leads_to_https && (!contents.content.is_empty() || answers())
}

/// A server without TLS and without contents of its own: redirects to HTTPS are converted, the rest is reported.
pub(super) fn redirect(context: &mut Context, listeners: &mut Listeners, server: &Directive) {
    let Contents { leads_to_https, content } = Contents::of(server);
    if !leads_to_https {
        return context.report_with(server, "without TLS it only refuses: requests for names without a site get 421");
    }
    let names =
        server.children().iter().filter(|inner| inner.name == "server_name").flat_map(|inner| inner.arguments.iter());
    let names = names.filter(|name| !name.is_empty() && *name != "_" && !name.contains(['~', '*', '$']));
    context.plain.push((server.clone(), names.map(|name| name.trim_start_matches('.').to_ascii_lowercase()).collect()));
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
