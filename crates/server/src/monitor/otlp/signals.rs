//! Decides when to send metrics and spans.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, SystemTime};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceResponse;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tokio::sync::mpsc::error::TryRecvError;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

use super::Settings;
use super::message::{self, Times};
use super::target::{Delivery, Target};
use crate::exchange::Shared;
use crate::monitor::exposition;
use crate::observe::traces::{Finished, Spans};

/// The metrics of the process.
pub(super) struct Metrics {
    pub(super) target: Target,
    resource: Resource,
    interval: Duration,
    /// The start in nanoseconds since 1970.
    start: u64,
}

impl Metrics {
    pub(super) fn new(settings: &Settings, resource: Resource, shared: &Arc<Shared>) -> Self {
        let start = (shared.metrics.started_at * 1e9) as u64;
        Metrics { target: Target::new("metrics", settings, shared), resource, interval: settings.interval, start }
    }

    /// Sends at each interval until the server has ended.
    pub(super) async fn repeat(&mut self) {
        let mut ticks = interval(self.interval);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            if self.target.shared().is_none() {
                return;
            }
            self.send().await;
        }
    }

    /// Sends the current metrics. A message that the collector does not accept is not repeated, because the next
    /// message has the same counters.
    pub(super) async fn send(&mut self) {
        let Some(shared) = self.target.shared() else { return };
        let families = exposition::collect(&shared);
        drop(shared);
        let times = Times { start: self.start, now: message::nanoseconds(SystemTime::now()) };
        let content = message::metrics(families, times, &self.resource).encode_to_vec();
        let rejected = |answer: ExportMetricsServiceResponse| {
            answer.partial_success.map(|part| (part.rejected_data_points, part.error_message))
        };
        self.target.deliver(content, rejected).await;
    }
}

/// The maximum number of spans in a message.
const BATCH: usize = 512;

/// How long a message waits for more spans.
const BATCH_WAIT: Duration = Duration::from_secs(1);

/// The maximum number of tries for a message with spans.
const TRIES: u32 = 5;

/// The pause after the first try. It doubles with each try, or follows the collector's request up to [`MAX_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_secs(1);

/// The maximum pause. Spans in the queue may be lost meanwhile.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The spans of requests.
pub(super) struct Traces {
    target: Target,
    resource: Resource,
    queue: Spans,
    /// Spans of the current or the next message.
    batch: Vec<Finished>,
}

impl Traces {
    pub(super) fn new(settings: &Settings, resource: Resource, queue: Spans, shared: &Arc<Shared>) -> Self {
        Traces { target: Target::new("traces", settings, shared), resource, queue, batch: Vec::new() }
    }

    /// Sends spans in batches until the server has ended.
    pub(super) async fn repeat(&mut self) {
        while self.queue.recv_many(&mut self.batch, BATCH).await > 0 {
            let until = Instant::now() + BATCH_WAIT;
            while self.batch.len() < BATCH {
                let room = BATCH - self.batch.len();
                match timeout_at(until, self.queue.recv_many(&mut self.batch, room)).await {
                    Ok(1..) => {}
                    Ok(0) | Err(_) => break,
                }
            }
            self.send(TRIES).await;
        }
    }

    /// Sends all waiting spans.
    pub(super) async fn finish(&mut self) {
        loop {
            while self.batch.len() < BATCH {
                match self.queue.try_recv() {
                    Ok(span) => self.batch.push(span),
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
                }
            }
            if self.batch.is_empty() || !self.send(1).await {
                return;
            }
        }
    }

    /// Sends the batch, with at most `tries` tries. Spans that the collector does not accept are lost and counted,
    /// because new spans keep arriving.
    async fn send(&mut self, tries: u32) -> bool {
        let content = message::spans(&self.batch, &self.resource).encode_to_vec();
        let rejected = |answer: ExportTraceServiceResponse| {
            answer.partial_success.map(|part| (part.rejected_spans, part.error_message))
        };
        let mut pause = FIRST_PAUSE;
        let mut tried = 1;
        let is_taken = loop {
            match self.target.deliver(content.clone(), rejected).await {
                Delivery::Taken => break true,
                Delivery::Later(wish) if tried < tries => {
                    tokio::time::sleep(wish.unwrap_or(pause).min(MAX_PAUSE)).await;
                    (pause, tried) = (pause * 2, tried + 1);
                }
                Delivery::Refused | Delivery::Later(_) => break false,
            }
        };
        if !is_taken && let Some(shared) = self.target.shared() {
            shared.metrics.otlp_dropped.fetch_add(self.batch.len() as u64, Ordering::Relaxed);
        }
        self.batch.clear();
        is_taken
    }
}
