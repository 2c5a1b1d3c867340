//! The fields of a response that the client needs, from a head without a dynamic table (QPACK, RFC 9204 §4.5).

use sealion_http::multiplexed::{CodingError, huffman, integer};

/// Status and length of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Fields {
    pub(super) status: u16,
    pub(super) content_length: Option<u64>,
}

/// Why a head cannot be decoded.
type Why = &'static str;

const CUT: Why = "cut short";
const DYNAMIC: Why = "encoded by the dynamic table, which this client does not allow";
const BAD: Why = "no field section of QPACK";

impl Fields {
    pub(super) fn decode(block: &[u8]) -> Result<Self, Why> {
        let mut input = block;
        if integer(&mut input, 8)? != 0 {
            return Err(DYNAMIC);
        }
        integer(&mut input, 7)?;
        let (mut status, mut content_length) = (None, None);
        while let Some(&first) = input.first() {
            match first {
                0xc0.. => match integer(&mut input, 6)? {
                    CONTENT_LENGTH => content_length = Some(0),
                    index => status = status.or(static_status(index)),
                },
                0x40..=0x7f if first & 0x10 != 0 => {
                    let index = integer(&mut input, 4)?;
                    let value = string(&mut input, 7)?;
                    match index {
                        CONTENT_LENGTH => content_length = Some(number(&value)?),
                        _ if static_status(index).is_some() => status = Some(number(&value)? as u16),
                        _ => {}
                    }
                }
                0x20..=0x3f => {
                    let name = string(&mut input, 3)?;
                    let value = string(&mut input, 7)?;
                    match name.as_slice() {
                        b"content-length" => content_length = Some(number(&value)?),
                        b":status" => status = Some(number(&value)? as u16),
                        _ => {}
                    }
                }
                _ => return Err(DYNAMIC),
            }
        }
        Ok(Self { status: status.ok_or("without a status")?, content_length })
    }
}

/// The index of Content-Length in the static table (RFC 9204 appendix A).
const CONTENT_LENGTH: usize = 4;

/// The status at an index of the static table.
fn static_status(index: usize) -> Option<u16> {
    let low = [103, 200, 304, 404, 503];
    let high = [100, 204, 206, 302, 400, 403, 421, 425, 500];
    match index {
        24..=28 => Some(low[index - 24]),
        63..=71 => Some(high[index - 63]),
        _ => None,
    }
}

/// An integer with a prefix of `bits` (RFC 7541 §5.1).
fn integer(input: &mut &[u8], bits: u32) -> Result<usize, Why> {
    let (first, rest) = input.split_first().ok_or(CUT)?;
    *input = rest;
    integer::decode(bits, *first, input).map_err(CodingError::why)
}

/// A string whose length has a prefix of `bits`, after the bit that says whether it is Huffman-coded.
fn string(input: &mut &[u8], bits: u32) -> Result<Vec<u8>, Why> {
    let is_coded = input.first().ok_or(CUT)? >> bits & 1 == 1;
    let length = integer(input, bits)?;
    let (text, rest) = input.split_at_checked(length).ok_or(CUT)?;
    *input = rest;
    if !is_coded {
        return Ok(text.to_vec());
    }
    let mut out = Vec::new();
    huffman::decode(text, &mut out).map_err(|_| BAD)?;
    Ok(out)
}

fn number(value: &[u8]) -> Result<u64, Why> {
    let is_number = !value.is_empty() && value.iter().all(u8::is_ascii_digit);
    let text = std::str::from_utf8(value).ok().filter(|_| is_number);
    text.and_then(|text| text.parse().ok()).ok_or("without a number where one belongs")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_and_length_are_found_in_every_representation() {
        let is = |block: &[u8], status: u16, content_length: Option<u64>| {
            assert_eq!(Fields::decode(block), Ok(Fields { status, content_length }), "{block:x?}");
        };
        is(b"\x00\x00\xd9", 200, None);
        is(b"\x00\x00\xff\x00", 100, None);
        is(b"\x00\x00\xff\x08\xc4", 500, Some(0));
        is(b"\x00\x00\x5f\x09\x03429\x54\x0210", 429, Some(10));
        // 302, Huffman-coded (RFC 7541 appendix C.6.1).
        is(b"\x00\x00\x5f\x09\x82\x64\x02", 302, None);
        is(b"\x00\x00\x27\x00:status\x03404\x27\x07content-length\x017", 404, Some(7));
        // server of the static table, and a name in full.
        is(b"\x00\x00\xd9\x5f\x4d\x07sealion\x21x\x01y", 200, None);
    }

    #[test]
    fn other_heads_are_refused() {
        for block in [&b""[..], b"\x00", b"\x00\x00", b"\x01\x00\xd9", b"\x00\x00\x80", b"\x00\x00\x10"] {
            assert!(Fields::decode(block).is_err(), "{block:x?}");
        }
        for block in [&b"\x00\x00\xd9\x54\x021"[..], b"\x00\x00\xd9\x54\x01x", b"\x00\x00\xff\x80"] {
            assert!(Fields::decode(block).is_err(), "{block:x?}");
        }
    }
}
