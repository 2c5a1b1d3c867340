//! The source of the client address. In Sealion it is the connection or the PROXY protocol.

use super::convert::Context;
use super::guards;
use super::syntax::Directive;

/// Whether a directive is handled here.
pub(super) fn is_one(name: &str) -> bool {
    matches!(name, "real_ip_header" | "real_ip_recursive" | "set_real_ip_from")
}

/// Reports these directives, and marks them where rules compare addresses. `servers`: those that become sites.
pub(super) fn name(context: &mut Context, shared: &[&Directive], servers: &[&Directive]) {
    let of_http: Vec<&Directive> = shared.iter().copied().filter(|directive| is_one(&directive.name)).collect();
    let mut named: Vec<(&Directive, bool)> = Vec::new();
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
        let mut left = of("real_ip_header");
        left.retain(|header| header.first() != "proxy_protocol");
        if left.is_empty() && !has_proxy_protocol {
            // One report, though each network may have a line.
            left.extend(of("set_real_ip_from").first());
        }
        named.extend(left.into_iter().map(|one| (one, compares)));
    }
    for (directive, _) in &named {
        let remedy = "the client address is that of the connection or of the PROXY protocol; request fields are not trusted";
        if named.iter().any(|(other, compares)| other == directive && *compares) {
            let remedy = format!(
                "{remedy}. Rules and limits by address now see the address of the proxy in front of Sealion: let the proxy speak the \
                 PROXY protocol and set proxy_protocol = true for the listener, or restrict access at the proxy"
            );
            context.unguarded(directive, remedy);
        } else {
            context.leave_with(directive, remedy);
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
