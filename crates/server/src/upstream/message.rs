//! A request to a server and its response, in any protocol.

use bytes::Bytes;
use http::header::{HeaderMap, HeaderValue};
use http::{Method, Uri};
use sealion_http::Status;

use super::answer_fields::AnswerFields;
use super::content::{Incomplete, RequestContent};
use super::head::RequestFields;
use super::head_room::HeadRoom;
use super::interim::InterimSender;
use super::websocket;

/// A request without its content.
#[derive(Debug, Clone, Copy)]
pub(super) struct RequestHead<'a> {
    pub(super) method: &'a Method,
    /// Path and query.
    pub(super) target: &'a Uri,
    pub(super) host: &'a HeaderValue,
    /// Without the fields of the connection and of framing.
    pub(super) fields: &'a RequestFields,
    /// Whether trailers of the answer are taken (RFC 9110 §10.1.4).
    pub(super) te: bool,
    /// Another protocol, if one is asked for.
    pub(super) upgrade: Option<&'a Upgrade>,
    /// Takes interim responses.
    pub(super) interim: Option<&'a InterimSender>,
    /// How much of the response is read at a time.
    pub(super) reading: Reading,
    /// Whether its head may be read.
    pub(super) heads: Option<&'a HeadRoom>,
}

/// How much of a response is read from a server before the client takes it. A client may have many responses on one connection of HTTP/2 and take none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) enum Reading {
    /// As much as is cheapest.
    #[default]
    Ahead,
    /// Little: the connection has many responses under way, or the client takes nothing of this one.
    Sparing,
}

/// Another protocol that is asked for (RFC 9110 §7.8).
#[derive(Debug, Clone)]
pub(crate) struct Upgrade {
    /// The value of Upgrade.
    pub(crate) protocol: HeaderValue,
    /// The key of WebSocket's handshake. `None`: the client asks for another protocol, or sent no single key.
    pub(crate) key: Option<websocket::Key>,
}

/// An answer without its content.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: Status,
    pub(super) fields: AnswerFields,
}

/// A part of a response behind its head: a piece of content, or the trailers at its end.
#[derive(Debug)]
pub(super) enum AnswerFrame {
    Content(Bytes),
    Trailers(HeaderMap),
}

/// A request that has no response.
#[derive(Debug)]
pub(super) enum RequestError {
    /// Nothing of the request was sent. Returns its content.
    NotSent(String, Option<RequestContent>),
    /// The server has not begun with it (RFC 9113 §8.7).
    Refused(String),
    /// The client sent its content in part, or broken.
    Client(Incomplete),
    /// The server closed the connection without a response.
    Closed(String),
    /// The server closed the connection within its response, or its response is not HTTP: it has begun with the request.
    BadAnswer(String),
}
