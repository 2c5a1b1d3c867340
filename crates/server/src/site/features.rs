//! What a site has besides files. A site without any is answered by the same code with nothing in it.

use super::SiteConfig;
use super::access::Access;
use super::basic_auth::BasicAuth;
use super::cors::Cors;
use super::headers::{Headers, HeadersConfig};
use super::listing::Listing;
use super::mounts::Mounts;
use super::pages::{ErrorPages, Page};
use super::redirect::Redirects;
use super::rewrite::Rewrites;
use crate::files::cache::Files;
use crate::files::resolve::Root;
use crate::values::Problems;

/// What a site has besides files.
#[derive(Debug, Default)]
pub(crate) struct Features {
    /// Whether Server is left out.
    pub anonymous: bool,
    /// Who may ask.
    pub access: Option<Access>,
    /// What other sites' scripts may read.
    pub cors: Option<Cors>,
    /// Where clients are sent.
    pub redirects: Option<Redirects>,
    /// Who needs a password.
    pub basic_auth: Option<BasicAuth>,
    /// Paths that stand for others.
    pub rewrites: Option<Rewrites>,
    /// Other directories.
    pub mounts: Option<Mounts>,
    /// Names beside the first that stand for a directory.
    pub more_indexes: Vec<String>,
    /// Directories that are shown.
    pub listing: Option<Listing>,
    /// The page of paths without a file.
    pub fallback: Option<Page>,
    /// The pages of errors.
    pub error_pages: Option<ErrorPages>,
    /// Fields of responses.
    pub headers: Option<Headers>,
}

impl SiteConfig {
    /// Builds what the keys of a site say.
    pub(super) fn features(
        &self,
        root: &Root,
        files: impl FnMut(Root) -> Files,
        plain: bool,
        problems: &mut Problems,
    ) -> Features {
        for index in &self.index {
            if index.is_empty() || index.contains('/') || matches!(index.as_str(), "." | "..") {
                problems.add(&index.span, "site.index", format!("{:?} is no name of a file", index.value));
            }
        }
        if self.index.is_empty() {
            problems.add(&(0..0), "site.index", "is empty: leave it out, or name a file, for instance index.html");
        }
        let fields = HeadersConfig {
            rules: &self.headers,
            cache_control: &self.cache_control,
            security: self.security_headers,
            hsts: &self.hsts,
            plain,
        };
        let fallback = self.fallback.as_ref();
        Features {
            anonymous: !self.server_header,
            access: Access::build(&self.access, "site.access", problems),
            cors: self.cors.build("site.cors", problems),
            redirects: Redirects::build(&self.redirects, "site.redirects", problems),
            basic_auth: BasicAuth::build(&self.basic_auth, "site.basic_auth", problems),
            rewrites: Rewrites::build(&self.rewrites, "site.rewrites", problems),
            mounts: Mounts::build(&self.mounts, "site.mounts", problems, files),
            more_indexes: self.index.iter().skip(1).map(|index| index.value.clone()).collect(),
            listing: self.listing.build("site.listing", problems),
            fallback: fallback.and_then(|page| Page::build(page, root, "site.fallback", problems)),
            error_pages: ErrorPages::build(&self.error_pages, root, "site.error_pages", problems),
            headers: fields.build("site", problems),
        }
    }
}

impl Features {
    /// Whether anything looks at the name of the file that is sent.
    pub(super) fn look_at_names(&self) -> bool {
        self.access.is_some() || self.basic_auth.is_some() || self.headers.is_some() || self.cors.is_some()
    }
}
