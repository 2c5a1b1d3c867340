//! Lines that wait for the writer.

/// Consecutive lines.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// The end of each line.
    ends: Vec<usize>,
}

/// The capacity of an empty batch in bytes. Growing step by step would copy the batch each time, into new pages.
const KEPT: usize = 2 * super::FULL;

/// The capacity of an empty batch in lines. The shortest lines have about this length.
const KEPT_LINES: usize = KEPT / 64;

impl Default for Batch {
    fn default() -> Self {
        Batch { bytes: Vec::with_capacity(KEPT), ends: Vec::with_capacity(KEPT_LINES) }
    }
}

impl Batch {
    /// Appends the line written by `write`.
    pub(super) fn push(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        write(&mut self.bytes);
        self.ends.push(self.bytes.len());
    }

    /// Removes all lines.
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(KEPT);
        self.ends.clear();
        self.ends.shrink_to(KEPT_LINES);
    }

    /// All lines together.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Number of lines.
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    /// Number of lines that end within the first `bytes` bytes.
    pub(super) fn lines_within(&self, bytes: usize) -> usize {
        self.ends.partition_point(|end| *end <= bytes)
    }

    /// The lines.
    pub(super) fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }
}
