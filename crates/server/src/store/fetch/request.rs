//! The request of a fetch: the part that it keeps of the client's request, and the part that the origin gets.

use std::sync::Arc;

use http::header::{FORWARDED, IF_MATCH, IF_MODIFIED_SINCE, IF_NONE_MATCH, IF_RANGE, IF_UNMODIFIED_SINCE, RANGE};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_cache::{RequestDirectives, StoreRequest};
use sealion_http::{FieldSection, Method, Request};

use super::super::rule::hop_by_hop;

/// The parts of the request that a fetch needs.
#[derive(Debug, Clone)]
pub(in crate::store) struct FetchRequest {
    /// The fields that the origin gets, as lines.
    fields: Arc<[u8]>,
    has_authorization: bool,
    has_cookie: bool,
    directives: RequestDirectives,
}

impl FetchRequest {
    pub(in crate::store) fn of(request: &Request<'_>, directives: RequestDirectives) -> Self {
        let mut fields = Vec::with_capacity(512);
        let hidden: Vec<_> = hop_by_hop(request.fields).collect();
        let is_sent = |name: &[u8]| !hidden.iter().any(|own| own.eq_ignore_ascii_case(name));
        for (name, value) in request.fields.iter().filter(|(name, _)| is_sent(name)) {
            for part in [name, b": ", value, b"\r\n"] {
                fields.extend_from_slice(part);
            }
        }
        let [authorization, cookie] = of_user(request);
        FetchRequest { fields: fields.into(), has_authorization: authorization, has_cookie: cookie, directives }
    }

    /// A GET with these lines of fields.
    #[cfg(test)]
    pub(in crate::store) fn of_fields(fields: &[u8]) -> Self {
        let directives = RequestDirectives::default();
        FetchRequest { fields: fields.into(), has_authorization: false, has_cookie: false, directives }
    }

    /// As [`names_user`].
    pub(in crate::store) fn names_user(&self) -> bool {
        self.has_authorization || self.has_cookie
    }

    pub(in crate::store) fn has_authorization(&self) -> bool {
        self.has_authorization
    }

    pub(in crate::store) fn fields(&self) -> FieldSection<'_> {
        FieldSection::from_lines(&self.fields)
    }

    pub(in crate::store) fn variant(&self, names: &[HeaderName]) -> Vec<u8> {
        variant(names, self.fields())
    }

    /// The request as a client sends it that names no user and demands nothing.
    pub(in crate::store) fn of_anybody(&self) -> Self {
        FetchRequest {
            fields: Arc::clone(&self.fields),
            has_authorization: false,
            has_cookie: false,
            directives: RequestDirectives::default(),
        }
    }

    pub(in crate::store) fn has_cookie(&self) -> bool {
        self.has_cookie
    }

    pub(in crate::store) fn to_store(&self) -> StoreRequest<'static> {
        let FetchRequest { has_authorization, directives, .. } = *self;
        StoreRequest { method: Method::Get, has_authorization, directives }
    }
}

/// Whether the response may be for one user because of the request.
pub(in crate::store) fn names_user(request: &Request<'_>) -> bool {
    of_user(request).contains(&true)
}

/// Whether a request has Authorization, and a cookie.
fn of_user(request: &Request<'_>) -> [bool; 2] {
    request.fields.first_of(["authorization", "cookie"]).map(|value| value.is_some())
}

/// The part of a key that selects one of the variants of a URL.
pub(in crate::store) fn variant(names: &[HeaderName], fields: FieldSection<'_>) -> Vec<u8> {
    sealion_cache::variant_key(names, |name| fields.all(name.as_str()).collect())
}

/// Leaves out the fields that belong to one client, so that the response suits every request with the same key and the same Vary fields.
pub(super) fn for_all_clients(fields: &mut HeaderMap) {
    for name in [IF_MATCH, IF_NONE_MATCH, IF_MODIFIED_SINCE, IF_UNMODIFIED_SINCE, IF_RANGE, RANGE] {
        fields.remove(name);
    }
    // Servers that follow CGI read `_` as `-`, and some read all but letters and digits so: they would take such a field for a field of Vary, or of the key.
    let is_plain =
        |name: &HeaderName| name.as_str().bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
    let ambiguous: Vec<_> = fields.keys().filter(|name| !is_plain(name)).cloned().collect();
    for name in ambiguous {
        fields.remove(name);
    }
    // Servers may take the first element of a chain of proxies for the requested URL, which is no part of the key: ours is the last element.
    let own = fields.get(FORWARDED).and_then(|value| value.to_str().ok()?.rsplit(", ").next()?.parse().ok());
    if let Some(own) = own {
        fields.insert(FORWARDED, own);
    }
    sealion_cache::make_canonical(fields);
    // The origin may then answer with Surrogate-Control (<https://www.w3.org/TR/edge-arch/>, §2.1).
    fields.insert(SURROGATE_CAPABILITY, HeaderValue::from_static("sealion=\"Surrogate/1.0\""));
}

const SURROGATE_CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");
