//! Content codings (RFC 9110 §8.4): files that are stored compressed beside the original, and small text that is
//! compressed once when somebody asks for it.
//!
//! ```text
//!              ┌ a sibling the client takes ───────────────► the sibling
//! the file ────┤ none, and compressible ── made before? ──yes─► what was made
//!              │                                └─no─► an errand for another thread ─┘
//!              └ the client takes none of these ──────────► the file as it is
//! ```
//!
//! What is sent never depends on the request but through Accept-Encoding and the path: no secret of one person is
//! compressed together with words of another, which is what BREACH needs.

mod accept;
#[cfg(test)]
mod cache_tests;
pub mod config;
pub mod encoder;
pub mod store;
mod variants;

use std::fmt;

pub use accept::negotiate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
pub use variants::Coder;
pub(crate) use variants::{Choice, Variants};

use crate::mime::ContentType;

/// A content coding that we can send, in the order in which we prefer them: brotli makes web text smallest, zstd comes close and is opened
/// faster, gzip is what everybody takes.
// MEASURED: which makes 2.2 MB of JavaScript, HTML, CSS, JSON and SVG smallest, at the levels of `sealion compress`: 17, 20 and 22 % of it, see
// docs/compression.md.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema, clap::ValueEnum,
)]
pub enum Coding {
    /// Brotli (RFC 7932).
    #[serde(rename = "br")]
    #[value(name = "br")]
    Brotli,
    /// Zstandard (RFC 8878), with a window of 8 MiB at most (RFC 9659).
    #[serde(rename = "zstd")]
    #[value(name = "zstd")]
    Zstd,
    /// gzip (RFC 1952).
    #[serde(rename = "gzip")]
    #[value(name = "gzip")]
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

/// Whether a file may have siblings in a coding: not if it is one itself, and not if its type is compressed by nature, so that pictures
/// cost no search for what is never there.
pub fn may_have_siblings(name: &[u8], content_type: &ContentType) -> bool {
    if Coding::ALL.iter().any(|coding| name.ends_with(coding.suffix().as_bytes())) {
        return false;
    }
    let essence = content_type.essence();
    let (kind, subtype) = essence.split_once('/').unwrap_or((essence, ""));
    match kind {
        "audio" | "video" => false,
        "image" => matches!(subtype, "svg+xml" | "bmp" | "x-icon" | "vnd.microsoft.icon" | "x-ms-bmp" | "tiff"),
        "font" => !matches!(subtype, "woff" | "woff2"),
        "application" => !COMPRESSED_APPLICATIONS.contains(&subtype),
        _ => true,
    }
}

/// Subtypes of application/ whose files are compressed already.
const COMPRESSED_APPLICATIONS: [&str; 16] = [
    "epub+zip",
    "font-woff",
    "font-woff2",
    "gzip",
    "java-archive",
    "vnd.android.package-archive",
    "vnd.openxmlformats-officedocument.presentationml.presentation",
    "vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    "vnd.openxmlformats-officedocument.wordprocessingml.document",
    "x-7z-compressed",
    "x-bzip2",
    "x-compressed",
    "x-rar-compressed",
    "x-xz",
    "zip",
    "zstd",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_the_order_of_preference() {
        let set: Codings = [Coding::Gzip, Coding::Brotli, Coding::Gzip].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Coding::Brotli, Coding::Gzip]);
        assert!(set.contains(Coding::Gzip) && !set.contains(Coding::Zstd) && !set.is_empty());
        assert!(Codings::default().is_empty());
    }

    #[test]
    fn what_is_compressed_has_no_siblings() {
        for (name, expected) in [
            ("index.html", true),
            ("a/app.js", true),
            ("data.json", true),
            ("a.svg", true),
            ("a.wasm", true),
            ("a.ttf", true),
            ("README", true),
            ("app.js.br", false),
            ("app.js.zst", false),
            ("app.js.gz", false),
            ("a.tar.gz", false),
            ("a.tgz", false),
            ("a.zip", false),
            ("a.png", false),
            ("a.woff2", false),
            ("a.mp4", false),
        ] {
            assert_eq!(may_have_siblings(name.as_bytes(), &ContentType::of_name(name.as_bytes())), expected, "{name}");
        }
    }
}
