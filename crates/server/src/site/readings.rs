//! The paths that applications read where a client wrote one. Containers and frameworks differ in what they decode, drop and fold, and in the
//! order of these steps. A guard has to permit every reading.

use std::borrow::Cow;
use std::collections::HashSet;
use std::iter::{once, successors};

use sealion_http::Status;
use sealion_http::path::SitePath;

use super::forwarded_path::ForwardedPath;
use super::proxy::with_one_slash;

/// A step of an application between the request line and its route. `None`: it leaves the path as it is.
type Step = fn(&[u8]) -> Option<Vec<u8>>;

/// Every application decodes the path; twice, if a container and a framework both do it. Tomcat and Apache httpd can be set to keep encoded slashes.
const DECODINGS: [Step; 2] = [decode, decode_all_but_slashes];

/// The other steps of known applications. Some take several, in any order.
const STEPS: [Step; 14] = [
    // Servlet containers and Spring: /app;a=b/x is /app/x.
    without_parameters,
    // Applications that look for the query in the decoded path.
    before_query,
    before_fragment,
    // IIS, and servlet containers on Windows.
    with_slashes,
    // Lenient decoders of UTF-8, and code pages of Windows.
    in_ascii,
    // Applications that decode the path as a form: URLDecoder of Java, urldecode of PHP.
    with_spaces,
    // Spring trims segments, `url.parse` of Node the path; `$` of Python and PHP matches before a newline at the end.
    without_blanks,
    // `$` of Ruby matches at the end of each line.
    before_break,
    // Decoders that leave out invalid UTF-8: `decode(errors="ignore")` of Python, iconv with `//IGNORE`.
    in_utf8,
    // Parsers of URLs as browsers have them: Node's URL.
    without_breaks,
    // The same, and parse_url of PHP: //x/y is the path /y of the host x.
    without_host,
    // Windows drops dots and spaces at the end of a name, and names the content of a file `::$DATA`.
    as_on_windows,
    // ASP.NET drops /(S(session)), IIS keeps the slash.
    without_sessions,
    without_sessions_but_slashes,
];

/// Readings of one path, including undecoded ones. Beyond it, the path is refused.
const MAX_READINGS: usize = 256;

/// Bytes that all steps may make of one path. Beyond it, the path is refused.
const MAX_BYTES: usize = 512 << 10;

/// Decodings of a parameter. Beyond it, the path is refused.
const MAX_DECODINGS: usize = 8;

/// Whether every application reads a path alike.
pub(super) fn are_alike(path: ForwardedPath<'_>) -> bool {
    let (raw, path) = (path.raw(), path.decoded());
    let hides_segments = |at: usize| raw[at..].get(..3).is_some_and(|escape| escape.eq_ignore_ascii_case("%2F"));
    let has_inner_host = memchr::memmem::find(raw.trim_start_matches(['/', '\\']).as_bytes(), b"//").is_some();
    !has_special(path) && !has_inner_host && !memchr::memchr_iter(b'%', raw.as_bytes()).any(hides_segments)
}

/// Whether a step may change a decoded path.
fn has_special(path: &SitePath<'_>) -> bool {
    let bytes = path.as_bytes();
    let is_special = |byte: &u8| {
        let is_punctuation = matches!(byte, b'%' | b';' | b'?' | b'#' | b'\\' | b'+' | b':' | b'(');
        is_punctuation || *byte <= b' ' || *byte >= 0x7f
    };
    bytes.iter().any(is_special) || bytes.ends_with(b".") || memchr::memmem::find(bytes, b"./").is_some()
}

/// The readings of a path beside the path itself.
///
/// # Errors
/// The status where an application would leave a directory, or has too many ways to read the path.
pub(super) fn of_forwarded(path: ForwardedPath<'_>) -> Result<Vec<SitePath<'static>>, Status> {
    match are_alike(path) {
        true => Ok(Vec::new()),
        false => all(with_one_slash(path.raw()).as_bytes(), false, path.decoded()),
    }
}

/// The readings of an application that gets the path without a prefix, each with the prefix before it. `rest`: the path that it gets.
///
/// # Errors
/// See [`of_forwarded`].
pub(super) fn beneath(prefix: &[u8], rest: &str) -> Result<Vec<SitePath<'static>>, Status> {
    let path = SitePath::parse_forwarded(rest).map_err(|_| Status::BAD_REQUEST)?;
    let readings = of_forwarded(ForwardedPath::requested(rest, &path))?;
    let with_prefix = readings.iter().map(|reading| SitePath::of_octets(&[prefix, reading.full()].concat()));
    with_prefix.collect::<Result<_, _>>().map_err(|_| Status::BAD_REQUEST)
}

/// The readings, beside `path`, of an application that gets the path decoded.
///
/// # Errors
/// See [`of_forwarded`].
pub(super) fn of_decoded(path: &SitePath<'_>) -> Result<Vec<SitePath<'static>>, Status> {
    if has_special(path) { all(path.full(), true, path) } else { Ok(Vec::new()) }
}

fn all(bytes: &[u8], is_decoded: bool, path: &SitePath<'_>) -> Result<Vec<SitePath<'static>>, Status> {
    let mut waiting = vec![(bytes.to_vec(), is_decoded)];
    let mut seen: HashSet<(Vec<u8>, bool)> = waiting.iter().cloned().collect();
    let mut readings: Vec<SitePath<'static>> = Vec::new();
    let mut made = 0;
    while let Some((bytes, is_decoded)) = waiting.pop() {
        let mut add = |reading: Vec<u8>, is_decoded: bool| {
            made += reading.len();
            if made > MAX_BYTES || seen.len() > MAX_READINGS {
                return Err(Status::BAD_REQUEST);
            }
            let reading = (reading, is_decoded);
            if !seen.contains(&reading) {
                seen.insert(reading.clone());
                waiting.push(reading);
            }
            Ok(())
        };
        for decoding in DECODINGS {
            match decoding(&bytes) {
                Some(decoded) => add(decoded, true)?,
                None if !is_decoded => add(bytes.clone(), true)?,
                None => {}
            }
        }
        for step in STEPS {
            if let Some(next) = step(&bytes) {
                add(next, is_decoded)?;
            }
        }
        if is_decoded {
            // `^` of Ruby matches at the beginning of each line, so that the second is a path, beneath whatever an application is mounted at.
            if bytes.contains(&0) || memchr::memmem::find(&bytes, b"\n/").is_some() || has_escape_in_host(&bytes) {
                return Err(Status::BAD_REQUEST);
            }
            for bytes in once(Cow::Borrowed(&*bytes)).chain(without_inner_hosts(&bytes).map(Cow::Owned)) {
                let reading = SitePath::of_octets(&bytes).map_err(|_| Status::BAD_REQUEST)?;
                if reading != *path && !readings.contains(&reading) {
                    readings.push(reading);
                }
                made += bytes.len();
                if made > MAX_BYTES || readings.len() > MAX_READINGS {
                    return Err(Status::BAD_REQUEST);
                }
            }
        }
    }
    Ok(readings)
}

/// Whether a parameter of a segment contains a slash or a backslash after any decoding. Servlet containers drop it before they decode, and others
/// decode it first, so that they disagree about all that follows.
pub(super) fn hides_slash(raw: &str) -> bool {
    raw.split('/').filter_map(|segment| segment.split_once(';')).any(|(_, parameter)| {
        let mut parameter = Cow::Borrowed(parameter.as_bytes());
        for _ in 0..MAX_DECODINGS {
            if parameter.iter().any(|byte| matches!(byte, b'/' | b'\\')) {
                return true;
            }
            let Some(decoded) = decode(&parameter).or_else(|| in_ascii(&parameter)) else { return false };
            parameter = decoded.into();
        }
        true
    })
}

/// Decodes escapes once, including the escapes of IIS (`%u002F`).
fn decode(bytes: &[u8]) -> Option<Vec<u8>> {
    decode_where(bytes, |_| true)
}

fn decode_all_but_slashes(bytes: &[u8]) -> Option<Vec<u8>> {
    decode_where(bytes, |byte| !matches!(byte, b'/' | b'\\'))
}

fn decode_where(bytes: &[u8], is_decoded: impl Fn(u8) -> bool) -> Option<Vec<u8>> {
    let number =
        |digits: &[u8]| digits.iter().try_fold(0, |number, digit| Some(number * 16 + char::from(*digit).to_digit(16)?));
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    let mut is_changed = false;
    while let [first, behind @ ..] = rest {
        let wide = behind.split_at_checked(5).filter(|(escape, _)| matches!(escape[0], b'u' | b'U'));
        let wide = wide.and_then(|(escape, rest)| Some((char::from_u32(number(&escape[1..])?)?, rest)));
        let narrow = behind.split_at_checked(2).and_then(|(escape, rest)| Some((number(escape)? as u8, rest)));
        let narrow = narrow.filter(|(byte, _)| is_decoded(*byte));
        rest = match (first, wide, narrow) {
            (b'%', Some((character, rest)), _) => {
                decoded.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
                is_changed = true;
                rest
            }
            (b'%', None, Some((byte, rest))) => {
                decoded.push(byte);
                is_changed = true;
                rest
            }
            _ => {
                decoded.push(*first);
                behind
            }
        };
    }
    is_changed.then_some(decoded)
}

fn without_parameters(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut is_parameter = false;
    let kept = bytes.iter().copied().filter(|byte| {
        is_parameter = *byte != b'/' && (is_parameter || *byte == b';');
        !is_parameter
    });
    changed(bytes, kept.collect())
}

fn before_query(bytes: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'?', bytes).map(|end| bytes[..end].to_vec())
}

fn before_fragment(bytes: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'#', bytes).map(|end| bytes[..end].to_vec())
}

fn with_slashes(bytes: &[u8]) -> Option<Vec<u8>> {
    replaced(bytes, b'\\', b'/')
}

fn with_spaces(bytes: &[u8]) -> Option<Vec<u8>> {
    replaced(bytes, b'+', b' ')
}

fn replaced(bytes: &[u8], from: u8, to: u8) -> Option<Vec<u8>> {
    memchr::memchr(from, bytes)?;
    Some(bytes.iter().map(|byte| if *byte == from { to } else { *byte }).collect())
}

/// ASCII where it is written in more bytes than it needs (RFC 3629 §10), or in full width: `%C0%AF` and U+FF0F are slashes then.
fn in_ascii(bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        let low = |byte: u8| byte & 0x3f;
        let (byte, length) = match rest {
            // Some look only at the low bits of the second byte.
            [lead @ (0xc0 | 0xc1), second, ..] => ((lead & 1) << 6 | low(*second), 2),
            [0xe0, second @ (0x80 | 0x81), third @ 0x80..=0xbf, ..] => ((second & 1) << 6 | low(*third), 3),
            [0xf0, 0x80, third @ (0x80 | 0x81), fourth @ 0x80..=0xbf, ..] => ((third & 1) << 6 | low(*fourth), 4),
            [0xef, 0xbc, third @ 0x81..=0xbf, ..] => (0x20 + low(*third), 3),
            [0xef, 0xbd, third @ 0x80..=0x9e, ..] => (0x60 + low(*third), 3),
            _ => (*first, 1),
        };
        plain.push(byte);
        rest = &behind[length - 1..];
    }
    changed(bytes, plain)
}

fn without_blanks(bytes: &[u8]) -> Option<Vec<u8>> {
    let is_blank = |character: char| character.is_whitespace() || character.is_control() || character == '\u{feff}';
    by_segments(bytes, |segment| {
        let first = segment.utf8_chunks().next().map_or("", |chunk| chunk.valid());
        let segment = &segment[first.len() - first.trim_start_matches(is_blank).len()..];
        let last = segment.utf8_chunks().last().filter(|chunk| chunk.invalid().is_empty());
        let last = last.map_or("", |chunk| chunk.valid());
        &segment[..segment.len() - (last.len() - last.trim_end_matches(is_blank).len())]
    })
}

fn before_break(bytes: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr(b'\n', bytes).map(|end| bytes[..end].to_vec())
}

fn in_utf8(bytes: &[u8]) -> Option<Vec<u8>> {
    changed(bytes, bytes.utf8_chunks().map(|chunk| chunk.valid()).collect::<String>().into_bytes())
}

fn without_breaks(bytes: &[u8]) -> Option<Vec<u8>> {
    memchr::memchr3(b'\t', b'\n', b'\r', bytes)?;
    Some(bytes.iter().copied().filter(|byte| !matches!(byte, b'\t' | b'\n' | b'\r')).collect())
}

fn without_host(bytes: &[u8]) -> Option<Vec<u8>> {
    let host = &bytes[bytes.iter().take_while(|byte| **byte == b'/').count()..];
    // Browsers take more than two slashes for two.
    let is_host = bytes.len() - host.len() > 1;
    is_host.then(|| host[memchr::memchr(b'/', host).unwrap_or(host.len())..].to_vec())
}

/// An application drops the path that it is mounted at, or the name of its script, and takes `//x/y` behind it for the path `/y` of the host `x`. Yields the
/// paths that a client would have asked for.
fn without_inner_hosts(bytes: &[u8]) -> impl Iterator<Item = Vec<u8>> {
    let slashes = memchr::memmem::find_iter(bytes, b"//").filter(|at| *at > 0 && bytes[*at - 1] != b'/');
    slashes.flat_map(|at| {
        let (before, rest) = bytes.split_at(at);
        successors(without_host(rest), |rest| without_host(rest)).map(move |rest| [before, &rest].concat())
    })
}

/// Whether `//x%41` has an escape in its host, where the host ends for `url.parse` of Node: the path is `/%41` then.
fn has_escape_in_host(bytes: &[u8]) -> bool {
    memchr::memmem::find_iter(bytes, b"//").any(|at| {
        let host = bytes[at + 2..].split(|byte| *byte == b'/').next().unwrap_or_default();
        decode(host).is_some()
    })
}

fn as_on_windows(bytes: &[u8]) -> Option<Vec<u8>> {
    by_segments(bytes, |segment| {
        let stream = memchr::memmem::find(segment, b":$").and_then(|_| memchr::memchr(b':', segment));
        let name = &segment[..stream.unwrap_or(segment.len())];
        let is_dropped = |byte: &&u8| matches!(byte, b'.' | b' ');
        let dropped = name.iter().rev().take_while(is_dropped).count();
        match name.trim_ascii() {
            // Each is a directory, in every reading.
            b"." | b".." => name.trim_ascii(),
            _ => &name[..name.len() - dropped],
        }
    })
}

/// Without `/(S(…))` and the like: letters with parentheses, in parentheses.
fn without_sessions(bytes: &[u8]) -> Option<Vec<u8>> {
    sessions_as(b"", bytes)
}

fn without_sessions_but_slashes(bytes: &[u8]) -> Option<Vec<u8>> {
    sessions_as(b"/", bytes)
}

fn sessions_as(replacement: &[u8], bytes: &[u8]) -> Option<Vec<u8>> {
    let mut plain = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let [first, behind @ ..] = rest {
        rest = match session(rest) {
            Some(length) => {
                plain.extend_from_slice(replacement);
                &rest[length..]
            }
            None => {
                plain.push(*first);
                behind
            }
        };
    }
    changed(bytes, plain)
}

/// The bytes of the sessions that a path begins with.
fn session(bytes: &[u8]) -> Option<usize> {
    let mut rest = bytes.strip_prefix(b"/(")?;
    let mut is_one = false;
    loop {
        rest = match rest {
            [b')', rest @ ..] if is_one => return Some(bytes.len() - rest.len()),
            [letter, b'(', value @ ..] if letter.is_ascii_alphabetic() => {
                let end = value.iter().position(|byte| matches!(byte, b')' | b'/'))?;
                is_one = value[end] == b')';
                is_one.then(|| &value[end + 1..])?
            }
            _ => return None,
        };
    }
}

/// The path with each segment changed by `change`.
fn by_segments(bytes: &[u8], change: impl Fn(&[u8]) -> &[u8]) -> Option<Vec<u8>> {
    let segments: Vec<&[u8]> = bytes.split(|byte| *byte == b'/').map(change).collect();
    changed(bytes, segments.join(&b'/'))
}

fn changed(before: &[u8], after: Vec<u8>) -> Option<Vec<u8>> {
    (after != before).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn readings(raw: &str) -> Result<Vec<String>, u16> {
        let path = SitePath::parse_forwarded(raw).map_err(|_| 404_u16)?;
        let found = of_forwarded(ForwardedPath::requested(raw, &path)).map_err(|status| status.code())?;
        Ok(found.iter().map(|reading| String::from_utf8_lossy(reading.full()).into_owned()).collect())
    }

    #[test]
    fn each_reading_of_a_known_application_is_found() {
        for (raw, expected) in [
            ("/%2561dmin", "/admin"),
            ("/%252561dmin", "/admin"),
            ("/%25u0061dmin", "/admin"),
            ("/a;b=c/d", "/a/d"),
            ("/a%3Bb/c", "/a/c"),
            // Dropped before the path is decoded, or afterwards.
            ("/a%3Bb%2Fc", "/a/c"),
            ("/a%3Bb%252Fc/d", "/a/d"),
            ("/a%3Bb%252Fc/d", "/a/c/d"),
            // Slashes are decoded last.
            ("/a%3Bb%2Fc/d", "/a/d"),
            ("/a;b/c%3Bd", "/a/c;d"),
            ("/a%3Bb%5Cc", "/a/c"),
            ("/a%3Bb%5Cc", "/a"),
            ("/a%3Fb", "/a"),
            ("/a%253Fb", "/a"),
            ("/a%23b%3Fc", "/a#b"),
            ("/a%3Fb%23c", "/a?b"),
            ("/a;b%3Fc", "/a"),
            ("/a;%3F/b", "/a/b"),
            ("/a%5Cb\\c", "/a/b/c"),
            ("/a%C0%AFb", "/a/b"),
            ("/a%c1%1cb", "/a/b"),
            ("/a%e0%80%afb", "/a/b"),
            ("/a%f0%80%80%afb", "/a/b"),
            ("/%c1%a1dmin", "/admin"),
            ("/a%EF%BC%8Fb", "/a/b"),
            ("/%EF%BD%81dmin", "/admin"),
            ("/a%25uFF0Fb", "/a/b"),
            ("/a+b%2Bc", "/a b+c"),
            ("/a%20/b", "/a/b"),
            ("/%09a/b", "/a/b"),
            ("/a%0a", "/a"),
            ("/a%C2%A0/b", "/a/b"),
            ("/%E3%80%80a%EF%BB%BF/b", "/a/b"),
            ("/%C2%85a%E2%80%80/b", "/a/b"),
            ("/a.key%0Ab", "/a.key"),
            ("/a%FF/%FEb", "/a/b"),
            ("/ad%0Amin/b", "/admin/b"),
            ("/%5Cx/a/b", "/a/b"),
            ("/%2Fx/a/b", "/a/b"),
            ("/%5C%2F/x/a/b", "/a/b"),
            ("/%2Fx%5Cy/a/b", "/a/b"),
            ("/\\x/a%2Fb", "/x/a/b"),
            ("/a./b", "/a/b"),
            ("/a.%20./b", "/a/b"),
            ("/a.key::$DATA", "/a.key"),
            ("/a:$i30:$INDEX_ALLOCATION/b", "/a/b"),
            ("/(S(x))/a/b", "/a/b"),
            ("/a/(A(x)F(y))/b", "/a/b"),
            ("/pro/(S(x))tected/b", "/protected/b"),
            ("/a/(S(x))b", "/a/b"),
            // Behind any mount path of an application.
            ("/a/%5Cx/b", "/a/b"),
            ("/a//x/b", "/a/b"),
            ("/a///x", "/a"),
            ("/a%2F%2Fx/b", "/a/b"),
            ("/a;c//x;d/b", "/a/b"),
            ("/a/%255Cx%2Fb", "/a/b"),
            ("/a/c%5C%5Cx/%5Cy/b", "/a/c/b"),
            ("/a//c//x/b", "/a/c/b"),
        ] {
            let found = readings(raw).unwrap_or_else(|status| panic!("{raw}: {status}"));
            assert!(found.iter().any(|reading| reading == expected), "{raw}: {found:?}");
        }
    }

    #[test]
    fn paths_that_leave_their_directory_in_some_reading_are_refused() {
        for raw in [
            "/x/..;/a",
            "/x/..;b=c/a",
            "/x/.;/a",
            "/x/..%3B/a",
            "/x/..%253Bb/a",
            "/x/%252e%252e/a",
            "/x/%252e%252e;/a",
            "/x/..%3Fa",
            "/x/..%23a",
            "/x%5C..%5Ca",
            "/x/%c0%ae%c0%ae/a",
            "/x/%c0%ae%c0%ae%c0%afa",
            "/x/%25c0%25ae./a",
            "/x/%EF%BC%8E%EF%BC%8E/a",
            "/x/%25u002e%25u002e/a",
            "/x/..%20/a",
            "/x/..%0a/a",
            "/x/.%09./a",
            "/x/..::$DATA/a",
            "/a%2500",
            "/a%c0%80",
            // Two lines.
            "/a%0A/b",
            "/a%0D%0A/b",
            "/a%250A%5Cb",
            "/%5Cx%2561/b",
            "/a/%2Fx%2561/b",
        ] {
            assert_eq!(readings(raw), Err(400), "{raw}");
        }
    }

    #[test]
    fn ordinary_paths_have_one_reading() {
        for raw in
            ["/", "//a", "/a/b.c/", "/.well-known/x", "/a-b_c~d,e=f@g!h$i&j'k*l", "/caf%C3%A9", "/a..b/c", "/100%25"]
        {
            assert_eq!(readings(raw), Ok(Vec::new()), "{raw}");
        }
        assert_eq!(readings("/a;jsessionid=1F/b"), Ok(vec!["/a/b".to_owned()]));
        assert_eq!(readings("/a%2Fb"), Ok(vec!["/a%2Fb".to_owned()]));
        assert_eq!(readings("/a//b"), Ok(vec!["/a".to_owned()]));
    }

    #[test]
    fn a_path_with_too_many_readings_is_refused() {
        let many = "/a;%3B%253B+%2B%252B%3F%253F%23%2523%5C%255C.";
        assert_eq!(readings(many), Err(400));
        let long = format!("/{}%3B+{}", "a".repeat(4000), "%25".repeat(1000));
        assert!(readings(&long).is_ok());
        let nested = format!("/%{}41", "25".repeat(2000));
        assert_eq!(readings(&nested), Err(400));
        for (hosts, is_read) in [(8, true), (64, false), (4000, false)] {
            let path: String = (0..hosts).map(|n| format!("/a{n}/")).collect();
            assert_eq!(readings(&path).is_ok(), is_read, "{hosts} hosts");
        }
        assert_eq!(readings(&format!("/a{}b", "/".repeat(4000))), Ok(vec!["/a".to_owned()]));
    }

    #[test]
    fn parameters_that_hide_a_slash_are_found() {
        for raw in [
            "/app;%2Fy/admin/x",
            "/app;%2fy",
            "/app;%5Cy/admin/x",
            "/app;%252Fy/admin/x",
            "/app;%25252Fy/admin/x",
            "/app/;%2Fy/admin",
            "/;%2Fy/admin",
            "/a;b=c;d=%2F",
            "/a;b\\c",
            "/a;%c0%afb",
            "/a;%25c0%25af",
            "/a;%c0%a52f",
            "/a;%EF%BC%8Fb",
            "/a;%25u002Fb",
        ] {
            assert!(hides_slash(raw), "{raw}");
        }
        let nested = format!("/a;%{}2F", "25".repeat(3000));
        assert!(hides_slash(&nested));
        for raw in ["/", "/a;b/c%2Fd", "/a%2Fb;c", "/a;jsessionid=1.node~2!3/b", "/a;b=%20%3B", "/a%3Bb%2Fc", "/a;%25"]
        {
            assert!(!hides_slash(raw), "{raw}");
        }
    }
}
