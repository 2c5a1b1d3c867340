//! HTTP semantics and HTTP/1.1 syntax, pure: no socket, no file, no clock.
//!
//! ```text
//! bytes ─► http1/head ─► request ─► conditional, range, accept, accept_encoding, path ─► status, fields ─► http1/write ─► bytes
//!          http1/body: the content of a request, framed by Content-Length or chunked
//! ```
//!
//! [`request::Request`] is the same value for every protocol version.

pub mod accept;
pub mod accept_encoding;
pub mod cgi;
pub mod coding;
pub mod conditional;
mod content_encoding;
pub mod content_type;
pub mod cookie;
pub mod date;
mod decimal;
pub mod dictionary;
pub mod etag;
pub mod extra_fields;
mod field_section;
pub mod fields;
pub mod http1;
pub mod multiplexed;
pub mod path;
mod protocol;
mod quality;
pub mod range;
pub mod request;
pub mod status;

pub use coding::{Coding, Codings};
pub use content_encoding::ContentEncoding;
pub use content_type::ContentType;
pub use date::HttpTime;
pub use decimal::{content_length, write_decimal};
pub use etag::EntityTag;
pub use extra_fields::ExtraFields;
pub use field_section::{FieldSection, HOP_BY_HOP};
pub use fields::{ContentRange, Fields};
pub use protocol::Protocol;
pub use request::{Method, Request, Target};
pub use status::Status;
