//! Compression by dictionaries that clients have (RFC 9842): the field that makes a response one, and the field that names one.

use std::os::unix::fs::FileExt;
use std::sync::Arc;

use schemars::JsonSchema;
use sealion_http::FieldSection;
use sealion_http::dictionary::{DictionaryCoding, DictionaryHash};
use serde::{Deserialize, Serialize};
use sfv::{BareItem, Item, Parser};
use smart_default::SmartDefault;
use tokio::task::spawn_blocking;

use crate::files::resolve::{Content, SiteFile};
use crate::values::{At, Problems};

/// How clients use the responses as dictionaries: `Use-As-Dictionary` over TLS.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UseAsDictionaryConfig {
    /// Paths of this origin whose responses may be compressed by a response of this route, a URL pattern: `/app/*/main.js`. Required.
    pub r#match: At<String>,
    /// Destinations of requests, as browsers name them: `["script"]`. Empty: all.
    pub destinations: At<Vec<String>>,
    /// Name by which clients tell the dictionary beside its digest (`Dictionary-ID`) [default: none]
    pub id: At<String>,
    /// Format of the dictionary.
    pub r#type: DictionaryType,
}

/// A format of dictionaries.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum DictionaryType {
    /// The bytes of the response.
    #[default]
    Raw,
}

impl UseAsDictionaryConfig {
    /// The value of the field. `key`: the dotted key of the table. `plain`: whether the site is reachable only over plain HTTP, where browsers keep no
    /// dictionary.
    pub(super) fn build(&self, key: &str, plain: bool, problems: &mut Problems) -> Option<Box<str>> {
        let Self { r#match, destinations, id, r#type } = self;
        if plain {
            problems.add(&r#match.span, key, NO_DICTIONARY_WITHOUT_TLS);
        }
        let what = match r#match.as_str() {
            "" => Some("is required: write for instance \"/app/*/main.js\""),
            path if !path.starts_with('/') || path.starts_with("//") => {
                Some("begins with no path: a dictionary is for its own origin alone: write for instance \"/app/*.js\"")
            }
            path if path.contains('(') => {
                Some("has a group with an expression, which RFC 9842 forbids: write * instead")
            }
            path if !is_string(path) || path.contains(['"', '#']) => {
                Some("has characters that no path of a URL has: write them with percent signs, as d%C3%BCsseldorf")
            }
            _ => None,
        };
        let mut is_valid = true;
        let mut refuse = |span, name: &str, what: &str| {
            problems.add(span, &format!("{key}.{name}"), what);
            is_valid = false;
        };
        if let Some(what) = what {
            refuse(&r#match.span, "match", what);
        }
        if id.len() > MAX_ID || !is_string(id) {
            refuse(&id.span, "id", "is longer than 1024 characters, or has others than printable ASCII");
        }
        if destinations.iter().any(|name| !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'-')) {
            refuse(&destinations.span, "destinations", "has no name of a destination: write for instance [\"script\"]");
        }
        let mut value = format!("match={}", quoted(r#match));
        if !destinations.is_empty() {
            let names: Vec<_> = destinations.iter().map(|name| quoted(name)).collect();
            value.push_str(&format!(", match-dest=({})", names.join(" ")));
        }
        if !id.is_empty() {
            value.push_str(&format!(", id={}", quoted(id)));
        }
        match r#type {
            // The default of clients.
            DictionaryType::Raw => {}
        }
        is_valid.then(|| value.into())
    }
}

/// Whether a string of structured fields can have the text (RFC 9651 §3.3.3).
fn is_string(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b' '..=b'~'))
}

fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('\\', "\\\\").replace('"', "\\\""))
}

/// The dictionary that a client has. `None`: none, or the field is invalid.
pub(super) fn available(fields: FieldSection<'_>) -> Option<DictionaryHash> {
    let mut lines = fields.all(AVAILABLE);
    let (line, others) = (lines.next()?, lines.next());
    others.is_none().then_some(line).and_then(parse)
}

/// The digest in a value of Available-Dictionary.
pub(crate) fn parse(value: &[u8]) -> Option<DictionaryHash> {
    match Parser::new(value).parse::<Item>().ok()?.bare_item {
        BareItem::ByteSequence(bytes) => bytes.try_into().ok(),
        _ => None,
    }
}

pub(super) const AVAILABLE: &str = "available-dictionary";

/// The dictionary that a compressed file names. `None`: none, or it cannot be read.
pub(super) async fn dictionary_of(compressed: &Arc<SiteFile>, coding: DictionaryCoding) -> Option<DictionaryHash> {
    if let Content::Memory(bytes) = &compressed.content {
        return coding.dictionary_of(bytes);
    }
    let compressed = Arc::clone(compressed);
    let read = move || {
        let Content::File(file) = &compressed.content else { return None };
        let mut header = vec![0; coding.header_len()];
        file.read_exact_at(&mut header, 0).ok()?;
        coding.dictionary_of(&header)
    };
    spawn_blocking(read).await.ok().flatten()
}

const MAX_ID: usize = 1024;

/// The remedy for a dictionary of a site without TLS.
pub(super) const NO_DICTIONARY_WITHOUT_TLS: &str =
    "has no effect without TLS, where browsers use no dictionaries: add a listener with tls = true, or remove it";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_field_is_that_of_the_examples_of_the_specification() {
        for (text, expected) in [
            ("match = '/product/*'\ndestinations = ['document']", r#"match="/product/*", match-dest=("document")"#),
            ("match = '/app/*/main.js'\nid = 'dictionary-12345'", r#"match="/app/*/main.js", id="dictionary-12345""#),
            ("match = '/d%C3%BCsseldorf'\ntype = 'raw'", r#"match="/d%C3%BCsseldorf""#),
            ("match = '/a\\b'\nid = 'a\"'", r#"match="/a\\b", id="a\"""#),
        ] {
            let config: UseAsDictionaryConfig = toml::from_str(text).unwrap();
            let mut problems = Problems::of_file(Path::new("f"), text);
            assert_eq!(config.build("k", false, &mut problems).as_deref(), Some(expected), "{problems}");
            let parsed = Parser::new(expected.as_bytes()).parse::<sfv::Dictionary>();
            assert!(parsed.is_ok(), "{expected}");
        }
    }

    #[test]
    fn a_pattern_for_another_origin_or_with_an_expression_is_refused() {
        for (text, line, expected) in [
            ("", 1, "k.match: is required"),
            ("match = 'https://other.test/*'", 1, "k.match: begins with no path"),
            ("match = '//other.test/*'", 1, "k.match: begins with no path"),
            ("match = '/:id([0-9]+)'", 1, "k.match: has a group with an expression"),
            ("match = '/düsseldorf'", 1, "k.match: has characters"),
            ("match = '/a'\nid = 'ü'", 2, "k.id: is longer"),
            ("match = '/a'\ndestinations = ['a b']", 2, "k.destinations: has no name"),
        ] {
            let config: UseAsDictionaryConfig = toml::from_str(text).unwrap();
            let mut problems = Problems::of_file(Path::new("f"), text);
            assert_eq!(config.build("k", false, &mut problems), None, "{text}");
            let problems = problems.to_string();
            assert!(problems.contains(expected), "{text} {line}: {problems}");
        }
    }

    #[test]
    fn a_digest_is_one_byte_sequence_of_32_bytes() {
        let line = ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:";
        let hash = parse(line.as_bytes()).unwrap();
        assert_eq!(hash[..4], [0xa5, 0x91, 0xa6, 0xd4]);
        for wrong in [
            "",
            "pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=",
            "\"pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=\"",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=",
            ":pZGm1A==:",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:, :pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=:",
            ":pZGm1Av0IEBKARczz7exkNYsZb8LzaMrV7J32a2fFG4=: x",
        ] {
            assert_eq!(parse(wrong.as_bytes()), None, "{wrong}");
        }
        let fields = |lines: &str| available(FieldSection::from_lines(lines.as_bytes()));
        assert_eq!(fields(&format!("Available-Dictionary: {line}\r\n")), Some(hash));
        let twice = format!("Available-Dictionary: {line}\r\nAvailable-Dictionary: {line}\r\n");
        assert_eq!(fields(&twice), None);
    }
}
