//! Instructions on the client's streams of QPACK (RFC 9204 §4.3 and §4.4). Since no table has a capacity, almost none is valid.

use crate::error::{ConnectionError, ErrorCode};

/// The client's encoder stream: it may only set the capacity to 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct EncoderStream;

impl EncoderStream {
    /// Reads `input`. Returns the number of instructions.
    pub(crate) fn read(input: &[u8]) -> Result<u32, ConnectionError> {
        const SET_CAPACITY_TO_0: u8 = 0x20;
        if input.iter().all(|byte| *byte == SET_CAPACITY_TO_0) {
            return Ok(input.len() as u32);
        }
        Err(ConnectionError::new(ErrorCode::QPACK_ENCODER_STREAM_ERROR, "an insertion into a table without capacity"))
    }
}

/// The client's decoder stream: it may only cancel streams. There is nothing that it could acknowledge.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct DecoderStream {
    /// The number of bytes that an incomplete stream ID may still have.
    left: u8,
}

impl DecoderStream {
    /// Reads `input`, which may end within an instruction. Returns the number of instructions begun.
    pub(crate) fn read(&mut self, input: &[u8]) -> Result<u32, ConnectionError> {
        let mut instructions = 0;
        for byte in input {
            if self.left > 0 {
                self.left = if byte & 0x80 == 0 { 0 } else { self.left - 1 };
                if byte & 0x80 != 0 && self.left == 0 {
                    return Err(error("a stream ID that is too long"));
                }
                continue;
            }
            if byte >> 6 != 0b01 {
                return Err(error("an acknowledgement of entries that do not exist"));
            }
            instructions += 1;
            if byte & 0x3f == 0x3f {
                self.left = MAX_CONTINUATION;
            }
        }
        Ok(instructions)
    }
}

/// The bytes behind the prefix of an integer of 62 bits.
const MAX_CONTINUATION: u8 = 9;

const fn error(why: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::QPACK_DECODER_STREAM_ERROR, why)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_is_inserted() {
        assert_eq!(EncoderStream::read(&[]), Ok(0));
        assert_eq!(EncoderStream::read(&[0x20, 0x20]), Ok(2));
        for instruction in [0x21, 0x3f, 0x80, 0xc0, 0x40, 0x00] {
            let error = EncoderStream::read(&[0x20, instruction, 0x20]).unwrap_err();
            assert_eq!(error.code, ErrorCode::QPACK_ENCODER_STREAM_ERROR);
        }
    }

    #[test]
    fn streams_are_cancelled_and_nothing_is_acknowledged() {
        let ids = [0x40, 0x7e, 0x7f, 0x00, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 0x41];
        assert_eq!(DecoderStream::default().read(&ids), Ok(5));
        let mut split = DecoderStream::default();
        assert_eq!(ids.chunks(1).map(|byte| split.read(byte).unwrap()).sum::<u32>(), 5);
        for bytes in [&[0x80][..], &[0x00], &[0x01], &[0x40, 0xff], &[[0x7f].as_slice(), &[0xff; 9]].concat()] {
            let error = DecoderStream::default().read(bytes).unwrap_err();
            assert_eq!(error.code, ErrorCode::QPACK_DECODER_STREAM_ERROR, "{bytes:x?}");
        }
    }
}
