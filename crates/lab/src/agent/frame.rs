//! Frames: a length of four bytes, big-endian, and JSON.

use std::io::{Read, Write};

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// Writes one frame.
pub(super) fn write(stream: &mut impl Write, value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_vec(value)?;
    let len = u32::try_from(text.len()).context("a frame is too large")?;
    // One write, so that no segment holds the length alone.
    stream.write_all(&[&len.to_be_bytes()[..], &text].concat()).context("the other side is gone")
}

/// Reads one frame of at most `limit` bytes.
pub(super) fn read<T: DeserializeOwned>(stream: &mut impl Read, limit: u32) -> Result<T> {
    let mut len = [0; 4];
    stream.read_exact(&mut len).context("the other side closed the connection")?;
    let len = u32::from_be_bytes(len);
    ensure!(len <= limit, "a frame of {len} bytes, more than {limit}: is it sealion-lab on the other side?");
    let mut text = Vec::new();
    stream.take(u64::from(len)).read_to_end(&mut text)?;
    ensure!(text.len() as u64 == u64::from(len), "the other side closed the connection within a frame");
    serde_json::from_slice(&text).context("a frame is not what this version of the lab writes")
}

/// Bytes of a frame before the other side has proven the token.
pub(super) const BEFORE_PROOF: u32 = 4096;

/// Bytes of a frame afterwards: an outcome has seven histograms.
pub(super) const AFTER_PROOF: u32 = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_read_as_written_and_never_beyond_their_limit() {
        let mut bytes = Vec::new();
        write(&mut bytes, &["one", "two"]).expect("room");
        assert_eq!(read::<Vec<String>>(&mut bytes.as_slice(), 100).expect("a frame"), ["one", "two"]);
        let failure = |bytes: &[u8], limit| format!("{:#}", read::<Vec<String>>(&mut &bytes[..], limit).unwrap_err());
        assert!(failure(&bytes, 5).contains("more than 5"));
        assert!(failure(&bytes[..8], 100).contains("within a frame"));
        assert!(failure(b"", 100).contains("closed the connection"));
        assert!(failure(b"\0\0\0\x01x", 100).contains("not what this version"));
    }
}
