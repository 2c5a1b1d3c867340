//! Content codings (RFC 9110 §8.4.1).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A content coding that the server can send, most preferred first: brotli makes web text smallest, zstd comes close and
/// decodes faster, and every client decodes gzip.
// MEASURED: at the levels of `sealion compress`, 2.2 MB of JavaScript, HTML, CSS, JSON and SVG shrink to 17, 20 and 22 %
// (docs/compression.md).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum Coding {
    /// Brotli (RFC 7932).
    #[serde(rename = "br")]
    Brotli,
    /// Zstandard (RFC 8878), with a window of 8 MiB at most (RFC 9659).
    #[serde(rename = "zstd")]
    Zstd,
    /// gzip (RFC 1952).
    #[serde(rename = "gzip")]
    Gzip,
}

impl Coding {
    /// Every coding, most preferred first.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// The token used in Content-Encoding and Accept-Encoding.
    pub fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The coding that [`Self::token`] names `token`; case matters.
    pub fn from_token(token: &str) -> Option<Self> {
        Coding::ALL.into_iter().find(|coding| coding.token() == token)
    }

    /// The file name extension of a precompressed file, with its dot.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// The name of the precompressed sibling of the file `name`.
    pub fn sibling_of(self, name: &[u8]) -> Vec<u8> {
        [name, self.suffix().as_bytes()].concat()
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// A set of codings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Codings(u8);

impl Codings {
    /// Whether the set contains no coding.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the set contains `coding`.
    pub fn contains(self, coding: Coding) -> bool {
        self.0 & 1 << coding as u8 != 0
    }

    /// The codings in the set, most preferred first.
    pub fn iter(self) -> impl Iterator<Item = Coding> {
        Coding::ALL.into_iter().filter(move |coding| self.contains(*coding))
    }
}

impl FromIterator<Coding> for Codings {
    fn from_iter<I: IntoIterator<Item = Coding>>(codings: I) -> Self {
        Codings(codings.into_iter().fold(0, |set, coding| set | 1 << coding as u8))
    }
}
