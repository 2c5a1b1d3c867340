//! Decoding of field sections (RFC 9204 §4.5), one field at a time.

use sealion_http::multiplexed::{CodingError, FieldSpan, SEPARATOR, huffman, integer};

use super::static_table;

/// A field section that is being decoded.
pub(crate) struct Block<'a> {
    input: &'a [u8],
}

impl<'a> Block<'a> {
    /// Begins to decode a field section: reads its prefix (RFC 9204 §4.5.1).
    pub(crate) fn new(mut input: &'a [u8]) -> Result<Self, CodingError> {
        let first = take_byte(&mut input)?;
        if integer::decode(8, first, &mut input)? != 0 {
            return Err(CodingError::new("a field section that needs the dynamic table"));
        }
        let sign = take_byte(&mut input)?;
        integer::decode(7, sign, &mut input)?;
        if sign & 0x80 != 0 {
            return Err(CodingError::new("a field section with a negative base"));
        }
        Ok(Block { input })
    }

    /// Appends the next field to `out`. `None`: the section ended.
    #[inline]
    pub(crate) fn next(&mut self, out: &mut Vec<u8>) -> Result<Option<FieldSpan>, CodingError> {
        let Some((first, rest)) = self.input.split_first() else { return Ok(None) };
        self.input = rest;
        match first >> 4 {
            0b1100.. => self.indexed(*first, out),
            0b0101 | 0b0111 => self.literal_with_static_name(*first, out),
            0b0010 | 0b0011 => self.literal(*first, out),
            _ => Err(CodingError::new("a reference to the dynamic table")),
        }
        .map(Some)
    }

    /// RFC 9204 §4.5.2.
    fn indexed(&mut self, first: u8, out: &mut Vec<u8>) -> Result<FieldSpan, CodingError> {
        let (name, value) = self.static_entry(6, first)?;
        let start = out.len();
        out.reserve(name.len() + SEPARATOR.len() + value.len());
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(SEPARATOR);
        out.extend_from_slice(value.as_bytes());
        Ok(FieldSpan { start, name_len: name.len(), name_is_static: true, value_is_static: true })
    }

    /// RFC 9204 §4.5.4.
    fn literal_with_static_name(&mut self, first: u8, out: &mut Vec<u8>) -> Result<FieldSpan, CodingError> {
        let (name, _) = self.static_entry(4, first)?;
        let start = out.len();
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(SEPARATOR);
        self.value(out)?;
        Ok(FieldSpan { start, name_len: name.len(), name_is_static: true, value_is_static: false })
    }

    /// RFC 9204 §4.5.6.
    fn literal(&mut self, first: u8, out: &mut Vec<u8>) -> Result<FieldSpan, CodingError> {
        let start = out.len();
        self.string(3, first, out)?;
        let name_len = out.len() - start;
        out.extend_from_slice(SEPARATOR);
        self.value(out)?;
        Ok(FieldSpan { start, name_len, name_is_static: false, value_is_static: false })
    }

    fn static_entry(&mut self, bits: u32, first: u8) -> Result<(&'static str, &'static str), CodingError> {
        let index = integer::decode(bits, first, &mut self.input)?;
        static_table::get(index).ok_or(CodingError::new("an index beyond the static table"))
    }

    fn value(&mut self, out: &mut Vec<u8>) -> Result<(), CodingError> {
        let first = take_byte(&mut self.input)?;
        self.string(7, first, out)
    }

    /// A string whose length has a prefix of `bits` (RFC 9204 §4.1.2). The bit before tells whether it is Huffman-coded.
    fn string(&mut self, bits: u32, first: u8, out: &mut Vec<u8>) -> Result<(), CodingError> {
        let length = integer::decode(bits, first, &mut self.input)?;
        let (bytes, rest) = self.input.split_at_checked(length).ok_or(ENDS_EARLY)?;
        self.input = rest;
        if first >> bits & 1 != 0 {
            return huffman::decode(bytes, out);
        }
        out.extend_from_slice(bytes);
        Ok(())
    }
}

fn take_byte(input: &mut &[u8]) -> Result<u8, CodingError> {
    let (first, rest) = input.split_first().ok_or(ENDS_EARLY)?;
    *input = rest;
    Ok(*first)
}

const ENDS_EARLY: CodingError = CodingError::new("a field section ends within a field");

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(input: &[u8]) -> Result<Vec<(String, String)>, CodingError> {
        let mut block = Block::new(input)?;
        let (mut out, mut fields) = (Vec::new(), Vec::new());
        while let Some(span) = block.next(&mut out)? {
            let line = String::from_utf8(out[span.start..].to_vec()).unwrap();
            let (name, rest) = line.split_at(span.name_len);
            fields.push((name.to_owned(), rest.strip_prefix(": ").unwrap().to_owned()));
        }
        Ok(fields)
    }

    fn field(name: &str, value: &str) -> (String, String) {
        (name.to_owned(), value.to_owned())
    }

    /// RFC 9204 §B.1.
    #[test]
    fn the_example_of_the_rfc() {
        let input = b"\x00\x00\x51\x0b/index.html";
        assert_eq!(decoded(input).unwrap(), [field(":path", "/index.html")]);
    }

    #[test]
    fn every_form_without_dynamic_table_is_read() {
        for (bytes, name, value) in [
            (&b"\xd1"[..], ":method", "GET"),
            (b"\xff\x23", "x-frame-options", "sameorigin"),
            (b"\x50\x01a", ":authority", "a"),
            (b"\x70\x01a", ":authority", "a"),
            (b"\x5f\x50\x81\x07", "user-agent", "0"),
            (b"\x21x\x01y", "x", "y"),
            (b"\x31x\x00", "x", ""),
        ] {
            let section = [b"\x00\x00", bytes].concat();
            assert_eq!(decoded(&section).unwrap(), [field(name, value)], "{}", bytes.escape_ascii());
        }
        assert_eq!(decoded(&[0, 0]).unwrap(), []);
        assert_eq!(decoded(&[0, 0x7f, 0xff, 0x7f]).unwrap(), [], "the base does not matter");
    }

    #[test]
    fn a_section_that_needs_the_dynamic_table_is_an_error() {
        for section in [
            &[][..],
            &[0],
            &[1, 0],
            &[2, 0x80],
            &[0, 0x80],
            &[0xff, 0, 0],
            &[0, 0, 0x80],
            &[0, 0, 0xbf, 0],
            &[0, 0, 0x40, 0],
            &[0, 0, 0x60, 0],
            &[0, 0, 0x10],
            &[0, 0, 0x00, 0],
            &[0, 0, 0x0f, 0],
            &[0, 0, 0xff, 0x24],
            &[0, 0, 0x5f, 0x54, 0],
            &[0, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0x0f],
        ] {
            decoded(section).expect_err(&format!("{section:x?}"));
        }
    }

    #[test]
    fn a_section_may_end_between_fields_only() {
        let section = b"\x00\x00\xd1\x5f\x50\x81\x07\x21x\x03abc";
        for end in 0..section.len() {
            assert_eq!(decoded(&section[..end]).is_ok(), matches!(end, 2 | 3 | 7), "{end}");
        }
    }
}
