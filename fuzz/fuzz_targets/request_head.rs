//! A request head and the content behind it, from the bytes of a stranger.
//!
//! However the bytes are split, the answer is the same; what is consumed lies within them; what is accepted
//! keeps the promises of its types, so that the handler need not check again.

#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_http::Target;
use sealion_http::http1::body::{BodyDrain, Drained};
use sealion_http::http1::head::{Framing, HeadLimits, HeadSpan, Reject, RequestHead, find};
use sealion_http::path::SitePath;

const LIMITS: HeadLimits = HeadLimits { request_line: 200, head: 1000, fields: 20 };
const CAP: u64 = 500;

/// The meaning of the bytes. `None`: no error so far.
fn parse(input: &[u8]) -> Result<Option<(RequestHead<'_>, HeadSpan)>, Reject> {
    let Some(span) = find(input, &LIMITS)? else { return Ok(None) };
    RequestHead::parse(input, span).map(|head| Some((head, span)))
}

fuzz_target!(|input: &[u8]| {
    let whole = parse(input);
    for end in 0..input.len() {
        let prefix = parse(&input[..end]);
        assert!(prefix == Ok(None) || prefix == whole, "the first {end} octets say {prefix:?}");
    }
    assert!(input.len() < LIMITS.buffer() || whole != Ok(None), "a full buffer is undecided");

    let Ok(Some((head, span))) = whole else { return };
    let len = span.end;
    assert!(len <= input.len() && input[..len].ends_with(b"\r\n\r\n"));
    let copy = &input[span.start..span.end];
    assert_eq!(RequestHead::parse(copy, span.from_start()).as_ref(), Ok(&head), "a copy says something else");
    for (name, value) in head.request.fields.iter() {
        assert!(!name.is_empty() && !value.iter().any(|octet| matches!(octet, b'\r' | b'\n' | 0)));
    }
    assert!(head.framing != Framing::Length(0));
    let raw = head.request.raw_target;
    assert!(!raw.is_empty() && raw.bytes().all(|octet| octet.is_ascii_graphic()));
    if let Target::Path { path, query } = head.request.target {
        check_path(path, query);
    }
    check_drain(head.framing, &input[len..]);
});

fn check_path(path: &str, query: Option<&str>) {
    assert!(path.starts_with('/') && !path.contains(['?', '#']));
    for show_dotfiles in [false, true] {
        let Ok(site_path) = SitePath::parse(path, show_dotfiles) else { continue };
        let octets = site_path.as_bytes();
        assert!(!octets.contains(&0));
        if !octets.is_empty() {
            for segment in octets.split(|octet| *octet == b'/') {
                assert!(!matches!(segment, b"" | b"." | b".."), "{}", octets.escape_ascii());
                assert!(show_dotfiles || segment == b".well-known" || segment[0] != b'.');
            }
        }
        let location = site_path.with_slash(query);
        assert!(location.bytes().all(|octet| octet.is_ascii_graphic()));
        assert!(location.starts_with('/') && !location[1..].starts_with(['/', '\\']), "{location}");
        // The location names the same directory.
        let again = location.split('?').next().unwrap_or_default();
        let again = SitePath::parse(again, show_dotfiles).expect("our own location is well-formed");
        assert_eq!((again.as_bytes(), again.names_directory()), (octets, true));
    }
}

fn check_drain(framing: Framing, content: &[u8]) {
    let mut at_once = BodyDrain::new(framing, CAP);
    let whole = at_once.feed(content);
    if let Drained::Done { consumed } = whole {
        assert!(consumed <= content.len() && consumed as u64 <= CAP);
    }
    let mut piecemeal = BodyDrain::new(framing, CAP);
    let mut consumed = 0;
    let mut ended = piecemeal.feed(b"");
    for octet in content {
        if ended != Drained::NeedMore {
            break;
        }
        ended = piecemeal.feed(std::slice::from_ref(octet));
        consumed += 1;
    }
    match ended {
        Drained::Done { .. } => assert_eq!(whole, Drained::Done { consumed }),
        other => assert_eq!(whole, other),
    }
}
