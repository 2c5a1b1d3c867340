//! The file of a stored response.
//!
//! ```text
//! offset 0: body │ metadata │ footer │ metadata │ footer          a validation appends a further pair; the last one counts
//! ```
//!
//! The body comes first, so that it is sent like a file. Its length and checksum are known only at its end, and stand in the footer,
//! the last 64 bytes. A file without a valid footer is no object: an interrupted write is never sent.

use serde::{Deserialize, Serialize};

/// Bytes of a footer.
pub(super) const FOOTER: usize = 64;

/// Longest metadata.
pub(super) const LONGEST_METADATA: u32 = 1 << 20;

const MAGIC: [u8; 8] = *b"sealionC";
const VERSION: u16 = 1;

/// The end of the file of an object. All numbers are little-endian.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Footer {
    /// Bytes of the metadata before the footer.
    pub(super) metadata: u32,
    /// Bytes of the body at the beginning.
    pub(super) body: u64,
    /// Milliseconds since 1970-01-01 when the object was stored or last validated.
    pub(super) stored: u64,
    /// The hash of the key, which is the name of the file.
    pub(super) hash: u128,
    /// The boot of the machine at which the body was written (`boot` in `directory.rs`).
    pub(super) boot: u32,
    /// CRC-32C of the body.
    pub(super) body_checksum: u32,
    /// CRC-32C of the metadata.
    pub(super) metadata_checksum: u32,
}

impl Footer {
    pub(super) fn to_bytes(self) -> [u8; FOOTER] {
        let mut bytes = [0; FOOTER];
        let parts: [&[u8]; 10] = [
            &MAGIC,
            &VERSION.to_le_bytes(),
            &[0; 2],
            &self.metadata.to_le_bytes(),
            &self.body.to_le_bytes(),
            &self.stored.to_le_bytes(),
            &self.hash.to_le_bytes(),
            &self.boot.to_le_bytes(),
            &self.body_checksum.to_le_bytes(),
            &self.metadata_checksum.to_le_bytes(),
        ];
        let mut at = 0;
        for part in parts {
            bytes[at..at + part.len()].copy_from_slice(part);
            at += part.len();
        }
        let checksum = crc32c::crc32c(&bytes[..at]);
        bytes[at..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    /// `None`: no footer of this version, or a damaged one.
    pub(crate) fn from_bytes(bytes: &[u8; FOOTER]) -> Option<Self> {
        let (content, checksum) = bytes.split_at(FOOTER - 4);
        if checksum != crc32c::crc32c(content).to_le_bytes() {
            return None;
        }
        let mut rest = content;
        if take(&mut rest)? != MAGIC || u16::from_le_bytes(take(&mut rest)?) != VERSION {
            return None;
        }
        let _: [u8; 2] = take(&mut rest)?;
        Some(Footer {
            metadata: u32::from_le_bytes(take(&mut rest)?),
            body: u64::from_le_bytes(take(&mut rest)?),
            stored: u64::from_le_bytes(take(&mut rest)?),
            hash: u128::from_le_bytes(take(&mut rest)?),
            boot: u32::from_le_bytes(take(&mut rest)?),
            body_checksum: u32::from_le_bytes(take(&mut rest)?),
            metadata_checksum: u32::from_le_bytes(take(&mut rest)?),
        })
        .filter(|footer| footer.metadata <= LONGEST_METADATA)
    }

    /// Whether the sizes in the footer fit into a file of `length` bytes.
    pub(crate) fn fits(&self, length: u64) -> bool {
        let behind = u64::from(self.metadata) + FOOTER as u64;
        self.body.checked_add(behind).is_some_and(|needed| needed <= length)
    }
}

fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, left) = rest.split_first_chunk()?;
    *rest = left;
    Some(*taken)
}

/// The description of an object, stored behind its body.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    /// The key, whole: it tells two keys with one hash apart.
    pub(super) key: Vec<u8>,
    pub(super) kind: Kind,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Kind {
    /// A response.
    Response {
        status: u16,
        /// The fields of the origin, names in lower case.
        fields: Vec<(String, Vec<u8>)>,
        /// [`sealion_cache::Lifetime::to_bytes`].
        lifetime: Vec<u8>,
    },
    /// The names of the request fields that select among the responses of a URL (Vary, RFC 9110 §12.5.5).
    Variants {
        names: Vec<String>,
        /// The hashes of the keys of its variants, in the order of their storage.
        hashes: Vec<u128>,
    },
}

impl Metadata {
    /// `None`: too long.
    pub(super) fn to_bytes(&self) -> Option<Vec<u8>> {
        postcard::to_stdvec(self).ok().filter(|bytes| bytes.len() <= LONGEST_METADATA as usize)
    }

    /// `None`: damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        postcard::from_bytes(bytes).ok()
    }
}

/// Metadata and footer, and the bytes of the whole file with them.
pub(super) fn tail(
    metadata: &Metadata,
    hash: u128,
    stored: u64,
    (body, body_checksum): (u64, u32),
    boot: u32,
) -> std::io::Result<(Vec<u8>, u64)> {
    let too_long = || std::io::Error::other("the fields of the response are too long to be stored");
    let mut tail = metadata.to_bytes().ok_or_else(too_long)?;
    let footer = Footer {
        metadata: tail.len() as u32,
        body,
        stored,
        hash,
        boot,
        body_checksum,
        metadata_checksum: crc32c::crc32c(&tail),
    };
    tail.extend_from_slice(&footer.to_bytes());
    debug_assert!(tail.len() > FOOTER);
    let length = body + tail.len() as u64;
    Ok((tail, length))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOOTER_OF_ONE: Footer = Footer {
        metadata: 17,
        body: 1 << 40,
        stored: 1_795_000_000_000,
        hash: 0x0123_4567_89ab_cdef_0123_4567_89ab_cdef,
        boot: 7,
        body_checksum: 8,
        metadata_checksum: 9,
    };

    #[test]
    fn a_footer_is_read_as_it_was_written() {
        assert_eq!(Footer::from_bytes(&FOOTER_OF_ONE.to_bytes()), Some(FOOTER_OF_ONE));
    }

    #[test]
    fn a_footer_with_any_changed_bit_is_none() {
        let bytes = FOOTER_OF_ONE.to_bytes();
        for bit in 0..FOOTER * 8 {
            let mut changed = bytes;
            changed[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Footer::from_bytes(&changed), None, "bit {bit}");
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_its_footer_says_does_not_fit() {
        let needed = (1 << 40) + 17 + FOOTER as u64;
        assert!(FOOTER_OF_ONE.fits(needed) && !FOOTER_OF_ONE.fits(needed - 1));
        assert!(!Footer { body: u64::MAX, ..FOOTER_OF_ONE }.fits(u64::MAX));
    }

    #[test]
    fn metadata_are_read_as_they_were_written() {
        let kind = Kind::Response {
            status: 200,
            fields: vec![("etag".to_owned(), b"\"caf\xe9\"".to_vec())],
            lifetime: vec![1, 2, 3],
        };
        let variants = Kind::Variants { names: vec!["accept-encoding".to_owned()], hashes: vec![0, u128::MAX] };
        for kind in [kind, variants] {
            let metadata = Metadata { key: b"https://example.org/".to_vec(), kind };
            assert_eq!(Metadata::from_bytes(&metadata.to_bytes().unwrap()), Some(metadata));
        }
    }
}
