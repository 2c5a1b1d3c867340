//! The listener for scrapers and probes: /metrics, /top, /health, /ready. Also the exporter, which sends the metrics to
//! an OTLP collector.

mod exposition;
mod families;
mod listener;
#[cfg(feature = "otlp")]
mod otlp;
#[cfg(not(feature = "otlp"))]
#[path = "without_otlp.rs"]
mod otlp;
mod summary;
mod text;

pub(crate) use listener::{Listener, note};
pub(crate) use otlp::{Exporter, Settings};
pub(crate) use summary::{Connections, Http3Summary, ServerSummary, Summary};
