//! The table `[otlp]`, checked.

use std::path::PathBuf;
use std::time::Duration;

use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING};
use http::uri::Scheme;
use http::{HeaderMap, HeaderName, HeaderValue, Uri};
use tokio_rustls::TlsConnector;

use crate::observe::otlp::OtlpConfig;
use crate::observe::traces::{Spans, Tracer};
use crate::tls_client;
use crate::values::{At, Problems, SecretUrl};

/// The destination of metrics and spans, and the interval.
pub(crate) struct Settings {
    /// The URL without a trailing slash.
    endpoint: String,
    /// The TLS configuration for `https`.
    pub(super) tls: Option<TlsConnector>,
    pub(super) headers: HeaderMap,
    pub(super) interval: Duration,
    pub(super) service_name: String,
    sample: f64,
}

/// Header fields that the exporter sets itself.
const OWN: [HeaderName; 5] = [CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, HOST, TRANSFER_ENCODING];

impl Settings {
    /// `None` without an endpoint, or with problems.
    pub(crate) fn new(config: &OtlpConfig, problems: &mut Problems) -> Option<Self> {
        let before = problems.len();
        let mut headers = HeaderMap::new();
        for (name, value) in &config.headers.value {
            let mut refuse = |what: &str| {
                problems.add(&config.headers.span, "otlp.headers", format_args!("{name:?}: {what}"));
            };
            match (name.parse::<HeaderName>(), HeaderValue::from_str(value.reveal())) {
                (Err(_), _) => {
                    refuse("no name of a header field has these characters: write one such as Authorization")
                }
                (_, Err(_)) => refuse("its value has characters that no header field may have: write visible ones"),
                (Ok(name), _) if OWN.contains(&name) => refuse("each request has it already: remove it"),
                (Ok(name), Ok(mut value)) => {
                    value.set_sensitive(true);
                    headers.insert(name, value);
                }
            }
        }
        if config.service_name.is_empty() {
            let what = "is empty: write a name that tells this service from others at the collector";
            problems.add(&config.service_name.span, "otlp.service_name", what);
        }
        if !(0.0..=1.0).contains(&config.sample.value) {
            let what = "is not a share of requests: write a number from 0 to 1, such as 0.01";
            problems.add(&config.sample.span, "otlp.sample", what);
        }
        let Some(endpoint) = &config.endpoint else {
            if *config != OtlpConfig::default() {
                let what = "is missing, so that nothing is sent: name a collector, such as \"http://127.0.0.1:4318\", or remove [otlp]";
                problems.add(&config.headers.span, "otlp.endpoint", what);
            }
            return None;
        };
        let is_https = check(endpoint).unwrap_or_else(|what| {
            problems.add(&endpoint.span, "otlp.endpoint", what);
            false
        });
        if let Some(file) = config.roots.as_ref().filter(|_| !is_https) {
            let what = "unused with a collector without TLS: write https in otlp.endpoint, or remove it";
            problems.add(&file.span, "otlp.roots", what);
        }
        let tls = is_https.then(|| connector(config.roots.as_ref(), problems)).flatten();
        let endpoint = endpoint.reveal().trim_end_matches('/').to_owned();
        let interval = config.interval.duration();
        let service_name = config.service_name.value.clone();
        let sample = config.sample.value;
        (problems.len() == before).then_some(Self { endpoint, tls, headers, interval, service_name, sample })
    }

    /// The tracer, and the queue of its spans. `None`: spans are off.
    pub(crate) fn tracer(&self) -> Option<(Tracer, Spans)> {
        (self.sample > 0.0).then(|| Tracer::new(self.sample))
    }

    /// The URL of a signal: `metrics` or `traces`.
    pub(super) fn url(&self, signal: &str) -> String {
        format!("{}/v1/{signal}", self.endpoint)
    }
}

/// The TLS configuration that verifies the collector. `None`: the error is in `problems`.
fn connector(roots: Option<&At<PathBuf>>, problems: &mut Problems) -> Option<TlsConnector> {
    let file = roots.map(|file| problems.resolve(file));
    let made = tls_client::connector(file.as_deref());
    made.map_err(|error| problems.add(&roots.map_or(0..0, |file| file.span.clone()), "otlp.roots", error)).ok()
}

/// Whether requests are sent to this URL with TLS.
///
/// # Errors
/// Requests cannot be sent to it; the message contains the remedy.
fn check(endpoint: &SecretUrl) -> Result<bool, String> {
    let example = "write one such as \"http://127.0.0.1:4318\"";
    let url: Uri =
        endpoint.reveal().parse().map_err(|error| format!("{endpoint:?} is not a URL: {error}: {example}"))?;
    let is_https = url.scheme() == Some(&Scheme::HTTPS);
    let Some(authority) = url.authority().filter(|_| is_https || url.scheme() == Some(&Scheme::HTTP)) else {
        return Err(format!("{endpoint:?} is not an http or https URL: {example}"));
    };
    if authority.as_str().contains('@') {
        return Err("the URL has a password: set Authorization in otlp.headers instead".to_owned());
    }
    if url.query().is_some() {
        return Err(format!("the URL has a query, after which no path can follow: {example}"));
    }
    Ok(is_https)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn settings(text: &str) -> Result<Option<Settings>, String> {
        let mut problems = Problems::of_file(Path::new("x.toml"), text);
        let settings = Settings::new(&toml::from_str(text).unwrap(), &mut problems);
        if problems.is_empty() { Ok(settings) } else { Err(problems.to_string()) }
    }

    #[test]
    fn paths_of_signals_go_beneath_the_endpoint() {
        for (endpoint, url) in [
            ("http://127.0.0.1:4318", "http://127.0.0.1:4318/v1/metrics"),
            ("http://[::1]:4318/", "http://[::1]:4318/v1/metrics"),
            ("http://collector/otlp/", "http://collector/otlp/v1/metrics"),
        ] {
            let settings = settings(&format!("endpoint = '{endpoint}'")).unwrap().unwrap();
            assert_eq!(settings.url("metrics"), url);
        }
        assert!(settings("").unwrap().is_none());
    }

    #[test]
    fn what_cannot_be_honoured_is_refused() {
        for (text, words) in [
            ("endpoint = 'https://127.0.0.1:4318'\nroots = 'missing.pem'", "missing.pem: "),
            ("endpoint = 'http://127.0.0.1:4318'\nroots = 'x.pem'", "otlp.roots: unused"),
            ("endpoint = '127.0.0.1:4318'", "http://127.0.0.1:4318"),
            ("endpoint = 'grpc://127.0.0.1:4317'", "not an http or https URL"),
            ("endpoint = 'http://a:b@c'", "otlp.headers"),
            ("endpoint = 'http://a/?b'", "query"),
            ("interval = '10s'", "otlp.endpoint: is missing"),
            ("endpoint = 'http://a'\nheaders = { 'a b' = 'c' }", "no name of a header field"),
            ("endpoint = 'http://a'\nheaders = { host = 'c' }", "has it already"),
            ("endpoint = 'http://a'\nheaders = { a = \"hidden\\n\" }", "visible"),
            ("endpoint = 'http://a'\nservice_name = ''", "is empty"),
            ("endpoint = 'http://a'\nsample = 1.5", "from 0 to 1"),
            ("endpoint = 'http://a'\nsample = nan", "from 0 to 1"),
        ] {
            let error = settings(text).err().unwrap_or_else(|| panic!("{text} is taken"));
            assert!(error.contains(words) && !error.contains("hidden"), "{text}: {error}");
        }
    }
}
