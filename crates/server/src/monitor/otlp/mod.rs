//! The exporter: sends the metrics to a collector, from a thread of its own, so that a collector that hangs delays no request.
//!
//! ```text
//! settings.rs ([otlp], checked) ─► Exporter ─► exposition.rs ─► message.rs ─► fetch.rs ─► collector
//! ```

mod message;
mod settings;

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use aws_lc_rs::rand;
use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderValue, Request};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::sync::oneshot;
use tokio::time::{MissedTickBehavior, interval, timeout_at};

use super::exposition;
use crate::exchange::Shared;
use crate::fetch::fetch;
use message::Times;
pub(crate) use settings::Settings;

/// The thread that sends.
pub(crate) struct Exporter {
    /// Takes the time at which the last message has to be over.
    end: oneshot::Sender<Instant>,
    thread: JoinHandle<()>,
}

/// Most time for the last message: the end of the process does not wait longer for a collector that hangs.
const LAST: Duration = Duration::from_secs(2);

impl Exporter {
    /// Sends the metrics of this moment, then those of each interval. The thread holds a weak reference only, so that the server's end does not
    /// wait for it.
    ///
    /// # Errors
    /// A line: the thread could not be started.
    pub(crate) fn start(settings: Settings, shared: &Arc<Shared>) -> Result<Self, String> {
        let failed = |error| format!("otlp: cannot start: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let mut sender = Sender::new(settings, shared)?;
        let (end, mut ended) = oneshot::channel::<Instant>();
        let run = move || {
            runtime.block_on(async {
                let until = tokio::select! {
                    biased;
                    until = &mut ended => until,
                    () = sender.repeat() => return,
                };
                if let Ok(until) = until {
                    let until = until.min(Instant::now() + LAST);
                    if timeout_at(until.into(), sender.send()).await.is_err() {
                        tracing::warn!("otlp: {} took too long: the last metrics are lost", sender.url);
                    }
                }
            });
            // Resolving a name may hang.
            runtime.shutdown_background();
        };
        let thread = std::thread::Builder::new().name("otlp".to_owned()).spawn(run).map_err(failed)?;
        Ok(Self { end, thread })
    }

    /// Sends the metrics a last time, until then at most.
    pub(crate) fn finish(self, until: Instant) {
        // It may have ended by a panic.
        let _ = self.end.send(until);
        let _ = self.thread.join();
    }
}

struct Sender {
    settings: Settings,
    url: String,
    resource: Resource,
    shared: Weak<Shared>,
    /// In nanoseconds since 1970.
    start: u64,
    has_failed: bool,
}

impl Sender {
    fn new(settings: Settings, shared: &Arc<Shared>) -> Result<Self, String> {
        let mut random = [0; 16];
        rand::fill(&mut random).map_err(|_| "otlp: cannot start: there are no random numbers")?;
        // RFC 9562 §5.4: version 4, variant 10.
        let random = u128::from_be_bytes(random) & !(0xf000 << 64) & !(3 << 62) | 4 << 76 | 2 << 62;
        let digits = format!("{random:032x}");
        let groups = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
        let resource = message::resource(&settings.service_name, &groups.join("-"));
        let start = (shared.metrics.started_at * 1e9) as u64;
        let url = settings.url("metrics");
        Ok(Self { settings, url, resource, shared: Arc::downgrade(shared), start, has_failed: false })
    }

    /// Sends at each interval until the server has ended.
    async fn repeat(&mut self) {
        let mut ticks = interval(self.settings.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.shared.strong_count() == 0 {
                return;
            }
            self.send().await;
        }
    }

    /// Sends the metrics of this moment. The first of several failures has a line, and so has the first success behind them.
    async fn send(&mut self) {
        let Some(content) = self.message() else { return };
        match self.post(content).await {
            Ok(()) if self.has_failed => {
                self.has_failed = false;
                tracing::info!("otlp: {} takes metrics again", self.url);
            }
            Ok(()) => {}
            Err(error) => {
                if let Some(shared) = self.shared.upgrade() {
                    shared.metrics.otlp_failures.fetch_add(1, Ordering::Relaxed);
                }
                if !self.has_failed {
                    let pause = self.settings.interval.as_secs_f32();
                    tracing::warn!(
                        "otlp: {} did not take metrics: {error}: look at the collector, and at [otlp]; the next try is in {pause} s, and further failures have no line",
                        self.url
                    );
                }
                self.has_failed = true;
            }
        }
    }

    /// `None`: the server has ended.
    fn message(&self) -> Option<Vec<u8>> {
        let families = exposition::collect(&*self.shared.upgrade()?);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        Some(message::metrics(families, Times { start: self.start, now }, &self.resource).encode_to_vec())
    }

    async fn post(&self, content: Vec<u8>) -> Result<(), String> {
        let mut request = Request::post(&self.url).body(content.into()).map_err(|error| error.to_string())?;
        let fields = request.headers_mut();
        let agent = concat!("sealion/", env!("CARGO_PKG_VERSION"));
        fields.insert(USER_AGENT, HeaderValue::from_static(agent));
        fields.extend(self.settings.headers.clone());
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let response = fetch(request).await?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()));
        }
        let answer = ExportMetricsServiceResponse::decode(response.body().as_slice())
            .map_err(|error| format!("the answer is not of OTLP: {error}"))?;
        match answer.partial_success {
            Some(part) if part.rejected_data_points > 0 => {
                Err(format!("{} values were rejected: {}", part.rejected_data_points, part.error_message))
            }
            _ => Ok(()),
        }
    }
}
