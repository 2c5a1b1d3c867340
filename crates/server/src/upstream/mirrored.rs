//! Shadow requests: copies of requests, whose responses are read and dropped. The client of the first request neither waits for them nor learns of them.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::Upstream;
use super::copy::{CopyReceiver, TooLong};
use super::forward::{Forwarded, forward};
use crate::observe::Warnings;
use crate::observe::access_log::UpstreamTrace;
use crate::response::Source;
use crate::values::labels;

labels! {
    /// The outcome of the copy of a request.
    pub(crate) MirrorOutcome {
        /// A server answered it, with any status.
        Answered = "answered",
        /// No server answered it, its response broke off or took too long, or `request_headers` gave it a value that no field may have.
        Failed = "failed",
        /// As many copies were in progress as may be.
        Busy = "busy",
        /// Its content was too long, or found no memory.
        TooLong = "too-long",
        /// The first server did not take all of its content.
        Incomplete = "incomplete",
    }
}

impl MirrorOutcome {
    /// Whether a server was asked.
    pub(crate) fn was_sent(self) -> bool {
        matches!(self, MirrorOutcome::Answered | MirrorOutcome::Failed)
    }
}

/// Copies by [`MirrorOutcome`].
#[derive(Debug, Default)]
pub(super) struct MirrorCounts([AtomicU64; MirrorOutcome::ALL.len()]);

/// Bounds the shadow requests of a rule.
#[derive(Debug)]
pub(crate) struct MirrorPlaces {
    places: Arc<Semaphore>,
    /// The longest time of one copy, up to the end of its response.
    timeout: Duration,
    /// Lines about copies that no server answered in time.
    warnings: Warnings,
}

impl MirrorPlaces {
    pub(crate) fn new(most: usize, timeout: Duration) -> Self {
        MirrorPlaces { places: Arc::new(Semaphore::new(most)), timeout, warnings: Warnings::default() }
    }
}

impl Upstream {
    /// Lets metrics show that it gets copies of requests.
    pub(crate) fn expect_mirrored(&self) {
        self.mirrored.get_or_init(MirrorCounts::default);
    }

    pub(crate) fn count_mirrored(&self, outcome: MirrorOutcome) {
        let counts = self.mirrored.get_or_init(MirrorCounts::default);
        counts.0[outcome as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Copies of requests by [`MirrorOutcome`]. `None`: no rule copies requests to it.
    pub(crate) fn mirrored(&self) -> Option<[u64; MirrorOutcome::ALL.len()]> {
        let counts = self.mirrored.get()?;
        Some(counts.0.each_ref().map(|count| count.load(Ordering::Relaxed)))
    }
}

/// Sends the copy of a request in a task of its own, when its content is here. `content`: `None` if it has none.
pub(crate) fn mirror(
    upstream: &Arc<Upstream>,
    mut request: Box<Forwarded>,
    content: Option<CopyReceiver>,
    places: &Arc<MirrorPlaces>,
) {
    let (upstream, places) = (Arc::clone(upstream), Arc::clone(places));
    let Some(content) = content else {
        // Without a place, no task is made.
        match Arc::clone(&places.places).try_acquire_owned() {
            Ok(place) => drop(tokio::spawn(send(upstream, request, place, places))),
            Err(_) => upstream.count_mirrored(MirrorOutcome::Busy),
        }
        return;
    };
    tokio::spawn(async move {
        let copied = match content.await {
            Ok(Ok(copied)) => copied,
            Ok(Err(TooLong)) => return upstream.count_mirrored(MirrorOutcome::TooLong),
            Err(_) => return upstream.count_mirrored(MirrorOutcome::Incomplete),
        };
        // A client that sends slowly takes no place meanwhile.
        let Ok(place) = Arc::clone(&places.places).try_acquire_owned() else {
            return upstream.count_mirrored(MirrorOutcome::Busy);
        };
        request.content = Some(copied.content);
        send(upstream, request, place, places).await;
        drop(copied.memory);
    });
}

/// Sends a shadow request, and drops its response.
async fn send(
    upstream: Arc<Upstream>,
    mut request: Box<Forwarded>,
    place: OwnedSemaphorePermit,
    places: Arc<MirrorPlaces>,
) {
    let limit = places.timeout;
    let outcome = match timeout(limit, exchange(&upstream, &mut request)).await {
        Ok((_, Ok(()))) => MirrorOutcome::Answered,
        failed => {
            let line = match failed {
                Ok((UpstreamTrace { server, .. }, Err(error))) if !server.is_empty() => {
                    upstream.line_about(&server, format_args!("{server}: {error}"))
                }
                Ok((_, Err(error))) => places.warnings.line(error, OTHER_COPIES),
                _ => {
                    let what = format_args!("the answer did not end within {} s", limit.as_secs_f32());
                    places.warnings.line(what, OTHER_COPIES)
                }
            };
            if let Some(line) = line {
                tracing::warn!("upstream {}: the copy of a request failed: {line}", upstream.name);
            }
            MirrorOutcome::Failed
        }
    };
    drop(place);
    upstream.count_mirrored(outcome);
}

const OTHER_COPIES: &str = "other copies failed since the last line";

/// Reads a response to its end.
async fn exchange(upstream: &Arc<Upstream>, request: &mut Forwarded) -> (UpstreamTrace, Result<(), String>) {
    let (trace, result) = forward(upstream, request).await;
    let mut content: Pin<Box<dyn Source>> = match result {
        Ok(reply) => reply.body.into(),
        Err(failure) => return (trace, Err(failure.to_string())),
    };
    while let Some(piece) = poll_fn(|cx| content.as_mut().poll_piece(cx)).await {
        if let Err(error) = piece {
            return (trace, Err(error.to_string()));
        }
    }
    (trace, Ok(()))
}
