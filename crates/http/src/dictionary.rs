//! Content codings by a dictionary that the client has (RFC 9842).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::accept_encoding::weighted;
use crate::field_section::FieldSection;
use crate::request::FieldLines;

/// The SHA-256 digest of a dictionary.
pub type DictionaryHash = [u8; 32];

/// A coding that needs a dictionary.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum DictionaryCoding {
    /// Dictionary-Compressed Brotli (RFC 9842 §4).
    #[serde(rename = "dcb")]
    Brotli,
    /// Dictionary-Compressed Zstandard (RFC 9842 §5).
    #[serde(rename = "dcz")]
    Zstd,
}

impl DictionaryCoding {
    /// Every coding, most preferred first.
    pub const ALL: [DictionaryCoding; 2] = [DictionaryCoding::Brotli, DictionaryCoding::Zstd];

    /// The token used in Content-Encoding and Accept-Encoding, which is the extension of a compressed file too.
    pub fn token(self) -> &'static str {
        match self {
            DictionaryCoding::Brotli => "dcb",
            DictionaryCoding::Zstd => "dcz",
        }
    }

    /// The file name extension of a compressed file, with its dot.
    pub fn suffix(self) -> &'static str {
        match self {
            DictionaryCoding::Brotli => ".dcb",
            DictionaryCoding::Zstd => ".dcz",
        }
    }

    /// The bytes before the digest of the dictionary.
    fn magic(self) -> &'static [u8] {
        match self {
            DictionaryCoding::Brotli => b"\xffDCB",
            DictionaryCoding::Zstd => b"\x5e\x2a\x4d\x18\x20\x00\x00\x00",
        }
    }

    /// The header of content that is compressed with a dictionary.
    pub fn header(self, dictionary: &DictionaryHash) -> Vec<u8> {
        [self.magic(), dictionary].concat()
    }

    /// Bytes of the header.
    pub fn header_len(self) -> usize {
        self.magic().len() + size_of::<DictionaryHash>()
    }

    /// The dictionary that the header names. `content`: at least the header. `None`: it has another header.
    pub fn dictionary_of(self, content: &[u8]) -> Option<DictionaryHash> {
        content.strip_prefix(self.magic())?.first_chunk().copied()
    }
}

impl fmt::Display for DictionaryCoding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.token())
    }
}

/// The codings that Accept-Encoding names and prefers to all others, best first. A wildcard names none.
pub fn accepted(accept: &FieldLines<'_>) -> Vec<DictionaryCoding> {
    let mut weights = [None; 2];
    let mut heaviest = 1;
    for member in accept.iter().flat_map(|line| line.split(|byte| *byte == b',')) {
        let Some((name, weight)) = weighted(member) else { continue };
        let named =
            DictionaryCoding::ALL.iter().position(|coding| name.eq_ignore_ascii_case(coding.token().as_bytes()));
        match named {
            Some(at) => weights[at] = Some(weights[at].map_or(weight, |before: u16| before.min(weight))),
            None => heaviest = heaviest.max(weight),
        }
    }
    let weight = |coding: &DictionaryCoding| weights[*coding as usize].unwrap_or(0);
    let mut accepted: Vec<_> = DictionaryCoding::ALL.into_iter().filter(|coding| weight(coding) >= heaviest).collect();
    // Stable.
    accepted.sort_by_key(|coding| std::cmp::Reverse(weight(coding)));
    accepted
}

/// Whether the page that asks may read the response, as far as the request tells (RFC 9842 §9.3.3). The length of a response that it may not read would
/// tell of its content.
pub fn is_readable(fields: FieldSection<'_>) -> bool {
    let [site, mode] = fields.first_of(["sec-fetch-site", "sec-fetch-mode"]);
    match (site, mode) {
        (None | Some(b"same-origin"), _) | (_, None) => true,
        // By CORS it may be readable: the whole response is sent.
        (_, Some(mode)) => matches!(mode, b"navigate" | b"same-origin"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_names_its_dictionary() {
        let hash: DictionaryHash = std::array::from_fn(|at| at as u8);
        for coding in DictionaryCoding::ALL {
            let content = [&coding.header(&hash)[..], b"content"].concat();
            assert_eq!(coding.header(&hash).len(), coding.header_len());
            assert_eq!(coding.dictionary_of(&content), Some(hash));
            for end in 0..coding.header_len() {
                assert_eq!(coding.dictionary_of(&content[..end]), None, "{coding} {end}");
            }
            let other = DictionaryCoding::ALL.into_iter().find(|other| *other != coding).unwrap();
            assert_eq!(other.dictionary_of(&content), None);
        }
        // RFC 9842 §4 and §5.
        assert_eq!(DictionaryCoding::Brotli.header(&hash)[..4], [0xff, 0x44, 0x43, 0x42]);
        assert_eq!(DictionaryCoding::Zstd.header(&hash)[..8], [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0]);
    }

    #[test]
    fn a_coding_has_to_be_named_and_to_weigh_as_much_as_the_others() {
        use DictionaryCoding::{Brotli, Zstd};
        for (line, expected) in [
            ("gzip, deflate, br, zstd, dcb, dcz", &[Brotli, Zstd][..]),
            ("dcz", &[Zstd]),
            ("DCZ, dcb;q=0.9", &[Zstd, Brotli]),
            ("br;q=0.5, dcb;q=0.5, dcz;q=0.8", &[Zstd, Brotli]),
            ("br, dcb;q=0.9", &[]),
            ("dcb;q=0, dcz;q=0", &[]),
            ("dcb, dcb;q=0", &[]),
            ("dcb;q=x", &[]),
            ("*", &[]),
            ("gzip, br, zstd", &[]),
            ("", &[]),
        ] {
            let mut accept = FieldLines::default();
            accept.add(line.as_bytes());
            assert_eq!(accepted(&accept), expected, "{line}");
        }
    }

    #[test]
    fn responses_that_the_page_may_not_read_need_no_dictionary() {
        for (lines, expected) in [
            ("", true),
            ("Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: no-cors\r\n", true),
            ("Sec-Fetch-Site: none\r\nSec-Fetch-Mode: navigate\r\n", true),
            ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: navigate\r\n", true),
            ("Sec-Fetch-Site: cross-site\r\n", true),
            ("Sec-Fetch-Site: cross-site\r\nSec-Fetch-Mode: no-cors\r\n", false),
            ("Sec-Fetch-Site: same-site\r\nSec-Fetch-Mode: cors\r\n", false),
        ] {
            assert_eq!(is_readable(FieldSection::from_lines(lines.as_bytes())), expected, "{lines}");
        }
    }
}
