//! What the server tells of itself: messages, the access log, counters.

pub(crate) mod access_log;
pub(crate) mod messages;
pub(crate) mod metrics;
