//! The content of a request that is forwarded: read while the response is made and sent, as fast as the upstream takes it.

use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use sealion_http::http1::body::{BodyDrain, Drained};
use sealion_http::http1::head::Framing;
use sealion_http::{FieldSection, Status};
use sealion_tls::TlsStream;

use crate::exchange::{ContentRest, Error, RelayedContent};
use crate::observe::metrics;
use crate::passing::{ContentForm, ContentUnderWay, Link};
use crate::upstream::{ContentWriter, Patience, RequestContent, Room, pipe};

/// Bytes that are passed on at a time, so that a pipe that is nearly full is not filled by much more.
const PIECE: usize = 16 << 10;

/// Bytes of trailers, which are kept until they are complete.
const MOST_TRAILERS: usize = 8 << 10;

/// Reads the content of one request. It must be polled wherever the request waits.
pub(super) struct ContentReader {
    /// `None`: nothing more is passed on.
    writer: Option<ContentWriter>,
    form: Form,
    /// The client has announced that it waits for 100 (RFC 9110 §10.1.1).
    expects_continue: bool,
    is_complete: bool,
    patience: Patience,
}

enum Form {
    /// With the lines of its trailers so far.
    Content(BodyDrain, Vec<u8>),
    /// The bytes behind the request belong to another protocol, once the upstream agrees.
    Tunnel { is_open: bool },
}

/// The next step of the driver.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Send 100: the content is wanted now.
    Continue,
    /// Nothing more: the content is complete, or no reader wants it.
    Done,
}

impl ContentReader {
    /// `patience`: for the next piece of content.
    pub(super) fn new(framing: Framing, expects_continue: bool, patience: Duration) -> (Self, RequestContent) {
        let length = match framing {
            Framing::None => Some(0),
            Framing::Length(length) => Some(length),
            Framing::Chunked => None,
        };
        Self::with(length, Form::Content(BodyDrain::new(framing, u64::MAX), Vec::new()), expects_continue, patience)
    }

    /// For a request that asks for another protocol, and has no content.
    pub(super) fn of_tunnel() -> (Self, RequestContent) {
        Self::with(None, Form::Tunnel { is_open: false }, false, Duration::MAX)
    }

    fn with(length: Option<u64>, form: Form, expects_continue: bool, patience: Duration) -> (Self, RequestContent) {
        let (writer, content) = pipe(length);
        let patience = Patience::new(patience);
        (ContentReader { writer: Some(writer), form, expects_continue, is_complete: false, patience }, content)
    }

    /// Goes on with content that goes to another process over `link`. `None`: it is content of another protocol.
    pub(super) fn resume(
        ContentUnderWay { form, expects_continue, is_complete, room, owed_since, waiting, end }: ContentUnderWay,
        link: Link,
        patience: Duration,
    ) -> Option<(Self, RelayedContent)> {
        let (form, patience) = match form {
            ContentForm::Content(body, trailers) => (Form::Content(body, trailers), patience),
            ContentForm::Tunnel { is_open } => (Form::Tunnel { is_open }, Duration::MAX),
            ContentForm::Frames => return None,
        };
        let (relayed, writer) = RelayedContent::start(link, None, ContentRest { room, waiting, end });
        let patience = Patience::since(patience, owed_since.map(Into::into));
        Some((ContentReader { writer, form, expects_continue, is_complete, patience }, relayed))
    }

    /// The state that another process needs to go on. `rest`: what has not been sent of it.
    pub(super) fn pack(&self, rest: ContentRest) -> ContentUnderWay {
        let form = match &self.form {
            Form::Content(body, trailers) => ContentForm::Content(body.clone(), trailers.clone()),
            Form::Tunnel { is_open } => ContentForm::Tunnel { is_open: *is_open },
        };
        let ContentRest { room, waiting, end } = rest;
        let (expects_continue, is_complete) = (self.expects_continue, self.is_complete);
        let owed_since = self.patience.began().map(Into::into);
        ContentUnderWay { form, expects_continue, is_complete, room, owed_since, waiting, end }
    }

    /// The writer for the upstream of this process. `None`: nothing more is passed on.
    pub(super) fn writer(&mut self) -> &mut Option<ContentWriter> {
        &mut self.writer
    }

    /// The upstream agreed to the other protocol.
    pub(super) fn open_tunnel(&mut self) {
        if let Form::Tunnel { is_open } = &mut self.form {
            *is_open = true;
        }
    }

    /// Whether more may be passed on.
    pub(super) fn is_open(&self) -> bool {
        self.writer.is_some()
    }

    /// Whether the next request follows in the stream.
    pub(super) fn is_complete(&self) -> bool {
        self.is_complete || matches!(self.form, Form::Tunnel { is_open: false })
    }

    /// Passes on the content that has come.
    ///
    /// # Errors
    /// The connection is lost.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, stream: &mut TlsStream) -> Poll<Result<Step, Error>> {
        if matches!(self.form, Form::Tunnel { is_open: false }) {
            return Poll::Ready(Ok(Step::Done));
        }
        loop {
            let Some(writer) = &mut self.writer else { return Poll::Ready(Ok(Step::Done)) };
            match writer.poll_room(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Room::Closed) => {
                    self.writer = None;
                    continue;
                }
                Poll::Ready(Room::Wanted) if std::mem::take(&mut self.expects_continue) => {
                    return Poll::Ready(Ok(Step::Continue));
                }
                Poll::Ready(Room::Wanted) => {}
            }
            if stream.buffered().is_empty() {
                match stream.poll_read_more(cx) {
                    Poll::Pending if matches!(self.form, Form::Tunnel { .. }) => return Poll::Pending,
                    Poll::Pending => {
                        if self.patience.poll(cx).is_pending() {
                            return Poll::Pending;
                        }
                        metrics::timed_out(metrics::Deadline::Request);
                        self.fail(Status::REQUEST_TIMEOUT);
                        continue;
                    }
                    Poll::Ready(Ok(0)) | Poll::Ready(Err(sealion_tls::Error::Truncated)) => {
                        self.ended();
                        continue;
                    }
                    Poll::Ready(Ok(_)) => self.patience.moved(),
                    Poll::Ready(Err(error)) => {
                        self.writer = None;
                        return Poll::Ready(Err(error.into()));
                    }
                }
            }
            self.pass(stream);
        }
    }

    /// The client sends no more.
    fn ended(&mut self) {
        match (&self.form, self.writer.take()) {
            (Form::Tunnel { .. }, Some(writer)) => writer.finish(),
            // Its content is incomplete.
            (Form::Content(..), writer) => drop(writer),
            (_, None) => {}
        }
    }

    fn fail(&mut self, status: Status) {
        if let Some(writer) = self.writer.take() {
            writer.fail(status);
        }
    }

    fn pass(&mut self, stream: &mut TlsStream) {
        let Some(writer) = &mut self.writer else { return };
        let buffered = stream.buffered();
        let piece = &buffered[..buffered.len().min(PIECE)];
        let consumed = match &mut self.form {
            Form::Tunnel { .. } => {
                writer.write(Bytes::copy_from_slice(piece));
                piece.len()
            }
            Form::Content(body, trailers) => match body.decode_with_trailers(
                piece,
                |content| writer.write(Bytes::copy_from_slice(content)),
                |octet| trailers.push(octet),
            ) {
                Drained::NeedMore if trailers.len() > MOST_TRAILERS => {
                    self.fail(Status::REQUEST_HEADER_FIELDS_TOO_LARGE);
                    0
                }
                Drained::NeedMore => piece.len(),
                Drained::Done { consumed } => {
                    self.is_complete = true;
                    if let Some(writer) = self.writer.take() {
                        writer.finish_with(FieldSection::from_lines(trailers));
                    }
                    consumed
                }
                Drained::Broken(reject) => {
                    self.fail(reject.status);
                    0
                }
                Drained::TooLong => {
                    self.fail(Status::CONTENT_TOO_LARGE);
                    0
                }
            },
        };
        stream.consume(consumed);
    }
}
