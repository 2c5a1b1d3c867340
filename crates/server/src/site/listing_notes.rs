//! Notes of a directory on the page of its listing: `HEADER` above the entries, `README` below.
//!
//! A note shows the content of a file, so that only a file that the same request could read is one.

use std::fmt::Write as _;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::listing_page::show_text;
use crate::files::resolve::{Content, Found, Root, Wait, beneath};

/// The notes that a listing shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum NotesKind {
    /// None.
    #[default]
    Off,
    /// All as text.
    Text,
    /// Files that end in `.html` as HTML, the others as text.
    Html,
}

/// Files of a directory that may be notes, for a request that could read them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Notes {
    kind: NotesKind,
    above: Vec<&'static str>,
    below: Vec<&'static str>,
}

/// The notes of a page, in HTML.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Notices {
    pub(super) above: Option<String>,
    pub(super) below: Option<String>,
}

/// The names above the entries: the first that exists is shown.
const ABOVE: [&str; 4] = ["HEADER.html", "HEADER.md", "HEADER.txt", "HEADER"];

/// The names below the entries.
const BELOW: [&str; 4] = ["README.html", "README.md", "README.txt", "README"];

/// A longer file is no note: pages are in memory while they are sent.
const MAX_LEN: u64 = 64 << 10;

impl Notes {
    /// `could_read`: whether the request could read the file of this name in the directory.
    pub(super) fn new(kind: NotesKind, could_read: impl Fn(&[u8]) -> bool) -> Option<Self> {
        let readable = |names: [&'static str; 4]| -> Vec<_> {
            names.into_iter().filter(|name| kind != NotesKind::Off && could_read(name.as_bytes())).collect()
        };
        let notes = Notes { kind, above: readable(ABOVE), below: readable(BELOW) };
        (!notes.above.is_empty() || !notes.below.is_empty()).then_some(notes)
    }

    /// Reads the notes of a directory beneath the root. May block.
    pub(super) fn read(&self, root: &Root, directory: &[u8]) -> Notices {
        let first = |names: &[&str]| names.iter().find_map(|name| self.note(root, directory, name));
        Notices { above: first(&self.above), below: first(&self.below) }
    }

    /// `None`: there is no such file, or it cannot be shown.
    fn note(&self, root: &Root, directory: &[u8], name: &str) -> Option<String> {
        let Ok(Found::File(file)) = root.resolve(&beneath(directory, name.as_bytes()), MAX_LEN, Wait::Yes) else {
            return None;
        };
        let Content::Memory(text) = &file.content else { return None };
        let is_html = self.kind == NotesKind::Html && name.ends_with(".html");
        let mut note = String::new();
        match is_html {
            true => note.push_str(&String::from_utf8_lossy(text)),
            false => {
                note.push_str("<pre>");
                show_text(&mut note, text);
                // Writing to a String cannot fail.
                let _ = write!(note, "</pre>");
            }
        }
        Some(note)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn notices(kind: NotesKind, files: &[(&str, &str)], could_read: impl Fn(&[u8]) -> bool) -> Option<Notices> {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("d")).unwrap();
        for (name, text) in files {
            fs::write(directory.path().join("d").join(name), text).unwrap();
        }
        let root = Root::open(directory.path()).unwrap();
        Notes::new(kind, could_read).map(|notes| notes.read(&root, b"d"))
    }

    #[test]
    fn markup_is_escaped_but_where_the_setting_trusts_it() {
        let files = [("HEADER.html", "<b>h</b>"), ("README.md", "# <r>\n\tx & \u{202e}y\n")];
        let text = notices(NotesKind::Text, &files, |_| true).unwrap();
        assert_eq!(text.above.as_deref(), Some("<pre><bdi>&lt;b&gt;h&lt;/b&gt;</bdi></pre>"));
        let below = "<pre><bdi># &lt;r&gt;</bdi>\n\t<bdi>x &amp; <i>\\u{202e}</i>y</bdi>\n</pre>";
        assert_eq!(text.below.as_deref(), Some(below));
        let html = notices(NotesKind::Html, &files, |_| true).unwrap();
        assert_eq!((html.above.as_deref(), html.below.as_deref()), (Some("<b>h</b>"), Some(below)));
        assert_eq!(notices(NotesKind::Off, &files, |_| true), None);
    }

    #[test]
    fn the_first_name_that_the_request_could_read_is_shown() {
        let files = [("README.md", "closed"), ("README", "open")];
        let found = notices(NotesKind::Text, &files, |name| name != b"README.md").unwrap();
        assert_eq!(found, Notices { above: None, below: Some("<pre><bdi>open</bdi></pre>".to_owned()) });
        assert_eq!(notices(NotesKind::Text, &files, |_| false), None);
    }

    #[test]
    fn a_long_file_is_left_out() {
        let long = "x".repeat(MAX_LEN as usize + 1);
        let found = notices(NotesKind::Text, &[("README", &long), ("HEADER", &long[1..])], |_| true).unwrap();
        assert!(found.below.is_none() && found.above.is_some());
    }
}
