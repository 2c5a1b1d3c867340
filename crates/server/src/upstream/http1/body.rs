//! The content of a response (RFC 9112 §6.3, §7.1).

use std::io;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::FieldSection;
use sealion_http::http1::body::{BodyDrain, Drained};
use sealion_http::http1::head;
use sealion_tls::Pipe;

use super::answer::{Framing, Head};
use super::connection::{Broken, Exchange, Released};
use crate::tls_client::Io;
use crate::upstream::connect::MOST_HEAD;
use crate::upstream::lazy_timer::LazyTimer;
use crate::upstream::message::AnswerFrame;

/// Room for reading content, in bytes. A response of 1 MB took 6.8 million instructions with 24 KiB at a time, 7.7 with 16, 7.1 with 48 or with 72
/// (kernel 6.1). A read that ends at the segments of the other side waits for each of them.
///
/// Of the CPU time that nginx takes for 1 MB over TLS, with nginx behind both: 0.71 with 24 KiB, 0.69 with 32 and with 48, 0.92 with 64 (user and system
/// time by /proc, 8 rounds of 600 requests in turns, 2026-11-27).
const ROOM: usize = 24 << 10;

/// Content with fewer bytes left is read: a read that does not fill its room shows that nothing follows.
///
/// A pipe costs less from 16 KiB on. MEASURED: instructions of a thread that moves a response from a socket to kernel TLS, under QEMU's `-icount` with
/// AES-128-GCM, 2026-11-27. The first number is for reads of 24 KiB, the second for a pipe of 64 KiB.
/// - Linux 6.1: 114 k and 96 k for 16 KiB, 425 k and 323 k for 64 KiB, 4.79 M and 4.05 M for 1 MiB.
/// - Linux 7.2: 106 k and 90 k for 16 KiB, 343 k and 332 k for 64 KiB, 5.14 M and 4.27 M for 1 MiB.
const LEAST_PIPED: u64 = ROOM as u64;

const CLOSED_EARLY: &str = "the connection was closed before its end";

/// The content of a response that is being read.
pub(in crate::upstream) struct AnswerBody {
    exchange: Exchange,
    left: Left,
    persists: bool,
}

enum Left {
    Nothing,
    Length(u64),
    Chunked(Box<Chunks>),
    Trailers(Box<HeaderMap>),
    UntilClose,
}

struct Chunks {
    decoder: BodyDrain,
    /// The lines of the trailers.
    trailers: Vec<u8>,
}

impl AnswerBody {
    pub(super) fn new(mut exchange: Exchange, head: &Head, answers_head: bool) -> Self {
        exchange.past.responded(head.framing == Framing::Nothing, answers_head);
        let left = match head.framing {
            Framing::Nothing => Left::Nothing,
            Framing::Length(length) => Left::Length(length),
            Framing::Chunked => Left::Chunked(Box::new(Chunks {
                decoder: BodyDrain::new(head::Framing::Chunked, u64::MAX),
                trailers: Vec::new(),
            })),
            Framing::UntilClose => Left::UntilClose,
        };
        let persists = head.persists && head.framing != Framing::UntilClose;
        AnswerBody { exchange, left, persists }
    }

    /// Keeps a timer for the next request on the connection.
    pub(in crate::upstream) fn keep_timer(&mut self, timer: LazyTimer) {
        self.exchange.timer = timer;
    }

    /// Whether the end has come.
    pub(in crate::upstream) fn has_ended(&self) -> bool {
        matches!(self.left, Left::Nothing | Left::Length(0))
    }

    /// The next part; `None`: the response is whole.
    ///
    /// # Errors
    /// The response is not whole.
    pub(in crate::upstream) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<AnswerFrame>>> {
        loop {
            let input = &mut self.exchange.input;
            let room = match &mut self.left {
                Left::Nothing | Left::Length(0) => return Poll::Ready(None),
                Left::Trailers(trailers) => {
                    let trailers = std::mem::take(&mut **trailers);
                    self.left = Left::Nothing;
                    return Poll::Ready(Some(Ok(AnswerFrame::Trailers(trailers))));
                }
                Left::Length(left) if !input.is_empty() => {
                    let taken = usize::try_from(*left).unwrap_or(usize::MAX).min(input.len());
                    *left -= taken as u64;
                    return Poll::Ready(Some(Ok(AnswerFrame::Content(input.split_to(taken).freeze()))));
                }
                Left::UntilClose if !input.is_empty() => {
                    return Poll::Ready(Some(Ok(AnswerFrame::Content(input.split().freeze()))));
                }
                Left::Chunked(chunks) if !input.is_empty() => match chunks.decode(input) {
                    Ok((content, has_ended)) => {
                        if has_ended {
                            self.left =
                                chunks.trailers().map_or(Left::Nothing, |trailers| Left::Trailers(Box::new(trailers)));
                        }
                        if !content.is_empty() {
                            return Poll::Ready(Some(Ok(AnswerFrame::Content(content.freeze()))));
                        }
                        continue;
                    }
                    Err(broken) => return Poll::Ready(Some(Err(io::Error::other(broken)))),
                },
                // One byte more than is left: a read that does not fill it needs no second read to find that nothing follows.
                Left::Length(left) if *left <= ROOM as u64 => *left as usize + 1,
                Left::Length(_) => ROOM,
                Left::UntilClose | Left::Chunked(_) => ROOM,
            };
            match ready!(self.exchange.poll_fill(cx, room)) {
                Ok(0) if matches!(self.left, Left::UntilClose) => self.left = Left::Nothing,
                Ok(0) => return Poll::Ready(Some(Err(io::Error::other(CLOSED_EARLY)))),
                Ok(_) => {}
                Err(Broken::Client(incomplete)) => return Poll::Ready(Some(Err(io::Error::other(incomplete)))),
                Err(Broken::Server(error)) => return Poll::Ready(Some(Err(error))),
            }
        }
    }

    /// Whether the content that comes next should be moved into a pipe. Chunks cannot: their sizes lie among it.
    pub(in crate::upstream) fn fills_pipes(&self) -> bool {
        matches!(self.left, Left::Length(left) if left >= LEAST_PIPED) && self.exchange.fills_pipes()
    }

    /// Moves content that comes into a pipe. `None`: it has to be read, or the response is whole.
    ///
    /// # Errors
    /// The response is not whole.
    pub(in crate::upstream) fn poll_fill_pipe(
        &mut self,
        cx: &mut Context<'_>,
        pipe: &mut Pipe,
    ) -> Poll<Option<io::Result<usize>>> {
        match &mut self.left {
            Left::Length(left) if *left > 0 && self.exchange.fills_pipes() => {
                let moved = ready!(self.exchange.poll_fill_pipe(cx, pipe, *left))?;
                *left -= moved as u64;
                let is_early = moved == 0;
                Poll::Ready(Some(if is_early { Err(io::Error::other(CLOSED_EARLY)) } else { Ok(moved) }))
            }
            _ => Poll::Ready(None),
        }
    }

    /// The connection, for another request.
    pub(in crate::upstream) fn into_connection(self) -> Released {
        if self.has_ended() && self.persists { self.exchange.end() } else { Released::Closed }
    }

    /// The connection, for another protocol, with the bytes that have come of it.
    pub(in crate::upstream) fn upgrade(self) -> Option<(Box<dyn Io>, Bytes)> {
        self.exchange.upgrade()
    }
}

impl Chunks {
    /// The content in `input`, which is used up as far as it belongs to the response, and whether the end has come.
    fn decode(&mut self, input: &mut BytesMut) -> Result<(BytesMut, bool), String> {
        let mut content = BytesMut::with_capacity(input.len());
        let trailers = &mut self.trailers;
        let drained = self.decoder.decode_with_trailers(
            input,
            |octets| content.extend_from_slice(octets),
            |octet| trailers.push(octet),
        );
        let (consumed, has_ended) = match drained {
            Drained::NeedMore => (input.len(), false),
            Drained::Done { consumed } => (consumed, true),
            Drained::TooLong => return Err("its chunks are too long".to_owned()),
            Drained::Broken(reject) => return Err(reject.why.to_owned()),
        };
        input.advance(consumed);
        if self.trailers.len() > MOST_HEAD {
            return Err(format!("its trailers have more than {MOST_HEAD} octets"));
        }
        Ok((content, has_ended))
    }

    /// The fields behind the content, if there are any.
    fn trailers(&self) -> Option<HeaderMap> {
        let fields = FieldSection::from_lines(&self.trailers);
        let fields = fields.iter().filter_map(|(name, value)| {
            Some((HeaderName::from_bytes(name).ok()?, HeaderValue::from_bytes(value).ok()?))
        });
        let fields: HeaderMap = fields.collect();
        (!fields.is_empty()).then_some(fields)
    }
}
