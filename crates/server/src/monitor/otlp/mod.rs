//! The exporter: sends metrics and spans to a collector, from a separate thread, so that a collector that hangs delays
//! no request.
//!
//! ```text
//! settings.rs ([otlp], checked) ─► Exporter ─► signals.rs ─► message.rs ─► target.rs ─► fetch.rs ─► collector
//!                                                 ▲
//!           exposition.rs, the queue of observe/traces
//! ```

mod message;
mod settings;
mod signals;
mod target;

use std::future::pending;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;
use tokio::time::timeout_at;

use crate::exchange::Shared;
use crate::observe::traces::Spans;
use crate::values::random_bits;
pub(crate) use settings::Settings;
use signals::{Metrics, Traces};

/// The sending thread.
pub(crate) struct Exporter {
    /// Takes the deadline of the last message.
    end: oneshot::Sender<Instant>,
    thread: JoinHandle<()>,
}

/// The maximum time for the last messages: the end of the process does not wait longer for a collector that hangs.
const LAST: Duration = Duration::from_secs(2);

impl Exporter {
    /// Sends the current metrics at once and at each interval, and `spans` as they arrive. The thread only holds a weak
    /// reference, so that the server's end does not wait for it.
    ///
    /// # Errors
    /// One line: the thread could not be started.
    pub(crate) fn start(settings: Settings, spans: Option<Spans>, shared: &Arc<Shared>) -> Result<Self, String> {
        let failed = |error| format!("otlp: cannot start: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let resource = message::resource(&settings.service_name, &instance()?);
        let mut metrics = Metrics::new(&settings, resource.clone(), shared);
        let mut traces = spans.map(|spans| Traces::new(&settings, resource, spans, shared));
        let (end, mut ended) = oneshot::channel::<Instant>();
        let run = move || {
            runtime.block_on(async {
                let traced = async {
                    match &mut traces {
                        Some(traces) => traces.repeat().await,
                        None => pending().await,
                    }
                };
                let until = tokio::select! {
                    biased;
                    until = &mut ended => until,
                    () = async { tokio::join!(metrics.repeat(), traced); } => return,
                };
                let Ok(until) = until else { return };
                let until = until.min(Instant::now() + LAST);
                let last = async {
                    tokio::join!(metrics.send(), async {
                        if let Some(traces) = &mut traces {
                            traces.finish().await;
                        }
                    });
                };
                if timeout_at(until.into(), last).await.is_err() {
                    tracing::warn!("otlp: {} took too long: the last metrics and spans are lost", metrics.target.url);
                }
            });
            // Resolving a name may hang.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { end, thread })
    }

    /// Sends the metrics a last time, and all spans, until the deadline at most.
    pub(crate) fn finish(self, until: Instant) {
        // The thread may have ended by a panic.
        let _ = self.end.send(until);
        let _ = self.thread.join();
    }
}

/// The identifier of this process: a random UUID (RFC 9562 §5.4: version 4, variant 10).
fn instance() -> Result<String, String> {
    let bits = random_bits().ok_or("otlp: cannot start: the system provides no random numbers")?;
    let bits = u128::from_be_bytes(bits) & !(0xf000 << 64) & !(3 << 62) | 4 << 76 | 2 << 62;
    let digits = format!("{bits:032x}");
    Ok([&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]].join("-"))
}
