use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::{Duration, Instant, SystemTime};

use sealion_http::request::Conditions;
use sealion_http::{FieldSection, Method, Protocol, Request, Status, Target};
use sealion_tls::{Group, HandshakeInfo, SealedBy, Version};

use super::*;
use crate::observe::access_log::{CacheTrace, Outcome, UpstreamTrace};
use crate::path::policy::PathReason;

static TLS: LazyLock<HandshakeInfo> = LazyLock::new(|| HandshakeInfo {
    group: Some(Group(0x11ec)),
    ..HandshakeInfo::new(Version::Tls13, "TLS_AES_128_GCM_SHA256")
});

fn peer() -> SocketAddr {
    "192.0.2.1:50000".parse().unwrap()
}

/// A GET request for `target` with these field lines.
pub(in super::super) fn get<'a>(target: &'a str, lines: &'a [u8]) -> Request<'a> {
    Request {
        method: Method::Get,
        target: Target::Asterisk,
        raw_target: target,
        authority: None,
        conditions: Conditions::default(),
        fields: FieldSection::from_lines(lines),
    }
}

pub(in super::super) fn entry<'a>(request: &'a Request<'a>) -> Entry<'a> {
    Entry { request: Some(Requested { request, protocol: Protocol::Http11, site: "", route: None }), ..unread() }
}

const OUTCOME: Outcome<'_> = Outcome {
    status: Status::PARTIAL_CONTENT,
    encoding: None,
    user: None,
    body: 7,
    wire: 70,
    stream: None,
    path: SealedBy::Kernel,
    reason: Some(PathReason::Moved),
    moved_at: Some(70_000),
    set_up: Some(Duration::from_nanos(41_999)),
    upstream: None,
    cache: None,
    aborted: Some(&"line\nbreak"),
    is_unlogged: false,
    route: None,
};

/// The entry of a request that could not be read.
fn unread() -> Entry<'static> {
    Entry {
        peer: peer(),
        request: None,
        duration: Duration::from_micros(1234),
        ended: Instant::now(),
        tls: Some(&TLS),
        outcome: OUTCOME,
    }
}

fn line(format: Format, fields: &[Field], entry: &Entry<'_>) -> String {
    text_of(&Layout::new(format, fields, Naming::Nothing), entry)
}

fn text_of(layout: &Layout, entry: &Entry<'_>) -> String {
    text_behind(layout, entry, &mut LastSealing::default())
}

/// The line that follows another line.
fn text_behind(layout: &Layout, entry: &Entry<'_>, last: &mut LastSealing) -> String {
    let mut line = Vec::new();
    layout.write_line(&mut line, entry, &Stamp::of(SystemTime::UNIX_EPOCH), last);
    String::from_utf8(line).unwrap()
}

#[test]
fn a_line_says_how_its_own_response_was_sealed() {
    let request = get("/", b"");
    let resumed = HandshakeInfo { resumed: true, ..HandshakeInfo::new(Version::Tls13, "TLS_AES_128_GCM_SHA256") };
    let entries = [
        entry(&request),
        Entry { outcome: Outcome { reason: None, ..OUTCOME }, ..entry(&request) },
        Entry { outcome: Outcome { path: SealedBy::User, ..OUTCOME }, ..entry(&request) },
        Entry { tls: None, ..entry(&request) },
        Entry { tls: Some(&resumed), ..entry(&request) },
        entry(&request),
    ];
    let orders: [&[Field]; 4] = [
        &[],
        &[Field::Tls, Field::Status, Field::Why],
        &[Field::Status, Field::Path],
        &[Field::Ms, Field::Resumed, Field::Bytes],
    ];
    for (fields, format) in orders.into_iter().flat_map(|fields| [(fields, Format::Logfmt), (fields, Format::Json)]) {
        let layout = Layout::new(format, fields, Naming::Nothing);
        let mut last = LastSealing::default();
        for entry in entries.iter().flat_map(|entry| [entry, entry]) {
            assert_eq!(text_behind(&layout, entry, &mut last), text_of(&layout, entry));
        }
    }
    let sealed = |entry| line(Format::Logfmt, &[Field::Status, Field::Resumed, Field::Path, Field::Why], entry);
    assert_eq!(sealed(&entries[2]), "status=206 resumed=no path=user why=moved\n");
    assert_eq!(sealed(&entries[4]), "status=206 resumed=yes path=kernel why=moved\n");
}

#[test]
fn the_usual_line_says_it_all() {
    let request = get("/a\"b\\c", b"");
    assert_eq!(
        line(Format::Logfmt, &[], &entry(&request)),
        "time=1970-01-01T00:00:00.000Z peer=192.0.2.1:50000 method=GET target=\"/a\\\"b\\\\c\" status=206 bytes=7 \
         ms=1.234 tls=1.3 suite=TLS_AES_128_GCM_SHA256 group=X25519MLKEM768 resumed=no path=kernel why=moved setup_us=41 \
         aborted=\"line\\u{a}break\"\n"
    );
    let entry = Entry { outcome: Outcome { reason: None, set_up: None, aborted: None, ..OUTCOME }, ..unread() };
    let line = line(Format::Logfmt, &[], &entry);
    assert!(line.contains(" method=- target=\"-\" ") && line.ends_with(" why=-\n"), "{line}");
}

#[test]
fn chosen_fields_are_in_every_line_in_their_order() {
    let request = Request { authority: Some("h"), ..get("/", b"Referer:\r\nUser-Agent: a\xff\x1b[2Jb\r\n") };
    let entry = Entry { outcome: Outcome { set_up: None, user: Some("o\"k"), ..OUTCOME }, ..entry(&request) };
    let fields = [Field::UserAgent, Field::SetupUs, Field::User, Field::MovedAt, Field::Host, Field::Referer];
    assert_eq!(
        line(Format::Logfmt, &fields, &entry),
        "user_agent=\"a\\xFF\\u{1b}[2Jb\" setup_us=- user=\"o\\\"k\" moved_at=70000 host=\"h\" referer=-\n"
    );
    assert_eq!(
        line(Format::Json, &fields, &entry),
        "{\"user_agent\":\"a\u{fffd}\\u001b[2Jb\",\"setup_us\":null,\"user\":\"o\\\"k\",\"moved_at\":70000,\"host\":\"h\",\"referer\":null}\n"
    );
}

#[test]
fn combined_is_what_log_analysers_read() {
    let request = get("/a b\"", b"Referer: https://x/\r\nUser-Agent: cu\x7frl\r\n");
    assert_eq!(
        line(Format::Combined, &[], &Entry { outcome: Outcome { user: Some("a b"), ..OUTCOME }, ..entry(&request) }),
        "192.0.2.1 - a\\x20b [01/Jan/1970:00:00:00 +0000] \"GET /a b\\x22 HTTP/1.1\" 206 7 \"https://x/\" \"cu\\x7Frl\"\n"
    );
    assert!(line(Format::Combined, &[], &unread()).ends_with(" +0000] \"-\" 206 7 \"-\" \"-\"\n"));
}

#[test]
fn messages_to_daemons_have_their_frame() {
    let request = get("/", b"");
    let entry = entry(&request);
    let of = |destination: &str| {
        let layout = Layout::new(Format::Logfmt, &[Field::Target, Field::Status, Field::Referer], Naming::Nothing);
        text_of(&layout.for_destination(&destination.parse().unwrap()), &entry)
    };
    let head = format!("<190>sealion[{}]: ", std::process::id());
    assert_eq!(of("syslog"), format!("{head}target=\"/\" status=206 referer=-"));
    let syslog = of("syslog:192.0.2.1:514");
    let words: Vec<&str> = syslog.split(' ').collect();
    assert_eq!(words[..2], ["<190>1", "1970-01-01T00:00:00.000Z"]);
    assert_eq!(
        words[3..],
        ["sealion", &std::process::id().to_string(), "access", "-", "target=\"/\"", "status=206", "referer=-"]
    );
    assert_eq!(
        of("journald"),
        "PRIORITY=6\nSYSLOG_IDENTIFIER=sealion\nMESSAGE=target=\"/\" status=206 referer=-\nSEALION_TARGET=/\nSEALION_STATUS=206\n"
    );
}

/// For any bytes of a client in any part, a line stays one line and its values stay separate.
#[test]
fn no_byte_forges_a_line() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let spicy = [
        "\n",
        "\r",
        "\u{200f}",
        "\"",
        "\\",
        " ",
        "=",
        "\0",
        "\u{2028}",
        "\u{85}",
        "\u{1b}",
        "}",
        ",",
        "\\x",
        "status=200",
    ];
    let mut text = |n: usize| {
        let mut text = Vec::new();
        for _ in 0..n {
            match random() % 3 {
                0 => text.push(random() as u8),
                1 => text.extend_from_slice(spicy[random() as usize % spicy.len()].as_bytes()),
                _ => text.push(b'a' + (random() % 26) as u8),
            }
        }
        text
    };
    for round in 0..2000 {
        let parts: Vec<Vec<u8>> = (0..5).map(|_| text(1 + round % 12)).collect();
        let [target, host, user] = [0, 1, 4].map(|n| String::from_utf8_lossy(&parts[n]).into_owned());
        let lines =
            [b"Referer: ", &*field_value(&parts[2]), b"\r\nUser-Agent: ", &*field_value(&parts[3]), b"\r\n"].concat();
        let request = Request { authority: Some(&host), ..get(&target, &lines) };
        let requested = Requested { request: &request, protocol: Protocol::Http11, site: &user, route: Some(&user) };
        let tls = HandshakeInfo { server_name: Some(user.as_str().into()), ..TLS.clone() };
        let trace =
            UpstreamTrace { server: user.as_str().into(), tries: 2, took: Duration::from_millis(1), status: Some(502) };
        let cache = CacheTrace { age: Some(7), ..CacheTrace::bypass("cookie") };
        let entry = Entry {
            request: Some(requested),
            tls: Some(&tls),
            outcome: Outcome {
                stream: Some(1),
                user: Some(&user),
                upstream: Some(&trace),
                cache: Some(cache),
                aborted: Some(&user),
                ..OUTCOME
            },
            ..entry(&request)
        };
        let all = Field::ALL.to_vec();

        let logfmt = line(Format::Logfmt, &all, &entry);
        assert_eq!(names_in_logfmt(&logfmt), all.iter().map(|field| field.label()).collect::<Vec<_>>(), "{logfmt}");

        let json = line(Format::Json, &all, &entry);
        let object: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(object.as_object().unwrap().len(), all.len());
        assert_eq!(object["target"], *target);

        let combined = line(Format::Combined, &all, &entry);
        assert_eq!(combined.split('"').count(), 7, "{combined}");
        assert_eq!(combined.split(' ').nth(3).and_then(|word| word.chars().next()), Some('['), "{combined}");

        let journal = Layout::new(Format::Logfmt, &all, Naming::Nothing).for_destination(&Destination::Journald);
        let journal = text_of(&journal, &entry);
        assert_eq!(journal.lines().count(), 2 + all.len(), "{journal}");
        for one in [&logfmt, &json, &combined] {
            assert_eq!(
                one.find(|c: char| c.is_control() || "\u{2028}\u{200f}".contains(c)),
                Some(one.len() - 1),
                "{one:?}"
            );
        }
    }
}

/// `bytes` as the value of a field: it cannot contain a line feed, and a blank value counts as absent.
fn field_value(bytes: &[u8]) -> Vec<u8> {
    let value: Vec<u8> = bytes.iter().map(|byte| if *byte == b'\n' { b'\r' } else { *byte }).collect();
    if value.trim_ascii().is_empty() { b"\"".to_vec() } else { value }
}

/// The names in a line, parsed by a reader that only knows quotes and backslashes.
fn names_in_logfmt(line: &str) -> Vec<String> {
    let mut names = Vec::new();
    let mut chars = line.trim_end_matches('\n').chars().peekable();
    while chars.peek().is_some() {
        names.push(chars.by_ref().take_while(|c| *c != '=').collect());
        if chars.next_if_eq(&'"').is_none() {
            chars.by_ref().find(|c| *c == ' ');
            continue;
        }
        while let Some(c) = chars.next() {
            match c {
                '\\' => _ = chars.next(),
                '"' => break,
                _ => {}
            }
        }
        chars.next();
    }
    names
}

#[test]
fn a_text_has_its_fields_and_no_value_ends_it() {
    let lines = b"X-Id: a\"b\xe9\tc\r\nCookie: sid=x; lang=\"de\"\r\n";
    let request = get("/a\nb\"c", lines);
    let written = |format, text: &str| {
        let layout = Layout::new(format, &[], Naming::Nothing).with_text(Text::parse(text).ok());
        text_of(&layout, &entry(&request))
    };
    assert_eq!(
        written(Format::Logfmt, "{address} [{time_local}] \"{method} {target}\" {status} {seconds} {user} {route}"),
        "192.0.2.1 [01/Jan/1970:00:00:00 +0000] \"GET /a\\x0Ab\\x22c\" 206 0.001 - -\n"
    );
    assert_eq!(
        written(Format::Combined, "{header.x-id}|{header.none}|{cookie.lang}|{cookie.none}|{{}}"),
        "a\\x22b\\xE9\\x09c|-|\\x22de\\x22|-|{}\n"
    );
    let json = written(Format::Json, "{\"target\": \"{target}\", \"id\": \"{header.x-id}\", \"status\": {status}}");
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!((json["target"].as_str(), json["id"].as_str()), (Some("/a\nb\"c"), Some("a\"b\u{fffd}\tc")));
    assert_eq!(json["status"], 206);
}
