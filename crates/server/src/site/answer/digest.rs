//! Repr-Digest (RFC 9530), from checksums that lie beside the file.

use std::sync::Arc;

use sealion_http::path::SitePath;
use sealion_http::request::FieldLines;
use tokio::task::spawn_blocking;

use super::Answering;
use super::file::Addition;
use crate::files::cache::Files;
use crate::files::resolve::{Content, Found, SiteFile};
use crate::site::checksums::{self, Algorithm};

const WANT: &str = "want-repr-digest";

impl Answering<'_> {
    /// Whether the request asks for a digest, and the site has some.
    pub(super) fn wants_digest(&self) -> bool {
        self.route.features.repr_digest && self.request.fields.first(WANT).is_some()
    }

    /// The value of Repr-Digest for `file`, found at `path` with `addition`. `None`: no checksum is known, or it does not cover the bytes to
    /// send, because they are compressed.
    pub(super) async fn repr_digest(
        &self,
        file: &SiteFile,
        addition: Option<Addition<'_>>,
        files: &Files,
        beneath: &SitePath<'_>,
        path: &SitePath<'_>,
    ) -> Option<String> {
        // Another format of an image has other bytes.
        if file.coding.is_some() || self.image(path).is_some() {
            return None;
        }
        let (beneath, path) = match addition {
            None => (beneath.beneath(0), path.beneath(0)),
            Some(addition) => (addition.to(beneath), addition.to(path)),
        };
        for algorithm in checksums::wanted(&self.request.fields.list(WANT)) {
            let own = |path: &SitePath<'_>| path.with_extension(algorithm.extension());
            let pairs = [(own(&beneath), own(&path), true), (sums(&beneath, algorithm), sums(&path, algorithm), false)];
            for (beneath_sums, sums, is_own) in pairs {
                if self.may_have_sibling(&sums, Some(&path))
                    && let Ok(Found::File(sums)) = files.find(&beneath_sums, &FieldLines::default()).await
                    && !sums.state().is_older_than(file.state())
                    && let Some(digest) = find(sums, algorithm, split(&beneath).1, is_own).await
                {
                    return Some(checksums::repr_digest(algorithm, &digest));
                }
            }
        }
        None
    }
}

/// The directory of a file, and its name.
fn split<'a>(path: &'a SitePath<'_>) -> (&'a [u8], &'a [u8]) {
    let path = path.as_bytes();
    match memchr::memrchr(b'/', path) {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// The path of the checksums in the directory of the file at `path`.
fn sums(path: &SitePath<'_>, algorithm: Algorithm) -> SitePath<'static> {
    path.beside(algorithm.sums())
}

/// [`checksums::find_digest`]. `None` too if many others are being looked for.
async fn find(sums: Arc<SiteFile>, algorithm: Algorithm, name: &[u8], own: bool) -> Option<Vec<u8>> {
    if matches!(sums.content, Content::Memory(_)) {
        return checksums::find_digest(&sums, algorithm, name, own);
    }
    let _turn = checksums::READING.try_acquire().ok()?;
    let name = name.to_vec();
    spawn_blocking(move || checksums::find_digest(&sums, algorithm, &name, own)).await.ok().flatten()
}
