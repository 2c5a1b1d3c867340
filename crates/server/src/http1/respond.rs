//! Sending a response over HTTP/1.1: choose the path, write the head, send the body.

use std::future::poll_fn;
use std::ops::Range;
use std::task::{Context, Poll};

use sealion_http::HttpTime;
use sealion_http::http1::framing::{LAST_CHUNK, ResponseFraming, write_chunk_size};
use sealion_http::http1::write::{Connection, write_head};
use sealion_tls::{Part, Source, TlsStream};
use tokio::task::yield_now;

use super::buffer::Buffer;
use super::content::ContentReader;
use super::stream::Stream;
use crate::exchange::{Error, PathChoice, PathPolicy};
use crate::files::resolve::{Content, SiteFile};
use crate::response::{Body, BodyStream, Piece, Response};

/// How much of a response has been sent. It can be read while the response is being sent, and when its sending was dropped.
#[derive(Debug, Clone, Copy)]
pub(super) struct Progress {
    /// Bytes that the connection had sent before.
    before: u64,
    /// Bytes of head and framing.
    overhead: u64,
    /// Bytes of the body that its source has given.
    given: u64,
}

/// The bytes of a response that were sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    /// Bytes of the body.
    pub(super) body: u64,
    /// All bytes, including head and framing.
    pub(super) wire: u64,
    /// Bytes of the body that its source has given, and that were not sent.
    pub(super) unsent: u64,
}

impl Progress {
    /// Of a response that begins now.
    pub(super) fn begin(stream: &TlsStream) -> Self {
        Progress { before: stream.payload_sent(), overhead: 0, given: 0 }
    }

    pub(super) fn sent(&self, stream: &TlsStream) -> Sent {
        let wire = stream.payload_sent() - self.before;
        let body = wire.saturating_sub(self.overhead);
        Sent { body, wire, unsent: self.given.saturating_sub(body) }
    }
}

/// What a head says beside status and fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head {
    pub(super) framing: ResponseFraming,
    pub(super) connection: Connection,
    /// The value of Date.
    pub(super) date: HttpTime,
}

/// Sends a response. The path is chosen by the known length of the body. The content of the request that is still coming is read meanwhile.
///
/// # Errors
/// The error that cut the response short.
pub(super) async fn respond(
    stream: &mut Stream<'_>,
    response: &mut Response,
    head: Head,
    policy: PathPolicy<'_>,
    progress: &mut Progress,
) -> Result<(), Error> {
    let Stream { tls, path, content, .. } = stream;
    let Head { framing, connection, date } = head;
    let known = if framing.has_content() { response.body.len().unwrap_or(0) } else { 0 };
    path.make(*tls, HEAD_ESTIMATE + known, policy).await?;
    let mut head = Buffer::take();
    write_head(&mut head, response.status, &response.fields, framing, connection, &date);
    progress.overhead = head.len() as u64;
    if !framing.has_content() {
        return Ok(tls.respond(&[Part::Bytes(&head)]).await?);
    }
    match &mut response.body {
        Body::Stream(body) => {
            let Progress { overhead, given, .. } = progress;
            let content = content.as_mut();
            let mut sending = Sending { stream: tls, path, policy, framing, overhead, given, content };
            Box::pin(sending.send(head, body)).await
        }
        body => Ok(respond_whole(tls, &head, body).await?),
    }
}

/// Usual length of a head, for the choice of path.
const HEAD_ESTIMATE: u64 = 256;

/// Sends head and body together.
async fn respond_whole(stream: &mut TlsStream, head: &[u8], body: &Body) -> Result<(), sealion_tls::Error> {
    match body {
        Body::Empty => stream.respond(&[Part::Bytes(head)]).await,
        Body::Bytes(bytes) => stream.respond(&[Part::Bytes(head), Part::Bytes(bytes)]).await,
        Body::Shared(shared) => stream.respond(&[Part::Bytes(head), Part::Bytes(&shared.bytes)]).await,
        Body::File { file, range } => stream.respond(&[Part::Bytes(head), of_file(file, range)]).await,
        Body::Multipart { file, parts, closing } => {
            let mut all = Vec::with_capacity(parts.len() * 2 + 2);
            all.push(Part::Bytes(head));
            for part in parts {
                all.push(Part::Bytes(&part.head));
                all.push(of_file(file, &part.range));
            }
            all.push(Part::Bytes(closing));
            stream.respond(&all).await
        }
        Body::Stream(_) => unreachable!("a stream is sent piece by piece"),
    }
}

fn of_file<'a>(file: &'a SiteFile, range: &Range<u64>) -> Part<'a> {
    match &file.content {
        Content::File(file) => Part::File { file, range: range.clone() },
        Content::Memory(bytes) => Part::Bytes(&bytes[range.start as usize..range.end as usize]),
    }
}

/// The state of sending a [`BodyStream`].
struct Sending<'a> {
    stream: &'a mut TlsStream,
    path: &'a mut PathChoice,
    policy: PathPolicy<'a>,
    framing: ResponseFraming,
    /// Bytes sent that do not belong to the body.
    overhead: &'a mut u64,
    /// Bytes of the body that its source has given.
    given: &'a mut u64,
    /// The content of the request, if it is forwarded.
    content: Option<&'a mut ContentReader>,
}

impl Sending<'_> {
    /// Sends the head, then every piece as it arrives. The response is finished only if the source ended after the announced
    /// length.
    async fn send(&mut self, mut head: Buffer, body: &mut BodyStream) -> Result<(), Error> {
        self.stream.begin().await?;
        loop {
            // If the first piece is ready, it is sent together with the head.
            let piece = match poll_fn(|cx| Poll::Ready(body.source.as_mut().poll_piece(cx))).await {
                Poll::Ready(piece) => piece,
                Poll::Pending => {
                    // What makes the piece may be ready to run: then head and piece leave together.
                    yield_now().await;
                    match poll_fn(|cx| Poll::Ready(body.source.as_mut().poll_piece(cx))).await {
                        Poll::Ready(piece) => piece,
                        Poll::Pending => {
                            self.send_framing(&mut head).await?;
                            self.wait_for_piece(body).await?
                        }
                    }
                }
            };
            let Some(piece) = piece.transpose().map_err(Error::Source)? else { break };
            let len = piece.len();
            *self.given += len;
            let given = *self.given;
            if let ResponseFraming::Length(announced) = self.framing
                && given > announced
            {
                return Err(Error::SourceLength { announced, given });
            }
            if len > 0 {
                self.send_piece(&mut head, &piece, len).await?;
            }
        }
        match self.framing {
            ResponseFraming::Length(announced) if *self.given < announced => {
                return Err(Error::SourceLength { announced, given: *self.given });
            }
            ResponseFraming::Chunked => {
                let before = head.len();
                match body.source.as_mut().trailers() {
                    None => head.extend_from_slice(LAST_CHUNK),
                    Some(trailers) => {
                        let (last, end) = LAST_CHUNK.split_at(LAST_CHUNK.len() - 2);
                        head.extend_from_slice(last);
                        head.extend_from_slice(trailers.lines());
                        head.extend_from_slice(end);
                    }
                }
                *self.overhead += (head.len() - before) as u64;
            }
            _ => {}
        }
        self.send_framing(&mut head).await?;
        Ok(self.stream.finish()?)
    }

    /// Waits for the next piece, and reads the content of the request meanwhile. Fails if the client goes away.
    async fn wait_for_piece(&mut self, body: &mut BodyStream) -> Result<Option<std::io::Result<Piece>>, Error> {
        let Sending { stream, content, .. } = self;
        let mut is_here = true;
        poll_fn(|cx| {
            if let Poll::Ready(piece) = body.source.as_mut().poll_piece(cx) {
                return Poll::Ready(Ok(piece));
            }
            match poll_content(content, cx, stream) {
                Poll::Ready(Err(error)) => return Poll::Ready(Err(error)),
                Poll::Ready(Ok(())) => {}
                Poll::Pending => return Poll::Pending,
            }
            if is_here && let Poll::Ready(gone) = stream.poll_peer_gone(cx) {
                match gone {
                    // A half-close after the head of the response is tolerated: the client may still read.
                    Ok(()) | Err(sealion_tls::Error::Truncated) => is_here = false,
                    Err(error) => return Poll::Ready(Err(error.into())),
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Sends the pending bytes of head and framing.
    async fn send_framing(&mut self, bytes: &mut Buffer) -> Result<(), Error> {
        if !bytes.is_empty() {
            self.send_parts(&[Part::Bytes(bytes)]).await?;
            bytes.clear();
        }
        Ok(())
    }

    /// Sends, and reads the content of the request meanwhile: a client that reads only when all of its content is taken is not waited for.
    async fn send_parts(&mut self, parts: &[Part<'_>]) -> Result<(), Error> {
        let Sending { stream, content, .. } = self;
        let mut source = Source::new(parts);
        poll_fn(|cx| {
            if let Poll::Ready(Err(error)) = poll_content(content, cx, stream) {
                return Poll::Ready(Err(error));
            }
            stream.poll_send(cx, &mut source).map_err(Error::from)
        })
        .await
    }

    /// Sends a piece after the pending bytes of head and framing. The path is reconsidered first.
    async fn send_piece(&mut self, before: &mut Buffer, piece: &Piece, len: u64) -> Result<(), Error> {
        self.path.weigh(self.stream, len, self.policy).await?;
        let chunked = self.framing == ResponseFraming::Chunked;
        if chunked {
            let end = before.len();
            write_chunk_size(before, len as usize);
            *self.overhead += (before.len() - end + 2) as u64;
        }
        let content = match piece {
            Piece::Bytes(bytes) => Part::Bytes(bytes),
            Piece::File { file, range } => of_file(file, range),
        };
        let after = Part::Bytes(if chunked { b"\r\n" } else { b"" });
        let sent = self.send_parts(&[Part::Bytes(before), content, after]).await;
        if let (Piece::File { file, .. }, Err(Error::Tls(error))) = (piece, &sent)
            && error.is_of_file()
        {
            file.note_unreadable();
        }
        sent?;
        before.clear();
        Ok(())
    }
}

/// Reads the content of a request. Ready: there is no more to read.
fn poll_content(
    content: &mut Option<&mut ContentReader>,
    cx: &mut Context<'_>,
    stream: &mut TlsStream,
) -> Poll<Result<(), Error>> {
    match content {
        Some(content) => content.poll(cx, stream).map_ok(drop),
        None => Poll::Ready(Ok(())),
    }
}

#[cfg(test)]
#[path = "respond_tests.rs"]
mod tests;
