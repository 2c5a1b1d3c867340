//! Files compressed by a dictionary that the client has (RFC 9842): `app.js.dcb` and `app.js.dcz` beside `app.js`.

use std::sync::Arc;

use sealion_http::path::SitePath;
use sealion_http::request::FieldLines;
use sealion_http::{ContentType, Status, dictionary};

use super::Answering;
use super::file::Addition;
use crate::files::cache::Files;
use crate::files::coding::may_have_siblings;
use crate::files::resolve::{Found, SiteFile};
use crate::response::{Response, of_coded};
use crate::site::dictionaries;

impl Answering<'_> {
    /// Whether the client has a dictionary by which files may be compressed.
    pub(super) fn has_dictionary(&self) -> bool {
        self.route.features.dictionary_compressed
            && !self.client.is_plain
            && self.accel.is_none()
            && self.request.fields.first(dictionaries::AVAILABLE).is_some()
    }

    /// The response with the compressed file beside `file`, found at `path` with `addition`. `None`: no form is compressed by the client's dictionary.
    pub(super) async fn by_dictionary(
        &self,
        file: &Arc<SiteFile>,
        addition: Option<Addition<'_>>,
        files: &Files,
        beneath: &SitePath<'_>,
        path: &SitePath<'_>,
    ) -> Option<Response> {
        let hash = dictionaries::available(self.request.fields)?;
        let codings = dictionary::accepted(&self.request.conditions.accept_encoding);
        if codings.is_empty() || !dictionary::is_readable(self.request.fields) {
            return None;
        }
        let (beneath, path) = match addition {
            None => (beneath.beneath(0), path.beneath(0)),
            Some(addition) => (addition.to(beneath), addition.to(path)),
        };
        if !may_have_siblings(path.as_bytes(), &file.content_type) {
            return None;
        }
        let unencoded = FieldLines::default();
        let original = match file.coding {
            None => Arc::clone(file),
            Some(_) => match files.find(&beneath, &unencoded).await {
                Ok(Found::File(original)) => original,
                _ => return None,
            },
        };
        for coding in codings {
            let own = |path: &SitePath<'_>| path.with_extension(coding.token());
            if self.may_have_sibling(&own(&path), Some(&path))
                && let Ok(Found::File(compressed)) = files.find(&own(&beneath), &unencoded).await
                && !compressed.state().is_older_than(original.state())
                && dictionaries::dictionary_of(&compressed, coding).await == Some(hash)
            {
                let mut response = of_coded(self.request, compressed, original.content_type.clone(), coding, self.now);
                self.add_vary_of_dictionary(&mut response, &original.content_type, &path);
                return Some(response);
            }
        }
        None
    }

    /// Says in Vary that the client's dictionary selects among the representations of the file at `path`.
    pub(super) fn add_vary_of_dictionary(
        &self,
        response: &mut Response,
        content_type: &ContentType,
        path: &SitePath<'_>,
    ) {
        let is_about_file = matches!(response.status, Status::OK | Status::PARTIAL_CONTENT | Status::NOT_MODIFIED);
        if self.route.features.dictionary_compressed
            && is_about_file
            && may_have_siblings(path.as_bytes(), content_type)
        {
            response.fields.varies = true;
            response.fields.extra.add("Vary", "Available-Dictionary");
        }
    }
}
