//! Content for any transport: bytes in memory, and ranges of files, whose reading does not block the thread.
//!
//! Nothing here knows a socket or a record. [`TlsStream`](crate::TlsStream) reads files so, and any other transport can with a [`Reader`].

pub(crate) mod cold;
mod rest;

use std::fs::File;
use std::ops::Range;
use std::task::{Context, Poll, ready};

use cold::{Fetch, Wait};
pub(crate) use rest::{Rest, Stop};

use crate::error::Error;

/// A segment of a response.
#[derive(Clone, Debug)]
pub enum Part<'a> {
    /// Bytes in memory.
    Bytes(&'a [u8]),
    /// A range of a file, which must exist: see [`Error::FileShrank`].
    File {
        /// A regular file.
        file: &'a File,
        /// The offset of the first byte, and the offset after the last byte.
        range: Range<u64>,
    },
}

impl Part<'_> {
    /// Bytes of this part.
    pub fn len(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File { range, .. } => range.end.saturating_sub(range.start),
        }
    }

    /// Whether the part is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Reads parts in order, without blocking the thread: pages that are not in memory are brought there by a thread of
/// their disk.
pub struct Reader<'a> {
    pub(crate) rest: Rest<'a>,
    /// Whether the next read may wait for the disk.
    pub(crate) wait: Wait,
    /// A fetch that brings pages into memory; the next step waits for it.
    fetch: Option<(&'a File, Fetch)>,
    /// The file that could not be read.
    pub(crate) unreadable: Option<&'a File>,
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `parts`.
    pub fn new(parts: &'a [Part<'a>]) -> Self {
        Reader { rest: Rest::new(parts), wait: Wait::No, fetch: None, unreadable: None }
    }

    /// The number of bytes that are left.
    pub fn remaining(&self) -> u64 {
        self.rest.len
    }

    /// The file that could not be read, after an error.
    pub fn unreadable(&self) -> Option<&'a File> {
        self.unreadable
    }

    /// Fills `buffer` from `filled` on, which grows. Ready when the buffer is full, or all parts are read.
    ///
    /// # Errors
    /// [`Error::FileShrank`] or [`Error::File`]: see [`Self::unreadable`]. Neither the buffer nor the reader can be used afterwards.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        buffer: &mut [u8],
        filled: &mut usize,
    ) -> Poll<Result<(), Error>> {
        loop {
            ready!(self.poll_fetched(cx))?;
            match self.rest.read(buffer, filled, self.wait) {
                Ok(()) => {
                    self.wait = Wait::No;
                    return Poll::Ready(Ok(()));
                }
                Err(stop) => self.stopped(stop)?,
            }
        }
    }

    /// Makes a thread of the disk bring `range` into memory.
    pub(crate) fn fetch(&mut self, file: &'a File, range: Range<u64>) -> Result<(), Error> {
        self.fetch = Some((file, cold::fetch(file, range)?));
        Ok(())
    }

    /// A read stopped: begins to fetch what it needs, or fails.
    pub(crate) fn stopped(&mut self, stop: Stop<'a>) -> Result<(), Error> {
        match stop {
            Stop::Cold(file, range) => self.fetch(file, range),
            Stop::Unreadable(file, error) => {
                self.unreadable = Some(file);
                Err(error)
            }
        }
    }

    /// Waits for pages that are being fetched. Afterwards the next read finds its pages, or may wait for them.
    ///
    /// # Errors
    /// The disk does not respond.
    pub(crate) fn poll_fetched(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Some((file, fetch)) = &mut self.fetch {
            let fetched = ready!(fetch.poll(cx));
            if fetched.is_err() {
                self.unreadable = Some(*file);
            }
            self.fetch = None;
            self.wait = Wait::Yes;
            return Poll::Ready(fetched);
        }
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    /// All parts, in buffers of `len` bytes.
    async fn read(parts: &[Part<'_>], len: usize) -> Result<Vec<u8>, Error> {
        let (mut reader, mut all) = (Reader::new(parts), Vec::new());
        while reader.remaining() > 0 {
            let (mut buffer, mut filled) = (vec![0; len], 0);
            let result = poll_fn(|cx| reader.poll_fill(cx, &mut buffer, &mut filled)).await;
            assert_eq!(reader.unreadable().is_some(), result.is_err());
            result?;
            assert!(filled == len || reader.remaining() == 0);
            all.extend_from_slice(&buffer[..filled]);
        }
        Ok(all)
    }

    #[tokio::test]
    async fn a_reader_fills_buffers_of_any_length_and_notices_that_a_file_shrank() {
        let path = std::env::temp_dir().join(format!("sealion-reader-{}", std::process::id()));
        let content: Vec<u8> = (0..=255).cycle().take(1000).collect();
        std::fs::write(&path, &content).unwrap();
        let file = File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let part = |range| Part::File { file: &file, range };
        let parts = [Part::Bytes(b"head"), part(10..600), Part::Bytes(b""), part(0..300), Part::Bytes(b"end")];
        let expected = [b"head", &content[10..600], &content[..300], b"end"].concat();
        for len in [1, 7, 100, 594, 2000] {
            assert!(read(&parts, len).await.unwrap() == expected, "{len}");
        }
        let shrunk = [Part::Bytes(b"head"), part(900..1001)];
        let result = read(&shrunk, 50).await;
        assert!(matches!(result, Err(Error::FileShrank { at: 1000, end: 1001 })), "{result:?}");
    }
}
