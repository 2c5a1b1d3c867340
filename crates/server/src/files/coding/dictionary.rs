//! Compression of a file by its previous version (RFC 9842).

use std::io::{self, Write};

use aws_lc_rs::digest::{SHA256, digest};
use brotli::enc::{BrotliEncoderParams, StandardAlloc};
use brotli::{BrotliCompressCustomIoCustomDict, IoReaderWrapper, IoWriterWrapper};
use sealion_http::dictionary::{DictionaryCoding, DictionaryHash};
use zstd::zstd_safe::CParameter;

/// Longest content and longest dictionary.
pub(crate) const MAX_LENGTH: u64 = 64 << 20;

/// The digest by which clients and files name a dictionary.
pub(crate) fn hash(dictionary: &[u8]) -> DictionaryHash {
    digest(&SHA256, dictionary).as_ref().try_into().expect("SHA-256 has 32 bytes")
}

/// `content` in a coding, with its header. `None`: the coding cannot have it.
///
/// # Errors
/// Out of memory.
pub(crate) fn encode(coding: DictionaryCoding, dictionary: &[u8], content: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let out = coding.header(&hash(dictionary));
    match coding {
        DictionaryCoding::Brotli => brotli(dictionary, content, out),
        DictionaryCoding::Zstd => zstandard(dictionary, content, out).map(Some),
    }
}

fn brotli(dictionary: &[u8], content: &[u8], mut out: Vec<u8>) -> io::Result<Option<Vec<u8>>> {
    // The encoder takes the dictionary for content before the content. Both have to lie in the window, so that the coding allows all distances.
    let lgwin = bits(dictionary.len() + content.len() + WINDOW_GAP).max(16);
    if lgwin > MAX_BROTLI_WINDOW {
        return Ok(None);
    }
    let params = BrotliEncoderParams {
        quality: 11,
        lgwin: lgwin as i32,
        size_hint: content.len(),
        ..BrotliEncoderParams::default()
    };
    let (mut input, mut output) = (vec![0; 1 << 16], vec![0; 1 << 16]);
    BrotliCompressCustomIoCustomDict(
        &mut IoReaderWrapper(&mut &*content),
        &mut IoWriterWrapper(&mut out),
        &mut input,
        &mut output,
        &params,
        StandardAlloc::default(),
        &mut |_, _, _, _| (),
        dictionary,
        io::ErrorKind::UnexpectedEof.into(),
    )?;
    Ok(Some(out))
}

fn zstandard(dictionary: &[u8], content: &[u8], out: Vec<u8>) -> io::Result<Vec<u8>> {
    let mut encoder = zstd::Encoder::with_ref_prefix(out, 19, dictionary)?;
    encoder.set_pledged_src_size(Some(content.len() as u64))?;
    // The dictionary is at hand until the content exceeds the window, which clients bound (RFC 9842 §5).
    let largest = (8 << 20).max(dictionary.len() + dictionary.len() / 4).ilog2();
    encoder.window_log(bits(content.len()).clamp(10, largest))?;
    if dictionary.len() + content.len() > LONG {
        encoder.set_parameter(CParameter::EnableLongDistanceMatching(true))?;
    }
    encoder.write_all(content)?;
    encoder.finish()
}

/// The binary logarithm of the least power of two that is not less.
fn bits(length: usize) -> u32 {
    length.max(1).next_power_of_two().ilog2()
}

/// The window of 16 MB that clients have (RFC 9842 §4).
const MAX_BROTLI_WINDOW: u32 = 24;
/// A window is so many bytes shorter than a power of two (RFC 7932 §9.1).
const WINDOW_GAP: usize = 16;
/// Above this, matches that lie far back are looked for.
const LONG: usize = 4 << 20;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use super::*;

    /// Decodes content by other code than the encoders.
    pub(crate) fn decode(coding: DictionaryCoding, dictionary: &[u8], bytes: &[u8]) -> Vec<u8> {
        assert_eq!(coding.dictionary_of(bytes), Some(hash(dictionary)), "{coding}");
        let mut decoded = Vec::new();
        match coding {
            DictionaryCoding::Brotli => {
                let mut decoder = brotli::Decompressor::new(&bytes[coding.header_len()..], 4096);
                assert!(decoder.attach_dictionary(dictionary.to_vec().into()));
                decoder.read_to_end(&mut decoded).unwrap();
            }
            DictionaryCoding::Zstd => {
                // The header is a frame that decoders skip.
                let bytes = &bytes[coding.header_len()..];
                let mut decoder = zstd::Decoder::with_ref_prefix(bytes, dictionary).unwrap();
                decoder.window_log_max(27).unwrap();
                decoder.read_to_end(&mut decoded).unwrap();
            }
        }
        decoded
    }

    pub(crate) fn text(length: usize, seed: usize) -> Vec<u8> {
        let lines =
            (0..).map(|n| format!("line {} of version {}\n", (n * 7919 + n * n) % 100_003, n % 97 / (96 - seed)));
        let mut text: Vec<u8> = lines.take(length / 10 + 1).collect::<String>().into_bytes();
        text.truncate(length);
        text
    }

    #[test]
    fn content_of_any_length_is_decoded_again_and_is_short_where_the_dictionary_is_alike() {
        for (of_dictionary, of_content) in
            [(1000, 0), (1000, 1), (1, 1000), (1000, 1000), (1_000_000, 1_000_000), (100_000, 10), (10, 100_000)]
        {
            let (dictionary, content) = (text(of_dictionary, 0), text(of_content, 1));
            for coding in DictionaryCoding::ALL {
                let encoded = encode(coding, &dictionary, &content).unwrap().unwrap();
                assert!(decode(coding, &dictionary, &encoded) == content, "{coding}: {of_content} by {of_dictionary}");
                let is_alike = of_dictionary == of_content;
                assert!(!is_alike || encoded.len() * 10 < content.len(), "{coding}: {} bytes", encoded.len());
            }
        }
    }

    /// A dictionary of zstd's own format counts as bytes too (RFC 9842 §2.1.4).
    #[test]
    fn a_dictionary_is_raw_whatever_it_begins_with() {
        let dictionary = [b"\x37\xa4\x30\xec".as_slice(), &text(2000, 0)].concat();
        for coding in DictionaryCoding::ALL {
            let encoded = encode(coding, &dictionary, &dictionary).unwrap().unwrap();
            assert!(decode(coding, &dictionary, &encoded) == dictionary && encoded.len() < 200, "{coding}");
        }
    }

    #[test]
    fn brotli_leaves_out_what_its_window_cannot_hold() {
        let dictionary = vec![b'a'; (16 << 20) - 16];
        assert!(encode(DictionaryCoding::Brotli, &dictionary, b"a").unwrap().is_none());
    }
}
