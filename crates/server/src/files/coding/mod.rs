//! Content codings (RFC 9110 §8.4): precompressed files beside the original, and small text compressed on first request.
//!
//! ```text
//!              ┌ acceptable sibling ───────────────────────────► the sibling
//! the file ────┤ no sibling, compressible ── made before? ─yes─► the variant in memory
//!              │                                 └─no─► blocking task ─┘
//!              └ nothing acceptable ───────────────────────────► the file, unencoded
//! ```
//!
//! Compressed content depends on the request only through Accept-Encoding and the path. BREACH does not apply, since it needs a
//! secret compressed together with input chosen by the attacker.

#[cfg(test)]
mod cache_tests;
pub(crate) mod config;
pub(crate) mod dictionary;
pub(crate) mod encoder;
pub(crate) mod store;
pub(crate) mod stream;
mod variants;

pub(crate) use variants::Coder;
pub(crate) use variants::{Choice, Variants};

use sealion_http::dictionary::DictionaryCoding;
use sealion_http::{Coding, ContentType};

/// Whether a file may have precompressed siblings. Siblings themselves have none, nor have compressed formats, so that images
/// cost no pointless lookups.
pub(crate) fn may_have_siblings(name: &[u8], content_type: &ContentType) -> bool {
    let suffixes =
        Coding::ALL.map(Coding::suffix).into_iter().chain(DictionaryCoding::ALL.map(DictionaryCoding::suffix));
    if suffixes.into_iter().any(|suffix| name.ends_with(suffix.as_bytes())) {
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

/// Subtypes of application/ that are compressed formats.
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
    use sealion_http::Codings;

    use super::*;

    #[test]
    fn a_set_keeps_the_order_of_preference() {
        let set: Codings = [Coding::Gzip, Coding::Brotli, Coding::Gzip].into_iter().collect();
        assert_eq!(set.iter().collect::<Vec<_>>(), [Coding::Brotli, Coding::Gzip]);
        assert!(set.contains(Coding::Gzip) && !set.contains(Coding::Zstd) && !set.is_empty());
        assert!(Codings::default().is_empty());
    }

    #[test]
    fn compressed_formats_have_no_siblings() {
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
            ("app.js.dcb", false),
            ("app.js.dcz", false),
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
