//! Content in a content coding, encoded while it is sent.
//!
//! ```text
//! source ─► a piece ─► steps of 16 kB ─► encoder ─┬─ 16 kB of output ───────────────► sent
//!                                                 ├─ no more input is here: flushed ─► sent
//!                                                 └─ the source ended: finished ─────► sent
//! ```
//!
//! A source that fails, or gives another length than it announced, ends the content without the end of its coding: no decoder takes it for complete.

use std::fmt;
use std::io;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use sealion_http::{Coding, ExtraFields};

use super::body::{Body, BodyStream, Piece, Source};
use super::cursor::{Cursor, SourceError};
use super::read::read_range;
use crate::files::coding::stream::{STEP, StreamEncoder};
use crate::files::resolve::SiteFile;
use crate::limits::Reservation;

/// An encoder, and the memory that it takes.
pub(crate) struct ContentEncoder {
    pub(crate) encoder: StreamEncoder,
    /// Given back with the encoder.
    pub(crate) memory: Reservation,
}

/// Gives an encoder, if there is memory for it.
pub(crate) type MakeEncoder = Box<dyn FnOnce() -> Option<ContentEncoder> + Send>;

/// A stored response whose content may be sent in a coding.
pub(crate) trait CodedForms: fmt::Debug + Send + Sync {
    /// The content in a coding, at this level of it. `None`: this worker does not have it; it may be made behind the request, by an encoder of `encoder`.
    fn form(self: Box<Self>, coding: Coding, level: u8, encoder: &dyn Fn() -> MakeEncoder) -> Option<Arc<SiteFile>>;
}

/// Encodes the content of another body.
struct Encoded {
    content: Cursor,
    input: Input,
    state: State,
}

/// How far the content is encoded.
#[expect(clippy::large_enum_variant, reason = "it is made once, in a box, and nearly always begins as the large one")]
enum State {
    Encoding(ContentEncoder),
    /// The content ended, or is not sent.
    Ended,
    /// The content broke off: it has no end.
    Broken,
}

/// The rest of the piece that is being encoded.
#[derive(Default)]
struct Input {
    bytes: Bytes,
    /// The part of a file that follows these bytes.
    file: Option<(Arc<SiteFile>, Range<u64>)>,
    reading: Option<Pin<Box<Reading>>>,
}

type Reading = dyn Future<Output = Result<Bytes, sealion_tls::Error>> + Send + Sync;

/// Bytes of output that leave without waiting for more.
const ENOUGH: usize = 16 << 10;

/// Bytes of a file that are read at a time.
const READ: u64 = 64 << 10;

impl Body {
    /// The same content, encoded. Its length is not known in advance.
    pub(crate) fn encoded(self, encoder: ContentEncoder) -> Body {
        self.in_state(State::Encoding(encoder))
    }

    /// An empty body whose length is not known in advance: for a response to HEAD, whose content would be encoded.
    pub(crate) fn of_head(self) -> Body {
        self.in_state(State::Ended)
    }

    fn in_state(self, state: State) -> Body {
        let source = Box::pin(Encoded { content: Cursor::new(self), input: Input::default(), state });
        Body::Stream(BodyStream { length: None, source })
    }
}

impl Input {
    fn of(piece: Piece) -> Self {
        match piece {
            Piece::Bytes(bytes) => Input { bytes, ..Input::default() },
            Piece::File { file, range } => Input { file: Some((file, range)), ..Input::default() },
        }
    }

    /// The next step; `None`: all was taken.
    fn poll_step(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            if !self.bytes.is_empty() {
                return Poll::Ready(Ok(Some(self.bytes.split_to(self.bytes.len().min(STEP)))));
            }
            if let Some(reading) = &mut self.reading {
                let read = ready!(reading.as_mut().poll(cx));
                self.reading = None;
                self.bytes = read.map_err(|error| {
                    if let Some((file, _)) = &self.file {
                        file.note_unreadable();
                    }
                    io::Error::other(error)
                })?;
                continue;
            }
            let Some((file, range)) = self.file.as_mut().filter(|(_, range)| !range.is_empty()) else {
                self.file = None;
                return Poll::Ready(Ok(None));
            };
            let middle = range.end.min(range.start + READ);
            self.reading = Some(Box::pin(read_range(Arc::clone(file), range.start..middle)));
            range.start = middle;
        }
    }
}

impl Encoded {
    /// The next step of input; `None`: the end.
    fn poll_input(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Bytes>>> {
        loop {
            match ready!(self.input.poll_step(cx)) {
                Ok(Some(step)) => return Poll::Ready(Ok(Some(step))),
                Ok(None) => {}
                Err(error) => {
                    self.content.note_unreadable();
                    return Poll::Ready(Err(error));
                }
            }
            let piece = match self.content.pop_segment() {
                Some(segment) => Some(segment.into_piece()),
                None => ready!(self.content.poll_source(cx)).map_err(into_io)?,
            };
            match piece {
                Some(piece) => self.input = Input::of(piece),
                None => return Poll::Ready(Ok(None)),
            }
        }
    }

    /// The next piece of output, which is empty if the content ends without further output. `None`: the end.
    fn poll_output(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Option<Vec<u8>>>> {
        let mut taken = 0;
        loop {
            let input = self.poll_input(cx)?;
            let State::Encoding(ContentEncoder { encoder, .. }) = &mut self.state else { return Poll::Ready(Ok(None)) };
            match input {
                Poll::Ready(Some(step)) => {
                    encoder.write(&step)?;
                    taken += step.len();
                    if encoder.waiting() >= ENOUGH {
                        return Poll::Ready(Ok(Some(encoder.take())));
                    }
                    // Others take their turns before the next step.
                    if taken >= STEP {
                        cx.waker().wake_by_ref();
                        return Poll::Pending;
                    }
                }
                Poll::Ready(None) => {
                    let ended = std::mem::replace(&mut self.state, State::Ended);
                    let State::Encoding(ContentEncoder { encoder, memory }) = ended else {
                        return Poll::Ready(Ok(None));
                    };
                    let rest = encoder.finish()?;
                    drop(memory);
                    return Poll::Ready(Ok(Some(rest)));
                }
                Poll::Pending => {
                    encoder.flush()?;
                    return match encoder.waiting() {
                        0 => Poll::Pending,
                        _ => Poll::Ready(Ok(Some(encoder.take()))),
                    };
                }
            }
        }
    }
}

impl Source for Encoded {
    fn poll_piece(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        match self.state {
            State::Encoding(_) => {}
            State::Ended => return Poll::Ready(None),
            State::Broken => return Poll::Ready(Some(Err(io::Error::other("the content broke off before")))),
        }
        let output = ready!(self.poll_output(cx));
        if output.is_err() {
            self.state = State::Broken;
        }
        Poll::Ready(output.map(|output| output.map(|output| Piece::Bytes(output.into()))).transpose())
    }

    /// Without checksums of the content, which would be wrong.
    fn trailers(mut self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        let mut trailers = self.content.trailers()?;
        for name in CHECKSUMS {
            trailers.remove(name);
        }
        (!trailers.is_empty()).then_some(trailers)
    }

    fn note_unreadable(&self) {
        self.content.note_unreadable();
    }
}

fn into_io(error: SourceError) -> io::Error {
    match error {
        SourceError::Failed(error) => error,
        SourceError::Length { .. } => io::Error::other(error.to_string()),
    }
}

/// Fields with checksums of content or representation (RFC 9530 §2, §3; RFC 3230; RFC 1864). They do not hold for encoded content.
pub(crate) const CHECKSUMS: [&str; 4] = ["content-digest", "repr-digest", "digest", "content-md5"];
