//! Lines that wait for the writer.

/// Lines, one behind the other.
#[derive(Debug, Default)]
pub(super) struct Batch {
    bytes: Vec<u8>,
    /// Where each line ends.
    ends: Vec<usize>,
}

/// Capacity in bytes that an empty batch keeps.
const KEPT: usize = 2 * super::FULL;

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
        self.ends.shrink_to(KEPT / size_of::<usize>());
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
