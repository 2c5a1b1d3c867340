//! HPACK (RFC 7541): a decoder for requests, and an encoder that uses no dynamic table.
//!
//! Responses are encoded with the static table and Huffman codes only, so that a header block depends only on its
//! fields and can be kept with a hot file. The server's setting bounds the decoder's dynamic table, which grows with
//! its entries.

mod decode;
mod encode;
mod static_table;
mod table;

pub(crate) use decode::{Decoder, DecoderRest};
pub use encode::HeaderBlock;
pub(crate) use encode::NO_DYNAMIC_TABLE;

use sealion_http::multiplexed::CodingError;

use crate::error::{ConnectionError, ErrorCode};

/// A header block that cannot be decoded (RFC 7541 §3 to §6): the dynamic table is lost, and with it the connection.
pub(crate) const fn error(why: &'static str) -> ConnectionError {
    ConnectionError::new(ErrorCode::COMPRESSION_ERROR, why)
}

impl From<CodingError> for ConnectionError {
    fn from(error: CodingError) -> Self {
        self::error(error.why())
    }
}
