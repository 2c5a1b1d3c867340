//! `sealion check --explain 'GET https://example.org/api/x'`: the way of a request.

use std::net::{IpAddr, SocketAddr};

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
    let (mut lines, mut conditions) = (String::new(), Conditions::default());
    for field in fields {
        let (name, value) =
            field.split_once(':').ok_or_else(|| format!("{field:?} is not a field: write 'Name: value'"))?;
        if value.contains(['\r', '\n', '\0']) {
            return Err(format!("{name}: a value has no line ends"));
        }
        conditions.add(name.trim(), value.trim().as_bytes());
        lines += &format!("{}: {}\r\n", name.trim(), value.trim());
    }
    let request = Request {
        method: Method::from_token(method),
        target: parsed,
        raw_target: &target,
        authority: Some(authority),
        conditions,
        fields: FieldSection::from_lines(lines.as_bytes()),
    };
    let (address, named) = named_client(listener, *client, request.fields);
    let scheme = |remote| listener.scheme(remote, request.fields);
    // A trusted proxy may name the scheme where the listener has no TLS.
    let is_plain_behind = match client {
        Some(remote) if is_plain && !listener.is_tls => scheme(SocketAddr::new(*remote, 0)) == "http",
        None if is_plain && !listener.is_tls => listener.own_scheme() == "http",
        _ => is_plain,
    };
    let client = Client { is_plain: is_plain_behind, address, remote: *client, ..Client::default() };
    let place = place(generation, listener, authority, is_plain);
    Ok(place + &named + &way(generation, listener, &request, client))
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

/// The client as the server knows it, and a line if a field of the request names a client. `remote`: the other end of the connection.
fn named_client(listener: &Listener, remote: Option<IpAddr>, fields: FieldSection<'_>) -> (Option<IpAddr>, String) {
    let own = listener.forwarding.as_ref().map(|forwarding| &*forwarding.field);
    let Some(field) = own.into_iter().chain(["x-forwarded-for"]).find(|field| fields.first(field).is_some()) else {
        return (remote, String::new());
    };
    let why = match remote {
        _ if own != Some(field) => "it is not the client_address of the listener".to_owned(),
        None => "add --client with the address of a trusted proxy".to_owned(),
        Some(remote) if listener.trusts(SocketAddr::new(remote, 0)) => {
            let client = listener.client(SocketAddr::new(remote, 0), fields).ip();
            return (Some(client), format!("client {client}: the trusted proxy {remote} names it in {field}\n"));
        }
        Some(remote) => format!("{remote} is not in trusted_proxies"),
    };
    (remote, format!("{field} is not believed: {why}\n"))
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
