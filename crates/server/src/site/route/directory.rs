//! The directory that a request's files are in: the keys `root` and `alias`, whose values may have placeholders.
//!
//! ```text
//! root = "/srv/{host}/public"
//!         └┬─┘ └─────┬─────┘
//!          │         named by each request, and opened beneath the other; files are opened beneath this one (openat2(2))
//!          opened at start
//! ```

use std::path::{Path, PathBuf};

use sealion_http::path::SitePath;

use super::Route;
use crate::files::cache::Files;
use crate::placeholders::{Asked, Known, Template};
use crate::values::{At, Problems};

/// Where the file of a path is.
pub(in crate::site) struct FileLocation<'a, 'p> {
    pub(in crate::site) files: &'a Files,
    /// The path beneath the root of `files`.
    pub(in crate::site) path: SitePath<'p>,
    /// Whether the path is the directory of `alias` itself, without a slash at its end.
    pub(in crate::site) is_alias: bool,
}

impl Route {
    /// Where the file of a path is. `None`: the path lies outside the directory of `alias`, or a value of the request names no directory.
    pub(in crate::site) fn locate<'p>(
        &self,
        path: &'p SitePath<'_>,
        asked: impl FnOnce() -> Asked<'p>,
    ) -> Option<FileLocation<'_, 'p>> {
        let alias = &*self.alias;
        // Without an alias nothing is compared: a masked load at the dangling address of an empty slice costs hundreds of cycles.
        let rest = if alias.is_empty() { path.as_bytes() } else { path.as_bytes().strip_prefix(alias)? };
        if !alias.is_empty() && !rest.is_empty() && !rest.starts_with(b"/") {
            return None;
        }
        let beneath = path.beneath(alias.len());
        let beneath = match &self.directory {
            None => beneath,
            Some(directory) => beneath.within(&directory.render_directory(&asked()).ok()?),
        };
        let is_alias = !alias.is_empty() && rest.is_empty() && !path.names_directory();
        Some(FileLocation { files: &self.files, path: beneath, is_alias })
    }
}

/// The part of a root before its first placeholder, up to a slash, and the rest. `None`: it has no placeholder.
fn split(root: &Path) -> Option<(&str, &str)> {
    let text = root.to_str()?;
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'{' if bytes.get(at + 1) == Some(&b'{') => at += 1,
            b'{' if bytes.get(at + 1).is_some_and(|next| next.is_ascii_alphanumeric() || *next == b'_') => {
                let end = text[..at].rfind('/').map_or(0, |slash| slash + 1);
                return Some(text.split_at(end));
            }
            _ => {}
        }
        at += 1;
    }
    None
}

/// The directory of a root that is opened at start: the root itself, or its part before the first placeholder.
pub(super) fn opened(root: &Path) -> PathBuf {
    let text = split(root).map(|(fixed, _)| fixed).or(root.to_str());
    text.map_or_else(|| root.to_owned(), |text| text.replace("{{", "{").replace("}}", "}").into())
}

/// The root that is this directory, whatever its name has of braces.
pub(crate) fn literally(directory: &Path) -> PathBuf {
    let text = directory.to_str().map(|text| text.replace('{', "{{").replace('}', "}}"));
    text.map_or_else(|| directory.to_owned(), PathBuf::from)
}

/// Whether requests name a part of a root.
pub(in crate::site) fn has_placeholders(root: &Path) -> bool {
    split(root).is_some()
}

/// The part of a root that requests name. `None`: the root has no placeholders, or problems.
pub(super) fn template(root: &At<PathBuf>, known: Known<'_>, key: &str, problems: &mut Problems) -> Option<Template> {
    let (fixed, rest) = split(&root.value)?;
    if fixed.trim_matches('/').is_empty() {
        let what = "begins with a placeholder: write the directory before it that all have in common, for instance /srv/{host}";
        problems.add(&root.span, key, what);
        return None;
    }
    Template::parse_text(rest.trim_end_matches('/'), &root.span, known, key, problems)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_is_opened_up_to_its_first_placeholder() {
        for (root, expected) in [
            ("/srv/www", "/srv/www"),
            ("/srv/{host}/public", "/srv/"),
            ("/srv/site-{host}", "/srv/"),
            ("sites/{map.site}", "sites/"),
            ("/srv/{{host}}", "/srv/{host}"),
            ("/srv/{{a}}/{host}", "/srv/{a}/"),
            ("/srv/{-}", "/srv/{-}"),
        ] {
            assert_eq!(opened(Path::new(root)), Path::new(expected), "{root}");
        }
        let named = Path::new("/srv/{host}}/{{x");
        assert_eq!(opened(&literally(named)), named);
    }
}
