//! Encoding of field sections with the static table and Huffman codes.

use sealion_http::multiplexed::{huffman, integer};

use super::static_table::{self, Found};

/// The beginning of each field section: it needs no entry of the dynamic table (RFC 9204 §4.5.1).
pub(crate) const SECTION_PREFIX: &[u8] = &[0, 0];

/// The encoded fields of a response, or some of them, without the prefix of a field section.
///
/// They do not depend on a connection, so that a block can be kept with a file and sent to every client. `:status`
/// comes first in the first block of a response.
///
/// ```
/// let mut kept = sealion_h3::HeaderBlock::response(200);
/// kept.field("content-type", b"text/css");
/// let mut fresh = sealion_h3::HeaderBlock::default();
/// fresh.field("date", b"Sun, 22 Nov 2026 07:00:00 GMT");
/// let parts = [kept.as_bytes(), fresh.as_bytes()]; // for `Connection::respond`
/// # assert_eq!(parts[0], [0xd9, 0xf3]);
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
        let digit = |divisor: u16| b'0' + (status / divisor % 10) as u8;
        self.field(":status", &[digit(100), digit(10), digit(1)]);
    }

    /// Appends a field. `name` must be in lower case, and both must be valid (RFC 9110 §5.1 and §5.5).
    ///
    /// Fields with credentials are marked as never indexed (RFC 9204 §7.1.3).
    pub fn field(&mut self, name: &str, value: &[u8]) {
        debug_assert!(!name.is_empty() && !name.bytes().any(|byte| byte.is_ascii_uppercase()), "{name:?}");
        let is_credential = matches!(name, "set-cookie" | "authorization" | "proxy-authorization");
        match static_table::find(name, value) {
            Some(Found::Field(index)) => return integer::encode(&mut self.bytes, 6, 0xc0, index),
            Some(Found::Name(index)) => {
                integer::encode(&mut self.bytes, 4, if is_credential { 0x70 } else { 0x50 }, index);
            }
            None => self.string(3, if is_credential { 0x30 } else { 0x20 }, name.as_bytes()),
        }
        self.string(7, 0, value);
    }

    /// The encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Appends a string whose length has a prefix of `bits`; the bit before tells whether it is Huffman-coded.
    fn string(&mut self, bits: u32, pattern: u8, bytes: &[u8]) {
        let encoded = huffman::encoded_len(bytes);
        if encoded < bytes.len() {
            integer::encode(&mut self.bytes, bits, pattern | 1 << bits, encoded);
            huffman::encode(bytes, &mut self.bytes);
        } else {
            integer::encode(&mut self.bytes, bits, pattern, bytes.len());
            self.bytes.extend_from_slice(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Block;
    use super::*;

    #[test]
    fn known_names_and_fields_are_indexed() {
        assert_eq!(HeaderBlock::response(200).as_bytes(), [0xd9]);
        assert_eq!(HeaderBlock::response(206).as_bytes(), [0xff, 65 - 63]);
        assert_eq!(HeaderBlock::response(431).as_bytes(), [0x5f, 24 - 15, 3, b'4', b'3', b'1']);
        let mut block = HeaderBlock::default();
        block.field("server", b"~~");
        assert_eq!(block.as_bytes(), [0x5f, 92 - 15, 2, b'~', b'~']);
        block.clear();
        block.field("set-cookie", b"~");
        assert_eq!(block.as_bytes(), [0x7e, 1, b'~']);
        block.clear();
        block.field("proxy-authorization", b"~");
        assert_eq!(block.as_bytes()[0] & 0xf8, 0x38);
        block.clear();
        block.field("~", b"000");
        assert_eq!(block.as_bytes(), [0x21, b'~', 0x82, 0, 1], "Huffman code where it is shorter");
    }

    #[test]
    fn fields_come_back() {
        let long = "z".repeat(300);
        let fields = [
            (":status", "200"),
            (":status", "599"),
            ("content-type", "text/html; charset=utf-8"),
            ("content-type", "text/html"),
            ("vary", "accept-encoding"),
            ("x-very-long-name-of-a-field-that-needs-two-bytes", "1"),
            ("etag", "\"\u{fc}\""),
            ("x", &long),
            ("via", ""),
        ];
        let mut encoded = HeaderBlock::default();
        fields.iter().for_each(|(name, value)| encoded.field(name, value.as_bytes()));
        let section = [SECTION_PREFIX, encoded.as_bytes()].concat();
        let (mut block, mut out) = (Block::new(&section).unwrap(), Vec::new());
        for (name, value) in fields {
            let span = block.next(&mut out).unwrap().unwrap();
            assert_eq!(out[span.start..], *format!("{name}: {value}").as_bytes());
            assert_eq!(span.name_len, name.len());
        }
        assert_eq!(block.next(&mut out), Ok(None));
    }
}
