//! Observability: messages, the access log, metrics.

pub(crate) mod access_log;
pub(crate) mod messages;
pub(crate) mod metrics;
