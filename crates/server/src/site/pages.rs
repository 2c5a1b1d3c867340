//! Error pages and the fallback page.
//!
//! An error page is a file beneath the root, which is sent whatever guards say of it. Any other page is where the request goes on: it passes the guards of
//! the path or route that it leads to.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use sealion_http::Status;
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};

use super::route::{path_template, url_template};
use crate::files::resolve::{Found, NotOpened, Root, Wait};
use crate::placeholders::{Known, Template};
use crate::values::{At, Problems, Short};

/// A file beneath the root, named by its URL path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Page(String);

/// An error page: `"/404.html"`, `"@app"`, `"https://…"`, or a table.
pub(crate) type ErrorPageConfig = Short<String, ErrorPageTable>;

/// An error page with its status.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ErrorPageTable {
    /// A path beneath the root or of a route, a named route (`@app`), or a URL to redirect to. Paths and URLs may have placeholders.
    pub to: String,
    /// Status that the client gets: a number, `error` (the error's), or `target` (the status of the response of `to`) [default: `error` for a path,
    /// `target` for a named route, 302 for a URL]
    #[serde(default)]
    pub status: Option<StatusConfig>,
}

/// The status that a client gets with an error page.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub(crate) enum StatusConfig {
    Code(u16),
    Of(StatusOf),
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum StatusOf {
    Error,
    Target,
}

/// Error pages by status.
#[derive(Debug)]
pub(crate) struct ErrorPages(Vec<(u16, ErrorPage)>);

/// The page or the target for an error.
#[derive(Debug)]
pub(crate) enum ErrorPage {
    /// A file beneath the root.
    File(Page, PageStatus),
    Elsewhere(ErrorTarget),
}

/// Where a request with an error goes on.
#[derive(Debug)]
pub(crate) struct ErrorTarget {
    pub(super) to: Whereto,
    pub(super) status: PageStatus,
    /// As written.
    pub(super) text: At<String>,
    /// Why no file has the path, if it is one without placeholders.
    pub(super) no_file: Option<String>,
}

impl ErrorTarget {
    pub(super) fn is_url(&self) -> bool {
        matches!(self.to, Whereto::Url(_))
    }

    /// Whether it says by a question mark that the route of the path answers, even with a file.
    pub(super) fn chooses_route(&self) -> bool {
        matches!(self.to, Whereto::Path(_)) && self.text.contains('?')
    }
}

#[derive(Debug)]
pub(crate) enum Whereto {
    /// Another path, which chooses a route.
    Path(Template),
    /// A named route, with the path as it is.
    Named(String),
    /// A redirect.
    Url(Template),
}

/// The status that the client gets with an error page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PageStatus {
    Error,
    Target,
    Given(Status),
}

impl PageStatus {
    /// The status of a response, unless it stays. `error`: the status of the error; `target`: of the page.
    pub(super) fn of(self, error: Status, target: Status) -> Option<Status> {
        Some(match self {
            PageStatus::Error => error,
            PageStatus::Target => target,
            PageStatus::Given(status) => status,
        })
    }
}

impl Page {
    /// Checks that the file exists.
    pub(crate) fn build(path: &At<String>, root: &Root, key: &str, problems: &mut Problems) -> Option<Self> {
        Self::find(path, root).map_err(|what| problems.add(&path.span, key, what)).ok()
    }

    /// The page at a path, or the reason why the path has no page.
    fn find(path: &str, root: &Root) -> Result<Self, String> {
        let page = Page(path.to_owned());
        Err(match page.path() {
            None => "write a path beneath the root as in a URL, for instance /404.html".to_owned(),
            Some(path) if path.names_directory() => "names a directory: name the file".to_owned(),
            Some(path) => match root.resolve(path.as_bytes(), 0, Wait::Yes) {
                Ok(Found::File(_)) => return Ok(page),
                Ok(Found::Directory) => "names a directory: name the file".to_owned(),
                Err(NotOpened::Unresolved(unresolved)) => {
                    let cause = unresolved.cause.map_or_else(|| "no such file".to_owned(), |cause| cause.to_string());
                    match root.has_files() {
                        true => format!(
                            "{cause}: {}",
                            root.path().join(String::from_utf8_lossy(path.as_bytes()).as_ref()).display()
                        ),
                        false => format!("{cause}: the site has no root: set root"),
                    }
                }
                Err(NotOpened::Waits) => "cannot be opened without blocking".to_owned(),
            },
        })
    }

    /// The path of the file.
    pub(crate) fn path(&self) -> Option<SitePath<'_>> {
        SitePath::parse(&self.0, true).ok()
    }
}

impl ErrorPages {
    /// Validates statuses and targets. `None`: the table is empty.
    pub(crate) fn build(
        config: &BTreeMap<String, At<ErrorPageConfig>>,
        root: &Root,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let mut pages = Vec::new();
        for (status, page) in config {
            let key = format!("{key}.{status}");
            match status.parse::<u16>() {
                Ok(code) if (400..=599).contains(&code) && !WITHOUT_SITE.contains(&code) => {
                    pages.extend(ErrorPage::build(page, root, known, &key, problems).map(|page| (code, page)));
                }
                _ => {
                    let none = WITHOUT_SITE.map(|code| code.to_string()).join(", ");
                    let what = format!("this status has no error page: choose one from 400 to 599, but none of {none}");
                    problems.add(&page.span, &key, what);
                }
            }
        }
        (!pages.is_empty()).then_some(ErrorPages(pages))
    }

    pub(crate) fn get(&self, status: Status) -> Option<&ErrorPage> {
        self.0.iter().find(|(code, _)| *code == status.code()).map(|(_, page)| page)
    }

    /// The pages that are elsewhere, with their statuses.
    pub(super) fn targets(&self) -> impl Iterator<Item = (u16, &ErrorTarget)> {
        self.0.iter().filter_map(|(code, page)| match page {
            ErrorPage::File(..) => None,
            ErrorPage::Elsewhere(target) => Some((*code, target)),
        })
    }
}

impl ErrorPage {
    fn build(
        config: &At<ErrorPageConfig>,
        root: &Root,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let (to, status) = match &config.value {
            Short::Short(to) => (to, None),
            Short::Table(table) => (&table.to, table.status),
        };
        let is_url = to.starts_with("https://") || to.starts_with("http://");
        let status = match status {
            None if is_url => PageStatus::Given(Status::FOUND),
            None if to.starts_with('@') => PageStatus::Target,
            None | Some(StatusConfig::Of(StatusOf::Error)) => PageStatus::Error,
            Some(StatusConfig::Of(StatusOf::Target)) => PageStatus::Target,
            Some(StatusConfig::Code(code)) => match Status::new(code).filter(|_| is_shown(code, is_url)) {
                Some(status) => PageStatus::Given(status),
                None => {
                    let what = match is_url {
                        true => "write the status of a redirect: 301, 302, 303, 307 or 308",
                        false => "write a status from 200 to 599 that no redirect and no partial response has",
                    };
                    problems.add(&config.span, &format!("{key}.status"), what);
                    return None;
                }
            },
        };
        let text = At { value: to.clone(), span: config.span.clone() };
        let target = |to, no_file| Some(ErrorPage::Elsewhere(ErrorTarget { to, status, text: text.clone(), no_file }));
        if is_url {
            let PageStatus::Given(_) = status else {
                problems.add(
                    &config.span,
                    &format!("{key}.status"),
                    "write the status of a redirect, for instance 302",
                );
                return None;
            };
            return target(Whereto::Url(url_template(to, &config.span, known, key, problems)?), None);
        }
        if to.starts_with('@') {
            return target(Whereto::Named(to.clone()), None);
        }
        let has_placeholders = to.contains('{');
        let no_file = match Page::find(to, root) {
            Ok(page) if !has_placeholders => return Some(ErrorPage::File(page, status)),
            Ok(_) => None,
            Err(what) if !to.starts_with('/') && !has_placeholders => {
                problems.add(&config.span, key, what);
                return None;
            }
            Err(what) => Some(what).filter(|_| !has_placeholders),
        };
        if no_file.is_some() && Page(to.clone()).path().is_none() && !to.contains('?') {
            problems.add(&config.span, key, no_file.unwrap_or_default());
            return None;
        }
        target(Whereto::Path(path_template(to, &config.span, known, key, problems)?), no_file)
    }
}

/// Whether a response with an error page may have this status.
fn is_shown(code: u16, is_url: bool) -> bool {
    match is_url {
        true => matches!(code, 301 | 302 | 303 | 307 | 308),
        false => matches!(code, 200..=205 | 207..=299 | 400..=599),
    }
}

/// Statuses that are decided before the site is known (RFC 9112 §3), or that no response has.
const WITHOUT_SITE: [u16; 6] = [408, 414, 421, 431, 499, 505];

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
            ("404 = '/%2e%2e/x'", "f:1: error_pages.404: write a path"),
            ("404 = { to = '/404.html', status = 200 }", ""),
            ("404 = { to = '/404.html', status = 302 }", "f:1: error_pages.404.status: write a status"),
            (
                "404 = { to = 'https://a.example/', status = 200 }",
                "f:1: error_pages.404.status: write the status of a redirect",
            ),
            (
                "404 = { to = 'https://a.example/', status = 'target' }",
                "f:1: error_pages.404.status: write the status of a redirect",
            ),
            ("421 = '/404.html'", "f:1: error_pages.421: this status has no error page"),
            ("404 = '404.html'", "f:1: error_pages.404: write a path"),
            ("404 = '/../x'", "f:1: error_pages.404: write a path"),
            ("200 = '/404.html'", "f:1: error_pages.200: this status has no error page"),
            ("4xx = '/404.html'", "f:1: error_pages.4xx: this status has no error page"),
        ] {
            let mut problems = Problems::of_file("f".as_ref(), text);
            let tables = crate::placeholders::Tables::default();
            let known = Known::of_request(None, &tables);
            let pages = ErrorPages::build(&toml::from_str(text).unwrap(), &root, known, "error_pages", &mut problems);
            assert_eq!(pages.is_some(), expected.is_empty());
            assert!(problems.to_string().starts_with(expected), "{problems}");
        }
    }
}
