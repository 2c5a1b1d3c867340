//! The files of a site: resolved below a root, cached, and offered in content codings.

mod admission;
pub(crate) mod cache;
pub(crate) mod coding;
pub(crate) mod disk_threads;
pub(crate) mod media_types;
pub(crate) mod resolve;
