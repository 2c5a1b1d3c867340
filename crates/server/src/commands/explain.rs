//! `sealion check --explain 'GET https://example.org/api/x'`: the way of a request.

use sealion_http::request::{Conditions, Request, Target};
use sealion_http::{FieldSection, Method};

use crate::commands::check::ExplainArgs;
use crate::exchange::{Generation, Listener};
use crate::site::{Client, host};

/// Explains how a request is answered. `listener`: the listener that it comes to.
///
/// # Errors
/// The text is no request.
pub(super) fn explain(generation: &Generation, listener: &Listener, asked: &ExplainArgs) -> Result<String, String> {
    let ExplainArgs { explain: request, headers: fields, client } = asked;
    let request = request.as_deref().unwrap_or_default();
    const FORM: &str = "write for instance 'GET https://example.org/api/x'";
    let (method, url) = request.split_once(' ').unwrap_or(("GET", request));
    let (scheme, rest) = url.split_once("://").ok_or_else(|| format!("{url:?} is not a URL: {FORM}"))?;
    let is_plain = match scheme {
        "https" => false,
        "http" => true,
        _ => return Err(format!("{url:?} is neither https nor http: {FORM}")),
    };
    let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let parsed = Target::from_origin_form(&target).ok_or_else(|| format!("{target:?} is not a path: encode it"))?;
    let mut lines = String::new();
    for field in fields {
        let (name, value) =
            field.split_once(':').ok_or_else(|| format!("{field:?} is not a field: write 'Name: value'"))?;
        if value.contains(['\r', '\n', '\0']) {
            return Err(format!("{name}: a value has no line ends"));
        }
        lines += &format!("{}: {}\r\n", name.trim(), value.trim());
    }
    let request = Request {
        method: Method::from_token(method),
        target: parsed,
        raw_target: &target,
        authority: Some(authority),
        conditions: Conditions::default(),
        fields: FieldSection::from_lines(lines.as_bytes()),
    };
    let client = Client { is_plain, address: *client, ..Client::default() };
    Ok(place(generation, listener, authority, is_plain) + &way(generation, listener, &request, client))
}

/// The listener, and the site if the host does not name it.
fn place(generation: &Generation, listener: &Listener, authority: &str, is_plain: bool) -> String {
    let mut lines = format!("listener {}\n", listener.name);
    if listener.is_tls == is_plain {
        let scheme = if is_plain { "http" } else { "https" };
        lines += &format!("  no listener takes {scheme} connections itself: it is shown as if this one did\n");
    }
    if !generation.sites.has_name(Some(authority), listener.place) {
        let who = match generation.sites.find(Some(authority), listener.place) {
            Some(_) => "the default site answers",
            None => "no site is the default there",
        };
        lines += &format!("unknown host {}: no site has this name on the listener, and {who}\n", host(authority));
    }
    lines
}

/// The site, and the way of the request through its routes.
fn way(generation: &Generation, listener: &Listener, request: &Request<'_>, client: Client) -> String {
    let Some(site) = generation.sites.find(request.authority, listener.place) else {
        return "  answer: 421\n".to_owned();
    };
    let answer = match listener.redirects(site.https) {
        Some(_) => "  answer: 308: the listener redirects to HTTPS\n".to_owned(),
        None if site.rejects_handshake && !client.is_plain => "  answer: none: its handshakes are refused\n".to_owned(),
        None => site.explain(request, client),
    };
    format!("site {}\n{answer}", site.name)
}
