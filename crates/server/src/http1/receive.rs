//! Reads the heads of requests, and discards content that is not needed.

use std::time::Duration;

use sealion_http::Status;
use sealion_http::http1::body::{BodyDrain, Drained};
use sealion_http::http1::head::{self, HeadSpan, Reject};
use sealion_tls::TlsStream;
use tokio::time::{Instant, timeout_at};

use crate::exchange::{Current, Error};
use crate::observe::metrics;

/// Why a request could not be read.
pub(super) enum Unread {
    /// The client closed the connection.
    Gone,
    /// Answer with this status and close the connection.
    Refused(Status),
    /// The connection failed.
    Failed(Error),
}

impl Unread {
    /// The end of a connection that gets no response. `false`: it is closed.
    pub(super) fn end(self) -> Result<bool, Error> {
        match self {
            Unread::Failed(error) => Err(error),
            Unread::Gone | Unread::Refused(_) => Ok(false),
        }
    }
}

impl From<Reject> for Unread {
    fn from(reject: Reject) -> Self {
        Unread::Refused(status_of(reject))
    }
}

/// The status that refuses a request which could not be parsed.
pub(super) fn status_of(reject: Reject) -> Status {
    tracing::debug!("request refused with {}: {}", reject.status, reject.why);
    reject.status
}

/// The request timeout. It starts with the first wait for missing bytes. Most requests never wait.
pub(super) struct Deadline {
    timeout: Duration,
    at: Option<Instant>,
}

impl Deadline {
    pub(super) fn new(current: &Current) -> Self {
        Deadline { timeout: current.limits.request_timeout.duration(), at: None }
    }

    /// Reads more of the request, until the deadline.
    async fn read_more(&mut self, stream: &mut TlsStream) -> Result<(), Unread> {
        let at = *self.at.get_or_insert_with(|| Instant::now() + self.timeout);
        match timeout_at(at, stream.read_more()).await {
            Ok(Ok(0)) | Ok(Err(sealion_tls::Error::Truncated)) => Err(Unread::Gone),
            Ok(Ok(_)) => Ok(()),
            Ok(Err(error)) => Err(Unread::Failed(error.into())),
            Err(_) => {
                metrics::timed_out(metrics::Deadline::Request);
                Err(Unread::Refused(Status::REQUEST_TIMEOUT))
            }
        }
    }
}

/// Reads until the head is complete.
pub(super) async fn read_head(
    stream: &mut TlsStream,
    current: &Current,
    deadline: &mut Deadline,
) -> Result<HeadSpan, Unread> {
    loop {
        if let Some(span) = head::find(stream.buffered(), &current.head_limits)? {
            return Ok(span);
        }
        Box::pin(deadline.read_more(stream)).await?;
    }
}

/// Reads and discards the content of a request. `false`: the content is longer than `max_body`, so the connection must close.
pub(super) async fn drain_body(
    stream: &mut TlsStream,
    mut body: BodyDrain,
    deadline: &mut Deadline,
) -> Result<bool, Unread> {
    loop {
        if body.is_too_long() {
            return Ok(false);
        }
        match body.feed(stream.buffered()) {
            Drained::NeedMore => stream.consume(stream.buffered().len()),
            Drained::Done { consumed } => {
                stream.consume(consumed);
                return Ok(true);
            }
            Drained::TooLong => return Ok(false),
            Drained::Broken(reject) => return Err(reject.into()),
        }
        deadline.read_more(stream).await?;
    }
}
