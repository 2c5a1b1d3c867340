//! Operations on one connection.

use std::any::Any;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use quinn_proto::{Dir, ReadError, VarInt};
use rustls::pki_types::CertificateDer;
use thiserror::Error;

use crate::event::StreamId;
use crate::session::HandshakeFacts;

/// A connection that is open, borrowed from its endpoint. [`Endpoint::poll_transmit`](crate::Endpoint::poll_transmit)
/// sends the results.
pub struct Connection<'a> {
    inner: &'a mut quinn_proto::Connection,
}

/// A stream takes no more bytes, now or ever.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum WriteError {
    /// Not now: the windows or [`Limits::send_window`](crate::Limits::send_window) are full. [`Event::Writable`](crate::Event::Writable) follows.
    #[error("the stream takes no more bytes now")]
    Blocked,
    /// The client reads no more of the stream (STOP_SENDING).
    #[error("the client stopped the stream with code {0}")]
    Stopped(u64),
    /// The stream was finished or reset, or its connection ended.
    #[error("the stream is closed")]
    Closed,
}

/// One result of reading a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Read {
    /// Bytes, in order.
    Data(Bytes),
    /// Nothing now. [`Event::Readable`](crate::Event::Readable) follows.
    Blocked,
    /// The client finished the stream, and all of it was read.
    End,
    /// The client reset the stream.
    Reset(u64),
}

/// Numbers of a connection, for logs and metrics.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Statistics {
    /// The smoothed round-trip time.
    pub round_trip: Duration,
    /// Bytes of UDP payload sent.
    pub sent: u64,
    /// Bytes of UDP payload received.
    pub received: u64,
    /// Packets sent and deemed lost.
    pub lost_packets: u64,
    /// Packets sent.
    pub sent_packets: u64,
    /// The congestion window in bytes.
    pub congestion_window: u64,
    /// The largest datagram of the path, in bytes of UDP payload.
    pub mtu: u16,
    /// Connection IDs that the client retired: a client that does nothing else floods (CVE-2024-22189).
    pub retired_ids: u64,
}

impl<'a> Connection<'a> {
    pub(crate) fn new(inner: &'a mut quinn_proto::Connection) -> Self {
        Connection { inner }
    }

    // ---- streams

    /// Opens a stream that only the server sends on. `None`: the client permits no more now; [`Event::StreamAvailable`](crate::Event::StreamAvailable) follows.
    pub fn open_uni(&mut self) -> Option<StreamId> {
        self.inner.streams().open(Dir::Uni).map(Into::into)
    }

    /// Reads a stream, piece by piece. `None`: it was read to its end, or stopped. Reading opens the windows for more.
    pub fn read(&mut self, stream: StreamId, mut each: impl FnMut(Read) -> bool) -> Option<()> {
        let mut stream = self.inner.recv_stream(stream.inner());
        let mut chunks = stream.read(true).ok()?;
        loop {
            let (read, is_last) = match chunks.next(usize::MAX) {
                Ok(Some(chunk)) => (Read::Data(chunk.bytes), false),
                Ok(None) => (Read::End, true),
                Err(ReadError::Blocked) => (Read::Blocked, true),
                Err(ReadError::Reset(code)) => (Read::Reset(code.into_inner()), true),
            };
            if !each(read) || is_last {
                return Some(());
            }
        }
    }

    /// Writes chunks, which are not copied before they are sent. Removes what it takes from the front of `chunks`: a
    /// chunk that was taken whole becomes empty. Returns the number of bytes.
    ///
    /// # Errors
    /// [`WriteError`]: nothing was taken.
    pub fn write(&mut self, stream: StreamId, chunks: &mut [Bytes]) -> Result<usize, WriteError> {
        let written = self.inner.send_stream(stream.inner()).write_chunks(chunks)?;
        Ok(written.bytes)
    }

    /// Writes as many of `bytes` as the stream takes, by a copy. Returns their number.
    ///
    /// # Errors
    /// [`WriteError`]: nothing was taken.
    pub fn write_copy(&mut self, stream: StreamId, bytes: &[u8]) -> Result<usize, WriteError> {
        Ok(self.inner.send_stream(stream.inner()).write(bytes)?)
    }

    /// Ends a stream after what was written (FIN).
    ///
    /// # Errors
    /// [`WriteError`]: the stream was closed before.
    pub fn finish(&mut self, stream: StreamId) -> Result<(), WriteError> {
        match self.inner.send_stream(stream.inner()).finish() {
            Ok(()) => Ok(()),
            Err(quinn_proto::FinishError::Stopped(code)) => Err(WriteError::Stopped(code.into_inner())),
            Err(quinn_proto::FinishError::ClosedStream) => Err(WriteError::Closed),
        }
    }

    /// Ends a stream without the rest (RESET_STREAM).
    pub fn reset(&mut self, stream: StreamId, code: u64) {
        // One that is closed already needs no reset.
        let _ = self.inner.send_stream(stream.inner()).reset(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
    }

    /// Reads no more of a stream (STOP_SENDING).
    pub fn stop(&mut self, stream: StreamId, code: u64) {
        // One that has ended already needs no stop.
        let _ = self.inner.recv_stream(stream.inner()).stop(VarInt::from_u64(code).unwrap_or(VarInt::MAX));
    }

    /// Sends what is written to a stream from now on before streams of a lower level, and in turn with its own.
    pub fn set_level(&mut self, stream: StreamId, level: i32) {
        // One that is closed already has nothing to send.
        let _ = self.inner.send_stream(stream.inner()).set_priority(level);
    }

    // ---- the connection

    /// The client's address, which changes when it migrates.
    pub fn remote(&self) -> SocketAddr {
        self.inner.remote_address()
    }

    /// The local address that the client first sent to.
    pub fn local(&self) -> Option<IpAddr> {
        self.inner.local_ip()
    }

    /// Whether the handshake has not ended.
    pub fn is_handshaking(&self) -> bool {
        self.inner.is_handshaking()
    }

    /// The name that the client asked for (SNI).
    pub fn server_name(&self) -> Option<String> {
        self.handshake_data()?.server_name
    }

    /// The application protocol that was negotiated (ALPN).
    pub fn protocol(&self) -> Option<Vec<u8>> {
        self.handshake_data()?.protocol
    }

    /// The certificates of the client, if it has shown any.
    pub fn peer_certificates(&self) -> Option<Vec<CertificateDer<'static>>> {
        let identity: Box<dyn Any> = self.inner.crypto_session().peer_identity()?;
        identity.downcast().ok().map(|certificates| *certificates)
    }

    /// The result of its [`Handshake`](crate::Handshake), after it has ended. It is there once.
    pub fn handshake_result<T: 'static>(&self) -> Option<T> {
        self.handshake_data()?.take_result()?.downcast().ok().map(|result| *result)
    }

    fn handshake_data(&self) -> Option<HandshakeFacts> {
        self.inner.crypto_session().handshake_data()?.downcast().ok().map(|data| *data)
    }

    /// The smoothed round-trip time.
    pub fn round_trip(&self) -> Duration {
        self.inner.rtt()
    }

    /// Numbers for logs and metrics.
    pub fn statistics(&self) -> Statistics {
        let stats = self.inner.stats();
        Statistics {
            round_trip: stats.path.rtt,
            sent: stats.udp_tx.bytes,
            received: stats.udp_rx.bytes,
            lost_packets: stats.path.lost_packets,
            sent_packets: stats.path.sent_packets,
            congestion_window: stats.path.cwnd,
            mtu: stats.path.current_mtu,
            retired_ids: stats.frame_rx.retire_connection_id,
        }
    }

    /// The congestion window in bytes.
    pub fn congestion_window(&self) -> u64 {
        self.inner.congestion_state().window()
    }

    /// Changes the bytes of all streams that may have been received and not read. The client keeps what it may send already: a
    /// smaller window takes effect as it sends that.
    pub fn set_receive_window(&mut self, bytes: u64) {
        self.inner.set_receive_window(VarInt::from_u64(bytes).unwrap_or(VarInt::MAX));
    }

    /// Changes the bytes that may be written and not acknowledged, for instance under memory pressure.
    pub fn set_send_window(&mut self, bytes: u64) {
        self.inner.set_send_window(bytes);
    }
}

impl From<quinn_proto::WriteError> for WriteError {
    fn from(error: quinn_proto::WriteError) -> Self {
        match error {
            quinn_proto::WriteError::Blocked => WriteError::Blocked,
            quinn_proto::WriteError::Stopped(code) => WriteError::Stopped(code.into_inner()),
            quinn_proto::WriteError::ClosedStream => WriteError::Closed,
        }
    }
}
