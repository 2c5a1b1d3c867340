//! A connection over loopback whose sending half is in the kernel, and a receiver in user space that opens its records.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod tls;

use std::fs::File;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use aws_lc_rs::aead::{self, Aad, LessSafeKey, Nonce, UnboundKey};
use rustix::event::{PollFd, PollFlags, poll};
use sealion_ktls::{AeadKey, Cipher, CryptoInfo, Incoming, RecordType, Rx, Tx, Version, handover};

/// The versions and ciphers that user space can open.
pub(crate) fn suites() -> impl Iterator<Item = (Version, Cipher)> {
    let ciphers = [Cipher::Aes128Gcm, Cipher::Aes256Gcm, Cipher::Chacha20Poly1305];
    Version::ALL.into_iter().flat_map(move |version| ciphers.map(|cipher| (version, cipher)))
}

/// An IV whose explicit part is far from any sequence number used here.
pub(crate) const IV: [u8; 12] = [9, 8, 7, 6, 0xA5, 1, 2, 3, 4, 5, 0xFF, 0xFE];

/// A key made of one byte.
pub(crate) fn key(cipher: Cipher, byte: u8) -> AeadKey {
    AeadKey::from_bytes(cipher, &[byte; 32][..cipher.key_len()]).expect("a key of the cipher's length")
}

pub(crate) fn info(version: Version, cipher: Cipher, byte: u8, sequence: u64) -> CryptoInfo {
    match version {
        Version::Tls12 => CryptoInfo::tls12(&key(cipher, byte), &IV, sequence),
        Version::Tls13 => CryptoInfo::tls13(&key(cipher, byte), &IV, sequence),
    }
}

/// Bytes that differ from their neighbours and between offsets.
pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i ^ (i >> 8).wrapping_mul(31) ^ (i >> 16).wrapping_mul(7)) as u8).collect()
}

/// A temporary file that is already deleted.
pub(crate) fn file_of(bytes: &[u8]) -> File {
    let file = rustix::fs::open(
        "/tmp",
        rustix::fs::OFlags::TMPFILE | rustix::fs::OFlags::RDWR,
        rustix::fs::Mode::from_raw_mode(0o600),
    )
    .expect("a file without a name in /tmp");
    let file = File::from(file);
    file.write_all_at(bytes, 0).expect("write the file");
    file
}

/// Both ends of a TCP connection.
pub(crate) fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind");
    let near = TcpStream::connect(listener.local_addr().expect("address")).expect("connect");
    let (far, _) = listener.accept().expect("accept");
    (near, far)
}

/// A connection whose near end sends by the kernel and whose far end opens in user space.
pub(crate) struct Sending {
    pub(crate) near: Arc<TcpStream>,
    pub(crate) tx: Tx<Arc<TcpStream>>,
    pub(crate) far: Opener,
}

impl Sending {
    pub(crate) fn new(version: Version, cipher: Cipher, sequence: u64) -> Self {
        let (near, far) = pair();
        let near = Arc::new(near);
        let tx = handover::tx(Arc::clone(&near), &info(version, cipher, 1, sequence)).expect("handover");
        Self { near, tx, far: Opener::new(far, version, cipher, 1, sequence) }
    }

    /// The bytes that the kernel has accepted but not passed to TCP.
    pub(crate) fn unsent(&self) -> u64 {
        self.tx.unsent().expect("unsent")
    }

    /// Waits until the near end may be writable again.
    pub(crate) fn wait_writable(&self) {
        wait_writable(&self.near);
    }

    /// Small buffers on both sides, non-blocking at the near end.
    pub(crate) fn narrow(&self) {
        self.near.set_nonblocking(true).expect("non-blocking");
        rustix::net::sockopt::set_socket_send_buffer_size(&self.near, 40_000).expect("SO_SNDBUF");
    }

    /// Sends until the kernel accepts no more, and returns the bytes it accepted.
    pub(crate) fn fill(&mut self, more: sealion_ktls::More) -> Vec<u8> {
        // Not a multiple of a record, so that the ends of records move across TCP's buffers.
        let data = pattern(61_111);
        let mut taken = Vec::new();
        loop {
            let from = taken.len() % data.len();
            match self.tx.send(&data[from..], more) {
                Ok(n) => taken.extend_from_slice(&data[from..from + n]),
                Err(error) => {
                    assert_eq!(error.kind(), sealion_ktls::Kind::WouldBlock, "{error}");
                    return taken;
                }
            }
        }
    }
}

impl Sending {
    /// Fills the socket until TCP took only part of a sealed record, and returns the bytes taken.
    ///
    /// TCP cuts a record at the end of one of its buffers (64 KB) if the memory limit is reached just there. So the
    /// limit rises by a little after each refusal, while the peer reads nothing.
    pub(crate) fn fill_until_unsent(&mut self) -> Vec<u8> {
        let mut sent = Vec::new();
        self.near.set_nonblocking(true).expect("non-blocking");
        for limit in (20_000..200_000).step_by(1000) {
            rustix::net::sockopt::set_socket_send_buffer_size(&self.near, limit).expect("SO_SNDBUF");
            sent.extend(self.fill(sealion_ktls::More::No));
            if self.unsent() > 0 {
                return sent;
            }
        }
        panic!("TCP took every one of {} bytes", sent.len());
    }
}

/// Waits for POLLOUT with a short timeout, because the kernel pushes by a worker.
pub(crate) fn wait_writable(stream: &TcpStream) {
    let limit = rustix::event::Timespec { tv_sec: 0, tv_nsec: 10_000_000 };
    poll(&mut [PollFd::new(stream, PollFlags::OUT)], Some(&limit)).expect("poll");
}

/// An opened record.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) record_type: RecordType,
    pub(crate) data: Vec<u8>,
    /// The explicit nonce; TLS 1.2 with AES only.
    pub(crate) explicit: Option<u64>,
    /// Bytes on the wire, including the header.
    pub(crate) wire: usize,
}

/// Opens records in user space, as RFC 5246 §6.2.3.3, RFC 7905 and RFC 8446 §5 say.
pub(crate) struct Opener {
    pub(crate) stream: TcpStream,
    version: Version,
    cipher: Cipher,
    key: LessSafeKey,
    pub(crate) sequence: u64,
}

impl Opener {
    pub(crate) fn new(stream: TcpStream, version: Version, cipher: Cipher, byte: u8, sequence: u64) -> Self {
        Self { stream, version, cipher, key: open_key(cipher, byte), sequence }
    }

    pub(crate) fn rekey(&mut self, byte: u8) {
        self.key = open_key(self.cipher, byte);
        self.sequence = 0;
    }

    /// The next record; `None` at the end of the stream. Panics on a malformed record.
    pub(crate) fn next(&mut self) -> Option<Record> {
        let mut header = [0; 5];
        if self.stream.read(&mut header[..1]).expect("read") == 0 {
            return None;
        }
        self.stream.read_exact(&mut header[1..]).expect("the rest of a header");
        assert_eq!(header[1..3], [3, 3], "legacy_record_version");
        let mut body = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        self.stream.read_exact(&mut body).expect("a whole record");
        let wire = header.len() + body.len();
        let explicit = match (self.version, self.cipher) {
            (Version::Tls12, Cipher::Aes128Gcm | Cipher::Aes256Gcm) => {
                let bytes: Vec<u8> = body.drain(..8).collect();
                Some(u64::from_be_bytes(bytes.try_into().expect("8 bytes")))
            }
            _ => None,
        };
        let mut nonce = IV;
        match explicit {
            Some(explicit) => nonce[4..].copy_from_slice(&explicit.to_be_bytes()),
            None => nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(n, s)| *n ^= s),
        }
        let aad = match self.version {
            Version::Tls12 => {
                let len = (body.len() - 16) as u16;
                [&self.sequence.to_be_bytes()[..], &header[..3], &len.to_be_bytes()].concat()
            }
            Version::Tls13 => header.to_vec(),
        };
        let data = self
            .key
            .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut body)
            .unwrap_or_else(|_| panic!("record {} does not authenticate", self.sequence));
        let mut data = data.to_vec();
        let record_type = match self.version {
            Version::Tls12 => header[0],
            Version::Tls13 => {
                assert_eq!(header[0], 23, "opaque_type");
                data.pop().expect("a content type")
            }
        };
        self.sequence += 1;
        Some(Record { record_type: RecordType(record_type), data, explicit, wire })
    }

    /// The next record, which must exist.
    pub(crate) fn record(&mut self) -> Record {
        self.next().expect("a record, not the end of the stream")
    }

    /// Reads application data until `len` bytes are there; returns them and the sizes of their records.
    pub(crate) fn data(&mut self, len: usize) -> (Vec<u8>, Vec<usize>) {
        let (mut data, mut sizes) = (Vec::new(), Vec::new());
        while data.len() < len {
            let record = self.record();
            assert_eq!(record.record_type, RecordType::APPLICATION_DATA);
            sizes.push(record.data.len());
            data.extend_from_slice(&record.data);
        }
        (data, sizes)
    }
}

/// Seals records in user space, one at a time, valid or malformed, as a peer might.
pub(crate) struct Sealer {
    pub(crate) stream: TcpStream,
    version: Version,
    cipher: Cipher,
    key: LessSafeKey,
    pub(crate) sequence: u64,
}

impl Sealer {
    pub(crate) fn new(stream: TcpStream, version: Version, cipher: Cipher, byte: u8, sequence: u64) -> Self {
        Self { stream, version, cipher, key: open_key(cipher, byte), sequence }
    }

    pub(crate) fn rekey(&mut self, byte: u8) {
        self.key = open_key(self.cipher, byte);
        self.sequence = 0;
    }

    /// The bytes of the next record, with `padding` bytes of padding (TLS 1.3).
    pub(crate) fn seal(&mut self, record_type: RecordType, data: &[u8], padding: usize) -> Vec<u8> {
        let mut nonce = IV;
        let mut body = data.to_vec();
        let (outer, explicit, aad_len) = match (self.version, self.cipher) {
            (Version::Tls13, _) => {
                body.push(record_type.0);
                body.resize(body.len() + padding, 0);
                (23, 0, body.len() + 16)
            }
            (Version::Tls12, Cipher::Chacha20Poly1305) => (record_type.0, 0, body.len()),
            (Version::Tls12, _) => (record_type.0, 8, body.len()),
        };
        if explicit > 0 {
            nonce[4..].copy_from_slice(&self.sequence.to_be_bytes());
        } else {
            nonce[4..].iter_mut().zip(self.sequence.to_be_bytes()).for_each(|(n, s)| *n ^= s);
        }
        let wire_len = (explicit + body.len() + 16) as u16;
        let header = [&[outer, 3, 3][..], &wire_len.to_be_bytes()].concat();
        let aad = match self.version {
            Version::Tls12 => {
                [&self.sequence.to_be_bytes()[..], &header[..3], &(aad_len as u16).to_be_bytes()].concat()
            }
            Version::Tls13 => header.clone(),
        };
        self.key
            .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::from(aad), &mut body)
            .expect("seal");
        self.sequence += 1;
        [&header[..], &nonce[12 - explicit..], &body].concat()
    }

    pub(crate) fn send(&mut self, record_type: RecordType, data: &[u8]) {
        let record = self.seal(record_type, data, 0);
        self.stream.write_all(&record).expect("write");
    }
}

/// A connection whose near end sends and receives by the kernel; the far end seals in user space.
pub(crate) struct Receiving {
    pub(crate) near: Arc<TcpStream>,
    pub(crate) tx: Tx<Arc<TcpStream>>,
    pub(crate) rx: Rx<Arc<TcpStream>>,
    pub(crate) far: Sealer,
}

impl Receiving {
    pub(crate) fn new(version: Version, cipher: Cipher, sequence: u64) -> Self {
        let (near, far) = pair();
        let near = Arc::new(near);
        let tx = handover::tx(Arc::clone(&near), &info(version, cipher, 1, 0)).expect("TLS_TX");
        let rx = handover::rx(&tx, &info(version, cipher, 2, sequence)).expect("TLS_RX");
        Self { near, tx, rx, far: Sealer::new(far, version, cipher, 2, sequence) }
    }

    /// The next read, as record type, data and whether the record is whole.
    pub(crate) fn recv(&mut self, room: usize) -> (RecordType, Vec<u8>, bool) {
        let mut buffer = vec![0; room];
        match self.rx.recv(&mut buffer).expect("recv") {
            Incoming::Record { record_type, len, whole } => (record_type, buffer[..len].to_vec(), whole),
            other => panic!("{other:?}"),
        }
    }

    /// Reads once, expecting an error, and returns it.
    pub(crate) fn refused(&mut self) -> sealion_ktls::Error {
        self.rx.recv(&mut [0; 64]).expect_err("an error")
    }

    /// Whether poll(2) reports the near end as readable now.
    pub(crate) fn readable(&self) -> bool {
        let mut fds = [PollFd::new(&self.near, PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut fds, Some(&now)).expect("poll");
        fds[0].revents().contains(PollFlags::IN)
    }
}

fn open_key(cipher: Cipher, byte: u8) -> LessSafeKey {
    let algorithm = match cipher {
        Cipher::Aes128Gcm => &aead::AES_128_GCM,
        Cipher::Aes256Gcm => &aead::AES_256_GCM,
        Cipher::Chacha20Poly1305 => &aead::CHACHA20_POLY1305,
        other => panic!("user space here has no {other}"),
    };
    LessSafeKey::new(UnboundKey::new(algorithm, &[byte; 32][..cipher.key_len()]).expect("key"))
}

/// Writes all in plain text.
pub(crate) fn write_plain(mut stream: &TcpStream, data: &[u8]) {
    stream.write_all(data).expect("plain write");
}

/// Whether this kernel is at least `major.minor`, for behaviour that depends on the version.
pub(crate) fn kernel_at_least(major: u32, minor: u32) -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(['.', '-', '+']).map(|n| n.parse::<u32>().expect("a kernel release"));
    let found = (numbers.next().expect("major"), numbers.next().expect("minor"));
    found >= (major, minor)
}
