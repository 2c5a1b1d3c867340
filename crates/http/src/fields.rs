//! The fields of a response.

use std::ops::Range;

use crate::coding::Coding;
use crate::content_type::ContentType;
use crate::date::HttpTime;
use crate::decimal::write_decimal;
use crate::etag::EntityTag;
use crate::extra_fields::ExtraFields;

/// The fields that a response may have, so that the usual one allocates nothing.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Fields {
    /// Content-Type.
    pub content_type: Option<ContentType>,
    /// Content-Encoding.
    pub content_encoding: Option<Coding>,
    /// Vary: Accept-Encoding.
    pub varies: bool,
    /// Last-Modified.
    pub last_modified: Option<HttpTime>,
    /// ETag.
    pub etag: Option<EntityTag>,
    /// Accept-Ranges: bytes.
    pub accept_ranges: bool,
    /// Content-Range.
    pub content_range: Option<ContentRange>,
    /// Location: ASCII without controls.
    pub location: Option<String>,
    /// Allow.
    pub allow: Option<&'static str>,
    /// Retry-After, in seconds.
    pub retry_after: Option<u32>,
    /// Whether Server is left out.
    pub anonymous: bool,
    /// Every other field.
    pub extra: ExtraFields,
}

/// The value of Content-Range (RFC 9110 §14.4).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ContentRange {
    /// `bytes first-last/complete` of a range that is not empty.
    Part {
        /// The bytes sent.
        range: Range<u64>,
        /// The length of the file.
        complete: u64,
    },
    /// `bytes */complete`.
    Unsatisfied {
        /// The length of the file.
        complete: u64,
    },
}

impl ContentRange {
    /// Appends the field value.
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
