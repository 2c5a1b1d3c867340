//! Content codings (RFC 9110 §8.4.1).

use std::fmt;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A content coding that we can send, in the order in which we prefer them: brotli makes web text smallest, zstd comes close and is opened
/// faster, gzip is what everybody takes.
// MEASURED: which makes 2.2 MB of JavaScript, HTML, CSS, JSON and SVG smallest, at the levels of `sealion compress`: 17, 20 and 22 % of it, see
// docs/compression.md.
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
    /// All of them, in the order of preference.
    pub const ALL: [Coding; 3] = [Coding::Brotli, Coding::Zstd, Coding::Gzip];

    /// The name in Content-Encoding and Accept-Encoding.
    pub fn token(self) -> &'static str {
        match self {
            Coding::Brotli => "br",
            Coding::Zstd => "zstd",
            Coding::Gzip => "gzip",
        }
    }

    /// The coding with this name.
    pub fn from_token(token: &str) -> Option<Self> {
        Coding::ALL.into_iter().find(|coding| coding.token() == token)
    }

    /// What the name of a file in this coding ends with.
    pub fn suffix(self) -> &'static str {
        match self {
            Coding::Brotli => ".br",
            Coding::Zstd => ".zst",
            Coding::Gzip => ".gz",
        }
    }

    /// `name` with the suffix.
    pub fn sibling_of(self, name: &[u8]) -> Vec<u8> {
        [name, self.suffix().as_bytes()].concat()
    }
}

impl fmt::Display for Coding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// Some of the codings.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Codings(u8);

impl Codings {
    /// Whether there are none.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `coding` is one of them.
    pub fn contains(self, coding: Coding) -> bool {
        self.0 & 1 << coding as u8 != 0
    }

    /// These, in the order of preference.
    pub fn iter(self) -> impl Iterator<Item = Coding> {
        Coding::ALL.into_iter().filter(move |coding| self.contains(*coding))
    }
}

impl FromIterator<Coding> for Codings {
    fn from_iter<I: IntoIterator<Item = Coding>>(codings: I) -> Self {
        Codings(codings.into_iter().fold(0, |set, coding| set | 1 << coding as u8))
    }
}
