//! A pipe (pipe(7)) through which content passes from one socket to another without being copied to this process.

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::retry_on_intr;
use rustix::pipe::{PipeFlags, SpliceFlags, fcntl_setpipe_size, pipe_with, splice};

/// Bytes that a pipe takes at a time: four records. A slow client holds so many.
const MAX_HELD: usize = 64 << 10;

/// The capacity of a pipe, in bytes of whole pages. A segment from a network takes a page of it, whatever its length: 45 of 1,448 bytes fill [`MAX_HELD`].
const CAPACITY: usize = 64 * 4096;

/// Content on its way from a socket to [`TlsStream::poll_send_pipe`](crate::TlsStream::poll_send_pipe).
///
/// It is filled, then emptied. A pipe that [holds](Self::held) bytes at the end of a response is dropped: the bytes belong to no other.
#[derive(Debug)]
pub struct Pipe {
    reader: File,
    writer: OwnedFd,
    held: usize,
    /// The records of the next operation are already counted against the key.
    pub(crate) reserved: bool,
}

impl Pipe {
    /// # Errors
    /// No descriptor is free, or the user's pipes have too many pages (pipe(7), `pipe-user-pages-soft`).
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?;
        fcntl_setpipe_size(&writer, CAPACITY)?;
        Ok(Pipe { reader: reader.into(), writer, held: 0, reserved: false })
    }

    /// Bytes in the pipe.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Moves bytes that have come on `socket` into the empty pipe, at most `most`. 0: the other side has closed the connection.
    ///
    /// # Errors
    /// `WouldBlock`: nothing has come. Otherwise as of splice(2).
    pub fn fill(&mut self, socket: impl AsFd, most: u64) -> io::Result<usize> {
        let count = usize::try_from(most).unwrap_or(usize::MAX).min(MAX_HELD - self.held.min(MAX_HELD));
        let flags = SpliceFlags::MOVE | SpliceFlags::NONBLOCK;
        let moved = retry_on_intr(|| splice(&socket, None, &self.writer, None, count, flags))?;
        self.held += moved;
        Ok(moved)
    }

    /// Reads all bytes that the pipe holds.
    ///
    /// # Errors
    /// As of read(2).
    pub fn take(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; self.held];
        self.reader.read_exact(&mut bytes)?;
        self.held = 0;
        Ok(bytes)
    }

    pub(crate) fn reader(&self) -> BorrowedFd<'_> {
        self.reader.as_fd()
    }

    /// `sent` of the bytes have left.
    pub(crate) fn sent(&mut self, sent: usize) {
        self.held -= sent.min(self.held);
        self.reserved = false;
    }

    /// The maximum number of records that the kernel makes of the bytes in the pipe: full ones, one that fills an open
    /// record, and a short one. A record also ends behind 17 pages (MAX_SKB_FRAGS), and a pipe has as many as fit its
    /// capacity, besides bytes that lie across two.
    pub(crate) fn max_records(&self) -> u64 {
        const PAGES: usize = (CAPACITY + MAX_HELD) / 4096;
        (self.held / crate::record::MAX_PLAINTEXT + PAGES / 17 + 2) as u64
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn it_holds_what_came_up_to_its_bound() {
        let (mut far, near) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        let mut pipe = Pipe::new().unwrap();
        assert_eq!(pipe.fill(&near, 10).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        far.write_all(b"0123456789abcdef").unwrap();
        assert_eq!((pipe.fill(&near, 10).unwrap(), pipe.held()), (10, 10));
        assert_eq!((pipe.take().unwrap(), pipe.held()), (b"0123456789".to_vec(), 0));
        let writer = std::thread::spawn(move || far.write_all(&vec![7; 1 << 20]));
        near.set_nonblocking(false).unwrap();
        let mut came = 0;
        while came < (1 << 20) + 6 {
            came += match pipe.fill(&near, u64::MAX) {
                Ok(0) => panic!("the end after {came} bytes"),
                Ok(moved) => moved,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                Err(error) => panic!("{error}"),
            };
            assert!(pipe.held() <= MAX_HELD);
            if pipe.held() == MAX_HELD {
                pipe.take().unwrap();
            }
        }
        writer.join().unwrap().unwrap();
        pipe.take().unwrap();
        assert_eq!(pipe.fill(&near, 10).unwrap(), 0, "the other side has closed the connection");
    }
}
