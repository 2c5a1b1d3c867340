//! Header blocks of requests and trailers (RFC 9113 §8), decoded into the driver's buffer.

use sealion_http::multiplexed::{HeadBuffer, Section, SectionKind as Kind, SectionReader};

use crate::error::{ConnectionError, Flood};
use crate::hpack::Decoder;
use crate::settings::Limits;

/// Decodes a header block into `buffer`. It reads the whole block, even if it is malformed, to update the dynamic
/// table. A block that decodes to much more than the limits ends the connection at once.
pub(crate) fn decode(
    kind: Kind,
    decoder: &mut Decoder,
    block: &[u8],
    buffer: &mut HeadBuffer,
    limits: &Limits,
) -> Result<Section, ConnectionError> {
    let mut reader = SectionReader::new(kind, limits.section(), buffer);
    let mut block = decoder.block(block);
    while let Some(span) = block.next(reader.out())? {
        reader.line(span).map_err(|_| ConnectionError::flood(Flood::HeaderBomb))?;
    }
    Ok(reader.finish())
}

#[cfg(test)]
#[path = "request_tests.rs"]
mod tests;
