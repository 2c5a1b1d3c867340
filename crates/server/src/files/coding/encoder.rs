//! The encoders, and how hard they try.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use sealion_http::Coding;

/// How hard to try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// While a client waits.
    Now,
    /// Beforehand, with all the time there is.
    Beforehand,
}

/// A writer that passes on to another what is written, in a coding.
pub(crate) enum Encoder<W: Write> {
    /// Brotli. Its writer keeps an error of the last write to itself.
    Brotli(Box<CompressorWriter<Remembering<W>>>),
    /// Zstandard.
    Zstd(zstd::Encoder<'static, W>),
    /// gzip.
    Gzip(GzEncoder<W>),
}

impl<W: Write> Encoder<W> {
    /// For `len` bytes in all, to `out`.
    ///
    /// # Errors
    /// No memory.
    // MEASURED: what does each level cost and save? 2.2 MB of JavaScript, HTML, CSS, JSON and SVG, see docs/compression.md.
    pub(crate) fn new(coding: Coding, effort: Effort, len: u64, out: W) -> io::Result<Self> {
        let beforehand = effort == Effort::Beforehand;
        Ok(match coding {
            Coding::Brotli => {
                let params = BrotliEncoderParams {
                    quality: if beforehand { 11 } else { 5 },
                    lgwin: 22,
                    size_hint: usize::try_from(len).unwrap_or(0),
                    ..BrotliEncoderParams::default()
                };
                Encoder::Brotli(Box::new(CompressorWriter::with_params(
                    Remembering { out, error: None },
                    BUFFER,
                    &params,
                )))
            }
            Coding::Zstd => {
                let mut encoder = zstd::Encoder::new(out, if beforehand { 19 } else { 6 })?;
                // Tells the length, which also keeps the window small for small files; more than 8 MiB no client has to accept (RFC 9659).
                encoder.set_pledged_src_size(Some(len))?;
                encoder.window_log(if len >= 1 << 23 { 23 } else { 64 - len.max(1 << 10).leading_zeros() })?;
                Encoder::Zstd(encoder)
            }
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(out, Compression::new(if beforehand { 9 } else { 6 }))),
        })
    }

    /// Writes what is left and gives the other writer back.
    ///
    /// # Errors
    /// The other writer's.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Encoder::Brotli(encoder) => {
                let Remembering { out, error } = encoder.into_inner();
                error.map_or(Ok(out), Err)
            }
            Encoder::Zstd(encoder) => encoder.finish(),
            Encoder::Gzip(encoder) => encoder.finish(),
        }
    }
}

impl<W: Write> Write for Encoder<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Encoder::Brotli(encoder) => encoder.write(bytes),
            Encoder::Zstd(encoder) => encoder.write(bytes),
            Encoder::Gzip(encoder) => encoder.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Encoder::Brotli(encoder) => encoder.flush(),
            Encoder::Zstd(encoder) => encoder.flush(),
            Encoder::Gzip(encoder) => encoder.flush(),
        }
    }
}

/// A writer that remembers the last error.
#[derive(Debug)]
pub(crate) struct Remembering<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Write for Remembering<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.out.write(bytes).inspect_err(|error| {
            if error.kind() != io::ErrorKind::Interrupted {
                self.error = Some(error.kind().into());
            }
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}

/// All of `bytes` in a coding; `None` if that is not shorter.
///
/// # Errors
/// No memory.
pub(crate) fn encode(coding: Coding, effort: Effort, bytes: &[u8]) -> io::Result<Option<Box<[u8]>>> {
    let mut encoder = Encoder::new(coding, effort, bytes.len() as u64, Vec::with_capacity(bytes.len() / 2))?;
    encoder.write_all(bytes)?;
    let encoded = encoder.finish()?;
    Ok((encoded.len() < bytes.len()).then(|| encoded.into_boxed_slice()))
}

/// GUESS: brotli's own default for its output.
const BUFFER: usize = 4096;

#[cfg(test)]
pub(crate) mod tests {
    use std::io::Read;

    use super::*;

    pub(crate) fn decode(coding: Coding, bytes: &[u8]) -> Vec<u8> {
        let mut decoded = Vec::new();
        match coding {
            Coding::Brotli => brotli::Decompressor::new(bytes, 4096).read_to_end(&mut decoded),
            Coding::Zstd => zstd::Decoder::new(bytes).unwrap().read_to_end(&mut decoded),
            Coding::Gzip => flate2::read::MultiGzDecoder::new(bytes).read_to_end(&mut decoded),
        }
        .unwrap();
        decoded
    }

    #[test]
    fn what_is_encoded_decodes_and_is_the_same_every_time() {
        let text: String = (0..3000).map(|n| format!("line {} of a text\n", n * 7919 % 3001)).collect();
        for coding in Coding::ALL {
            for effort in [Effort::Now, Effort::Beforehand] {
                for len in [100, 1024, 16_385, text.len()] {
                    let encoded = encode(coding, effort, &text.as_bytes()[..len]).unwrap().unwrap();
                    assert!(encoded.len() < len);
                    assert!(decode(coding, &encoded) == text.as_bytes()[..len], "{coding} of {len}");
                    assert_eq!(encode(coding, effort, &text.as_bytes()[..len]).unwrap().unwrap(), encoded);
                }
            }
        }
    }

    /// What is written before the end fails late: the end has to tell.
    #[test]
    fn a_full_disk_is_told() {
        for coding in Coding::ALL {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let mut encoder = Encoder::new(coding, Effort::Now, 3, full).unwrap();
            let error = encoder.write_all(b"abc").and_then(|()| encoder.finish().map(drop)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{coding}");
        }
    }

    #[test]
    fn what_does_not_shrink_is_left() {
        let mut noise = vec![0; 5000];
        aws_lc_rs::rand::fill(&mut noise).unwrap();
        for coding in Coding::ALL {
            assert_eq!(encode(coding, Effort::Now, &noise).unwrap(), None, "{coding}");
            assert_eq!(encode(coding, Effort::Now, b"").unwrap(), None, "{coding}");
        }
    }
}
