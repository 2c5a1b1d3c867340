//! The head of a request as it is sent.

use http::header::{self, HeaderName};

use crate::upstream::content::RequestContent;
use crate::upstream::head::RequestLines;
use crate::upstream::message::RequestHead;

/// Bytes that most heads take.
const ROOM: usize = 1 << 10;

/// The head of a request (RFC 9112 §3, §5), with the fields of framing and of the connection.
pub(super) fn head_octets(request: &RequestHead<'_>, content: Option<&RequestContent>) -> Vec<u8> {
    let target = request.target.path_and_query().map_or("/", |target| target.as_str());
    let lines = request.fields.own().map_or(&b""[..], RequestLines::octets);
    let mut head = Vec::with_capacity(ROOM.max(target.len() + request.host.len() + lines.len() + 256));
    for part in [request.method.as_str(), " ", target, " HTTP/1.1\r\n"] {
        head.extend_from_slice(part.as_bytes());
    }
    let mut add = |name: &HeaderName, value: &[u8]| add_line(&mut head, name.as_str().as_bytes(), value);
    add(&header::HOST, request.host.as_bytes());
    let key = request.upgrade.and_then(|upgrade| upgrade.key.as_ref());
    match request.fields.own() {
        Some(fields) if key.is_some() => {
            let others = fields.iter().filter(|(name, _)| *name != header::SEC_WEBSOCKET_KEY.as_str().as_bytes());
            others.for_each(|(name, value)| add_line(&mut head, name, value));
        }
        // They are as they are sent.
        Some(_) => head.extend_from_slice(lines),
        None => {
            let is_made_here = |name: &HeaderName| {
                [header::HOST, header::CONNECTION, header::TRANSFER_ENCODING].contains(name)
                    || (*name == header::CONTENT_LENGTH && content.is_some())
                    || (*name == header::SEC_WEBSOCKET_KEY && key.is_some())
            };
            let others = request.fields.iter().filter(|(name, _)| !is_made_here(name));
            others.for_each(|(name, value)| add(name, value.as_bytes()));
        }
    }
    let mut add = |name: &HeaderName, value: &[u8]| add_line(&mut head, name.as_str().as_bytes(), value);
    match (content, content.and_then(RequestContent::length)) {
        (None, _) => {}
        (Some(_), Some(length)) => add(&header::CONTENT_LENGTH, length.to_string().as_bytes()),
        (Some(_), None) => add(&header::TRANSFER_ENCODING, b"chunked"),
    }
    match request.upgrade {
        Some(upgrade) => {
            add(&header::CONNECTION, b"upgrade");
            add(&header::UPGRADE, upgrade.protocol.as_bytes());
            if let Some(key) = key {
                let (name, value) = key.field();
                add(&name, value.as_bytes());
            }
        }
        None if request.te => {
            add(&header::CONNECTION, b"te");
            add(&header::TE, b"trailers");
        }
        None => {}
    }
    head.extend_from_slice(b"\r\n");
    head
}

fn add_line(head: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    for part in [name, b": ", value, b"\r\n"] {
        head.extend_from_slice(part);
    }
}
