use std::net::SocketAddr;
use std::sync::LazyLock;
use std::time::Duration;

use clap::ValueEnum;
use sealion_tls::{HandshakeInfo, Path};

use super::*;
use crate::observe::access_log::Noted;

static TLS: LazyLock<HandshakeInfo> = LazyLock::new(|| HandshakeInfo::new(Version::Tls13, "TLS_AES_128_GCM_SHA256"));

fn peer() -> SocketAddr {
    "192.0.2.1:50000".parse().unwrap()
}

fn noted(parts: [&[u8]; Part::COUNT]) -> Noted {
    let mut noted = Noted::default();
    noted.set(parts);
    noted
}

fn entry(request: &Noted) -> Entry<'_> {
    Entry {
        peer: peer(),
        request,
        user: None,
        sni: None,
        status: 206,
        body: 7,
        encoding: None,
        duration: Duration::from_micros(1234),
        tls: &TLS,
        path: Path::Kernel,
        why: Some(PathReason::Moved),
        moved_at: Some(70_000),
        set_up: Some(Duration::from_nanos(41_999)),
        aborted: Some(&"line\nbreak"),
    }
}

fn line(format: Format, fields: &[Field], entry: &Entry<'_>) -> String {
    Layout::new(format, fields).line(entry, SystemTime::UNIX_EPOCH)
}

#[test]
fn the_usual_line_says_it_all() {
    let request = noted([b"GET", b"/a\"b\\c", b"", b"", b"", b"", b""]);
    assert_eq!(
        line(Format::Logfmt, &[], &entry(&request)),
        "time=1970-01-01T00:00:00.000Z peer=192.0.2.1:50000 method=GET target=\"/a\\\"b\\\\c\" status=206 bytes=7 \
         ms=1.234 tls=1.3 suite=TLS_AES_128_GCM_SHA256 resumed=no path=kernel why=moved setup_us=41 \
         aborted=\"line\\u{a}break\"\n"
    );
    let nothing = Noted::default();
    let entry = Entry { why: None, set_up: None, aborted: None, ..entry(&nothing) };
    let line = line(Format::Logfmt, &[], &entry);
    assert!(line.contains(" method=- target=\"-\" ") && line.ends_with(" why=-\n"), "{line}");
}

#[test]
fn chosen_fields_are_in_every_line_in_their_order() {
    let request = noted([b"GET", b"/", b"HTTP/1.1", b"h", b"", b"a\xff\x1b[2Jb", b""]);
    let entry = Entry { set_up: None, user: Some("o\"k"), ..entry(&request) };
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
    let request = noted([b"GET", b"/a b\"", b"HTTP/1.1", b"", b"https://x/", b"cu\x7frl", b""]);
    assert_eq!(
        line(Format::Combined, &[], &Entry { user: Some("a b"), ..entry(&request) }),
        "192.0.2.1 - a\\x20b [01/Jan/1970:00:00:00 +0000] \"GET /a b\\x22 HTTP/1.1\" 206 7 \"https://x/\" \"cu\\x7Frl\"\n"
    );
    let nothing = Noted::default();
    assert!(line(Format::Combined, &[], &entry(&nothing)).ends_with(" +0000] \"-\" 206 7 \"-\" \"-\"\n"));
}

#[test]
fn only_what_is_shown_is_wanted() {
    let wanted = |format, fields: &[Field]| {
        let layout = Layout::new(format, fields);
        [Part::Method, Part::Target, Part::Protocol, Part::Host, Part::Referer, Part::UserAgent, Part::Site]
            .map(|part| layout.wants(part))
    };
    assert_eq!(wanted(Format::Logfmt, &[]), [true, true, false, false, false, false, false]);
    assert_eq!(wanted(Format::Json, &[Field::Ms]), [false; 7]);
    assert_eq!(wanted(Format::Combined, &[]), [true, true, true, false, true, true, false]);
}

#[test]
fn messages_to_daemons_have_their_frame() {
    let request = noted([b"GET", b"/", b"", b"", b"", b"", b""]);
    let entry = entry(&request);
    let of = |destination: &str| {
        let layout = Layout::new(Format::Logfmt, &[Field::Target, Field::Status, Field::Referer]);
        layout.for_destination(&destination.parse().unwrap()).line(&entry, SystemTime::UNIX_EPOCH)
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

/// Whatever bytes a client sends in any part, a line stays one line and its values stay apart.
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
        let request = noted([b"GET", &parts[0], b"HTTP/1.1", &parts[1], &parts[2], &parts[3], &parts[4]]);
        let user = String::from_utf8_lossy(&parts[4]).into_owned();
        let entry = Entry { user: Some(&user), sni: Some(&user), aborted: Some(&user), ..entry(&request) };
        let all: Vec<Field> = Field::value_variants().to_vec();

        let logfmt = line(Format::Logfmt, &all, &entry);
        assert_eq!(names_in_logfmt(&logfmt), all.iter().map(|field| field.name()).collect::<Vec<_>>(), "{logfmt}");

        let json = line(Format::Json, &all, &entry);
        let object: serde_json::Value = serde_json::from_str(&json).expect("it is JSON");
        assert_eq!(object.as_object().unwrap().len(), all.len());
        assert_eq!(object["target"], *String::from_utf8_lossy(&parts[0]));

        let combined = line(Format::Combined, &all, &entry);
        assert_eq!(combined.split('"').count(), 7, "{combined}");
        assert_eq!(combined.split(' ').nth(3).and_then(|word| word.chars().next()), Some('['), "{combined}");

        let journal = Layout::new(Format::Logfmt, &all).for_destination(&Destination::Journald);
        let journal = journal.line(&entry, SystemTime::UNIX_EPOCH);
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

/// The names in a line, by a reader that knows nothing but quotes and backslashes.
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
