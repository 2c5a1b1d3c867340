//! Header blocks of requests and trailers (RFC 9113 §8), decoded into the driver's buffer.

use sealion_http::multiplexed::{HeadBuffer, Section, SectionKind as Kind, SectionReader};

use crate::error::{ConnectionError, Flood};
use crate::hpack::Decoder;
use crate::settings::Limits;

/// The last header block of a request that came twice in a row, with its fields: a client that repeats a request usually repeats its block.
#[derive(Debug, Default)]
pub(crate) struct Repeated {
    last: Mark,
    kept: Option<Box<Kept>>,
}

/// The length and the ends of a block: enough to suppose that the next one is the same.
type Mark = (usize, [u8; 8], [u8; 8]);

/// A block that leaves the dynamic table as it is.
#[derive(Debug)]
struct Kept {
    block: Box<[u8]>,
    /// [`Decoder::changes`] when it was decoded.
    changes: u64,
    head: HeadBuffer,
}

/// Bytes of a block, and of its fields, that are kept.
const MAX_KEPT: usize = 512;

impl Repeated {
    /// Writes the fields of a block into `buffer` if it is the one that is kept, and means the same as then.
    fn find(&self, block: &[u8], decoder: &Decoder, buffer: &mut HeadBuffer) -> bool {
        let kept = self.kept.as_ref().filter(|kept| kept.changes == decoder.changes() && *kept.block == *block);
        kept.inspect(|kept| buffer.copy_from(&kept.head)).is_some()
    }

    /// Notes a block that changed nothing, and its fields.
    fn note(&mut self, block: &[u8], decoder: &Decoder, head: &HeadBuffer) {
        let mark = mark(block);
        if std::mem::replace(&mut self.last, mark) == mark && block.len() <= MAX_KEPT && head.len() <= MAX_KEPT {
            let mut own = HeadBuffer::default();
            own.copy_from(head);
            self.kept = Some(Box::new(Kept { block: block.into(), changes: decoder.changes(), head: own }));
        }
    }

    /// Bytes on the heap.
    pub(crate) fn memory(&self) -> usize {
        self.kept.as_ref().map_or(0, |kept| size_of::<Kept>() + kept.block.len() + kept.head.memory())
    }
}

fn mark(block: &[u8]) -> Mark {
    let few = || {
        let mut few = [0; 8];
        few[..block.len().min(8)].copy_from_slice(&block[..block.len().min(8)]);
        few
    };
    let first = block.first_chunk().copied().unwrap_or_else(few);
    (block.len(), first, block.last_chunk().copied().unwrap_or(first))
}

/// Decodes the header block of a request into `buffer`, as [`decode`] does.
pub(crate) fn decode_request(
    repeated: &mut Repeated,
    decoder: &mut Decoder,
    block: &[u8],
    buffer: &mut HeadBuffer,
    limits: &Limits,
) -> Result<Section, ConnectionError> {
    if repeated.find(block, decoder, buffer) {
        return Ok(Section::Good);
    }
    let before = decoder.changes();
    let section = decode(Kind::Request, decoder, block, buffer, limits)?;
    if section == Section::Good && decoder.changes() == before {
        repeated.note(block, decoder, buffer);
    }
    Ok(section)
}

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
