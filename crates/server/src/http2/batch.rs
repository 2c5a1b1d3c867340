//! What one send carries: frames of any number of streams, whose content lies in memory and in files.

use std::cell::Cell;
use std::ops::Range;
use std::sync::Arc;

use sealion_h2::{HEADER_LEN, RECORD_PAYLOAD};
use sealion_tls::{FIRST_RECORD, Part};

use crate::files::resolve::{Content, SiteFile};
use crate::response::SharedBytes;

/// Plaintext of a full record.
pub(super) const RECORD: usize = HEADER_LEN + RECORD_PAYLOAD;

/// Octets of a frame that is worth the end of a short first record.
const SHORTEST_FRAME: usize = 512;

/// Content up to this length is copied: a part of its own costs more than the copy.
const COPIED: usize = 4096;

/// Octets in sending order. It owns what it refers to, so that streams can end while it is sent.
#[derive(Default)]
pub(super) struct Batch {
    /// Frame headers, header blocks, and short content.
    copied: Vec<u8>,
    stretches: Vec<Stretch>,
    len: usize,
    /// The first record is to be short.
    begins_short: bool,
}

enum Stretch {
    Copied(Range<usize>),
    Bytes(&'static [u8]),
    Shared(Arc<SharedBytes>, Range<usize>),
    File(Arc<SiteFile>, Range<u64>),
}

impl Batch {
    /// An empty batch, with memory from the thread's store.
    pub(super) fn take() -> Self {
        let stretches = FREE_STRETCHES.take();
        Batch { copied: free_bytes(), stretches, len: 0, begins_short: false }
    }

    /// Gives the memory to the thread's store.
    pub(super) fn keep(mut self) {
        self.clear();
        keep_bytes(self.copied);
        if self.stretches.capacity() <= MOST_STRETCHES_KEPT {
            FREE_STRETCHES.set(self.stretches);
        }
    }

    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.stretches.clear();
        (self.len, self.begins_short) = (0, false);
    }

    /// Octets of plaintext.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Octets that the last record has room for. A little room does not count: a frame there would cost more than it carries.
    pub(super) fn room(&self) -> usize {
        let first = self.first_record();
        let (left, least) = match self.len.checked_sub(first) {
            None => (first - self.len, if self.begins_short { SHORTEST_FRAME } else { COPIED }),
            Some(behind) => (RECORD - behind % RECORD, COPIED),
        };
        if left < least { left + RECORD } else { left }
    }

    /// Makes the first record short, which reaches the client sooner, if what comes before content leaves room in it.
    pub(super) fn begin_short(&mut self) {
        self.begins_short = self.len + SHORTEST_FRAME < FIRST_RECORD;
    }

    /// Octets of the first record.
    pub(super) fn first_record(&self) -> usize {
        if self.begins_short { FIRST_RECORD } else { RECORD }
    }

    /// Appends a copy.
    pub(super) fn copy(&mut self, octets: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(octets);
        self.len += octets.len();
        match self.stretches.last_mut() {
            Some(Stretch::Copied(range)) => range.end = self.copied.len(),
            _ if octets.is_empty() => {}
            _ => self.stretches.push(Stretch::Copied(start..self.copied.len())),
        }
    }

    /// Appends octets that stay where they are.
    pub(super) fn stay(&mut self, octets: &'static [u8]) {
        if octets.len() <= COPIED {
            return self.copy(octets);
        }
        self.len += octets.len();
        self.stretches.push(Stretch::Bytes(octets));
    }

    /// Appends a part of bytes that other responses send too.
    pub(super) fn shared(&mut self, shared: &Arc<SharedBytes>, range: Range<usize>) {
        if range.len() <= COPIED {
            return self.copy(&shared.bytes[range]);
        }
        self.len += range.len();
        self.stretches.push(Stretch::Shared(Arc::clone(shared), range));
    }

    /// Appends a range of a file.
    pub(super) fn file(&mut self, file: &Arc<SiteFile>, range: Range<u64>) {
        let len = (range.end - range.start) as usize;
        if let Content::Memory(bytes) = &file.content
            && len <= COPIED
        {
            return self.copy(&bytes[range.start as usize..range.end as usize]);
        }
        self.len += len;
        self.stretches.push(Stretch::File(Arc::clone(file), range));
    }

    /// The only part, if there is no other.
    pub(super) fn only_part(&self) -> Option<Part<'_>> {
        match &*self.stretches {
            [stretch] => Some(self.part(stretch)),
            _ => None,
        }
    }

    /// What [`sealion_tls::Source`] takes.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        self.stretches.iter().map(|stretch| self.part(stretch)).collect()
    }

    fn part<'a>(&'a self, stretch: &'a Stretch) -> Part<'a> {
        match stretch {
            Stretch::Copied(range) => Part::Bytes(&self.copied[range.clone()]),
            Stretch::Bytes(bytes) => Part::Bytes(bytes),
            Stretch::Shared(shared, range) => Part::Bytes(&shared.bytes[range.clone()]),
            Stretch::File(file, range) => match &file.content {
                Content::File(file) => Part::File { file, range: range.clone() },
                Content::Memory(bytes) => Part::Bytes(&bytes[range.start as usize..range.end as usize]),
            },
        }
    }
}

thread_local! {
    static FREE_BYTES: Cell<[Vec<u8>; 2]> = const { Cell::new([Vec::new(), Vec::new()]) };
    static FREE_STRETCHES: Cell<Vec<Stretch>> = const { Cell::new(Vec::new()) };
}

/// Stretches of a batch of full records, each with a header of its own.
const MOST_STRETCHES_KEPT: usize = 128;

/// Octets of headers and short responses: a batch of short ones has more, and pays for it less often.
const MOST_BYTES_KEPT: usize = 128 << 10;

/// An empty buffer, from the thread's store if it has one.
pub(super) fn free_bytes() -> Vec<u8> {
    let [first, second] = FREE_BYTES.take();
    FREE_BYTES.set([second, Vec::new()]);
    first
}

/// Gives a buffer to the thread's store, which has two: of a batch and of heads.
pub(super) fn keep_bytes(mut bytes: Vec<u8>) {
    if bytes.capacity() <= MOST_BYTES_KEPT {
        bytes.clear();
        let [first, _] = FREE_BYTES.take();
        FREE_BYTES.set([bytes, first]);
    }
}
