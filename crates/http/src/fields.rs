//! The fields of a response, independent of the protocol version.

use std::ops::Range;

use crate::content_encoding::ContentEncoding;
use crate::content_type::ContentType;
use crate::date::HttpTime;
use crate::decimal::write_decimal;
use crate::etag::EntityTag;
use crate::extra_fields::ExtraFields;

/// The fields of a response. The common ones are members, so that a usual response allocates nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields {
    /// The value of Content-Type.
    pub content_type: Option<ContentType>,
    /// The coding in Content-Encoding.
    pub content_encoding: Option<ContentEncoding>,
    /// Whether to send `Vary: Accept-Encoding`.
    pub varies: bool,
    /// The value of Last-Modified.
    pub last_modified: Option<HttpTime>,
    /// The entity tag in ETag.
    pub etag: Option<EntityTag>,
    /// Whether to send `Accept-Ranges: bytes`.
    pub accept_ranges: bool,
    /// The value of Content-Range.
    pub content_range: Option<ContentRange>,
    /// The value of Location: ASCII without control characters.
    pub location: Option<String>,
    /// The value of Allow.
    pub allow: Option<&'static str>,
    /// The value of Retry-After, in seconds.
    pub retry_after: Option<u32>,
    /// Whether to omit Server.
    pub anonymous: bool,
    /// Whether the response comes from another server, so that Date and Server, if present, are in [`Self::extra`].
    pub forwarded: bool,
    /// Whether Date is known to be in [`Self::extra`].
    pub dated: bool,
    /// All other fields.
    pub extra: ExtraFields,
}

impl Fields {
    /// Whether the driver adds Server.
    pub fn needs_server(&self) -> bool {
        !self.anonymous && !self.forwarded
    }

    /// Whether the driver adds Date (RFC 9110 §6.6.1).
    pub fn needs_date(&self) -> bool {
        !(self.dated || self.forwarded && self.extra.has("date"))
    }

    /// Calls `visit` with the lower-case name and the value of each field, except Server, Date and the framing fields.
    /// HTTP/1 writes the same fields by `http1::write::write_head`.
    pub fn for_each(&self, mut visit: impl FnMut(&str, &[u8])) {
        let Fields {
            content_type,
            content_encoding,
            varies,
            last_modified,
            etag,
            accept_ranges,
            content_range,
            location,
            allow,
            retry_after,
            anonymous: _,
            forwarded: _,
            dated: _,
            extra,
        } = self;
        let mut value = Vec::new();
        if let Some(content_type) = content_type {
            content_type.write(&mut value);
            visit("content-type", &value);
        }
        if let Some(coding) = content_encoding {
            visit("content-encoding", coding.token().as_bytes());
        }
        if *varies {
            visit("vary", b"Accept-Encoding");
        }
        if let Some(modified) = last_modified {
            visit("last-modified", modified.as_bytes());
        }
        if let Some(etag) = etag {
            visit("etag", etag.as_bytes());
        }
        if *accept_ranges {
            visit("accept-ranges", b"bytes");
        }
        if let Some(range) = content_range {
            value.clear();
            range.write(&mut value);
            visit("content-range", &value);
        }
        if let Some(location) = location {
            visit("location", location.as_bytes());
        }
        if let Some(methods) = allow {
            visit("allow", methods.as_bytes());
        }
        if let Some(seconds) = retry_after {
            value.clear();
            write_decimal(&mut value, (*seconds).into());
            visit("retry-after", &value);
        }
        for (name, value) in extra.iter() {
            visit(&name.to_ascii_lowercase(), value);
        }
    }
}

/// The value of Content-Range (RFC 9110 §14.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/complete`.
    Part {
        /// The bytes sent; never empty.
        range: Range<u64>,
        /// The complete length of the file.
        complete: u64,
    },
    /// `bytes */complete`.
    Unsatisfied {
        /// The complete length of the file.
        complete: u64,
    },
}

impl ContentRange {
    /// Appends the field value to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"bytes ");
        let complete = match self {
            ContentRange::Part { range, complete } => {
                write_decimal(out, range.start);
                out.push(b'-');
                write_decimal(out, range.end - 1);
                complete
            }
            ContentRange::Unsatisfied { complete } => {
                out.push(b'*');
                complete
            }
        };
        out.push(b'/');
        write_decimal(out, *complete);
    }
}
