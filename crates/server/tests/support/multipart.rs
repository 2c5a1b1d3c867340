//! multipart/byteranges (RFC 9110 §14.6), of any server.

use sealion_testkit::http::Response;

/// A part of a body of several ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) content_range: String,
    pub(crate) content_type: String,
    pub(crate) bytes: Vec<u8>,
}

/// Takes a response apart.
///
/// # Panics
/// When it is not what the RFC says.
#[track_caller]
pub(crate) fn parts(response: &Response) -> Vec<Part> {
    let content_type = response.field("content-type").expect("a content type");
    let boundary = content_type.strip_prefix("multipart/byteranges; boundary=").expect(content_type).trim_matches('"');
    let delimiter = format!("\r\n--{boundary}");
    let mut rest = response.body.as_slice();
    let mut parts = Vec::new();
    loop {
        rest = rest.strip_prefix(delimiter.as_bytes()).expect("a delimiter where a part ends");
        if rest == b"--\r\n" {
            return parts;
        }
        rest = rest.strip_prefix(b"\r\n").expect("a line end behind the boundary");
        let end = rest.windows(4).position(|window| window == b"\r\n\r\n").expect("an empty line");
        let head = std::str::from_utf8(&rest[..end]).expect("ASCII").to_owned();
        let field = |name: &str| {
            let line = head.split("\r\n").find_map(|line| {
                let (n, value) = line.split_once(':')?;
                n.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            });
            line.unwrap_or_else(|| panic!("no {name} in {head}"))
        };
        let content_range = field("content-range");
        let (first, last) = bounds(&content_range);
        rest = &rest[end + 4..];
        let (bytes, after) = rest.split_at((last - first + 1) as usize);
        rest = after;
        parts.push(Part { content_type: field("content-type"), bytes: bytes.to_vec(), content_range });
    }
}

/// First and last byte in a Content-Range of a part.
#[track_caller]
pub(crate) fn bounds(content_range: &str) -> (u64, u64) {
    let range = content_range.strip_prefix("bytes ").and_then(|rest| rest.split_once('/')).expect(content_range).0;
    let (first, last) = range.split_once('-').expect(content_range);
    (first.parse().expect("a number"), last.parse().expect("a number"))
}
