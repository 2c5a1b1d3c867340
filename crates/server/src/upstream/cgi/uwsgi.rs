//! The packets of uwsgi: the variables in one packet, the content behind it, and a response with the head of HTTP or CGI
//! (<https://uwsgi-docs.readthedocs.io/en/latest/Protocol.html>).
//!
//! The protocol has no end of a response: one without Content-Length ends where the server closes the connection.

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};

use super::fastcgi::{Ended, Event};
use super::params::Script;
use crate::upstream::Forwarded;

/// The variables of a request have more bytes than a packet takes.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the variables of the request have more than {MAX_VARIABLES} bytes, which uwsgi has no room for")]
pub(super) struct TooLong;

/// Bytes of the variables with their lengths: a packet has 16 bits for them.
const MAX_VARIABLES: usize = u16::MAX as usize;

/// The packet before the content. `length`: the length of the content, if there is any.
pub(super) fn head(script: &Script, request: &Forwarded, length: Option<u64>) -> Result<BytesMut, TooLong> {
    let [modifier1, modifier2] = script.modifiers;
    let mut packet = BytesMut::with_capacity(2048);
    packet.extend_from_slice(&[modifier1, 0, 0, modifier2]);
    let mut fits = true;
    script.variables(request, length, |name, value| {
        for text in [name.as_bytes(), value] {
            let Ok(length) = u16::try_from(text.len()) else {
                fits = false;
                return;
            };
            packet.extend_from_slice(&length.to_le_bytes());
            packet.extend_from_slice(text);
        }
    });
    let length = u16::try_from(packet.len() - HEAD).ok().filter(|_| fits).ok_or(TooLong)?;
    packet[1..3].copy_from_slice(&length.to_le_bytes());
    Ok(packet)
}

/// Bytes of a packet before the variables.
const HEAD: usize = 4;

/// Reads a response as its bytes come.
#[derive(Debug)]
pub(super) enum Content {
    /// The head is not whole.
    Head,
    /// Bytes that are still to come.
    Length(u64),
    UntilClose,
}

impl Content {
    /// The next event in `buffer`. `None`: more bytes are needed.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Option<Event> {
        match self {
            Content::Length(0) => Some(Event::End(Ended::Complete(0))),
            _ if buffer.is_empty() => None,
            Content::Head | Content::UntilClose => Some(Event::Stdout(buffer.split().freeze())),
            Content::Length(left) => {
                let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(buffer.len());
                *left -= taken as u64;
                Some(Event::Stdout(buffer.split_to(taken).freeze()))
            }
        }
    }

    /// The head has ended, and `first` follows. Returns its part that belongs to the response.
    pub(super) fn begin(&mut self, fields: &HeaderMap, mut first: Bytes) -> Result<Bytes, String> {
        if fields.contains_key(header::TRANSFER_ENCODING) {
            return Err(
                "its content has a Transfer-Encoding, which uwsgi has not: let the application send it plainly"
                    .to_owned(),
            );
        }
        let length = fields.get(header::CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<u64>().ok());
        *self = match length {
            Some(length) => {
                first.truncate(usize::try_from(length).unwrap_or(usize::MAX));
                Content::Length(length - first.len() as u64)
            }
            None => Content::UntilClose,
        };
        Ok(first)
    }

    /// The server closed the connection. `None`: the response is not whole.
    pub(super) fn closed(&self) -> Option<Event> {
        match self {
            Content::UntilClose | Content::Length(0) => Some(Event::End(Ended::Complete(0))),
            Content::Head | Content::Length(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_content_ends_at_its_length_or_where_the_server_closes() {
        let of = |length: Option<&'static str>| {
            let value = length.map(|length| (header::CONTENT_LENGTH, http::HeaderValue::from_static(length)));
            HeaderMap::from_iter(value)
        };
        let end = || Some(Event::End(Ended::Complete(0)));
        let mut content = Content::Head;
        assert_eq!(content.closed(), None, "before the end of the head");
        assert_eq!(content.begin(&of(Some("5")), Bytes::from_static(b"ab")).unwrap(), "ab");
        let mut buffer = BytesMut::from(&b"cdefg"[..]);
        assert_eq!(content.closed(), None, "three bytes are missing");
        assert_eq!(content.next(&mut buffer), Some(Event::Stdout(Bytes::from_static(b"cde"))));
        assert_eq!(content.next(&mut buffer), end(), "the rest is not a part of the response");
        let mut content = Content::Head;
        assert_eq!(content.begin(&of(Some("1")), Bytes::from_static(b"ab")).unwrap(), "a");
        assert_eq!(content.next(&mut BytesMut::new()), end());
        let mut content = Content::Head;
        assert_eq!(content.begin(&of(None), Bytes::from_static(b"ab")).unwrap(), "ab");
        assert_eq!((content.next(&mut BytesMut::new()), content.closed()), (None, end()));
        let chunked = HeaderMap::from_iter([(header::TRANSFER_ENCODING, http::HeaderValue::from_static("chunked"))]);
        assert!(Content::Head.begin(&chunked, Bytes::new()).is_err());
    }
}
