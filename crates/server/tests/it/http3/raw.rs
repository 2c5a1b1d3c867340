//! A client of HTTP/3 that writes its frames itself.

use quinn::{RecvStream, SendStream};
use sealion_h3::HeaderBlock;
use sealion_testkit::server::Server;

use super::client::{Options, Quic};
use crate::support::Site;

pub(super) const DATA: u64 = 0;
pub(super) const HEADERS: u64 = 1;
pub(super) const SETTINGS: u64 = 4;
pub(super) const GOAWAY: u64 = 7;

pub(super) const H3_NO_ERROR: u64 = 0x100;

/// A connection whose SETTINGS are sent.
pub(super) struct Raw {
    quic: Quic,
    control: SendStream,
    /// The server's control stream, and what of it is not a frame yet.
    peer: RecvStream,
    unread: Vec<u8>,
}

/// A request whose response has not been read.
pub(super) struct Asked {
    send: SendStream,
    receive: RecvStream,
}

/// A frame: its type and payload.
pub(super) type Frame = (u64, Vec<u8>);

impl Raw {
    #[track_caller]
    pub(super) fn connect(site: &Site, server: &Server) -> Self {
        let quic = Quic::connect(server.address(), Options::new(&site.pki, "localhost")).expect("a connection");
        let (control, peer) = quic.runtime.block_on(async {
            let mut control = quic.connection.open_uni().await.expect("a stream");
            control.write_all(&[0, SETTINGS as u8, 0]).await.expect("it leaves");
            let mut peer = quic.connection.accept_uni().await.expect("a stream");
            let mut kind = [0];
            peer.read_exact(&mut kind).await.expect("a type");
            assert_eq!(kind, [0], "the control stream");
            (control, peer)
        });
        Raw { quic, control, peer, unread: Vec::new() }
    }

    /// Sends a frame on the control stream.
    #[track_caller]
    pub(super) fn control(&mut self, kind: u64, payload: &[u8]) {
        self.quic.runtime.block_on(self.control.write_all(&frame(kind, payload))).expect("it leaves");
    }

    /// The next frame of the server's control stream.
    #[track_caller]
    pub(super) fn next_control(&mut self) -> Frame {
        self.quic.runtime.block_on(async {
            loop {
                if let Some((frame, length)) = first_frame(&self.unread) {
                    self.unread.drain(..length);
                    return frame;
                }
                let chunk = self.peer.read_chunk(1000, true).await.expect("the stream goes on").expect("no end");
                self.unread.extend_from_slice(&chunk.bytes);
            }
        })
    }

    /// Sends the head of a request.
    #[track_caller]
    pub(super) fn request(&mut self, fields: &[(&str, &str)]) -> Asked {
        let mut block = HeaderBlock::default();
        fields.iter().for_each(|(name, value)| block.field(name, value.as_bytes()));
        self.quic.runtime.block_on(async {
            let (mut send, receive) = self.quic.connection.open_bi().await.expect("a stream");
            let payload = [&[0, 0], block.as_bytes()].concat();
            send.write_all(&frame(HEADERS, &payload)).await.expect("it leaves");
            Asked { send, receive }
        })
    }

    /// The code with which the server closes.
    #[track_caller]
    pub(super) fn end(self) -> u64 {
        match self.quic.runtime.block_on(self.quic.connection.closed()) {
            quinn::ConnectionError::ApplicationClosed(close) => close.error_code.into_inner(),
            other => panic!("{other}"),
        }
    }

    /// Sends content of a request.
    #[track_caller]
    pub(super) fn content(&mut self, asked: &mut Asked, content: &[u8]) {
        self.quic.runtime.block_on(asked.send.write_all(&frame(DATA, content))).expect("it leaves");
    }

    /// Ends a request, and receives its response to the end: the status in the first bytes of its block, and the content.
    #[track_caller]
    pub(super) fn response(&mut self, mut asked: Asked) -> (u16, Vec<u8>) {
        asked.send.finish().expect("it was open");
        self.early_response(asked)
    }

    /// Receives the response to a request that does not end.
    #[track_caller]
    pub(super) fn early_response(&mut self, mut asked: Asked) -> (u16, Vec<u8>) {
        let bytes = self.quic.runtime.block_on(asked.receive.read_to_end(1 << 20)).expect("a response");
        let (mut left, mut frames) = (&bytes[..], Vec::new());
        while let Some((frame, length)) = first_frame(left) {
            frames.push(frame);
            left = &left[length..];
        }
        assert!(left.is_empty(), "{left:?}");
        let (HEADERS, head) = &frames[0] else { panic!("{frames:?}") };
        let content = frames[1..].iter().filter(|(kind, _)| *kind == DATA).flat_map(|(_, payload)| payload.clone());
        (status(head), content.collect())
    }
}

fn frame(kind: u64, payload: &[u8]) -> Vec<u8> {
    let length = 0x4000 | u16::try_from(payload.len()).expect("a short frame");
    [&[u8::try_from(kind).expect("a small type")], &length.to_be_bytes()[..], payload].concat()
}

/// The first frame, if it is whole, and its length.
fn first_frame(bytes: &[u8]) -> Option<(Frame, usize)> {
    let (kind, first) = varint(bytes)?;
    let (length, second) = varint(&bytes[first..])?;
    let start = first + second;
    let payload = bytes.get(start..start + length as usize)?;
    Some(((kind, payload.to_vec()), start + payload.len()))
}

/// An integer (RFC 9000 §16), and its length.
pub(super) fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let length = 1 << (bytes.first()? >> 6);
    let bytes = bytes.get(..length)?;
    let value = bytes[1..].iter().fold(u64::from(bytes[0] & 0x3f), |value, byte| value << 8 | u64::from(*byte));
    Some((value, length))
}

/// The status of a block that begins with an entry of the static table (RFC 9204 Appendix A), or with a name of it and three digits.
fn status(block: &[u8]) -> u16 {
    match block {
        [0, 0, 0xd9, ..] => 200,
        [0, 0, 0xff, 0x04, ..] => 400,
        [0, 0, 0xff, 0x06, ..] => 421,
        [0, 0, 0x5f, 0x09, 3, digits @ ..] => {
            digits[..3].iter().fold(0, |status, digit| status * 10 + u16::from(digit - b'0'))
        }
        _ => panic!("another status: {block:?}"),
    }
}
