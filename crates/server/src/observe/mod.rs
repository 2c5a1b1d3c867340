//! Observability: messages, the access log, metrics.

pub(crate) mod access_log;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod otlp;
mod warnings;

pub(crate) use warnings::Warnings;
