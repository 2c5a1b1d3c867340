//! Error pages and the fallback page.

use std::collections::BTreeMap;

use sealion_http::Status;
use sealion_http::path::SitePath;

use crate::files::resolve::{Found, NotOpened, Root, Wait};
use crate::values::{At, Problems};

/// A file beneath the root, named by its URL path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page(String);

/// Error pages by status.
#[derive(Debug)]
pub(crate) struct ErrorPages(Vec<(u16, Page)>);

impl Page {
    /// Checks that the file exists.
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
                    format!("{cause}: the path is relative to the root of the site")
                }
                Err(NotOpened::Waits) => "cannot be opened without blocking".to_owned(),
            },
        };
        problems.add(&path.span, key, what);
        None
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> Option<SitePath<'_>> {
        SitePath::parse(&self.0, true).ok()
    }
}

impl ErrorPages {
    /// Validates statuses and files. `None`: there are none.
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
                    let what = format!("this status has no error page: choose one of {}", known.join(", "));
                    problems.add(&path.span, &key, what);
                }
            }
        }
        (!pages.is_empty()).then_some(ErrorPages(pages))
    }

    pub(crate) fn get(&self, status: Status) -> Option<&Page> {
        self.0.iter().find(|(code, _)| *code == status.code()).map(|(_, page)| page)
    }
}

/// The statuses that can have an error page. Statuses decided before the site is known (RFC 9112 §3) are not among them.
const STATUSES: [Status; 13] = [
    Status::BAD_REQUEST,
    Status::UNAUTHORIZED,
    Status::FORBIDDEN,
    Status::NOT_FOUND,
    Status::METHOD_NOT_ALLOWED,
    Status::PRECONDITION_FAILED,
    Status::CONTENT_TOO_LARGE,
    Status::TOO_MANY_REQUESTS,
    Status::INTERNAL_SERVER_ERROR,
    Status::NOT_IMPLEMENTED,
    Status::BAD_GATEWAY,
    Status::SERVICE_UNAVAILABLE,
    Status::GATEWAY_TIMEOUT,
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_must_exist() {
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
            ("200 = '/404.html'", "f:1: error_pages.200: this status has no error page"),
            ("4xx = '/404.html'", "f:1: error_pages.4xx: this status has no error page"),
        ] {
            let mut problems = Problems::of_file("f".as_ref(), text);
            let pages = ErrorPages::build(&toml::from_str(text).unwrap(), &root, "error_pages", &mut problems);
            assert_eq!(pages.is_some(), expected.is_empty());
            assert!(problems.to_string().starts_with(expected), "{problems}");
        }
    }
}
