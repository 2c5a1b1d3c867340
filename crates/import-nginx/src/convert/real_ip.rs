//! The source of the client address. In Sealion it is the connection or the PROXY protocol.

use super::Context;
use super::guards;
use crate::syntax::Directive;

/// Whether a directive is handled here.
pub(super) fn is_real_ip_directive(name: &str) -> bool {
    matches!(name, "real_ip_header" | "real_ip_recursive" | "set_real_ip_from")
}

/// Reports these directives, and marks them where rules compare addresses. `servers`: those that become sites.
pub(super) fn report(context: &mut Context, shared: &[&Directive], servers: &[&Directive]) {
    let of_http: Vec<&Directive> =
        shared.iter().copied().filter(|directive| is_real_ip_directive(&directive.name)).collect();
    let mut reported: Vec<(&Directive, bool)> = Vec::new();
    for server in servers {
        let mut all: Vec<&Directive> = Vec::new();
        guards::walk(server.children(), &mut |inner| all.push(inner));
        let compares = shared.iter().chain(&all).any(|directive| compares_addresses(directive));
        let has_proxy_protocol = all.iter().any(|directive| {
            directive.name == "listen" && directive.arguments.iter().any(|argument| argument == "proxy_protocol")
        });
        // A server's directives replace those of `http`.
        let of = |name: &str| {
            let own: Vec<_> = all.iter().copied().filter(|directive| directive.name == name).collect();
            let inherited = of_http.iter().copied().filter(|directive| directive.name == name);
            if own.is_empty() { inherited.collect() } else { own }
        };
        let mut unconverted = of("real_ip_header");
        unconverted.retain(|header| header.first() != "proxy_protocol");
        if unconverted.is_empty() && !has_proxy_protocol {
            // One report, though each network may have a line.
            unconverted.extend(of("set_real_ip_from").first());
        }
        reported.extend(unconverted.into_iter().map(|one| (one, compares)));
    }
    for (directive, _) in &reported {
        let remedy =
            "the client address is that of the connection or of the PROXY protocol; request fields are not trusted";
        if reported.iter().any(|(other, compares)| other == directive && *compares) {
            let remedy = format!(
                "{remedy}. Rules and limits by address now see the address of the proxy in front of Sealion: let the proxy speak the \
                 PROXY protocol and set proxy_protocol = true for the listener, or restrict access at the proxy"
            );
            context.report_unguarded(directive, remedy);
        } else {
            context.report_with(directive, remedy);
        }
    }
}

/// Whether a directive's effect depends on the client's address.
fn compares_addresses(directive: &Directive) -> bool {
    match directive.name.as_str() {
        "allow" | "deny" => directive.first() != "all",
        "limit_req" | "limit_conn" | "geo" => true,
        _ => false,
    }
}
