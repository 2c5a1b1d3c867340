//! Compression of responses of applications: which responses, by which coding, and their fields.
//!
//! ```text
//! forwarded or stored ─► may be coded? ─┬─ no ───────────────────────────────────► as it is
//!                                       └─ yes: Vary ─► coding by Accept-Encoding ─┬─ none, or no memory ─► as it is
//!                                                                                  └─ weak ETag, encoder ─► coded
//! ```
//!
//! A stored response in a coding is an object of the store once it was asked for (`store/coded.rs`): it is sent as any file is.
//!
//! The application's ranges, strong validator and checksums describe the content without coding, so a coded response has none of them.

use std::net::IpAddr;
use std::sync::Arc;

use sealion_http::accept_encoding::negotiate;
use sealion_http::etag::Tag;
use sealion_http::{Coding, ExtraFields, Method, Request, Status};

use crate::files::coding::config::Compress;
use crate::files::coding::stream::{Levels, StreamEncoder};
use crate::response::{Body, CHECKSUMS, CodedForms, ContentEncoder, Response};
use crate::upstream::Waiting;

/// Compression of applications' responses.
#[derive(Debug)]
pub(crate) struct Compression {
    settings: Compress,
    encoders: Encoders,
}

/// The fields of a response that decide about its compression.
#[derive(Debug, Default)]
struct Facts<'a> {
    content_type: Option<&'a [u8]>,
    etag: Option<&'a [u8]>,
    /// Whether a field forbids to code it: it is coded, must not be transformed, or has a checksum.
    is_fixed: bool,
    /// Whether it has Content-Range.
    is_part: bool,
    /// Whether Vary names Accept-Encoding.
    varies: bool,
}

impl Compression {
    pub(super) fn new(settings: Compress, waiting: &Arc<Waiting>) -> Self {
        let encoders = Encoders { levels: settings.levels(), waiting: Arc::clone(waiting) };
        Compression { settings, encoders }
    }

    /// Whether a range that the request asks for may be of coded content: If-Range names a validator that coded and other content share.
    pub(super) fn hides_range(&self, request: &Request<'_>) -> bool {
        let conditions = &request.conditions;
        let is_strong = |value| Tag::parse(value).is_some_and(|tag| !tag.is_weak());
        conditions.range.is_present()
            && conditions.if_range.is_present()
            && !conditions.if_range.value().is_some_and(is_strong)
            && self.coding(request).is_some()
    }

    fn coding(&self, request: &Request<'_>) -> Option<Coding> {
        negotiate(&request.conditions.accept_encoding, self.settings.codings())
    }

    /// Codes a response of an application if it may be, and the client takes a coding. `client`: whose memory is used.
    pub(super) fn apply(&self, response: &mut Response, request: &Request<'_>, client: Option<IpAddr>) {
        if !response.fields.forwarded || response.fields.content_encoding.is_some() {
            return;
        }
        let facts = Facts::of(&response.fields.extra);
        if !self.may_code(response, &facts) || is_fixed_by(request) {
            return;
        }
        response.fields.varies |= !facts.varies;
        let Some(coding) = self.coding(request) else { return };
        if response.status == Status::PARTIAL_CONTENT {
            return;
        }
        if response.status != Status::NOT_MODIFIED {
            let body = std::mem::replace(&mut response.body, Body::Empty);
            response.body = match request.method {
                Method::Head => body.of_head(),
                _ => match self.form(response.coded.take(), coding) {
                    Some(form) => form,
                    None => match self.encoders.encoder(coding, client) {
                        Some(encoder) => body.encoded(encoder),
                        None => {
                            response.body = body;
                            return;
                        }
                    },
                },
            };
            response.fields.content_encoding = Some(coding.into());
        }
        let etag = facts.etag.filter(|tag| !tag.starts_with(b"W/"));
        response.fields.extra = as_coded(&response.fields.extra, etag);
    }

    /// Whether a client that takes a coding gets it. A 206 and a 304 belong to content that may be coded.
    fn may_code(&self, response: &Response, facts: &Facts<'_>) -> bool {
        let length = response.body.len();
        let takes = |length| self.settings.takes_content(essence(facts.content_type.unwrap_or_default()), length);
        if facts.is_fixed {
            return false;
        }
        match response.status {
            // The type is usually not repeated.
            Status::NOT_MODIFIED => facts.content_type.is_none() || takes(None),
            Status::PARTIAL_CONTENT => takes(None),
            // Responses without content, and responses to a range.
            status if status.has_no_content() || matches!(status.code(), 205 | 416) => false,
            _ => response.fields.content_range.is_none() && !facts.is_part && takes(length),
        }
    }

    /// The coded form of a stored response. `None`: it is not made yet; it may be made behind this request.
    fn form(&self, coded: Option<Box<dyn CodedForms>>, coding: Coding) -> Option<Body> {
        let file = coded?.form(coding, self.settings.levels().of(coding), &|| {
            let encoders = self.encoders.clone();
            Box::new(move || encoders.encoder(coding, None))
        })?;
        let range = 0..file.len;
        Some(Body::File { file, range })
    }
}

/// Makes encoders, as far as there is memory.
#[derive(Debug, Clone)]
struct Encoders {
    levels: Levels,
    /// Bounds the memory of all encoders.
    waiting: Arc<Waiting>,
}

impl Encoders {
    /// An encoder. `None`: there is no memory for it.
    fn encoder(&self, coding: Coding, client: Option<IpAddr>) -> Option<ContentEncoder> {
        let memory = self.waiting.reserve_spare(client, self.levels.memory(coding))?;
        Some(ContentEncoder { encoder: StreamEncoder::new(coding, self.levels).ok()?, memory })
    }
}

impl<'a> Facts<'a> {
    fn of(fields: &'a ExtraFields) -> Self {
        let mut facts = Facts::default();
        for (name, value) in fields.iter() {
            let is = |other: &str| name.eq_ignore_ascii_case(other);
            match name.len() {
                4 if is("etag") => facts.etag = Some(value),
                4 if is("vary") => facts.varies |= has_member(value, |member| member == b"*" || is_accept(member)),
                // If there are several types, none can be trusted.
                12 if is("content-type") => {
                    facts.is_fixed |= facts.content_type.is_some();
                    facts.content_type = Some(value);
                }
                13 if is("cache-control") => facts.is_fixed |= forbids_transform(value),
                13 if is("content-range") => facts.is_part = true,
                // It announces a checksum.
                7 if is("trailer") => facts.is_fixed |= has_member(value, is_checksum),
                _ if is("content-encoding") => facts.is_fixed = true,
                _ => facts.is_fixed |= is_checksum(name.as_bytes()),
            }
        }
        facts
    }
}

/// The fields of coded content. `etag`: the strong validator of the content before coding.
fn as_coded(fields: &ExtraFields, etag: Option<&[u8]>) -> ExtraFields {
    let mut coded = ExtraFields::with_capacity(fields.lines().len() + 2);
    for (name, value) in fields.iter() {
        let is = |other: &str| name.eq_ignore_ascii_case(other);
        match etag {
            Some(etag) if is("etag") => coded.add_with(name, |line| {
                line.extend_from_slice(b"W/");
                line.extend_from_slice(etag);
            }),
            _ if is("accept-ranges") || is("content-length") => {}
            _ => coded.add_octets(name, value),
        }
    }
    coded
}

/// Whether the client forbids a transformation (RFC 9111 §5.2.1.6).
fn is_fixed_by(request: &Request<'_>) -> bool {
    request.fields.all("cache-control").any(forbids_transform)
}

fn forbids_transform(cache_control: &[u8]) -> bool {
    has_member(cache_control, |member| member.eq_ignore_ascii_case(b"no-transform"))
}

fn is_accept(member: &[u8]) -> bool {
    member.eq_ignore_ascii_case(b"accept-encoding")
}

fn is_checksum(name: &[u8]) -> bool {
    CHECKSUMS.iter().any(|checksum| name.eq_ignore_ascii_case(checksum.as_bytes()))
}

/// Whether a list has such a member. A quoted string with commas may look like several members, and each of them counts.
fn has_member(list: &[u8], is: impl Fn(&[u8]) -> bool) -> bool {
    list.split(|byte| *byte == b',').any(|member| is(member.trim_ascii()))
}

/// A media type without parameters.
fn essence(content_type: &[u8]) -> &str {
    let end = content_type.iter().position(|byte| *byte == b';').unwrap_or(content_type.len());
    std::str::from_utf8(content_type[..end].trim_ascii()).unwrap_or_default()
}

#[cfg(test)]
#[path = "compression_tests.rs"]
mod tests;
