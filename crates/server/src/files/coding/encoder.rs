//! The encoders and their compression levels.

use std::io::{self, Write};

use brotli::CompressorWriter;
use brotli::enc::BrotliEncoderParams;
use flate2::Compression;
use flate2::write::GzEncoder;
use sealion_http::Coding;
use zstd::zstd_safe::CParameter;

/// Selects the compression level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Fast: a client is waiting.
    Now,
    /// Smallest output: time does not matter.
    Beforehand,
}

/// A writer that encodes the bytes written and passes them to another writer.
pub(crate) enum Encoder<W: Write> {
    /// Brotli. Its writer swallows an error of the last write, hence [`ErrorRecorder`].
    Brotli(Box<CompressorWriter<ErrorRecorder<W>>>),
    Zstd(zstd::Encoder<'static, W>),
    Gzip(GzEncoder<W>),
}

impl<W: Write> Encoder<W> {
    /// An encoder for `len` bytes in total, writing to `out`.
    ///
    /// # Errors
    /// Out of memory.
    // MEASURED: cost and savings of each level, on 2.2 MB of JavaScript, HTML, CSS, JSON and SVG (docs/compression.md).
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
                    ErrorRecorder { out, error: None },
                    BUFFER,
                    &params,
                )))
            }
            Coding::Zstd => {
                let mut encoder = zstd::Encoder::new(out, if beforehand { 19 } else { 6 })?;
                // The length allows a smaller window for small files. Clients need not accept windows above 8 MiB (RFC
                // 9659).
                encoder.set_pledged_src_size(Some(len))?;
                encoder.window_log(if len >= 1 << 23 { 23 } else { 64 - len.max(1 << 10).leading_zeros() })?;
                Encoder::Zstd(encoder)
            }
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(out, Compression::new(if beforehand { 9 } else { 6 }))),
        })
    }

    /// An encoder for content of any length that is sent while it is encoded, at a level of [`LevelsConfig`](super::stream::LevelsConfig).
    ///
    /// # Errors
    /// Out of memory.
    pub(super) fn streaming(coding: Coding, level: u8, out: W) -> io::Result<Self> {
        Ok(match coding {
            Coding::Brotli => {
                // Qualities from 5 take 34 MB for tables where the window is smaller.
                let params = BrotliEncoderParams { quality: level.into(), lgwin: 18, ..BrotliEncoderParams::default() };
                let out = ErrorRecorder { out, error: None };
                Encoder::Brotli(Box::new(CompressorWriter::with_params(out, BUFFER, &params)))
            }
            Coding::Zstd => {
                let mut encoder = zstd::Encoder::new(out, level.into())?;
                // Tables of 128 KiB each, where higher levels have 10 MB.
                for parameter in [CParameter::WindowLog(17), CParameter::HashLog(15), CParameter::ChainLog(15)] {
                    encoder.set_parameter(parameter)?;
                }
                Encoder::Zstd(encoder)
            }
            Coding::Gzip => Encoder::Gzip(GzEncoder::new(out, Compression::new(level.into()))),
        })
    }

    /// The inner writer, which has the output so far.
    pub(super) fn get_mut(&mut self) -> &mut W {
        match self {
            Encoder::Brotli(encoder) => &mut encoder.get_mut().out,
            Encoder::Zstd(encoder) => encoder.get_mut(),
            Encoder::Gzip(encoder) => encoder.get_mut(),
        }
    }

    /// Writes the remaining output and returns the inner writer.
    ///
    /// # Errors
    /// The inner writer failed.
    pub(crate) fn finish(self) -> io::Result<W> {
        match self {
            Encoder::Brotli(encoder) => {
                let ErrorRecorder { out, error } = encoder.into_inner();
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

/// A writer that records its last error.
#[derive(Debug)]
pub(crate) struct ErrorRecorder<W> {
    out: W,
    error: Option<io::Error>,
}

impl<W: Write> Write for ErrorRecorder<W> {
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

/// Encodes `bytes`. `None`: the result would not be smaller.
///
/// # Errors
/// Out of memory.
pub(crate) fn encode(coding: Coding, effort: Effort, bytes: &[u8]) -> io::Result<Option<Box<[u8]>>> {
    let mut encoder = Encoder::new(coding, effort, bytes.len() as u64, Vec::with_capacity(bytes.len() / 2))?;
    encoder.write_all(bytes)?;
    let encoded = encoder.finish()?;
    Ok((encoded.len() < bytes.len()).then(|| encoded.into_boxed_slice()))
}

/// Output buffer of the brotli encoder: the default of its crate.
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
    fn encoding_round_trips_and_is_deterministic() {
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

    /// Buffered output fails only at the end, so `finish` must report it.
    #[test]
    fn a_full_disk_is_reported() {
        for coding in Coding::ALL {
            let full = std::fs::File::options().write(true).open("/dev/full").unwrap();
            let mut encoder = Encoder::new(coding, Effort::Now, 3, full).unwrap();
            let error = encoder.write_all(b"abc").and_then(|()| encoder.finish().map(drop)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{coding}");
        }
    }

    #[test]
    fn incompressible_data_is_left_alone() {
        let mut noise = vec![0; 5000];
        aws_lc_rs::rand::fill(&mut noise).unwrap();
        for coding in Coding::ALL {
            assert_eq!(encode(coding, Effort::Now, &noise).unwrap(), None, "{coding}");
            assert_eq!(encode(coding, Effort::Now, b"").unwrap(), None, "{coding}");
        }
    }
}
