//! Reads access logs: ours in logfmt and JSON, and the combined format that nginx, Apache httpd and Sealion write.

use std::time::UNIX_EPOCH;

/// A response, as far as a line of a log tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Entry {
    /// Seconds since 1970.
    pub time: Option<f64>,
    /// The client's address, or its address and port where the log has them.
    pub client: String,
    /// Whether `client` has a port, so that it names a connection.
    pub names_connection: bool,
    /// Bytes of the body that were sent.
    pub bytes: u64,
    /// Whether the protocol was HTTP/2.
    pub is_http2: Option<bool>,
    /// Whether the connection had TLS; `None`: the log does not tell.
    pub has_tls: Option<bool>,
    /// The cipher suite.
    pub suite: String,
    /// The TLS version, such as `1.3`.
    pub tls: String,
}

/// Parses a line of any of the formats. `None`: it is of another format, or lacks the bytes that were sent.
pub fn parse(line: &str) -> Option<Entry> {
    let line = line.trim();
    if line.starts_with('{') {
        return json(line);
    }
    if let Some(entry) = logfmt(line) {
        return Some(entry);
    }
    combined(line)
}

fn json(line: &str) -> Option<Entry> {
    let value: serde_json::Value = serde_json::from_str(line).ok()?;
    named(|name| match value.get(name)? {
        serde_json::Value::String(text) => Some(text.clone()),
        serde_json::Value::Number(number) => Some(number.to_string()),
        _ => None,
    })
}

fn logfmt(line: &str) -> Option<Entry> {
    let words = words(line)?;
    named(|name| words.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()).filter(|value| value != "-"))
}

/// An entry from named fields.
fn named(field: impl Fn(&str) -> Option<String>) -> Option<Entry> {
    let bytes = field("bytes").or_else(|| field("body_bytes_sent"))?.parse().ok()?;
    let peer = field("peer");
    let tls = field("tls");
    let knows_tls = tls.is_some() || field("path").is_some();
    Some(Entry {
        time: field("time").and_then(|text| seconds(&text)),
        names_connection: peer.as_ref().is_some_and(|peer| !peer.ends_with(":0")),
        client: peer.or_else(|| field("address")).or_else(|| field("remote_addr")).unwrap_or_default(),
        bytes,
        is_http2: field("protocol").map(|protocol| protocol == "HTTP/2"),
        has_tls: knows_tls.then_some(tls.is_some()),
        suite: field("suite").unwrap_or_default(),
        tls: tls.unwrap_or_default(),
    })
}

/// The pairs of `name=value` of a line. A value in quotes may hold blanks, and `\"` and `\\`.
fn words(line: &str) -> Option<Vec<(String, String)>> {
    let mut pairs = Vec::new();
    let mut rest = line;
    while !rest.is_empty() {
        let (name, after) = rest.split_once('=')?;
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_lowercase() || matches!(byte, b'_' | b'0'..=b'9'))
        {
            return None;
        }
        let (value, after) = match after.strip_prefix('"') {
            Some(quoted) => {
                let (value, used) = unquoted(quoted)?;
                (value, &quoted[used..])
            }
            None => {
                let end = after.find(' ').unwrap_or(after.len());
                (after[..end].to_owned(), &after[end..])
            }
        };
        pairs.push((name.to_owned(), value));
        rest = after.trim_start_matches(' ');
    }
    Some(pairs)
}

/// The text up to the closing quote, and the bytes up to and including it.
fn unquoted(text: &str) -> Option<(String, usize)> {
    let mut value = String::new();
    let mut letters = text.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Some((value, at + 1)),
            '\\' => value.push(letters.next()?.1),
            _ => value.push(letter),
        }
    }
    None
}

/// `192.0.2.7 - - [21/Nov/2026:15:02:11 +0000] "GET /a HTTP/1.1" 200 734003200 "-" "curl/8.14.1"`
fn combined(line: &str) -> Option<Entry> {
    let (client, rest) = line.split_once(' ')?;
    let (_, rest) = rest.split_once('[')?;
    let (time, rest) = rest.split_once("] \"")?;
    let (request, used) = unquoted(rest)?;
    let mut words = rest[used..].split_whitespace();
    let status: u16 = words.next()?.parse().ok()?;
    let bytes = match words.next()? {
        "-" => 0,
        bytes => bytes.parse().ok()?,
    };
    (100..600).contains(&status).then(|| Entry {
        time: local_time(time),
        client: client.to_owned(),
        names_connection: false,
        bytes,
        is_http2: request.rsplit_once(' ').map(|(_, protocol)| protocol.starts_with("HTTP/2")),
        ..Entry::default()
    })
}

/// RFC 3339 as seconds since 1970.
fn seconds(text: &str) -> Option<f64> {
    let time = humantime::parse_rfc3339_weak(text).ok()?;
    Some(time.duration_since(UNIX_EPOCH).ok()?.as_secs_f64())
}

/// `21/Nov/2026:15:02:11 +0200` as seconds since 1970.
fn local_time(text: &str) -> Option<f64> {
    let (time, zone) = text.split_once(' ')?;
    let mut parts = time.splitn(2, ':');
    let mut day = parts.next()?.split('/');
    let (number, name, year) = (day.next()?, day.next()?, day.next()?);
    let month = 1 + MONTHS.iter().position(|month| *month == name)?;
    let utc = seconds(&format!("{year}-{month:02}-{number}T{}Z", parts.next()?))?;
    let (sign, digits) = zone.split_at_checked(1)?;
    let (hours, minutes): (f64, f64) = (digits.get(..2)?.parse().ok()?, digits.get(2..4)?.parse().ok()?);
    let offset = 60.0 * (60.0 * hours + minutes);
    Some(if sign == "-" { utc + offset } else { utc - offset })
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

#[cfg(test)]
mod tests {
    use super::*;

    const LOGFMT: &str = r#"time=2026-11-21T15:02:11.120Z peer=192.0.2.7:50112 method=GET target="/a \"b\".iso" status=200 bytes=734003200 ms=2210.034 tls=1.3 suite=TLS_AES_128_GCM_SHA256 group=X25519 resumed=no path=kernel why=moved setup_us=41"#;

    #[test]
    fn our_text_is_read() {
        let entry = parse(LOGFMT).expect("a line");
        assert_eq!(entry.time, Some(1_795_273_331.12));
        assert_eq!(
            (entry.client.as_str(), entry.names_connection, entry.bytes),
            ("192.0.2.7:50112", true, 734_003_200)
        );
        assert_eq!((entry.suite.as_str(), entry.tls.as_str()), ("TLS_AES_128_GCM_SHA256", "1.3"));
        assert_eq!((entry.has_tls, entry.is_http2), (Some(true), None));
        let plain =
            parse("time=2026-11-21T15:02:11Z peer=192.0.2.7:1 status=200 bytes=1 tls=- path=plain").expect("a line");
        assert_eq!(plain.has_tls, Some(false));
    }

    #[test]
    fn our_json_is_read() {
        let line = r#"{"time":"2026-11-21T15:02:11.120Z","address":"2001:db8::1","protocol":"HTTP/2","bytes":7,"tls":null,"path":"user"}"#;
        let entry = parse(line).expect("a line");
        assert_eq!((entry.client.as_str(), entry.names_connection, entry.bytes), ("2001:db8::1", false, 7));
        assert_eq!((entry.is_http2, entry.has_tls), (Some(true), Some(false)));
    }

    #[test]
    fn the_combined_format_is_read() {
        let line = r#"192.0.2.7 - bob [21/Nov/2026:17:02:11 +0200] "GET /a b HTTP/2.0" 200 734 "-" "curl \"8\"""#;
        let entry = parse(line).expect("a line");
        assert_eq!((entry.time, entry.bytes, entry.is_http2), (Some(1_795_273_331.0), 734, Some(true)));
        let none = parse(r#"::1 - - [21/Nov/2026:15:02:11 +0000] "GET / HTTP/1.1" 304 - "-" "-""#).expect("a line");
        assert_eq!((none.bytes, none.is_http2, none.names_connection), (0, Some(false), false));
    }

    #[test]
    fn other_lines_are_none() {
        for line in ["", "hello", "{\"a\":1}", "a=1 b=2", "x - - [no time] \"GET\" abc 1", "time=\"open", "{broken"] {
            assert_eq!(parse(line), None, "{line}");
        }
    }
}
