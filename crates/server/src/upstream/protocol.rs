//! The protocols of HTTP that servers speak.

use std::io;
use std::task::{Context, Poll};

use bytes::Bytes;
use sealion_tls::Pipe;

use super::config::Protocol;
use super::connect::{ConnectError, connect};
use super::content::RequestContent;
use super::lazy_timer::LazyTimer;
use super::message::{AnswerFrame, AnswerHead, Reading, RequestError, RequestHead};
use super::proxy_header::OnBehalf;
use super::{Server, http1, http2};
use crate::tls_client::Io;
use std::time::Duration;

/// A connection, for one request.
#[derive(Debug)]
pub(super) enum Connected {
    /// All of a connection.
    Http1(http1::Connection),
    /// A share of a connection.
    Http2(http2::Lease),
}

impl Connected {
    /// A new connection.
    pub(super) async fn new(
        server: &Server,
        connect_timeout: Duration,
        idle_timeout: Duration,
        on_behalf: OnBehalf<'_>,
    ) -> Result<Self, ConnectError> {
        match server.protocol {
            Protocol::Http1 | Protocol::Fastcgi | Protocol::Uwsgi => {
                let io = connect(server, connect_timeout, on_behalf).await?;
                Ok(Connected::Http1(http1::Connection::new(io)))
            }
            Protocol::Http2 => {
                let shared = http2::Shared::connect(server, connect_timeout, idle_timeout, Reading::Ahead).await?;
                let closed = || ConnectError::Refused(io::ErrorKind::ConnectionReset.into());
                shared.lease().map(Connected::Http2).ok_or_else(closed)
            }
        }
    }

    /// Takes the timer of the waits on the connection.
    pub(super) fn take_timer(&mut self) -> LazyTimer {
        match self {
            Connected::Http1(connection) => connection.take_timer(),
            Connected::Http2(_) => LazyTimer::default(),
        }
    }

    /// Sends a request and waits for the head of its response.
    pub(super) async fn ask(
        self,
        request: RequestHead<'_>,
        content: Option<RequestContent>,
    ) -> Result<(AnswerHead, AnswerContent), RequestError> {
        match self {
            Connected::Http1(connection) => {
                let (head, body) = connection.ask(request, content).await?;
                Ok((head, AnswerContent::Http1(body)))
            }
            Connected::Http2(lease) => {
                let (head, body) = Box::pin(lease.ask(request, content)).await?;
                Ok((head, AnswerContent::Http2(body)))
            }
        }
    }
}

/// The content of a response. Dropped before its end, it ends the request at the server.
pub(super) enum AnswerContent {
    Http1(http1::AnswerBody),
    Http2(http2::AnswerBody),
}

impl AnswerContent {
    /// The next part; `None`: the response is whole.
    ///
    /// # Errors
    /// The response is not whole.
    pub(super) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<AnswerFrame>>> {
        match self {
            AnswerContent::Http1(body) => body.poll_frame(cx),
            AnswerContent::Http2(body) => body.poll_frame(cx),
        }
    }

    /// Whether the content that comes next should be moved into a pipe.
    pub(super) fn fills_pipes(&self) -> bool {
        matches!(self, AnswerContent::Http1(body) if body.fills_pipes())
    }

    /// Moves content that comes into a pipe. `None`: it has to be read, or the response is whole.
    pub(super) fn poll_fill_pipe(&mut self, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<Option<io::Result<usize>>> {
        match self {
            AnswerContent::Http1(body) => body.poll_fill_pipe(cx, pipe),
            AnswerContent::Http2(_) => Poll::Ready(None),
        }
    }

    /// Keeps a timer for the next wait on the connection, if it has its requests one after another.
    pub(super) fn keep_timer(&mut self, timer: LazyTimer) {
        if let AnswerContent::Http1(body) = self {
            body.keep_timer(timer);
        }
    }

    /// Whether the end is known to have come.
    pub(super) fn has_ended(&self) -> bool {
        match self {
            AnswerContent::Http1(body) => body.has_ended(),
            AnswerContent::Http2(body) => body.has_ended(),
        }
    }

    /// Whether the protocol tells the end, whatever the fields say.
    pub(super) fn ends_with_stream(&self) -> bool {
        matches!(self, AnswerContent::Http2(_))
    }

    /// The connection behind 101, with the bytes that have come of it already. `None`: it carries other requests, or content.
    pub(super) fn upgrade(self) -> Option<(Box<dyn Io>, Bytes)> {
        match self {
            AnswerContent::Http1(body) => body.upgrade(),
            AnswerContent::Http2(_) => None,
        }
    }
}
