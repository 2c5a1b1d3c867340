//! The framing of a request and its response, by the protocol of the server.

use bytes::{Bytes, BytesMut};
use http::HeaderMap;

use super::fastcgi::{self, Event, Records, RequestId};
use super::head::Head;
use super::params::Script;
use super::uwsgi::{self, TooLong};
use crate::upstream::Forwarded;

/// A protocol that carries the variables of CGI.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::upstream) enum Gateway {
    Fastcgi,
    Uwsgi,
}

impl Gateway {
    /// The bytes before the content. `length`: the length of the content, if there is any.
    pub(super) fn head(
        self,
        id: RequestId,
        script: &Script,
        request: &Forwarded,
        length: Option<u64>,
    ) -> Result<BytesMut, TooLong> {
        match self {
            Gateway::Fastcgi => Ok(fastcgi::head(id, script, request, length)),
            Gateway::Uwsgi => uwsgi::head(script, request, length),
        }
    }

    /// Appends a part of the content, of at most 64 KiB. None: the content has ended.
    pub(super) fn content(self, to: &mut BytesMut, id: RequestId, part: Option<&[u8]>) {
        if self == Gateway::Fastcgi {
            to.extend_from_slice(&fastcgi::stdin_head(id, part.map_or(0, |part| part.len() as u16)));
        }
        to.extend_from_slice(part.unwrap_or_default());
    }

    /// Reads the head of a response.
    pub(super) fn response_head(self) -> Head {
        match self {
            Gateway::Fastcgi => Head::of_cgi(),
            Gateway::Uwsgi => Head::of_cgi_or_http(),
        }
    }
}

/// Reads a response as its bytes come.
#[derive(Debug)]
pub(super) enum Framing {
    Fastcgi(Records),
    Uwsgi(uwsgi::Content),
}

impl Framing {
    /// Reads the response to a request.
    pub(super) fn new(gateway: Gateway, id: RequestId) -> Self {
        match gateway {
            Gateway::Fastcgi => Framing::Fastcgi(Records::new(id.number)),
            Gateway::Uwsgi => Framing::Uwsgi(uwsgi::Content::Head),
        }
    }

    /// Whether the connection may have another request behind the end of the response.
    pub(super) fn may_go_on(&self) -> bool {
        matches!(self, Framing::Fastcgi(records) if records.is_between_records())
    }

    /// The next event in `buffer`. `None`: more bytes are needed.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> Result<Option<Event>, String> {
        match self {
            Framing::Fastcgi(records) => records.next(buffer).map_err(|bad| bad.to_string()),
            Framing::Uwsgi(content) => Ok(content.next(buffer)),
        }
    }

    /// The head has ended, and `first` follows. Returns its part that belongs to the response.
    pub(super) fn begin_content(&mut self, fields: &HeaderMap, first: Bytes) -> Result<Bytes, String> {
        match self {
            Framing::Fastcgi(_) => Ok(first),
            Framing::Uwsgi(content) => content.begin(fields, first),
        }
    }

    /// The server closed the connection. `None`: the response is not whole.
    pub(super) fn closed(&self) -> Option<Event> {
        match self {
            Framing::Fastcgi(_) => None,
            Framing::Uwsgi(content) => content.closed(),
        }
    }
}
