//! Replaces `otlp/` in a program without the feature `otlp`: rejects `[otlp]`.

use std::sync::Arc;
use std::time::Instant;

use crate::exchange::Shared;
use crate::observe::otlp::OtlpConfig;
use crate::observe::traces::Tracer;
use crate::values::{Problems, features};

pub(crate) enum Settings {}

pub(crate) enum Exporter {}

impl Settings {
    /// Always `None`; a table with an endpoint is reported in `problems`.
    pub(crate) fn new(config: &OtlpConfig, problems: &mut Problems) -> Option<Self> {
        if *config != OtlpConfig::default() {
            let span = config.endpoint.as_ref().map_or(0..0, |endpoint| endpoint.span.clone());
            let instead = "remove [otlp], and have metrics.listen scraped instead";
            problems.add(&span, "otlp.endpoint", features::left_out("otlp", instead));
        }
        None
    }

    pub(crate) fn tracer(&self) -> Option<(Tracer, Spans)> {
        match *self {}
    }
}

/// Spans to send: none.
pub(crate) enum Spans {}

impl Exporter {
    pub(crate) fn start(settings: Settings, _: Option<Spans>, _: &Arc<Shared>) -> Result<Self, String> {
        match settings {}
    }

    pub(crate) fn finish(self, _: Instant) {
        match self {}
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_collector_is_refused_with_what_to_do() {
        for table in ["endpoint = 'http://127.0.0.1:4318'", "sample = 0.5"] {
            let mut problems = Problems::of_file(Path::new("sealion.toml"), "");
            assert!(Settings::new(&toml::from_str(table).unwrap(), &mut problems).is_none());
            let text = problems.to_string();
            assert!(text.contains("otlp.endpoint") && text.contains("without the feature `otlp`"), "{text}");
            assert!(text.contains("metrics.listen"), "{text}");
        }
        let mut problems = Problems::of_file(Path::new("sealion.toml"), "");
        assert!(Settings::new(&OtlpConfig::default(), &mut problems).is_none() && problems.is_empty());
    }
}
