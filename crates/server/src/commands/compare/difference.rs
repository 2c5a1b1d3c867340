//! Where two responses differ so that a client would notice.

use std::collections::BTreeMap;
use std::io::Read;

use flate2::read::GzDecoder;

use super::client::Response;
use super::requests::Request;

/// A response, or the reason for its absence.
pub(super) type Outcome = Result<Response, String>;

/// A line for each difference.
pub(super) fn differences(request: &Request, nginx: &Outcome, sealion: &Outcome) -> Vec<String> {
    let (theirs, ours) = match (nginx, sealion) {
        (Err(_), Err(_)) => return Vec::new(),
        (Ok(theirs), Ok(ours)) => (theirs, ours),
        _ => return vec![line("status", &status(nginx), &status(sealion))],
    };
    let mut lines = Vec::new();
    if theirs.status != ours.status {
        lines.push(line("status", &theirs.status.to_string(), &ours.status.to_string()));
    }
    // The words of built-in pages are each server's own.
    let is_builtin = is_builtin_page(&theirs.content);
    let (their_fields, our_fields) = (compared(request, theirs, is_builtin), compared(request, ours, is_builtin));
    let mut names: Vec<&String> = their_fields.keys().chain(our_fields.keys()).collect();
    names.sort();
    names.dedup();
    for name in names {
        let (their, our) = (their_fields.get(name), our_fields.get(name));
        let is_own = their.is_none() && is_added(name, is_builtin);
        if their != our && !is_own {
            lines.push(line(name, their.map_or("none", String::as_str), our.map_or("none", String::as_str)));
        }
    }
    let (their, our) = (decoded(theirs), decoded(ours));
    if !is_builtin && their != our {
        let from = first_difference(&their, &our);
        lines.push(line("content", &shown(&their, from), &shown(&our, from)));
    }
    lines
}

/// A line for equal responses that say nothing about a conversion: neither server reached the server behind it.
pub(super) fn doubt(nginx: &Outcome, sealion: &Outcome) -> Option<String> {
    let (Ok(nginx), Ok(sealion)) = (nginx, sealion) else { return None };
    let is_unreached = nginx.status == sealion.status && matches!(nginx.status, 502 | 504);
    is_unreached.then(|| {
        let status = nginx.status;
        format!("both answer {status}: nothing behind them was compared: start the server that they forward to")
    })
}

fn line(what: &str, nginx: &str, sealion: &str) -> String {
    format!("{what}: nginx {nginx}, sealion {sealion}")
}

fn status(outcome: &Outcome) -> String {
    outcome.as_ref().map_or_else(|error| format!("none ({error})"), |response| response.status.to_string())
}

/// Whether this server adds the field unless a configuration sets it.
fn is_added(name: &str, is_builtin: bool) -> bool {
    name == "retry-after" || is_builtin && matches!(name, "content-security-policy" | "x-content-type-options")
}

/// Error pages, redirects and listings that nginx writes.
fn is_builtin_page(content: &[u8]) -> bool {
    let head = String::from_utf8_lossy(&content[..content.len().min(1024)]);
    head.contains("<hr><center>nginx") || head.contains("<head><title>Index of ")
}

/// The compared fields by name. Values with the same meaning are written alike.
fn compared(request: &Request, response: &Response, is_builtin: bool) -> BTreeMap<String, String> {
    let mut fields = BTreeMap::new();
    for (name, value) in &response.fields {
        if IGNORED.contains(&name.as_str()) || name == "content-type" && (is_builtin || response.content.is_empty()) {
            continue;
        }
        let value = match name.as_str() {
            "location" => local(request, value),
            "content-type" => media_type(value),
            "www-authenticate" => value.replace(", charset=\"UTF-8\"", ""),
            _ => value.clone(),
        };
        fields.entry(name.clone()).and_modify(|all: &mut String| *all = format!("{all}, {value}")).or_insert(value);
    }
    if let Some(value) = fields.get_mut("cache-control") {
        let mut words: Vec<&str> = value.split(',').map(str::trim).collect();
        words.sort_unstable();
        words.dedup();
        *value = words.join(", ");
    }
    fields
}

/// A URL of the request's own origin becomes a path.
fn local(request: &Request, location: &str) -> String {
    let scheme = if request.is_https { "https" } else { "http" };
    let hosts = [request.authority.as_str(), request.host.as_str(), request.field("host").unwrap_or_default()];
    let after = |host: &&str| location.strip_prefix(scheme)?.strip_prefix("://")?.strip_prefix(*host);
    let path = hosts.iter().filter(|host| !host.is_empty()).find_map(after);
    match path {
        Some("") => "/".to_owned(),
        Some(path) if path.starts_with(['/', '?', '#']) => path.to_owned(),
        _ => location.to_owned(),
    }
}

/// Without parameters. Of several names for one type, the registered one.
fn media_type(value: &str) -> String {
    let essence = value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
    match essence.as_str() {
        "application/javascript" | "application/x-javascript" => "text/javascript".to_owned(),
        "text/xml" => "application/xml".to_owned(),
        _ => essence,
    }
}

fn decoded(response: &Response) -> Vec<u8> {
    let mut content = Vec::new();
    let is_gzip = response.field("content-encoding").is_some_and(|coding| coding.eq_ignore_ascii_case("gzip"));
    match is_gzip && GzDecoder::new(response.content.as_slice()).read_to_end(&mut content).is_ok() {
        true => content,
        false => response.content.clone(),
    }
}

/// The first byte in which two contents differ, if one of them is long. `None`: both are short texts, which are shown whole.
fn first_difference(one: &[u8], other: &[u8]) -> Option<usize> {
    let is_short = |content: &[u8]| content.len() <= MAX_SHOWN && std::str::from_utf8(content).is_ok();
    let common = || one.iter().zip(other).take_while(|(one, other)| one == other).count();
    (!is_short(one) || !is_short(other)).then(common)
}

/// The content, or its length and a part of it. `from`: see [`first_difference`].
fn shown(content: &[u8], from: Option<usize>) -> String {
    let Some(from) = from else { return format!("{:?}", String::from_utf8_lossy(content)) };
    let part = &content[from..content.len().min(from + MAX_PART)];
    let more = if from + part.len() < content.len() { "…" } else { "" };
    format!("{} bytes, from byte {from} \"{}\"{more}", content.len(), part.escape_ascii())
}

/// Of longer contents a part is shown. GUESS.
const MAX_SHOWN: usize = 300;

/// The length of that part. GUESS: a word or two show which page it is.
const MAX_PART: usize = 60;

/// Fields of the connection, of the moment, or with a form of its own in each server.
const IGNORED: [&str; 20] = [
    "accept-ranges",
    "age",
    "allow",
    "alt-svc",
    "cache-status",
    "connection",
    "content-length",
    "date",
    "etag",
    "expires",
    "keep-alive",
    "last-modified",
    "pragma",
    "server",
    "server-timing",
    "transfer-encoding",
    "upgrade",
    "vary",
    "via",
    "x-request-id",
];

#[cfg(test)]
mod tests {
    use super::super::requests::parse;
    use super::*;

    fn response(status: u16, fields: &[(&str, &str)], content: &str) -> Outcome {
        let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Ok(Response { status, fields, content: content.into() })
    }

    fn between(nginx: Outcome, sealion: Outcome) -> Vec<String> {
        let request = &parse("GET https://a.test/x").unwrap()[0];
        differences(request, &nginx, &sealion)
    }

    #[test]
    fn equal_meanings_are_equal() {
        let nginx = response(
            200,
            &[
                ("server", "nginx"),
                ("content-type", "application/javascript; charset=utf-8"),
                ("cache-control", "max-age=1"),
                ("cache-control", "public"),
                ("location", "https://a.test/y"),
            ],
            "x",
        );
        let sealion = response(
            200,
            &[("content-type", "text/javascript"), ("location", "/y"), ("cache-control", "public, max-age=1")],
            "x",
        );
        assert_eq!(between(nginx, sealion), Vec::<String>::new());
        assert!(between(Err("reset".into()), Err("closed".into())).is_empty(), "neither answers");
    }

    #[test]
    fn differences_are_named() {
        let nginx = response(200, &[("x-a", "1"), ("location", "http://a.test/y")], "a");
        let sealion = response(404, &[("location", "/y")], "b");
        assert_eq!(
            between(nginx, sealion),
            [
                "status: nginx 200, sealion 404",
                "location: nginx http://a.test/y, sealion /y",
                "x-a: nginx 1, sealion none",
                "content: nginx \"a\", sealion \"b\"",
            ]
        );
        assert_eq!(between(Err("closed".into()), response(403, &[], "")), ["status: nginx none (closed), sealion 403"]);
        let long = |c: &str| response(200, &[], &c.repeat(1000));
        assert_eq!(
            between(response(200, &[], "a"), long("a")),
            ["content: nginx 1 bytes, from byte 1 \"\", sealion 1000 bytes, from byte 1 \"".to_owned()
                + &"a".repeat(60)
                + "\"…"]
        );
        assert!(between(long("a"), long("b"))[0].contains("sealion 1000 bytes, from byte 0 \"bbb"));
    }

    #[test]
    fn two_servers_that_reach_nothing_are_doubted() {
        let of = |nginx, sealion| doubt(&response(nginx, &[], ""), &response(sealion, &[], ""));
        assert!(of(502, 502).unwrap().starts_with("both answer 502: nothing behind them was compared"));
        assert!(of(504, 504).is_some());
        assert_eq!(of(502, 504), None, "that is a difference");
        assert_eq!(of(503, 503), None, "limits and maintenance answer 503");
        assert_eq!(doubt(&Err("closed".into()), &Err("closed".into())), None, "both refuse the connection");
    }

    #[test]
    fn the_words_of_built_in_pages_do_not_count() {
        let nginx = response(404, &[("content-type", "text/html")], "<h1>404</h1>\r\n<hr><center>nginx</center>");
        assert!(between(nginx, response(404, &[("content-type", "text/plain")], "404\n")).is_empty());
    }
}
