//! Pages that are sent instead of what was asked for: for errors, and for an application's own paths.

use std::collections::BTreeMap;

use sealion_http::Status;
use sealion_http::path::SitePath;

use crate::files::resolve::{Found, NotOpened, Root, Wait};
use crate::values::{At, Problems};

/// A file beneath the root, by its path as in a URL.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page(String);

/// Pages by status.
#[derive(Debug)]
pub(crate) struct ErrorPages(Vec<(u16, Page)>);

impl Page {
    /// Checks that the file is there.
    pub(crate) fn build(path: &At<String>, root: &Root, key: &str, problems: &mut Problems) -> Option<Self> {
        let page = Page(path.value.clone());
        let what = match page.path() {
            None => "write a path beneath the root as in a URL, for instance /404.html".to_owned(),
            Some(path) if path.names_directory() => "names a directory: name the file".to_owned(),
            Some(path) => match root.resolve(path.as_bytes(), 0, Wait::Yes) {
                Ok(Found::File(_)) => return Some(page),
                Ok(Found::Directory) => "names a directory: name the file".to_owned(),
                Err(NotOpened::Unresolved(unresolved)) => {
                    let cause = unresolved.cause.map_or_else(|| "no such file".to_owned(), |cause| cause.to_string());
                    format!("{cause}: it is looked for beneath the root of the site")
                }
                Err(NotOpened::Waits) => "cannot be looked for now".to_owned(),
            },
        };
        problems.add(&path.span, key, what);
        None
    }

    /// Where it is.
    pub(crate) fn path(&self) -> Option<SitePath<'_>> {
        SitePath::parse(&self.0, true).ok()
    }
}

impl ErrorPages {
    /// Checks statuses and files. `None`: there are none.
    pub(crate) fn build(
        config: &BTreeMap<String, At<String>>,
        root: &Root,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut pages = Vec::new();
        for (status, path) in config {
            let key = format!("{key}.{status}");
            match status.parse::<u16>() {
                Ok(code) if STATUSES.iter().any(|status| status.code() == code) => {
                    pages.extend(Page::build(path, root, &key, problems).map(|page| (code, page)));
                }
                _ => {
                    let known: Vec<_> = STATUSES.iter().map(|status| status.code().to_string()).collect();
                    let what = format!("no page is sent with this status: there are {}", known.join(", "));
                    problems.add(&path.span, &key, what);
                }
            }
        }
        (!pages.is_empty()).then_some(ErrorPages(pages))
    }

    /// The page for a status.
    pub(crate) fn get(&self, status: Status) -> Option<&Page> {
        self.0.iter().find(|(code, _)| *code == status.code()).map(|(_, page)| page)
    }
}

/// Those that are known before a site is have no page of it (RFC 9112 §3: a head that could not be read).
const STATUSES: [Status; 10] = [
    Status::BAD_REQUEST,
    Status::UNAUTHORIZED,
    Status::FORBIDDEN,
    Status::NOT_FOUND,
    Status::METHOD_NOT_ALLOWED,
    Status::PRECONDITION_FAILED,
    Status::TOO_MANY_REQUESTS,
    Status::INTERNAL_SERVER_ERROR,
    Status::NOT_IMPLEMENTED,
    Status::SERVICE_UNAVAILABLE,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_must_be_there() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("404.html"), "").unwrap();
        std::fs::create_dir(directory.path().join("d")).unwrap();
        let root = Root::open(directory.path()).unwrap();
        for (text, expected) in [
            ("404 = '/404.html'", ""),
            ("404 = '/none.html'", "f:1: error_pages.404: no such file"),
            ("404 = '404.html'", "f:1: error_pages.404: write a path"),
            ("404 = '/../x'", "f:1: error_pages.404: write a path"),
            ("404 = '/d'", "f:1: error_pages.404: names a directory"),
            ("404 = '/d/'", "f:1: error_pages.404: names a directory"),
            ("200 = '/404.html'", "f:1: error_pages.200: no page is sent with this status"),
            ("4xx = '/404.html'", "f:1: error_pages.4xx: no page is sent with this status"),
        ] {
            let mut problems = Problems::of_file("f".as_ref(), text);
            let pages = ErrorPages::build(&toml::from_str(text).unwrap(), &root, "error_pages", &mut problems);
            assert_eq!(pages.is_some(), expected.is_empty());
            assert!(problems.to_string().starts_with(expected), "{problems}");
        }
    }
}
