//! Streams in memory, as a transport of the crate `h3`. Nothing is lost, and no window closes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};

use bytes::{Buf, Bytes};
use h3::quic::{self, ConnectionErrorIncoming, StreamErrorIncoming};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// Bytes of a stream, and whether it ends with them.
type Piece = (Bytes, bool);

/// The server's end: all streams in one channel.
pub(crate) struct Wire {
    from_client: UnboundedReceiver<(u64, Bytes, bool)>,
    seen: Vec<u64>,
    streams: Arc<Mutex<Streams>>,
    accept: UnboundedSender<RecvStream>,
}

/// Where the bytes of the server go, by stream.
#[derive(Default)]
struct Streams {
    to_client: HashMap<u64, UnboundedSender<Piece>>,
    next_bidi: u64,
    next_uni: u64,
}

impl Wire {
    pub(crate) fn new() -> (Wire, Transport) {
        let (to_server, from_client) = unbounded_channel();
        let (accept, accepted) = unbounded_channel();
        let streams = Arc::new(Mutex::new(Streams { next_uni: 2, ..Streams::default() }));
        let wire = Wire { from_client, seen: Vec::new(), streams: streams.clone(), accept };
        (wire, Transport { opener: Opener { to_server, streams }, accepted })
    }

    /// The next bytes of the client: the stream, the bytes, whether they end it, and whether the stream is new.
    pub(crate) async fn received(&mut self) -> Option<(u64, Bytes, bool, bool)> {
        let (stream, bytes, fin) = self.from_client.recv().await?;
        let is_new = !self.seen.contains(&stream);
        if is_new {
            self.seen.push(stream);
        }
        Some((stream, bytes, fin, is_new))
    }

    /// Sends bytes of the server. A unidirectional stream is opened by them.
    pub(crate) fn send(&self, stream: u64, bytes: &[u8], fin: bool) {
        let mut streams = self.streams.lock().unwrap();
        let to_client = streams.to_client.entry(stream).or_insert_with(|| {
            let (sender, receiver) = unbounded_channel();
            self.accept.send(RecvStream { stream, pieces: receiver, ended: false }).ok();
            sender
        });
        to_client.send((Bytes::copy_from_slice(bytes), fin)).ok();
    }
}

/// The client's end.
pub(crate) struct Transport {
    opener: Opener,
    accepted: UnboundedReceiver<RecvStream>,
}

#[derive(Clone)]
pub(crate) struct Opener {
    to_server: UnboundedSender<(u64, Bytes, bool)>,
    streams: Arc<Mutex<Streams>>,
}

pub(crate) struct RecvStream {
    stream: u64,
    pieces: UnboundedReceiver<Piece>,
    ended: bool,
}

pub(crate) struct SendStream {
    stream: u64,
    to_server: UnboundedSender<(u64, Bytes, bool)>,
}

pub(crate) struct BidiStream {
    send: SendStream,
    recv: RecvStream,
}

fn id(stream: u64) -> quic::StreamId {
    quic::StreamId::try_from(stream).unwrap()
}

fn gone() -> StreamErrorIncoming {
    StreamErrorIncoming::ConnectionErrorIncoming { connection_error: ConnectionErrorIncoming::Timeout }
}

impl quic::OpenStreams<Bytes> for Opener {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        let mut streams = self.streams.lock().unwrap();
        let stream = streams.next_bidi;
        streams.next_bidi += 4;
        let (sender, pieces) = unbounded_channel();
        streams.to_client.insert(stream, sender);
        let send = SendStream { stream, to_server: self.to_server.clone() };
        Poll::Ready(Ok(BidiStream { send, recv: RecvStream { stream, pieces, ended: false } }))
    }

    fn poll_open_send(&mut self, _: &mut Context<'_>) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        let mut streams = self.streams.lock().unwrap();
        let stream = streams.next_uni;
        streams.next_uni += 4;
        Poll::Ready(Ok(SendStream { stream, to_server: self.to_server.clone() }))
    }

    fn close(&mut self, _: h3::error::Code, _: &[u8]) {}
}

impl quic::OpenStreams<Bytes> for Transport {
    type BidiStream = BidiStream;
    type SendStream = SendStream;

    fn poll_open_bidi(&mut self, context: &mut Context<'_>) -> Poll<Result<BidiStream, StreamErrorIncoming>> {
        self.opener.poll_open_bidi(context)
    }

    fn poll_open_send(&mut self, context: &mut Context<'_>) -> Poll<Result<SendStream, StreamErrorIncoming>> {
        self.opener.poll_open_send(context)
    }

    fn close(&mut self, _: h3::error::Code, _: &[u8]) {}
}

impl quic::Connection<Bytes> for Transport {
    type RecvStream = RecvStream;
    type OpenStreams = Opener;

    fn poll_accept_recv(&mut self, context: &mut Context<'_>) -> Poll<Result<RecvStream, ConnectionErrorIncoming>> {
        self.accepted.poll_recv(context).map(|stream| stream.ok_or(ConnectionErrorIncoming::Timeout))
    }

    fn poll_accept_bidi(&mut self, _: &mut Context<'_>) -> Poll<Result<BidiStream, ConnectionErrorIncoming>> {
        Poll::Pending
    }

    fn opener(&self) -> Opener {
        self.opener.clone()
    }
}

impl quic::SendStream<Bytes> for SendStream {
    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(Ok(()))
    }

    fn send_data<T: Into<quic::WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        let mut data = data.into();
        let bytes = data.copy_to_bytes(data.remaining());
        self.to_server.send((self.stream, bytes, false)).map_err(|_| gone())
    }

    fn poll_finish(&mut self, _: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        Poll::Ready(self.to_server.send((self.stream, Bytes::new(), true)).map_err(|_| gone()))
    }

    fn reset(&mut self, code: u64) {
        panic!("the client resets a stream with {code:#x}");
    }

    fn send_id(&self) -> quic::StreamId {
        id(self.stream)
    }
}

impl quic::RecvStream for RecvStream {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        if self.ended {
            return Poll::Ready(Ok(None));
        }
        self.pieces.poll_recv(context).map(|piece| match piece {
            Some((bytes, fin)) => {
                self.ended = fin;
                Ok(if fin && bytes.is_empty() { None } else { Some(bytes) })
            }
            None => Err(gone()),
        })
    }

    fn stop_sending(&mut self, _: u64) {}

    fn recv_id(&self) -> quic::StreamId {
        id(self.stream)
    }
}

impl quic::SendStream<Bytes> for BidiStream {
    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_ready(context)
    }

    fn send_data<T: Into<quic::WriteBuf<Bytes>>>(&mut self, data: T) -> Result<(), StreamErrorIncoming> {
        self.send.send_data(data)
    }

    fn poll_finish(&mut self, context: &mut Context<'_>) -> Poll<Result<(), StreamErrorIncoming>> {
        self.send.poll_finish(context)
    }

    fn reset(&mut self, code: u64) {
        self.send.reset(code);
    }

    fn send_id(&self) -> quic::StreamId {
        self.send.send_id()
    }
}

impl quic::RecvStream for BidiStream {
    type Buf = Bytes;

    fn poll_data(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, StreamErrorIncoming>> {
        self.recv.poll_data(context)
    }

    fn stop_sending(&mut self, code: u64) {
        self.recv.stop_sending(code);
    }

    fn recv_id(&self) -> quic::StreamId {
        self.recv.recv_id()
    }
}

impl quic::BidiStream<Bytes> for BidiStream {
    type SendStream = SendStream;
    type RecvStream = RecvStream;

    fn split(self) -> (SendStream, RecvStream) {
        (self.send, self.recv)
    }
}
