//! TLS versions, certificates, client authentication.

use toml::Value;

use super::context::Context;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// `ssl_protocols`
pub(super) fn protocols(context: &mut Context, directive: &Directive) {
    let has = |version: &str| directive.arguments.iter().any(|argument| argument == version);
    let least = match (has("TLSv1.2"), has("TLSv1.3")) {
        (true, _) => Some("1.2"),
        (false, true) => Some("1.3"),
        (false, false) => None,
    };
    let known = context.root.table("tls").get("min_version").and_then(Value::as_str).map(str::to_owned);
    if let (Some(least), Some(known)) = (least, &known)
        && least != known
    {
        context.report_with(directive, "versions apply to all sites: one requires 1.3, so all do");
    }
    if let Some(least) = least.filter(|least| known.is_none_or(|known| *least > known.as_str())) {
        context.root.table("tls").set("min_version", least);
    }
    if directive.arguments.iter().any(|version| !matches!(version.as_str(), "TLSv1.2" | "TLSv1.3")) {
        context.note(directive, "only TLS 1.2 and 1.3 are supported (RFC 8996)");
    }
}

/// `ssl_conf_command`
pub(super) fn command(context: &mut Context, directive: &Directive) {
    let kernel = directive.first() == "Options" && directive.arguments.get(1).is_some_and(|value| value == "KTLS");
    if kernel {
        context.root.table("server").set("ktls", "auto");
    } else {
        context.report_with(directive, "OpenSSL commands are not supported; set versions and suites in [tls]");
    }
}

/// Pairs `ssl_certificate` and `ssl_certificate_key` in order, as nginx does.
pub(super) fn certificates(context: &mut Context, site: &mut Table, certificates: &[&Directive], keys: &[&Directive]) {
    let mut pairs = Vec::new();
    for (n, certificate) in certificates.iter().enumerate() {
        let Some(key) = keys.get(n) else {
            context.report_with(certificate, "it has no ssl_certificate_key");
            continue;
        };
        let unusable = [certificate, key].into_iter().find(|directive| {
            let name = directive.first();
            name.contains('$') || name.starts_with("data:") || name.starts_with("engine:") || name.starts_with("store:")
        });
        if let Some(directive) = unusable {
            context.report_with(directive, "certificates and keys must be PEM files, without variables");
            continue;
        }
        let pair = [("cert", certificate), ("key", key)]
            .map(|(name, directive)| (name.to_owned(), Value::from(context.resolve(directive.first()))));
        pairs.push(Value::Table(pair.into_iter().collect()));
    }
    if !pairs.is_empty() {
        site.set("certificates", pairs);
    }
}

/// `ssl_client_certificate`, `ssl_verify_client` and `ssl_crl`
pub(super) fn client_auth(
    context: &mut Context,
    site: &mut Table,
    roots: Option<&Directive>,
    verify: Option<&Directive>,
    lists: Option<&Directive>,
) {
    let Some(verify) = verify else { return };
    let mode = match verify.first() {
        "on" => "require",
        "optional" => "request",
        "off" => return,
        _ => {
            return context
                .report_unguarded(verify, "unsupported mode: client certificates are verified or not requested");
        }
    };
    let Some(roots) = roots else {
        return context.report_unguarded(verify, "without ssl_client_certificate, no authority is trusted");
    };
    let roots = context.resolve(roots.first());
    let lists = lists.map(|lists| context.resolve(lists.first()));
    let table = site.table("client_auth");
    table.set("roots", roots);
    table.set("mode", mode);
    // nginx refuses by a list that is out of date, too, and where an issuer has none.
    if let Some(lists) = lists {
        table.set("crls", vec![Value::from(lists)]);
    }
}
