//! The decoder's dynamic table (RFC 7541 §2.3.2 and §4).

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// The overhead of each entry besides its bytes (RFC 7541 §4.1).
const OVERHEAD: usize = 32;

/// The newest entries that fit into a bounded size.
///
/// One buffer holds the bytes, oldest first. It grows with its content up to the table's size, so that a browser's
/// first request leaves about as many bytes as its fields have.
#[derive(Debug)]
pub(crate) struct Table {
    bytes: Vec<u8>,
    /// Oldest first.
    entries: VecDeque<Entry>,
    /// Sum of the entries' sizes.
    size: usize,
    max_size: usize,
}

/// A [`Table`] as a value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct TableRest {
    /// Name, value, and whether the name is of the static table; oldest first.
    lines: Vec<(Vec<u8>, Vec<u8>, bool)>,
    max_size: usize,
}

#[derive(Debug, Clone, Copy)]
struct Entry {
    /// The position of the name in the buffer; the value follows.
    at: u32,
    name: u32,
    value: u32,
    name_is_static: bool,
}

/// The name and value of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// The name came from the static table.
    pub(crate) name_is_static: bool,
}

impl Entry {
    fn size(self) -> usize {
        self.name as usize + self.value as usize + OVERHEAD
    }

    fn end(self) -> usize {
        (self.at + self.name + self.value) as usize
    }
}

impl Table {
    pub(crate) fn new(max_size: usize) -> Self {
        Table { bytes: Vec::new(), entries: VecDeque::new(), size: 0, max_size }
    }

    /// The table as a value.
    pub(crate) fn to_rest(&self) -> TableRest {
        let line = |index| {
            let Line { name, value, name_is_static } = self.get(index)?;
            Some((name.to_vec(), value.to_vec(), name_is_static))
        };
        TableRest { lines: (0..self.entries.len()).rev().filter_map(line).collect(), max_size: self.max_size }
    }

    pub(crate) fn resume(rest: TableRest) -> Self {
        let mut table = Self::new(rest.max_size);
        for (name, value, name_is_static) in &rest.lines {
            table.insert(Line { name, value, name_is_static: *name_is_static });
        }
        table
    }

    pub(crate) fn max_size(&self) -> usize {
        self.max_size
    }

    /// Changes the size, and evicts entries that no longer fit (RFC 7541 §4.3).
    pub(crate) fn resize(&mut self, max_size: usize) {
        self.max_size = max_size;
        self.evict(max_size);
        if self.entries.is_empty() {
            (self.bytes, self.entries) = Default::default();
        }
    }

    /// The entry at `index`; 0 is the newest.
    pub(crate) fn get(&self, index: usize) -> Option<Line<'_>> {
        let entry = *self.entries.get(self.entries.len().checked_sub(index + 1)?)?;
        let (name, value) = self.bytes.get(entry.at as usize..entry.end())?.split_at(entry.name as usize);
        Some(Line { name, value, name_is_static: entry.name_is_static })
    }

    /// Inserts an entry. An entry larger than the table empties it (RFC 7541 §4.4).
    pub(crate) fn insert(&mut self, Line { name, value, name_is_static }: Line<'_>) {
        let bytes = name.len() + value.len();
        let size = bytes + OVERHEAD;
        if size > self.max_size {
            self.evict(0);
            self.bytes.clear();
            return;
        }
        self.evict(self.max_size - size);
        if self.bytes.len() + bytes > self.bytes.capacity() {
            self.compact();
            let wanted = self.bytes.len() + bytes;
            if wanted > self.bytes.capacity() {
                let room = wanted.next_multiple_of(256).min(self.max_size) - self.bytes.len();
                self.bytes.reserve_exact(room);
            }
        }
        let at = self.bytes.len() as u32;
        self.bytes.extend_from_slice(name);
        self.bytes.extend_from_slice(value);
        self.entries.push_back(Entry { at, name: name.len() as u32, value: value.len() as u32, name_is_static });
        self.size += size;
    }

    fn evict(&mut self, max_size: usize) {
        while self.size > max_size
            && let Some(entry) = self.entries.pop_front()
        {
            self.size -= entry.size();
        }
    }

    /// Moves the bytes of the entries to the beginning of the buffer.
    fn compact(&mut self) {
        let start = self.entries.front().map_or(self.bytes.len(), |entry| entry.at as usize);
        self.bytes.drain(..start);
        for entry in &mut self.entries {
            entry.at -= start as u32;
        }
    }

    #[cfg(test)]
    pub(crate) fn size(&self) -> usize {
        self.size
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.bytes.capacity() + self.entries.capacity() * size_of::<Entry>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line<'a>(name: &'a [u8], value: &'a [u8]) -> Line<'a> {
        Line { name, value, name_is_static: false }
    }

    #[test]
    fn the_oldest_entries_are_evicted() {
        let mut table = Table::new(100);
        table.insert(line(b"a", b"1"));
        table.insert(line(b"bb", b"22"));
        assert_eq!((table.get(0), table.get(1)), (Some(line(b"bb", b"22")), Some(line(b"a", b"1"))));
        assert_eq!((table.get(2), table.size()), (None, 70));
        table.insert(line(b"c", b""));
        assert_eq!((table.get(0), table.get(1)), (Some(line(b"c", b"")), Some(line(b"bb", b"22"))));
        assert_eq!((table.get(2), table.size()), (None, 69));
        table.insert(line(&[b'x'; 69], b""));
        assert_eq!((table.get(0), table.size()), (None, 0), "a too large entry empties the table");
        table.insert(line(&[b'x'; 68], b""));
        assert_eq!(table.size(), 100);
        table.resize(99);
        assert_eq!((table.get(0), table.memory()), (None, 0));
    }

    #[test]
    fn the_buffer_is_no_larger_than_the_table() {
        let mut table = Table::new(4096);
        for round in 0..2000usize {
            let (name, value) = (vec![b'n'; round % 50], vec![round as u8; round * 7 % 600]);
            table.insert(line(&name, &value));
            assert_eq!(table.get(0), Some(line(&name, &value)));
            assert!(table.bytes.capacity() <= 4096 && table.entries.capacity() <= 128, "{}", table.memory());
        }
    }
}
