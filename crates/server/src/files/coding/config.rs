//! Configuration of content codings.

use schemars::JsonSchema;
use sealion_http::content_type::ContentType;
use sealion_http::{Coding, Codings};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::stream::{Levels, LevelsConfig};
use crate::values::{At, Problems, Size};

/// Compression of text: of responses of applications (`proxy`, `fastcgi`, stored ones too) while they are sent, and of small files without a precompressed
/// sibling on their first request, whose result is kept in memory.
///
/// It is off unless this table exists, because it costs processor time and memory, and files compressed when the site
/// is built are smaller.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CompressConfig {
    /// Media types to compress, without parameters, such as `application/json` or `text/*`.
    #[default(TYPES.map(str::to_owned).to_vec().into())]
    pub types: At<Vec<String>>,
    /// Minimum size of compressed content. For less, the response head outweighs the savings. A response of an application without an announced length is
    /// compressed whatever its length.
    // INHERITED: 1 KiB is near the MTU, below which a response is one packet either way (gzip_min_length in most nginx examples).
    #[default(Size(1 << 10))]
    pub min: Size,
    /// Maximum size of files to compress, at most 16MiB. The client waits for the compression; precompress larger files
    /// with `sealion compress`.
    // At most 30 ms of a processor, which is tolerable once per file.
    #[default(Size(1 << 20).into())]
    pub max: At<Size>,
    /// Codings to use, from `br`, `zstd` and `gzip`. The client chooses; among equal weights this order decides.
    #[default(Coding::ALL.to_vec().into())]
    pub codings: At<Vec<Coding>>,
    /// Memory for the compressed files of the site. The least recently used are dropped first, and compressed again on request.
    // 32 MiB hold the text of a large site.
    #[default(Size(32 << 20).into())]
    pub memory: At<Size>,
    /// Levels for responses of applications.
    pub levels: LevelsConfig,
}

/// Types that are text, or compress as well as text.
pub(crate) const TYPES: [&str; 16] = [
    "text/*",
    "application/javascript",
    "application/json",
    "application/problem+json",
    "application/vnd.api+json",
    "application/activity+json",
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

/// Upper bound for `max`: larger files take longer to compress than a client should wait.
const MAX_SIZE: Size = Size(16 << 20);

/// The validated content coding settings of a site.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Encoding {
    /// Codings of precompressed siblings to look for.
    pub precompressed: Codings,
    /// Compression on request; `None`: off.
    pub compress: Option<Compress>,
}

/// The validated settings of compression on request.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Compress {
    types: Types,
    min: u64,
    max: u64,
    codings: Codings,
    pub(super) memory: u64,
    levels: Levels,
}

impl Encoding {
    /// Validates `site.precompressed` and `site.compress`. `None`: the site uses no content codings. `key`: the dotted key of the
    /// site.
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
    /// Validates the table. `key`: its dotted key.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Compress {
        let codings = codings(&self.codings, &format!("{key}.codings"), problems);
        if codings.is_empty() {
            let what = "is empty: name br, zstd or gzip, or remove the table to turn compression off";
            problems.add(&self.codings.span, &format!("{key}.codings"), what);
        }
        let types = Types::new(&self.types).unwrap_or_else(|wrong| {
            problems.add(&self.types.span, &format!("{key}.types"), wrong);
            Types(Vec::new())
        });
        if self.max.value > MAX_SIZE {
            let what =
                format!("{} is more than {MAX_SIZE}: precompress larger files with `sealion compress`", self.max.value);
            problems.add(&self.max.span, &format!("{key}.max"), what);
        }
        if self.max.value < self.min {
            let what =
                format!("{} is less than min, which is {}: no file would be compressed", self.max.value, self.min);
            problems.add(&self.max.span, &format!("{key}.max"), what);
        }
        if self.memory.value < self.max.value {
            let what = format!(
                "{} is less than max, which is {}: raise it to hold at least one file",
                self.memory.value, self.max.value
            );
            problems.add(&self.memory.span, &format!("{key}.memory"), what);
        }
        let levels = self.levels.build(&format!("{key}.levels"), problems);
        Compress { types, min: self.min.0, max: self.max.value.0, codings, memory: self.memory.value.0, levels }
    }
}

impl Compress {
    /// Whether content of an application with this media type should be compressed. `len`: if it is known.
    pub(crate) fn takes_content(&self, essence: &str, len: Option<u64>) -> bool {
        len.is_none_or(|len| len >= self.min.max(1)) && self.types.contain(essence)
    }

    pub(crate) fn codings(&self) -> Codings {
        self.codings
    }

    pub(crate) fn levels(&self) -> Levels {
        self.levels
    }

    /// Whether a file of this type and length should be compressed.
    pub(super) fn takes(&self, content_type: &ContentType, len: u64) -> bool {
        (self.min..=self.max).contains(&len) && self.types.contain(content_type.essence())
    }
}

fn codings(list: &At<Vec<Coding>>, key: &str, problems: &mut Problems) -> Codings {
    let set: Codings = list.iter().copied().collect();
    if set.iter().count() < list.len() {
        problems.add(&list.span, key, "a coding is listed twice: list each once (the order has no meaning)");
    }
    set
}

/// A set of media types, with wildcards for the subtype.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Types(Vec<String>);

impl Types {
    /// Parses types without parameters, such as `text/css` and `text/*`.
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
    fn off_by_default() {
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
    fn errors_name_the_line() {
        for (text, expected) in [
            ("precompressed = [\"br\", \"br\"]", "f:1: site.precompressed: a coding is listed twice"),
            ("[compress]\ncodings = []", "f:2: site.compress.codings: is empty"),
            ("[compress]\ntypes = [\"text\"]", "f:2: site.compress.types: \"text\" is not a media type"),
            ("[compress]\ntypes = [\"*/*\", \"a/b;c\"]", "f:2: site.compress.types: \"*/*\" is not a media type"),
            ("[compress]\nmax = \"17MiB\"", "f:2: site.compress.max: 17MiB is more than 16MiB"),
            ("[compress]\nmin = 5\nmax = 4", "f:3: site.compress.max: 4B is less than min, which is 5B"),
            ("[compress]\nmemory = \"1kB\"", "f:2: site.compress.memory: 1000B is less than max"),
        ] {
            let (_, problems) = build(text);
            assert!(problems.starts_with(expected), "{text}: {problems}");
            assert_eq!(problems.lines().count(), 1, "{text}: {problems}");
        }
        assert!(toml::from_str::<Site>("precompressed = [\"deflate\"]").is_err());
        assert!(toml::from_str::<Site>("[compress]\nlevel = 3").is_err());
    }
}
