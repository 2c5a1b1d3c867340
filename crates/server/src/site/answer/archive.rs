//! The archive of a listed directory, of the files that the request could read.

use std::sync::Arc;

use sealion_http::Status;
use sealion_http::path::SitePath;
use tokio::task::{spawn_blocking, yield_now};

use super::Answering;
use crate::files::cache::Files;
use crate::files::resolve::{NotOpened, Unresolved, beneath as joined};
use crate::response::Response;
use crate::site::archive::{self, Archives, Format, NoArchive, Refused};

impl Answering<'_> {
    /// Whether a response for the directory at `path` may hold the contents of its files: an archive, or notes. `asked`: the requested path. Guards check
    /// the requested path, so a rewritten path shows no contents. None with `forward_auth`: the other server may decide on each URL.
    pub(super) fn shows_contents(&self, path: &SitePath<'_>, asked: &SitePath<'_>) -> bool {
        path.as_bytes() == asked.as_bytes()
            && self.route.features.forward_auth.is_none()
            // An entry's directory may differ from the listing's.
            && !self.route.has_named_directory()
    }

    /// The archive of the directory at `path`, which is `beneath` the root of `files`. `archives`: the bounds, if it has one. `None`: the directory
    /// does not exist.
    pub(super) async fn archive(
        &self,
        archives: Option<&Archives>,
        format: &str,
        files: &Files,
        path: &SitePath<'_>,
        beneath: &SitePath<'_>,
    ) -> Option<Response> {
        match self.make_archive(archives, format, files, path, beneath).await {
            Ok(response) => Some(response),
            Err(NoArchive::Unresolved(unresolved)) if unresolved.status == Status::NOT_FOUND => None,
            Err(NoArchive::Unresolved(unresolved)) => {
                Some(Response::plain(unresolved.status).because(unresolved.cause))
            }
            Err(NoArchive::Refused(refused)) => Some(refused.response()),
        }
    }

    async fn make_archive(
        &self,
        archives: Option<&Archives>,
        format: &str,
        files: &Files,
        path: &SitePath<'_>,
        beneath: &SitePath<'_>,
    ) -> Result<Response, NoArchive> {
        let features = &self.route.features;
        let root = files.root();
        // A path without a directory is not found, whatever is said of archives.
        let (of_directory, name) = (Arc::clone(&root), beneath.as_bytes().to_vec());
        let opened = spawn_blocking(move || of_directory.open_directory(&name).map(drop)).await;
        let opened = opened.unwrap_or_else(|error| Err(Unresolved::panicked(&error).into()));
        opened.map_err(NotOpened::unresolved)?;
        let archives = archives.ok_or(Refused::NotOffered)?;
        let format = Format::of_name(format)?;
        let permit = archives.begin(self.client.address)?;
        let indexes = [files.index().to_owned()].into_iter().chain(features.more_indexes.iter().cloned()).collect();
        let mut walk = archives.walk(root, beneath.as_bytes(), indexes, self.route.options.show_dotfiles);
        while let Some(task) = walk.next() {
            let read = spawn_blocking(move || task.run()).await;
            let children = read.unwrap_or_else(|error| Err(Unresolved::panicked(&error).into()))?;
            for (n, child) in children.into_iter().enumerate() {
                if n % CHILDREN_AT_A_TIME == CHILDREN_AT_A_TIME - 1 {
                    yield_now().await;
                }
                let mut own = joined(path.as_bytes(), &child.name);
                if child.is_directory() {
                    own.push(b'/');
                }
                if self.could_read(&own, path, files) {
                    walk.add(child)?;
                }
            }
        }
        let name = path.as_bytes().rsplit(|octet| *octet == b'/').next().unwrap_or_default();
        let name = if name.is_empty() { self.site.name.as_bytes() } else { name };
        archive::response(walk, name, format, permit).await.map_err(NoArchive::from)
    }

    /// Whether a request that got the directory at `listed` could read the file or directory of `files` at the path `own`, which has no leading slash, and a
    /// trailing one for a directory.
    pub(super) fn could_read(&self, own: &[u8], listed: &SitePath<'_>, files: &Files) -> bool {
        let Ok(own) = SitePath::of_octets(own) else { return false };
        // Files of another route may be others, or none.
        let is_here = self.route_of(&own).is_ok_and(|route| route.number == self.route.number);
        let Some(located) = self.locate(&own) else { return false };
        is_here
            && self.is_allowed(&own)
            && !self.needs_more(&own, Some(listed))
            // Its directories have no listing, whose names an archive would show.
            && self.route.is_of_files()
            && std::ptr::eq(located.files, files)
    }
}

/// Entries whose rules are looked at before the worker goes on with other requests.
const CHILDREN_AT_A_TIME: usize = 256;
