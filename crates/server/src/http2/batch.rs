//! What one send carries: frames of any number of streams, whose content lies in memory and in files.

use std::ops::Range;
use std::sync::Arc;

use sealion_h2::{HEADER_LEN, RECORD_PAYLOAD};
use sealion_tls::Part;

use crate::files::resolve::{Content, SiteFile};
use crate::response::SharedBytes;

/// Plaintext of a full record.
pub(super) const RECORD: usize = HEADER_LEN + RECORD_PAYLOAD;

/// Content up to this length is copied: a part of its own costs more than the copy.
const COPIED: usize = 4096;

/// Octets in sending order. It owns what it refers to, so that streams can end while it is sent.
#[derive(Default)]
pub(super) struct Batch {
    /// Frame headers, header blocks, and short content.
    copied: Vec<u8>,
    stretches: Vec<Stretch>,
    len: usize,
}

enum Stretch {
    Copied(Range<usize>),
    Bytes(&'static [u8]),
    Shared(Arc<SharedBytes>, Range<usize>),
    File(Arc<SiteFile>, Range<u64>),
}

impl Batch {
    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.stretches.clear();
        self.len = 0;
    }

    /// Octets of plaintext.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Octets that the last record has room for. A little room does not count: a frame there would cost more than it carries.
    pub(super) fn room(&self) -> usize {
        let left = RECORD - self.len % RECORD;
        if left < COPIED { left + RECORD } else { left }
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

    /// What [`sealion_tls::Source`] takes.
    pub(super) fn parts<'a>(&'a self) -> Vec<Part<'a>> {
        let part = |stretch: &'a Stretch| match stretch {
            Stretch::Copied(range) => Part::Bytes(&self.copied[range.clone()]),
            Stretch::Bytes(bytes) => Part::Bytes(bytes),
            Stretch::Shared(shared, range) => Part::Bytes(&shared.bytes[range.clone()]),
            Stretch::File(file, range) => match &file.content {
                Content::File(file) => Part::File { file, range: range.clone() },
                Content::Memory(bytes) => Part::Bytes(&bytes[range.start as usize..range.end as usize]),
            },
        };
        self.stretches.iter().map(part).collect()
    }
}
