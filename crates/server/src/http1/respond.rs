//! Sending a response over HTTP/1.1: choose the path, write the head, send the body.

use std::future::poll_fn;
use std::task::{Context, Poll, ready};

use sealion_http::HttpTime;
use sealion_http::http1::framing::{LAST_CHUNK, ResponseFraming, write_chunk_size};
use sealion_http::http1::write::{Connection, insert_lines, write_head};
use sealion_tls::{Part, Source, TlsStream};
use tokio::task::yield_now;

use super::buffer::Buffer;
use super::content::ContentReader;
use super::stream::Stream;
use crate::exchange::{Alternative, Error, PathChoice, PathPolicy};
use crate::response::{Body, Cursor, Piece, Response, Segment};

/// The content of a response, and how much of it has been sent. It can be read when the sending was dropped.
pub(super) struct Progress {
    pub(super) content: Cursor,
    /// Bytes that the connection had sent before, interim responses included.
    before: u64,
    /// Bytes of head and framing.
    overhead: u64,
}

impl Progress {
    /// Nothing is sent of a response whose content is not known yet.
    pub(super) fn new(stream: &TlsStream) -> Self {
        Progress { content: Cursor::default(), before: stream.payload_sent(), overhead: 0 }
    }

    /// Bytes of the body that were sent, and all bytes, including head and framing.
    pub(super) fn sent(&self, stream: &TlsStream) -> (u64, u64) {
        let wire = stream.payload_sent() - self.before;
        (wire.saturating_sub(self.overhead), wire)
    }
}

/// What a head says beside status and fields.
#[derive(Debug, Clone, Copy)]
pub(super) struct Head<'a> {
    pub(super) framing: ResponseFraming,
    pub(super) connection: Connection,
    /// The value of Date.
    pub(super) date: HttpTime,
    /// Where the listener has HTTP/3.
    pub(super) alternative: Option<&'a Alternative>,
}

/// Sends a response; its content moves into `progress`. The path is chosen by the known length of the body. The content of the request that is still
/// coming is read meanwhile.
///
/// # Errors
/// The error that cut the response short.
pub(super) async fn respond(
    stream: &mut Stream<'_>,
    response: &mut Response,
    head: Head<'_>,
    policy: PathPolicy<'_>,
    progress: &mut Progress,
) -> Result<(), Error> {
    progress.content = Cursor::new(std::mem::replace(&mut response.body, Body::Empty));
    progress.before = stream.tls.payload_sent();
    let result = send(stream, response, head, policy, progress).await;
    if let Err(Error::Tls(error)) = &result
        && error.is_of_file()
    {
        progress.content.note_unreadable();
    }
    result
}

async fn send(
    stream: &mut Stream<'_>,
    response: &Response,
    head: Head<'_>,
    policy: PathPolicy<'_>,
    progress: &mut Progress,
) -> Result<(), Error> {
    let Stream { tls, path, content, .. } = stream;
    let Head { framing, connection, date, alternative } = head;
    let has_content = framing.has_content();
    let known = if has_content { progress.content.announced().unwrap_or_else(|| progress.content.len()) } else { 0 };
    path.make(*tls, HEAD_ESTIMATE + known, policy).await?;
    let mut head = Buffer::take();
    write_head(&mut head, response.status, &response.fields, framing, connection, &date);
    if let Some(alternative) = alternative {
        insert_lines(&mut head, alternative.line());
    }
    progress.overhead = head.len() as u64;
    if has_content && progress.content.source().is_some() {
        let mut sending = Sending { stream: tls, path, policy, framing, progress, content: content.as_mut() };
        return Box::pin(sending.send(head)).await;
    }
    let head = Part::Bytes(&head);
    let sent = match progress.content.only_segment() {
        Some(only) if has_content => tls.respond(&[head, only.part()]).await,
        None if has_content => {
            let segments = progress.content.segments().map(Segment::part);
            tls.respond(&std::iter::once(head).chain(segments).collect::<Vec<_>>()).await
        }
        _ => tls.respond(&[head]).await,
    };
    sent.map_err(Error::from)
}

/// Usual length of a head, for the choice of path.
const HEAD_ESTIMATE: u64 = 256;

/// The state of sending what a source gives.
struct Sending<'a> {
    stream: &'a mut TlsStream,
    path: &'a mut PathChoice,
    policy: PathPolicy<'a>,
    framing: ResponseFraming,
    progress: &'a mut Progress,
    /// The content of the request, if it is forwarded.
    content: Option<&'a mut ContentReader>,
}

impl Sending<'_> {
    /// Sends the head, then every piece as it arrives. The response is finished only if the source ended after the announced
    /// length.
    async fn send(&mut self, mut head: Buffer) -> Result<(), Error> {
        self.stream.begin().await?;
        while let Some(piece) = self.next(&mut head).await? {
            let len = piece.len();
            if len > 0 {
                self.send_piece(&mut head, &piece, len).await?;
            }
        }
        if self.framing == ResponseFraming::Chunked {
            let before = head.len();
            match self.progress.content.trailers() {
                None => head.extend_from_slice(LAST_CHUNK),
                Some(trailers) => {
                    let (last, end) = LAST_CHUNK.split_at(LAST_CHUNK.len() - 2);
                    head.extend_from_slice(last);
                    head.extend_from_slice(trailers.lines());
                    head.extend_from_slice(end);
                }
            }
            self.progress.overhead += (head.len() - before) as u64;
        }
        self.send_framing(&mut head).await?;
        Ok(self.stream.finish()?)
    }

    /// The next piece. If it is ready, the pending bytes of head and framing are sent together with it.
    async fn next(&mut self, head: &mut Buffer) -> Result<Option<Piece>, Error> {
        if let Poll::Ready(piece) = poll_fn(|cx| Poll::Ready(self.progress.content.poll_source(cx))).await {
            return Ok(piece?);
        }
        // What makes the piece may be ready to run: then head and piece leave together.
        yield_now().await;
        if let Poll::Ready(piece) = poll_fn(|cx| Poll::Ready(self.progress.content.poll_source(cx))).await {
            return Ok(piece?);
        }
        self.send_framing(head).await?;
        self.wait_for_piece().await
    }

    /// Waits for the next piece, and reads the content of the request meanwhile. Fails if the client goes away.
    async fn wait_for_piece(&mut self) -> Result<Option<Piece>, Error> {
        let Sending { stream, content, progress, .. } = self;
        let mut is_here = true;
        poll_fn(|cx| {
            if let Poll::Ready(piece) = progress.content.poll_source(cx) {
                return Poll::Ready(piece.map_err(Error::from));
            }
            ready!(poll_content(content, cx, stream))?;
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
            self.progress.overhead += (before.len() - end + 2) as u64;
        }
        let content = match piece {
            Piece::Bytes(bytes) => Part::Bytes(bytes),
            Piece::File { file, range } => file.part(range),
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
