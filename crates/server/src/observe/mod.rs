//! Observability: messages, the access log, metrics, spans.

pub(crate) mod access_log;
pub(crate) mod messages;
pub(crate) mod metrics;
pub(crate) mod otlp;
mod predecessors;
pub(crate) mod traces;
mod warnings;

pub(crate) use predecessors::{Left, Predecessors};
pub(crate) use warnings::Warnings;
