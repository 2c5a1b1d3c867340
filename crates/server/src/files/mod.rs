//! Files of a site: found beneath a root, kept open or in memory, in content codings.

pub(crate) mod cache;
pub(crate) mod coding;
pub(crate) mod media_types;
pub(crate) mod resolve;
