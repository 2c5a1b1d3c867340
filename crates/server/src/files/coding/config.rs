//! What a site can be told about content codings, and what is made of it.

use schemars::JsonSchema;
use sealion_http::{Coding, Codings};
use sealion_http::content_type::ContentType;
use serde::{Deserialize, Serialize};

use crate::values::{At, Problems, Size};

/// Compression of small text that lies nowhere compressed: once, when somebody asks for it, and kept in memory.
///
/// Off unless this table is there: it takes processor time and memory, and files that are compressed when the site is built are smaller.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompressConfig {
    /// Media types to compress, without parameters: a type such as `application/json`, or `text/*` for all of a kind.
    pub types: At<Vec<String>>,
    /// The smallest file to compress. In smaller ones the fields of the response outweigh what is saved.
    pub min: Size,
    /// The largest file to compress, 16MiB at most. The client waits meanwhile; compress larger ones beforehand with `sealion compress`.
    pub max: At<Size>,
    /// Codings to make: `br`, `zstd`, `gzip`. Which one is sent is the client's choice; among what it likes equally the order is that one.
    pub codings: At<Vec<Coding>>,
    /// Memory for what was made, of the whole site. What nobody asked for longest is forgotten first, and made again when it is wanted.
    pub memory: At<Size>,
}

impl Default for CompressConfig {
    // INHERITED: 1 KiB is near the MTU, below which a response is one packet either way (gzip_min_length in most examples of nginx).
    // GUESS: a mebibyte takes 30 ms of a processor at most, which nobody notices once; 32 MiB are the text of a large site.
    fn default() -> Self {
        CompressConfig {
            types: TYPES.map(str::to_owned).to_vec().into(),
            min: Size(1 << 10),
            max: Size(1 << 20).into(),
            codings: Coding::ALL.to_vec().into(),
            memory: Size(32 << 20).into(),
        }
    }
}

/// Types that are text, or compress like it.
pub(crate) const TYPES: [&str; 12] = [
    "text/*",
    "application/json",
    "application/ld+json",
    "application/geo+json",
    "application/manifest+json",
    "application/xml",
    "application/xhtml+xml",
    "application/rss+xml",
    "application/atom+xml",
    "application/wasm",
    "image/svg+xml",
    "font/ttf",
];

/// A file that takes longer to compress than a client waits is to be compressed beforehand.
const LARGEST: Size = Size(16 << 20);

/// What of its files a site sends in a content coding.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Encoding {
    /// Codings whose files may lie beside an original.
    pub precompressed: Codings,
    /// What to compress itself.
    pub compress: Option<Compress>,
}

/// What to compress, and within which bounds.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Compress {
    types: Types,
    min: u64,
    max: u64,
    pub(super) codings: Codings,
    pub(super) memory: u64,
}

impl Encoding {
    /// What `site.precompressed` and `site.compress` say; `None` if the files are sent as they are. `key`: the dotted key of the site.
    pub(crate) fn build(
        precompressed: &At<Vec<Coding>>,
        compress: Option<&CompressConfig>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let precompressed = codings(precompressed, &format!("{key}.precompressed"), problems);
        let compress = compress.map(|compress| compress.build(&format!("{key}.compress"), problems));
        (!precompressed.is_empty() || compress.is_some()).then_some(Encoding { precompressed, compress })
    }
}

impl CompressConfig {
    /// What it says, checked. `key`: its dotted key.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Compress {
        let codings = codings(&self.codings, &format!("{key}.codings"), problems);
        if codings.is_empty() {
            let what = "no coding: name br, zstd or gzip, or leave out the table to compress nothing";
            problems.add(&self.codings.span, &format!("{key}.codings"), what);
        }
        let types = Types::new(&self.types).unwrap_or_else(|wrong| {
            problems.add(&self.types.span, &format!("{key}.types"), wrong);
            Types(Vec::new())
        });
        if self.max.value > LARGEST {
            let what = format!(
                "{} is more than {LARGEST}: compress large files beforehand (`sealion compress`)",
                self.max.value
            );
            problems.add(&self.max.span, &format!("{key}.max"), what);
        }
        if self.max.value < self.min {
            let what = format!("{} is less than min, which is {}: no file is both", self.max.value, self.min);
            problems.add(&self.max.span, &format!("{key}.max"), what);
        }
        if self.memory.value < self.max.value {
            let what =
                format!("{} does not hold one file of max, which is {}: raise it", self.memory.value, self.max.value);
            problems.add(&self.memory.span, &format!("{key}.memory"), what);
        }
        Compress { types, min: self.min.0, max: self.max.value.0, codings, memory: self.memory.value.0 }
    }
}

impl Compress {
    /// Whether a file of this type and length is compressed.
    pub(super) fn takes(&self, content_type: &ContentType, len: u64) -> bool {
        (self.min..=self.max).contains(&len) && self.types.contain(content_type.essence())
    }
}

fn codings(list: &At<Vec<Coding>>, key: &str, problems: &mut Problems) -> Codings {
    let set: Codings = list.iter().copied().collect();
    if set.iter().count() < list.len() {
        problems.add(&list.span, key, "a coding is named twice: name each once (their order has no meaning)");
    }
    set
}

/// Media types by name or by kind.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Types(Vec<String>);

impl Types {
    /// Reads types without parameters, and kinds followed by `/*`.
    pub(crate) fn new(types: &[String]) -> Result<Self, String> {
        let token = |text: &str| {
            !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte))
        };
        types
            .iter()
            .map(|name| match name.split_once('/') {
                Some((kind, subtype)) if token(kind) && (subtype == "*" || token(subtype)) => {
                    Ok(name.to_ascii_lowercase())
                }
                _ => Err(format!("\"{name}\" is not a media type: write for instance text/css or text/*")),
            })
            .collect::<Result<_, _>>()
            .map(Types)
    }

    pub(crate) fn contain(&self, essence: &str) -> bool {
        self.0.iter().any(|pattern| match pattern.strip_suffix('*') {
            Some(kind) => essence.get(..kind.len()).is_some_and(|start| start.eq_ignore_ascii_case(kind)),
            None => essence.eq_ignore_ascii_case(pattern),
        })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Site {
        precompressed: At<Vec<Coding>>,
        compress: Option<CompressConfig>,
    }

    fn build(text: &str) -> (Option<Encoding>, String) {
        let site: Site = toml::from_str(text).unwrap();
        let mut problems = Problems::of_file(Path::new("f"), text);
        let encoding = Encoding::build(&site.precompressed, site.compress.as_ref(), "site", &mut problems);
        (encoding, problems.to_string())
    }

    #[test]
    fn off_unless_asked_for() {
        assert_eq!(build(""), (None, String::new()));
        assert_eq!(build("precompressed = []"), (None, String::new()));
    }

    #[test]
    fn an_empty_table_turns_compression_on() {
        let (encoding, problems) = build("[compress]");
        let compress = encoding.unwrap().compress.unwrap();
        assert_eq!(problems, "");
        for (name, len, expected) in [
            ("a.html", 1024, true),
            ("a.html", 1023, false),
            ("a.html", 1 << 20, true),
            ("a.html", (1 << 20) + 1, false),
            ("a.json", 2000, true),
            ("a.js", 2000, true),
            ("a.svg", 2000, true),
            ("a.png", 2000, false),
            ("a", 2000, false),
        ] {
            assert_eq!(compress.takes(&ContentType::of_name(name.as_bytes()), len), expected, "{name} of {len}");
        }
    }

    #[test]
    fn what_is_wrong_is_said_with_its_line() {
        for (text, expected) in [
            ("precompressed = [\"br\", \"br\"]", "f:1: site.precompressed: a coding is named twice"),
            ("[compress]\ncodings = []", "f:2: site.compress.codings: no coding"),
            ("[compress]\ntypes = [\"text\"]", "f:2: site.compress.types: \"text\" is not a media type"),
            ("[compress]\ntypes = [\"*/*\", \"a/b;c\"]", "f:2: site.compress.types: \"*/*\" is not a media type"),
            ("[compress]\nmax = \"17MiB\"", "f:2: site.compress.max: 17MiB is more than 16MiB"),
            ("[compress]\nmin = 5\nmax = 4", "f:3: site.compress.max: 4B is less than min, which is 5B"),
            ("[compress]\nmemory = \"1kB\"", "f:2: site.compress.memory: 1000B does not hold one file of max"),
        ] {
            let (_, problems) = build(text);
            assert!(problems.starts_with(expected), "{text}: {problems}");
            assert_eq!(problems.lines().count(), 1, "{text}: {problems}");
        }
        assert!(toml::from_str::<Site>("precompressed = [\"deflate\"]").is_err());
        assert!(toml::from_str::<Site>("[compress]\nlevel = 3").is_err());
    }
}
