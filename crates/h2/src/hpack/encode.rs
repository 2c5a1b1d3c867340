//! Encoding of header blocks without a dynamic table.

use super::{huffman, integer, static_table};

/// A table size update to 0 (RFC 7541 §6.3). It opens the first header block of a connection: the peer need not keep a table, and no later
/// SETTINGS_HEADER_TABLE_SIZE of the peer asks for an update.
pub(crate) const NO_DYNAMIC_TABLE: &[u8] = &[0x20];

/// The encoded fields of a response, or a part of them.
///
/// They depend on no connection, so that a block can be kept beside a file and sent to every client. `:status` comes first in the first
/// block of a response.
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
    octets: Vec<u8>,
}

impl HeaderBlock {
    /// A block that begins with `:status`: three digits.
    pub fn response(status: u16) -> Self {
        let mut block = HeaderBlock { octets: Vec::with_capacity(128) };
        block.status(status);
        block
    }

    /// Removes all fields and keeps the memory.
    pub fn clear(&mut self) {
        self.octets.clear();
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
                self.octets.extend_from_slice(&[STATUS_INDEX, 3, digit(100), digit(10), digit(1)]);
                return;
            }
        };
        self.octets.push(0x80 | index);
    }

    /// Appends a field. `name` is in lower case; both are valid (RFC 9110 §5.1 and §5.5).
    ///
    /// Fields that carry credentials are marked as never to be indexed (RFC 7541 §7.1.3).
    pub fn field(&mut self, name: &str, value: &[u8]) {
        debug_assert!(!name.is_empty() && !name.bytes().any(|octet| octet.is_ascii_uppercase()), "{name:?}");
        let pattern = if matches!(name, "set-cookie" | "authorization" | "proxy-authorization") { 0x10 } else { 0 };
        match static_table::index_of(name) {
            Some(index) => integer::encode(&mut self.octets, 4, pattern, index),
            None => {
                self.octets.push(pattern);
                self.string(name.as_bytes());
            }
        }
        self.string(value);
    }

    /// The encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.octets
    }

    fn string(&mut self, octets: &[u8]) {
        let encoded = huffman::encoded_len(octets);
        if encoded < octets.len() {
            integer::encode(&mut self.octets, 7, 0x80, encoded);
            huffman::encode(octets, &mut self.octets);
        } else {
            integer::encode(&mut self.octets, 7, 0, octets.len());
            self.octets.extend_from_slice(octets);
        }
    }
}

/// A literal field without indexing, whose name is that of entry 8, `:status`.
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
