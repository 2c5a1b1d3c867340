//! Files whose pages are not in memory: a blocking thread waits for the disk, so that other connections of this thread go on.
//!
//! Whether a page is there is asked by reading with RWF_NOWAIT (preadv2(2)). File systems that cannot answer, such as
//! FUSE and NFS, and tmpfs before Linux 6.6, which has no disk to wait for, are read as if everything were there.

use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;

use rustix::io::{Errno, ReadWriteFlags, preadv, preadv2};
use tokio::task::{JoinHandle, spawn_blocking};

use crate::error::Error;

/// Whether a read may wait for a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    /// It may wait.
    Yes,
    /// It must not wait, but return [`Read::Cold`].
    No,
}

/// The result of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The number of bytes read, at least one.
    Bytes(usize),
    /// The first page is not in memory.
    Cold,
}

/// Reads from the start of `range`, which is there unless the file shrank.
pub(super) fn read(
    file: &File,
    into: &mut [IoSliceMut<'_>],
    range: &Range<u64>,
    mut wait: Wait,
) -> Result<Read, Error> {
    loop {
        let read = match wait {
            Wait::Yes => preadv(file, into, range.start),
            Wait::No => preadv2(file, into, range.start, ReadWriteFlags::NOWAIT),
        };
        match read {
            Ok(0) => return Err(Error::FileShrank { at: range.start, end: range.end }),
            Ok(bytes) => return Ok(Read::Bytes(bytes)),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) if wait == Wait::No => return Ok(Read::Cold),
            Err(Errno::OPNOTSUPP) if wait == Wait::No => wait = Wait::Yes,
            Err(errno) => return Err(Error::File(io::Error::from(errno))),
        }
    }
}

/// What sendfile(2) of a range would meet, as far as samples tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// They are in memory.
    Warm,
    /// The file system does not tell.
    Unknown,
    /// It would have to wait for a disk.
    Cold,
    /// The file ends before the range does.
    Gone,
}

/// Samples a byte each [`SAMPLED`] bytes of `range`, and the last byte. Single pages missing in between only make sendfile
/// slower.
pub(super) fn look(file: &File, range: &Range<u64>) -> Pages {
    let mut byte = [0];
    let steps = (range.start..range.end).step_by(SAMPLED as usize);
    for at in steps.chain([range.end - 1]) {
        match preadv2(file, &mut [IoSliceMut::new(&mut byte)], at, ReadWriteFlags::NOWAIT) {
            Err(Errno::AGAIN) => return Pages::Cold,
            Err(Errno::OPNOTSUPP) => return Pages::Unknown,
            Ok(0) => return Pages::Gone,
            // sendfile reports other errors.
            _ => {}
        }
    }
    Pages::Warm
}

/// SPEC: Linux reads ahead 128 KiB at a time unless told otherwise (VM_READAHEAD_PAGES in include/linux/mm.h), so pages
/// come in runs of that length.
const SAMPLED: u64 = 128 << 10;

/// Has another thread read `range`, so that its pages are in memory. A read that fails shows again where the bytes are
/// needed.
pub(super) fn fetch(file: &File, range: Range<u64>) -> Result<JoinHandle<()>, Error> {
    let file = file.try_clone().map_err(Error::File)?;
    Ok(spawn_blocking(move || {
        let mut scratch = vec![0; SCRATCH];
        let mut at = range.start;
        while at < range.end {
            let wanted = scratch.len().min((range.end - at) as usize);
            match preadv(&file, &mut [IoSliceMut::new(&mut scratch[..wanted])], at) {
                Ok(0) => return,
                Ok(read) => at += read as u64,
                Err(Errno::INTR) => {}
                Err(_) => return,
            }
        }
    }))
}

/// Bytes read at a time and thrown away: few enough for a core's own cache.
const SCRATCH: usize = 128 << 10;
