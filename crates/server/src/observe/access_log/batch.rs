//! Lines that wait for the writer.

/// Lines, one behind the other.
#[derive(Debug)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
}

/// Capacity in bytes of an empty batch: a batch that grows step by step is copied with each step, and its pages are new each time.
const KEPT: usize = 2 * super::FULL;

/// Capacity in lines of an empty batch. The shortest lines are about as long.
const KEPT_LINES: usize = KEPT / 64;

impl Default for Batch {
    fn default() -> Self {
        Batch { bytes: Vec::with_capacity(KEPT), ends: Vec::with_capacity(KEPT_LINES) }
    }
}

impl Batch {
    /// Appends the line that `write` writes.
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
