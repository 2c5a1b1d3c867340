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
#[cfg(all(test, feature = "top"))]
pub(crate) use summary::StoreSummary;
pub(crate) use summary::{Connections, Http3Summary, MirrorSummary, RouteSummary, ServerSummary, Summary};
