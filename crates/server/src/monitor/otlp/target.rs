//! Where the messages of one signal go.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use http::header::{CONTENT_TYPE, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use prost::Message;

use super::Settings;
use crate::exchange::Shared;
use crate::fetch::fetch;

/// The collector's place for a signal.
pub(super) struct Target {
    /// `metrics` or `traces`.
    signal: &'static str,
    pub(super) url: String,
    headers: HeaderMap,
    shared: Weak<Shared>,
    has_failed: bool,
}

impl Target {
    pub(super) fn new(signal: &'static str, settings: &Settings, shared: &Arc<Shared>) -> Self {
        Target {
            signal,
            url: settings.url(signal),
            headers: settings.headers.clone(),
            shared: Arc::downgrade(shared),
            has_failed: false,
        }
    }

    /// `None`: the server has ended.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    /// Sends a message. `rejected`: how many items of it the answer refuses, and why. The first of several failures has a line, and so has the first
    /// success behind them. Returns whether the collector took all.
    pub(super) async fn deliver<Answer: Message + Default>(
        &mut self,
        message: Vec<u8>,
        rejected: impl Fn(Answer) -> Option<(i64, String)>,
    ) -> bool {
        let result = self.post(message).await.and_then(|answer| {
            let answer =
                Answer::decode(answer.as_slice()).map_err(|error| format!("the answer is not of OTLP: {error}"))?;
            match rejected(answer) {
                Some((count, why)) if count > 0 => Err(format!("{count} items were rejected: {why}")),
                _ => Ok(()),
            }
        });
        let Self { signal, url, .. } = &*self;
        match &result {
            Ok(()) if self.has_failed => tracing::info!("otlp: {url} takes {signal} again"),
            Err(error) if !self.has_failed => tracing::warn!(
                "otlp: {url} did not take {signal}: {error}: look at the collector, and at [otlp]; further failures have no line"
            ),
            _ => {}
        }
        if result.is_err()
            && let Some(shared) = self.shared.upgrade()
        {
            shared.metrics.otlp_failures.fetch_add(1, Ordering::Relaxed);
        }
        self.has_failed = result.is_err();
        !self.has_failed
    }

    async fn post(&self, message: Vec<u8>) -> Result<Vec<u8>, String> {
        let mut request = Request::post(&self.url).body(message.into()).map_err(|error| error.to_string())?;
        let fields = request.headers_mut();
        let agent = concat!("sealion/", env!("CARGO_PKG_VERSION"));
        fields.insert(USER_AGENT, HeaderValue::from_static(agent));
        fields.extend(self.headers.clone());
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let response = fetch(request).await?;
        match response.status() {
            status if status.is_success() => Ok(response.into_body()),
            status => Err(format!("status {status}")),
        }
    }
}
