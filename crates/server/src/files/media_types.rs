//! Content types set by the operator, by file name extension.

use std::collections::{BTreeMap, HashMap};

use sealion_http::content_type::ContentType;
use sealion_http::extra_fields::{is_name, is_value};

use crate::values::{At, Problems};

/// Content types by lowercase extension.
#[derive(Debug, Default)]
pub(crate) struct MediaTypes {
    of_extensions: HashMap<String, ContentType>,
    /// The type of names whose extension has none, or that have no extension.
    of_others: Option<ContentType>,
    /// The type of all names whose extension is not among these.
    of_all: Option<ContentType>,
}

impl MediaTypes {
    /// Validates extensions and types. `None`: the table is empty.
    pub(crate) fn build(config: &BTreeMap<String, At<String>>, key: &str, problems: &mut Problems) -> Option<Self> {
        let mut types = MediaTypes::default();
        for (extension, media_type) in config {
            let key = format!("{key}.{extension}");
            let plain = extension.strip_prefix('.').unwrap_or(extension);
            let own = ContentType::Custom(media_type.as_str().into());
            if plain != "*.*" && (plain.is_empty() || plain.contains(['.', '/'])) {
                problems.add(
                    &media_type.span,
                    &key,
                    "is not an extension: write the part after the last dot, for instance wasm",
                );
            } else if !is_media_type(media_type) {
                let remedy =
                    format!("{:?} is not a media type: write for instance text/plain; charset=utf-8", media_type.value);
                problems.add(&media_type.span, &key, remedy);
            } else if plain == "*" {
                types.of_others = Some(own);
            } else if plain == "*.*" {
                types.of_all = Some(own);
            } else {
                types.of_extensions.insert(plain.to_lowercase(), own);
            }
        }
        let is_empty = types.of_extensions.is_empty() && types.of_others.is_none() && types.of_all.is_none();
        (!is_empty).then_some(types)
    }

    /// The configured type for a file name. `None`: its extension decides.
    pub(crate) fn of_name(&self, name: &[u8]) -> Option<ContentType> {
        let of_others = || self.of_others.clone().filter(|_| ContentType::of_name(name) == ContentType::of_name(b""));
        self.of_extension(name).or_else(|| self.of_all.clone()).or_else(of_others)
    }

    fn of_extension(&self, name: &[u8]) -> Option<ContentType> {
        let file_name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let dot = file_name.iter().rposition(|byte| *byte == b'.').filter(|dot| *dot > 0)?;
        let extension = std::str::from_utf8(&file_name[dot + 1..]).ok()?;
        self.of_extensions.get(&*extension.to_lowercase()).cloned()
    }
}

fn is_media_type(text: &str) -> bool {
    let essence = text.split(';').next().unwrap_or(text).trim_end();
    is_value(text) && essence.split_once('/').is_some_and(|(kind, subtype)| is_name(kind) && is_name(subtype))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(text: &str) -> (Option<MediaTypes>, Problems) {
        let config = toml::from_str(text).unwrap();
        let mut problems = Problems::of_file("f".as_ref(), text);
        (MediaTypes::build(&config, "site.media_types", &mut problems), problems)
    }

    #[test]
    fn names_without_a_type_of_their_own_may_have_one() {
        let (types, problems) = build("\"*\" = 'text/plain'\nmd = 'text/markdown'");
        assert!(problems.is_empty(), "{problems}");
        let types = types.unwrap();
        for (name, expected) in [
            ("feed", Some("text/plain")),
            ("a/x.unknown-extension", Some("text/plain")),
            ("x.md", Some("text/markdown")),
            ("x.html", None),
        ] {
            let expected = expected.map(|value| ContentType::Custom(value.into()));
            assert_eq!(types.of_name(name.as_bytes()), expected, "{name}");
        }
    }

    #[test]
    fn all_names_may_have_one_type_but_for_some() {
        let (types, problems) = build("\"*.*\" = 'text/plain'\nmd = 'text/markdown'\n\"*\" = 'text/x-other'");
        assert!(problems.is_empty(), "{problems}");
        let types = types.unwrap();
        for (name, expected) in [
            ("x.html", "text/plain"),
            ("feed", "text/plain"),
            ("a/x.unknown-extension", "text/plain"),
            ("x.md", "text/markdown"),
        ] {
            assert_eq!(types.of_name(name.as_bytes()), Some(ContentType::Custom(expected.into())), "{name}");
        }
    }

    #[test]
    fn by_extension() {
        let (types, problems) = build("md = 'text/plain; charset=utf-8'\n'.WASM' = 'application/x-own'");
        assert!(problems.is_empty(), "{problems}");
        let types = types.unwrap();
        for (name, expected) in [
            ("a/b.md", Some("text/plain; charset=utf-8")),
            ("B.MD", Some("text/plain; charset=utf-8")),
            ("x.wasm", Some("application/x-own")),
            ("x.md.txt", None),
            (".md", None),
            ("md", None),
        ] {
            assert_eq!(
                types.of_name(name.as_bytes()),
                expected.map(|value| ContentType::Custom(value.into())),
                "{name}"
            );
        }
    }

    #[test]
    fn configuration_errors() {
        for (text, expected) in [
            ("md = 'text'", "f:1: site.media_types.md: \"text\" is not a media type"),
            ("md = \"text/x\\r\\nA: b\"", "f:1: site.media_types.md: "),
            ("'tar.gz' = 'a/b'", "f:1: site.media_types.tar.gz: is not an extension"),
        ] {
            assert!(build(text).1.to_string().starts_with(expected), "{}", build(text).1);
        }
        assert!(build("").0.is_none());
    }
}
