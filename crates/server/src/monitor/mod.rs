//! The listener for scrapers and probes: /metrics, /top, /health, /ready.

mod exposition;
mod listener;
mod page;
mod summary;

pub(crate) use listener::{Listener, note};
pub(crate) use summary::Summary;
