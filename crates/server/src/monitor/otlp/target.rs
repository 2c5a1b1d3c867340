//! The destination for messages of one signal.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::header::{CONTENT_TYPE, RETRY_AFTER, USER_AGENT};
use http::{HeaderMap, HeaderValue, Request};
use prost::Message;
use tokio_rustls::TlsConnector;

use super::Settings;
use crate::exchange::Shared;
use crate::fetch::fetch;
use crate::values::one_line;

/// The outcome of a message.
pub(super) enum Delivery {
    Taken,
    /// It was rejected, and would be rejected again.
    Refused,
    /// It may be accepted later: after this time, if the collector states one
    /// (<https://opentelemetry.io/docs/specs/otlp/#failures-1>).
    Later(Option<Duration>),
}

/// The reason why a message was not accepted, and its outcome.
type Failure = (String, Delivery);

fn refused(why: String) -> Failure {
    (why, Delivery::Refused)
}

/// The collector's endpoint for a signal.
pub(super) struct Target {
    /// `metrics` or `traces`.
    signal: &'static str,
    pub(super) url: String,
    tls: Option<TlsConnector>,
    headers: HeaderMap,
    shared: Weak<Shared>,
    has_failed: bool,
}

impl Target {
    pub(super) fn new(signal: &'static str, settings: &Settings, shared: &Arc<Shared>) -> Self {
        Target {
            signal,
            url: settings.url(signal),
            tls: settings.tls.clone(),
            headers: settings.headers.clone(),
            shared: Arc::downgrade(shared),
            has_failed: false,
        }
    }

    /// `None`: the server has ended.
    pub(super) fn shared(&self) -> Option<Arc<Shared>> {
        self.shared.upgrade()
    }

    /// Sends a message. `rejected`: the number of items that the response rejects, and the reason. The first of several
    /// failures is logged, and so is the first success after them.
    pub(super) async fn deliver<Answer: Message + Default>(
        &mut self,
        message: Vec<u8>,
        rejected: impl Fn(Answer) -> Option<(i64, String)>,
    ) -> Delivery {
        let result = self.post(message).await.and_then(|answer| {
            let answer = Answer::decode(answer.as_slice())
                .map_err(|error| refused(format!("the response is not OTLP: {error}")))?;
            match rejected(answer) {
                Some((count, why)) if count > 0 => {
                    Err(refused(format!("{count} items were rejected: {}", one_line(&why))))
                }
                _ => Ok(()),
            }
        });
        let Self { signal, url, .. } = &*self;
        match &result {
            Ok(()) if self.has_failed => tracing::info!("otlp: {url} takes {signal} again"),
            Err((error, _)) if !self.has_failed => tracing::warn!(
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
        match result {
            Ok(()) => Delivery::Taken,
            Err((_, delivery)) => delivery,
        }
    }

    async fn post(&self, message: Vec<u8>) -> Result<Vec<u8>, Failure> {
        let request = Request::post(&self.url).body(message.into());
        let mut request = request.map_err(|error| refused(error.to_string()))?;
        let fields = request.headers_mut();
        let agent = concat!("sealion/", env!("CARGO_PKG_VERSION"));
        fields.insert(USER_AGENT, HeaderValue::from_static(agent));
        fields.extend(self.headers.clone());
        fields.insert(CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf"));
        let response = fetch(request, self.tls.as_ref()).await.map_err(|error| (error, Delivery::Later(None)))?;
        let status = response.status();
        match status.as_u16() {
            200..300 => Ok(response.into_body()),
            429 | 502 | 503 | 504 => {
                let seconds = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
                Err((format!("status {status}"), Delivery::Later(seconds.map(Duration::from_secs))))
            }
            _ => Err(refused(format!("status {status}"))),
        }
    }
}
