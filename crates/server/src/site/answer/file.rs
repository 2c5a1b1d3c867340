//! The file or directory of a path: other names (indexes, extensions, images in other formats), the listing, the fallback.

use std::sync::Arc;

use sealion_http::Status;
use sealion_http::accept::prefers_json;
use sealion_http::path::SitePath;

use super::{Answer, Answering};
use crate::files::cache::Files;
use crate::files::resolve::{Found, SiteFile, Unresolved, beneath as joined};
use crate::placeholders::Led;
use crate::response::{Response, of_file, of_file_as, of_variant};
use crate::site::clean_urls::TrailingSlash;
use crate::site::listing::{Listing, ReadDirectory};
use crate::site::listing_notes::Notes;
use crate::site::listing_page::{self, ShowDirectory};
use crate::site::listing_pages::NoPage;
use crate::site::listing_view::{self, View};
use crate::site::pages::Page;
use crate::site::route::FileLocation;
use crate::site::{fallback, image_formats};

impl Answering<'_> {
    /// Answers with the file or directory at `path`. `asked`: the path before rewriting.
    pub(super) async fn serve(&self, path: &SitePath<'_>, asked: &SitePath<'_>, user: &mut Option<Box<str>>) -> Answer {
        // A path that was rewritten may lie outside the directory of `alias`.
        let Some(FileLocation { files, path: beneath, is_alias }) = self.locate(path) else {
            return Response::plain(Status::NOT_FOUND).into();
        };
        // The directory of an alias is always one.
        let found = if is_alias { Ok(Found::Directory) } else { self.find(files, &beneath).await };
        self.respond_with(found, files, &beneath, path, asked, user).await
    }

    /// Where the file of a path is. `None`: the path has no file.
    pub(super) fn locate<'p>(&'p self, path: &'p SitePath<'p>) -> Option<FileLocation<'p, 'p>> {
        self.route.locate(path, || self.asked(path))
    }

    /// Answers with the file or directory that was found at `path`, which is `beneath` the root of `files`.
    async fn respond_with(
        &self,
        found: Result<Found, Unresolved>,
        files: &Files,
        beneath: &SitePath<'_>,
        path: &SitePath<'_>,
        asked: &SitePath<'_>,
        user: &mut Option<Box<str>>,
    ) -> Answer {
        let (file, addition) = match found {
            Ok(Found::File(file)) => (file, path.names_directory().then(|| Addition::Index(files.index()))),
            Ok(Found::Directory) => match Box::pin(self.find_for_directory(files, beneath)).await {
                Some((file, addition)) => (file, Some(addition)),
                // Only the application knows under which path clients see the directory.
                None if self.accel.is_some() => return Response::plain(Status::NOT_FOUND).into(),
                None => {
                    // As in nginx, clients see a rewritten path, but not the path of an alias.
                    let may_ask = self.led.is_some_and(|led| led != Led::Stay) && !self.route.is_internal;
                    let shown = if asked.names_directory() || may_ask { path } else { asked };
                    return moved(shown.with_slash(self.query())).into();
                }
            },
            Err(missing) => match Box::pin(self.find_other_name(files, beneath, missing)).await {
                Ok((file, addition)) => (file, Some(addition)),
                Err(missing) => return Box::pin(self.without_file(missing, files, path, beneath, asked, user)).await,
            },
        };
        if asked.names_directory() && self.removes_slash_of(asked) && self.accel.is_none() {
            return moved(asked.without_slash(self.query())).into();
        }
        let mut name = None;
        let mut route = None;
        if let Some(addition) = addition {
            let own = addition.to(path);
            name = Some(own.as_bytes().to_vec());
            if self.site.routes.is_some() {
                let refusal = self.guard(&own, user).await;
                // As in nginx, the settings of its own route apply to the file.
                route = self.route_of(&own).ok().map(|route| route.number);
                if let Some(refusal) = refusal {
                    return Answer { name, route, ..refusal.into() };
                }
            }
        }
        let file = match (self.may_withhold(&file), addition) {
            (false, _) => Ok(file),
            (true, None) => Box::pin(self.sibling_or_original(file, files, beneath, path)).await,
            (true, Some(addition)) => {
                let (beneath, path) = (addition.to(beneath), addition.to(path));
                Box::pin(self.sibling_or_original(file, files, &beneath, &path)).await
            }
        };
        match file {
            Ok(file) => {
                if self.has_dictionary()
                    && let Some(response) = Box::pin(self.by_dictionary(&file, addition, files, beneath, path)).await
                {
                    return Answer { name, route, ..response.into() };
                }
                let content_type = self.route.features.dictionary_compressed.then(|| file.content_type.clone());
                let digest = match self.wants_digest() {
                    true => Box::pin(self.repr_digest(&file, addition, files, beneath, path)).await,
                    false => None,
                };
                let mut response = match (self.image(path).filter(|_| addition.is_none()), self.accel) {
                    (_, Some(kept)) => {
                        let own = kept.type_of(&file.content_type);
                        of_file_as(self.request, file, own, self.route.options.max_ranges, self.now)
                    }
                    (None, None) => of_file(self.request, file, self.route.options.max_ranges, self.now),
                    (Some(subtype), None) => {
                        Box::pin(self.respond_with_image(subtype, file, files, beneath, path)).await
                    }
                };
                if let Some(content_type) = content_type.filter(|_| self.accel.is_none()) {
                    self.add_vary_of_dictionary(&mut response, &content_type, path);
                }
                if let Some(digest) = digest.filter(|_| matches!(response.status, Status::OK | Status::PARTIAL_CONTENT))
                {
                    response.fields.extra.add("Repr-Digest", &digest);
                }
                Answer { name, route, ..response.into() }
            }
            Err(gone) => Response::plain(gone.status).because(gone.cause).into(),
        }
    }

    /// The type of the image at `path`, without `image/`, if it may be sent in another format.
    pub(super) fn image(&self, path: &SitePath<'_>) -> Option<&'static str> {
        let has_formats = !self.route.features.image_formats.is_empty() && !path.names_directory();
        has_formats.then(|| image_formats::subtype(path.as_bytes())).flatten()
    }

    /// The image `original`, or its sibling in the format that the client prefers. Neither is sent without the guards of its own name, and no
    /// password is checked only for a sibling.
    async fn respond_with_image(
        &self,
        subtype: &str,
        original: Arc<SiteFile>,
        files: &Files,
        beneath: &SitePath<'_>,
        path: &SitePath<'_>,
    ) -> Response {
        let accept = self.request.fields.singleton("accept").value();
        let formats = image_formats::preferred(accept, &self.route.features.image_formats, subtype);
        let mut file = original;
        for format in formats {
            if self.may_have_sibling(&format.sibling_of(path), Some(path))
                && let Ok(Found::File(sibling)) = self.find(files, &format.sibling_of(beneath)).await
                && image_formats::is_fit(&sibling, &file)
            {
                file = sibling;
                break;
            }
        }
        let mut response = of_variant(self.request, file, true, self.route.options.max_ranges, self.now);
        response.fields.extra.add("Vary", "Accept");
        response
    }

    /// Answers a request for a path without a file: a listing, the fallback, or the status.
    async fn without_file(
        &self,
        missing: Unresolved,
        files: &Files,
        path: &SitePath<'_>,
        beneath: &SitePath<'_>,
        asked: &SitePath<'_>,
        user: &mut Option<Box<str>>,
    ) -> Answer {
        // An application answers where there is no file, except a navigation, if there is a page for it.
        let goes_on = self.route.rule();
        if missing.status == Status::NOT_FOUND && goes_on.is_some_and(|rule| rule.files_first) {
            let response = Response::plain(Status::NOT_FOUND);
            return match fallback::is_navigation(self.request.fields.singleton("accept").value()) {
                true => self.or_fallback(response, asked, user).await,
                false => response.into(),
            };
        }
        if missing.status == Status::NOT_FOUND && path.names_directory() {
            if let Some(listing) = self.route.features.listing.as_deref()
                && let Some(response) = self.list(listing, files, path, beneath, asked).await
            {
                return response.into();
            }
            if asked.names_directory()
                && self.accel.is_none()
                && self.find_with_extension(files, beneath).await.is_some()
            {
                return moved(asked.without_slash(self.query())).into();
            }
        }
        let response = Response::plain(missing.status).because(missing.cause);
        self.or_fallback(response, asked, user).await
    }

    /// The listing of a directory. `None`: the directory does not exist.
    async fn list(
        &self,
        listing: &Listing,
        files: &Files,
        path: &SitePath<'_>,
        beneath: &SitePath<'_>,
        asked: &SitePath<'_>,
    ) -> Option<Response> {
        let is_open = self.shows_contents(path, asked);
        let archives = listing.archives.as_ref().filter(|_| is_open);
        if let Some(format) = listing_view::parameter(self.query(), "archive") {
            return Box::pin(self.archive(archives, &format, files, path, beneath)).await;
        }
        let json = prefers_json(self.request.fields.singleton("accept").value());
        let could_read = |name: &[u8]| is_open && self.could_read(&joined(path.as_bytes(), name), path, files);
        let directory = ShowDirectory {
            directory: ReadDirectory {
                root: files.root(),
                name: beneath.as_bytes().into(),
                bounds: listing.bounds,
                show_dotfiles: self.route.options.show_dotfiles,
            },
            asked: asked.as_bytes().into(),
            view: View::from_query(self.query()),
            archives: archives.is_some(),
            stylesheet: listing.stylesheet.clone(),
            notes: Notes::new(listing.notes, could_read).filter(|_| !json),
            json,
        };
        match Box::pin(self.route.pages.get(Arc::new(directory))).await {
            Ok(page) => Some(listing_page::response(page, json, &listing.policy)),
            Err(NoPage::Unresolved(unresolved)) if unresolved.status == Status::NOT_FOUND => None,
            Err(NoPage::Unresolved(unresolved)) => Some(Response::plain(unresolved.status).because(unresolved.cause)),
            Err(NoPage::Busy) => {
                let mut response = Response::plain(Status::SERVICE_UNAVAILABLE);
                response.fields.retry_after = Some(1);
                Some(response)
            }
        }
    }

    /// Replaces a 404 by the fallback where it applies.
    async fn or_fallback(&self, mut response: Response, asked: &SitePath<'_>, user: &mut Option<Box<str>>) -> Answer {
        let fallback = self.route.features.fallback.as_deref().and_then(Page::path);
        let (Status::NOT_FOUND, Some(page)) = (response.status, fallback) else { return response.into() };
        let (mut name, mut route) = (None, None);
        if fallback::applies(asked.as_bytes(), self.request.fields.singleton("accept").value()) {
            if let Some(refusal) = self.guard(&page, user).await {
                return refusal.into();
            }
            if let Ok(Found::File(file)) = self.find(&self.route.fallback_files, &page).await
                && let Ok(file) = self.sibling_or_original(file, &self.route.fallback_files, &page, &page).await
            {
                response = self.fallback_page(file, &page).await;
                name = Some(page.as_bytes().to_vec());
                route = self.site.routes.as_ref().and_then(|_| self.route_of(&page).ok()).map(|route| route.number);
            }
        }
        // The response for this path depends on Accept.
        response.fields.extra.add("Vary", "Accept");
        Answer { name, route, ..response.into() }
    }

    /// The response with the file of the fallback.
    async fn fallback_page(&self, file: Arc<SiteFile>, page: &SitePath<'_>) -> Response {
        let files = &self.route.fallback_files;
        if self.has_dictionary()
            && let Some(response) = Box::pin(self.by_dictionary(&file, None, files, page, page)).await
        {
            return response;
        }
        let content_type = self.route.features.dictionary_compressed.then(|| file.content_type.clone());
        let mut response = of_file(self.request, file, self.route.options.max_ranges, self.now);
        if let Some(content_type) = content_type {
            self.add_vary_of_dictionary(&mut response, &content_type, page);
        }
        response
    }

    pub(super) fn find<'f>(
        &'f self,
        files: &'f Files,
        path: &'f SitePath<'_>,
    ) -> impl Future<Output = Result<Found, Unresolved>> + 'f {
        files.find(path, &self.request.conditions.accept_encoding)
    }

    /// Whether the trailing slash of a directory's URL is removed. The root keeps its slash.
    pub(super) fn removes_slash_of(&self, path: &SitePath<'_>) -> bool {
        self.route.features.trailing_slash == TrailingSlash::Remove && !path.as_bytes().is_empty()
    }

    /// Finds the file for a directory requested without a trailing slash. `None`: a redirect adds the slash.
    async fn find_for_directory<'f>(
        &'f self,
        files: &'f Files,
        path: &SitePath<'_>,
    ) -> Option<(Arc<SiteFile>, Addition<'f>)> {
        if let Some(found) = self.find_with_extension(files, path).await {
            return Some(found);
        }
        if self.route.features.trailing_slash == TrailingSlash::Add {
            return None;
        }
        for index in self.route.indexes() {
            if let Ok(Found::File(file)) = self.find(files, &path.child(index)).await {
                return Some((file, Addition::Index(index)));
            }
        }
        None
    }

    /// Finds the file under another name where none has the requested one: another index than the first, or one with an extension.
    async fn find_other_name<'f>(
        &'f self,
        files: &'f Files,
        path: &SitePath<'_>,
        missing: Unresolved,
    ) -> Result<(Arc<SiteFile>, Addition<'f>), Unresolved> {
        if missing.status != Status::NOT_FOUND {
            return Err(missing);
        }
        if !path.names_directory() {
            return self.find_with_extension(files, path).await.ok_or(missing);
        }
        for index in &self.route.features.more_indexes {
            if let Ok(Found::File(file)) = self.find(files, &path.child(index)).await {
                return Ok((file, Addition::Index(index)));
            }
        }
        Err(missing)
    }

    /// Finds the file that has the requested name and an extension.
    async fn find_with_extension<'f>(
        &'f self,
        files: &'f Files,
        path: &SitePath<'_>,
    ) -> Option<(Arc<SiteFile>, Addition<'f>)> {
        // The directory of a root has no name that an extension could follow.
        let is_root = path.as_bytes().is_empty() || path.as_bytes().ends_with(b"/");
        for extension in self.route.features.extensions.iter().filter(|_| !is_root) {
            if let Ok(Found::File(file)) = self.find(files, &path.with_extension(extension)).await {
                return Some((file, Addition::Extension(extension)));
            }
        }
        None
    }
}

/// The part of a file's name that the requested path lacks.
#[derive(Debug, Clone, Copy)]
pub(super) enum Addition<'a> {
    Index(&'a str),
    Extension(&'a str),
}

impl Addition<'_> {
    /// The path of the file, from the path requested.
    pub(super) fn to(self, path: &SitePath<'_>) -> SitePath<'static> {
        match self {
            Addition::Index(name) => path.child(name),
            Addition::Extension(extension) => path.with_extension(extension),
        }
    }
}

/// The redirect to the same resource with or without a trailing slash.
fn moved(location: String) -> Response {
    let mut response = Response::plain(Status::MOVED_PERMANENTLY);
    response.fields.location = Some(location);
    response
}
