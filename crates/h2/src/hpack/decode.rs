//! Decoding of header blocks (RFC 7541 §3 and §6), one field at a time.

use sealion_http::multiplexed::{FieldSpan, SEPARATOR, huffman, integer};
use serde::{Deserialize, Serialize};

use crate::error::ConnectionError;

use super::error;
use super::static_table::{self, LAST_STATIC};
use super::table::{Line, Table, TableRest};

/// The decoding context of a connection (RFC 7541 §2.2).
#[derive(Debug)]
pub(crate) struct Decoder {
    table: Table,
    /// The maximum table size that the peer may choose: our setting, once it is acknowledged.
    limit: usize,
    /// The limit fell below the table's size, so the next block must begin with a size update (RFC 7541 §4.2).
    update_due: bool,
    changes: u64,
}

impl Decoder {
    pub(crate) fn new() -> Self {
        Decoder { table: Table::new(DEFAULT_SIZE), limit: DEFAULT_SIZE, update_due: false, changes: 0 }
    }

    /// Grows when the meaning of a block may change: while it is the same, a block decodes to the same fields.
    pub(crate) fn changes(&self) -> u64 {
        self.changes
    }

    /// Sets the limit that the peer has acknowledged.
    pub(crate) fn set_limit(&mut self, limit: usize) {
        self.changes += 1;
        self.limit = limit;
        self.update_due = self.table.max_size() > limit;
    }

    /// The context as a value.
    pub(crate) fn to_rest(&self) -> DecoderRest {
        DecoderRest { table: self.table.to_rest(), limit: self.limit, update_due: self.update_due }
    }

    pub(crate) fn resume(rest: DecoderRest) -> Self {
        Decoder { table: Table::resume(rest.table), limit: rest.limit, update_due: rest.update_due, changes: 0 }
    }

    /// Begins to decode a header block. The table stays synchronized with the peer's only if the block is read to its
    /// end.
    pub(crate) fn block<'a>(&'a mut self, input: &'a [u8]) -> Block<'a> {
        Block { decoder: self, input, at_start: true }
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.table.memory()
    }
}

/// A [`Decoder`] as a value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct DecoderRest {
    table: TableRest,
    limit: usize,
    update_due: bool,
}

/// The default of SETTINGS_HEADER_TABLE_SIZE (RFC 9113 §6.5.2).
pub(crate) const DEFAULT_SIZE: usize = 4096;

/// A header block that is being decoded.
pub(crate) struct Block<'a> {
    decoder: &'a mut Decoder,
    input: &'a [u8],
    at_start: bool,
}

impl Block<'_> {
    /// Appends the next field to `out`. `None`: the block ended.
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<FieldSpan>, ConnectionError> {
        loop {
            let Some((first, rest)) = self.input.split_first() else {
                return if self.decoder.update_due { Err(UPDATE_MISSING) } else { Ok(None) };
            };
            self.input = rest;
            if first & 0xe0 == 0x20 {
                self.update_size(*first)?;
                continue;
            }
            if self.at_start {
                if self.decoder.update_due {
                    return Err(UPDATE_MISSING);
                }
                self.at_start = false;
            }
            return match *first {
                first if first & 0x80 != 0 => self.indexed(first, out),
                first if first & 0x40 != 0 => self.literal(6, first, true, out),
                first => self.literal(4, first, false, out),
            }
            .map(Some);
        }
    }

    /// RFC 7541 §6.1.
    fn indexed(&mut self, first: u8, out: &mut Vec<u8>) -> Result<FieldSpan, ConnectionError> {
        let index = integer::decode(7, first, &mut self.input)?;
        let start = out.len();
        if let Some((name, value)) = static_table::get(index) {
            push_line(out, name.as_bytes(), value.as_bytes());
            return Ok(FieldSpan { start, name_len: name.len(), name_is_static: true, value_is_static: true });
        }
        let Line { name, value, name_is_static } = self.dynamic(index)?;
        push_line(out, name, value);
        Ok(FieldSpan { start, name_len: name.len(), name_is_static, value_is_static: false })
    }

    /// RFC 7541 §6.2.
    fn literal(&mut self, bits: u32, first: u8, insert: bool, out: &mut Vec<u8>) -> Result<FieldSpan, ConnectionError> {
        let index = integer::decode(bits, first, &mut self.input)?;
        let start = out.len();
        let name_is_static = match (index, static_table::get(index)) {
            (0, _) => {
                self.string(out)?;
                false
            }
            (_, Some((name, _))) => {
                out.extend_from_slice(name.as_bytes());
                true
            }
            _ => {
                let Line { name, name_is_static, .. } = self.dynamic(index)?;
                out.extend_from_slice(name);
                name_is_static
            }
        };
        let name_len = out.len() - start;
        out.extend_from_slice(SEPARATOR);
        self.string(out)?;
        if insert {
            self.decoder.changes += 1;
            let (name, value) = out[start..].split_at(name_len);
            self.decoder.table.insert(Line { name, value: &value[SEPARATOR.len()..], name_is_static });
        }
        Ok(FieldSpan { start, name_len, name_is_static, value_is_static: false })
    }

    /// RFC 7541 §6.3: only before the first field of a block (§4.2).
    fn update_size(&mut self, first: u8) -> Result<(), ConnectionError> {
        if !self.at_start {
            return Err(error("a table size update after a field"));
        }
        let size = integer::decode(5, first, &mut self.input)?;
        if size > self.decoder.limit {
            return Err(error("a table size update above the announced size"));
        }
        self.decoder.changes += 1;
        self.decoder.table.resize(size);
        self.decoder.update_due = false;
        Ok(())
    }

    /// RFC 7541 §5.2.
    fn string(&mut self, out: &mut Vec<u8>) -> Result<(), ConnectionError> {
        let (first, rest) = self.input.split_first().ok_or(ENDS_EARLY)?;
        self.input = rest;
        let length = integer::decode(7, *first, &mut self.input)?;
        let (bytes, rest) = self.input.split_at_checked(length).ok_or(ENDS_EARLY)?;
        self.input = rest;
        if first & 0x80 != 0 {
            return Ok(huffman::decode(bytes, out)?);
        }
        out.extend_from_slice(bytes);
        Ok(())
    }

    fn dynamic(&self, index: usize) -> Result<Line<'_>, ConnectionError> {
        let entry = index.checked_sub(LAST_STATIC + 1).and_then(|index| self.decoder.table.get(index));
        entry.ok_or(error("an index beyond the tables"))
    }
}

const ENDS_EARLY: ConnectionError = error("a header block ends within a field");
const UPDATE_MISSING: ConnectionError = error("no table size update after the announced size fell");

fn push_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + SEPARATOR.len() + value.len());
    out.extend_from_slice(name);
    out.extend_from_slice(SEPARATOR);
    out.extend_from_slice(value);
}

#[cfg(test)]
#[path = "decode_tests.rs"]
mod tests;
