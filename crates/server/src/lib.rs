//! See Cargo.toml.

pub mod conditional;
pub mod etag;
pub mod handler;
pub mod http1;
pub mod mime;
pub mod range;
pub mod request;
pub mod resolve;
pub mod response;
pub mod target;
