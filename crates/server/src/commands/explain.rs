//! `sealion check --explain 'GET https://example.org/api/x'`: the way of a request.

use sealion_http::request::{Conditions, Request, Target};
use sealion_http::{FieldSection, Method};

use crate::exchange::{Generation, Listener};
use crate::site::Client;

/// Explains how `request` is answered. `fields`: lines such as `X-Beta: yes`. `listener`: the listener that it comes to.
///
/// # Errors
/// The text is no request.
pub(super) fn explain(
    generation: &Generation,
    listener: &Listener,
    request: &str,
    fields: &[String],
) -> Result<String, String> {
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
    Ok(match generation.sites.find(Some(authority), listener.place) {
        None => format!("no site has the name {authority} there: answered 421\n"),
        Some(site) if listener.redirects(site.https).is_some() => {
            format!("site {}\n  the listener redirects to HTTPS: answered 308\n", site.name)
        }
        Some(site) => site.explain(&request, Client { is_plain, ..Client::default() }),
    })
}
