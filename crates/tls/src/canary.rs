//! A canary: records that the kernel seals on a loopback connection are opened in user space and compared byte for byte.
//!
//! It detects a kernel or driver that accepts keys and then seals wrongly, which no errno would show.

use std::fs::File;
use std::io::{self, IoSlice, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use aws_lc_rs::rand;
use rustix::fs::MemfdFlags;
use sealion_ktls::{More, RecordType, Tx, Version};
use socket2::SockRef;

use crate::record::{Aead, ContentType, OpenError, Opener, Sealer, TrafficKeys};

/// Bytes sent from memory: less than a record, so that the record stays open for the file.
const HEAD: usize = 257;

/// Bytes sent after it by sendfile: several records, the last of them short.
const FILE: usize = 3 * 16_384 + 1_001;

/// The timeout for loopback: a thousand times the usual duration.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The reason why the kernel path failed for a version and an AEAD.
#[derive(Debug)]
pub enum CanaryError {
    /// The kernel rejected an operation.
    Refused(sealion_ktls::Error),
    /// Loopback or the temporary file failed; this does not concern the kernel path.
    Io(io::Error),
    /// A record could not be opened.
    Unopenable(OpenError),
    /// A record's plaintext differs from the data sent.
    Differs(&'static str),
}

impl CanaryError {
    /// Whether the kernel sealed wrongly, as opposed to not at all.
    pub fn is_corruption(&self) -> bool {
        matches!(self, Self::Unopenable(_) | Self::Differs(_))
    }
}

impl std::fmt::Display for CanaryError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Refused(e) => std::fmt::Display::fmt(e, f),
            Self::Io(e) => write!(f, "the test could not be made: {e}"),
            Self::Unopenable(e) => write!(f, "the kernel sealed {e}"),
            Self::Differs(what) => write!(f, "the kernel sealed {what}"),
        }
    }
}

impl std::error::Error for CanaryError {}

impl From<io::Error> for CanaryError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<sealion_ktls::Error> for CanaryError {
    fn from(error: sealion_ktls::Error) -> Self {
        Self::Refused(error)
    }
}

/// Sends memory, a file and a control record through the kernel under random keys, and compares. Blocks for one or two
/// milliseconds.
///
/// # Errors
/// [`CanaryError`]
pub fn canary(version: Version, aead: Aead) -> Result<(), CanaryError> {
    let keys = random_keys(version, aead)?;
    let (near, far) = loopback()?;
    let sequence = 3;
    let opener = Opener::new(&keys, sequence);
    let mut tx = Sealer::new(keys, sequence, u64::MAX).into_kernel(&near).map_err(|refused| refused.error)?;
    let (sent, file) = pattern()?;

    // More data may be in flight than the socket's buffers hold, so a thread reads meanwhile.
    let received = std::thread::scope(|scope| {
        let reader = scope.spawn(|| read_to_end(far));
        let done = send(&mut tx, &sent, &file);
        if done.is_err() {
            // Otherwise the reader would wait for the rest.
            let _ = near.shutdown(std::net::Shutdown::Both);
        }
        done?;
        reader
            .join()
            .map_err(|_| CanaryError::Differs("something that made the reader panic"))?
            .map_err(CanaryError::Io)
    })?;
    compare(opener, received, &sent)
}

fn send(tx: &mut Tx<&TcpStream>, sent: &[u8], file: &File) -> Result<(), CanaryError> {
    tx.send_vectored(&[IoSlice::new(&sent[..HEAD])], More::Yes)?;
    let mut offset = 0;
    while (offset as usize) < FILE {
        let left = FILE - offset as usize;
        if tx.send_file(file, &mut offset, left)? == 0 {
            return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
        }
    }
    tx.send_record(RecordType::HANDSHAKE, b"canary")?;
    tx.close_notify()?;
    let started = Instant::now();
    while tx.unsent()? > 0 {
        if started.elapsed() > TIMEOUT {
            return Err(io::Error::from(io::ErrorKind::TimedOut).into());
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    tx.socket().shutdown(std::net::Shutdown::Write)?;
    Ok(())
}

fn compare(mut opener: Opener, mut received: Vec<u8>, sent: &[u8]) -> Result<(), CanaryError> {
    let mut rest = received.as_mut_slice();
    let mut data = Vec::with_capacity(sent.len());
    let mut control = Vec::new();
    while let Some(len) = opener.record_len(rest).map_err(CanaryError::Unopenable)? {
        let Some((record, behind)) = std::mem::take(&mut rest).split_at_mut_checked(len) else { break };
        let opened = opener.open(record).map_err(CanaryError::Unopenable)?;
        match opened.content_type {
            ContentType::ApplicationData => data.extend_from_slice(&record[opened.payload]),
            other => control.push((other, record[opened.payload].to_vec())),
        }
        rest = behind;
    }
    if data != sent {
        return Err(CanaryError::Differs("other bytes than were sent"));
    }
    let expected = [(ContentType::Handshake, b"canary".to_vec()), (ContentType::Alert, vec![1, 0])];
    if control != expected {
        return Err(CanaryError::Differs("other control records than were sent"));
    }
    Ok(())
}

fn random_keys(version: Version, aead: Aead) -> io::Result<TrafficKeys> {
    let mut random = [0; 32 + 12];
    rand::fill(&mut random).map_err(|_| io::Error::other("no random numbers"))?;
    let (key, iv) = random.split_at(32);
    let iv: &[u8; 12] = iv.try_into().map_err(io::Error::other)?;
    Ok(TrafficKeys::new(version, aead, &key[..aead.key_len()], iv))
}

fn loopback() -> io::Result<(TcpStream, TcpStream)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let (far, _) = listener.accept()?;
    // A machine-wide limit below a record stalls the kernel path (docs/kernel.md); a server lifts it on its sockets too.
    SockRef::from(&near).set_tcp_notsent_lowat(u32::MAX)?;
    near.set_write_timeout(Some(TIMEOUT))?;
    far.set_read_timeout(Some(TIMEOUT))?;
    Ok((near, far))
}

/// The bytes to send, and an in-memory file with the bytes after the head.
fn pattern() -> io::Result<(Vec<u8>, File)> {
    let sent: Vec<u8> = (0..HEAD + FILE).map(|n| (n * 131 + (n >> 8)) as u8).collect();
    let mut file = File::from(rustix::fs::memfd_create("sealion-canary", MemfdFlags::CLOEXEC)?);
    file.write_all(&sent[HEAD..])?;
    file.seek(SeekFrom::Start(0))?;
    Ok((sent, file))
}

fn read_to_end(mut far: TcpStream) -> io::Result<Vec<u8>> {
    let mut received = Vec::new();
    far.read_to_end(&mut received)?;
    Ok(received)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> TrafficKeys {
        TrafficKeys::new(Version::Tls13, Aead::Aes128Gcm, &[7; 16], &[9; 12])
    }

    fn compared(received: Vec<u8>, sent: &[u8]) -> Result<(), CanaryError> {
        compare(Opener::new(&keys(), 3), received, sent)
    }

    fn sealed(sequence: u64, records: &[(ContentType, &[u8])]) -> Vec<u8> {
        let mut sealer = Sealer::new(keys(), sequence, 1 << 24);
        let mut all = Vec::new();
        for (content_type, payload) in records {
            let mut record = vec![0; sealer.sealed_len(payload.len())];
            record[sealer.prefix_len()..][..payload.len()].copy_from_slice(payload);
            sealer.seal(*content_type, &mut record).unwrap();
            all.extend(record);
        }
        all
    }

    /// The data of a correct kernel passes, and each kind of fault is reported as such.
    #[test]
    fn what_is_wrong_is_noticed() {
        let data = (ContentType::ApplicationData, &b"some data"[..]);
        let control = [(ContentType::Handshake, &b"canary"[..]), (ContentType::Alert, &[1, 0][..])];
        let good = sealed(3, &[data, control[0], control[1]]);
        assert!(compared(good.clone(), b"some data").is_ok());

        let differs = |received, sent: &[u8]| matches!(compared(received, sent), Err(CanaryError::Differs(_)));
        assert!(differs(good.clone(), b"other data"));
        assert!(differs(sealed(3, &[data, control[0]]), b"some data"));
        assert!(differs(sealed(3, &[data, control[1], control[0]]), b"some data"));

        let mut flipped = good;
        flipped[7] ^= 1;
        assert!(matches!(compared(flipped, b"some data"), Err(CanaryError::Unopenable(_))));
        let replayed = sealed(4, &[data, control[0], control[1]]);
        assert!(matches!(compared(replayed, b"some data"), Err(CanaryError::Unopenable(_))));
    }
}
