//! Encoding of header blocks without a dynamic table.

use sealion_http::multiplexed::{huffman, integer};

use super::static_table;

/// A table size update to 0 (RFC 7541 §6.3), at the start of a connection's first header block. So the peer need not
/// keep a table, and no later SETTINGS_HEADER_TABLE_SIZE of the peer requires an update.
pub(crate) const NO_DYNAMIC_TABLE: &[u8] = &[0x20];

/// The encoded fields of a response, or some of them.
///
/// They do not depend on a connection, so that a block can be kept with a file and sent to every client. `:status`
/// comes first in the first block of a response.
///
/// ```
/// let mut kept = sealion_h2::HeaderBlock::response(200);
/// kept.field("content-type", b"text/html");
/// let mut fresh = sealion_h2::HeaderBlock::default();
/// fresh.field("date", b"Sun, 22 Nov 2026 07:00:00 GMT");
/// let parts = [kept.as_bytes(), fresh.as_bytes()]; // for `Connection::respond`
/// # assert_eq!(parts[0][0], 0x88);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeaderBlock {
    bytes: Vec<u8>,
}

impl HeaderBlock {
    /// A block that begins with `:status`, a number of three digits.
    pub fn response(status: u16) -> Self {
        let mut block = HeaderBlock { bytes: Vec::with_capacity(128) };
        block.status(status);
        block
    }

    /// Removes all fields but keeps the memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Appends `:status`, which is the first field of a response.
    pub fn status(&mut self, status: u16) {
        let index = match status {
            200 => 8,
            204 => 9,
            206 => 10,
            304 => 11,
            400 => 12,
            404 => 13,
            500 => 14,
            _ => {
                let digit = |divisor: u16| b'0' + (status / divisor % 10) as u8;
                self.bytes.extend_from_slice(&[STATUS_INDEX, 3, digit(100), digit(10), digit(1)]);
                return;
            }
        };
        self.bytes.push(0x80 | index);
    }

    /// Appends a field. `name` must be in lower case, and both must be valid (RFC 9110 §5.1 and §5.5).
    ///
    /// Fields with credentials are marked as never indexed (RFC 7541 §7.1.3).
    pub fn field(&mut self, name: &str, value: &[u8]) {
        debug_assert!(!name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name:?}");
        let pattern = if matches!(name, "set-cookie" | "authorization" | "proxy-authorization") { 0x10 } else { 0 };
        match static_table::index_of(name) {
            Some(index) => integer::encode(&mut self.bytes, 4, pattern, index),
            None => {
                self.bytes.push(pattern);
                self.string(name.as_bytes());
            }
        }
        self.string(value);
    }

    /// The encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn string(&mut self, bytes: &[u8]) {
        let encoded = huffman::encoded_len(bytes);
        if encoded < bytes.len() {
            integer::encode(&mut self.bytes, 7, 0x80, encoded);
            huffman::encode(bytes, &mut self.bytes);
        } else {
            integer::encode(&mut self.bytes, 7, 0, bytes.len());
            self.bytes.extend_from_slice(bytes);
        }
    }
}

/// A literal field without indexing, whose name is entry 8, `:status`.
const STATUS_INDEX: u8 = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_names_and_statuses_are_indexed() {
        assert_eq!(HeaderBlock::response(200).as_bytes(), [0x88]);
        assert_eq!(HeaderBlock::response(431).as_bytes(), [8, 3, b'4', b'3', b'1']);
        let mut block = HeaderBlock::default();
        block.field("server", b"~~");
        assert_eq!(block.as_bytes(), [0x0f, 54 - 15, 2, b'~', b'~']);
        block.clear();
        block.field("set-cookie", b"~");
        assert_eq!(block.as_bytes(), [0x1f, 55 - 15, 1, b'~']);
        block.clear();
        block.field("x", b"000");
        assert_eq!(block.as_bytes(), [0, 1, b'x', 0x82, 0, 1], "Huffman code where it is shorter");
    }
}
