//! Everything that `/metrics` says. docs/metrics.md says what it means; a test holds the two together.

use std::sync::atomic::Ordering;

use sealion_http::Status;
use sealion_tls::{AlertDescription, Path};

use super::page::Page;
use crate::exchange::Shared;
use crate::observe::metrics::{BUCKETS, Counter, Deadline, ErrorKind, HandshakeFailure, Histogram, SUITES, WorkerMetrics};
use crate::path::costs::Origin;
use crate::path::offer::combinations;
use crate::path::policy::{Offer, PathReason};
use crate::values::Phase;

/// The page.
pub(super) fn render(shared: &Shared) -> String {
    let scrape = Scrape { shared, workers: shared.metrics.workers() };
    let mut page = Page::default();
    scrape.process(&mut page);
    scrape.connections(&mut page);
    scrape.handshakes(&mut page);
    scrape.responses(&mut page);
    scrape.kernel_path(&mut page);
    scrape.trouble(&mut page);
    scrape.kernel_counters(&mut page);
    page.finish()
}

struct Scrape<'a> {
    shared: &'a Shared,
    workers: Vec<&'static WorkerMetrics>,
}

impl Scrape<'_> {
    fn sum(&self, counter: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        // Levels of workers are whole, their sum too.
        self.workers.iter().fold(0, |sum, worker| sum.wrapping_add(counter(worker)))
    }

    fn count(&self, counter: impl Fn(&WorkerMetrics) -> &Counter) -> u64 {
        self.sum(|worker| counter(worker).get())
    }

    fn histogram(&self, histogram: impl Fn(&WorkerMetrics) -> &Histogram) -> ([u64; BUCKETS], u64) {
        let mut sum = ([0; BUCKETS], 0);
        for worker in &self.workers {
            let (buckets, nanoseconds) = histogram(worker).get();
            sum.0.iter_mut().zip(buckets).for_each(|(sum, count)| *sum += count);
            sum.1 += nanoseconds;
        }
        sum
    }

    fn process(&self, page: &mut Page) {
        let metrics = &self.shared.metrics;
        let process = &metrics.process;
        page.gauge("sealion_build_info", "The version that runs; always 1.")
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1);
        page.gauge("process_start_time_seconds", "When the process started, in seconds since 1970.")
            .value(metrics.started_at);
        page.counter("process_cpu_seconds_total", "Processor time in user space and in the kernel.")
            .value(process.cpu_seconds());
        if let Some(bytes) = process.resident_bytes() {
            page.gauge("process_resident_memory_bytes", "Memory in use.").value(bytes);
        }
        if let Some(count) = process.open_descriptors() {
            page.gauge("process_open_fds", "File descriptors in use.").value(count);
        }
        if let Some(count) = process.most_descriptors() {
            page.gauge("process_max_fds", "File descriptors that may be in use.").value(count);
        }
        page.gauge("sealion_workers", "Worker threads.").value(self.workers.len());
        let draining = *self.shared.phase.borrow() != Phase::Serving;
        page.gauge("sealion_draining", "1 if the server takes no new connections and ends.").value(u8::from(draining));
        let number = self.shared.generations.number();
        page.gauge("sealion_config_generation", "Configurations taken over since the start.").value(number);
        page.counter("sealion_config_reloads_refused_total", "Reloads that were refused because something was wrong.")
            .value(metrics.reloads_refused.load(Ordering::Relaxed));
        page.gauge("sealion_config_last_reload_success", "0 if the last reload was refused.")
            .value(1 - metrics.last_reload_refused.load(Ordering::Relaxed));
        page.gauge("sealion_config_last_reload_timestamp_seconds", "When the last reload was tried; 0: never.")
            .value(metrics.reloaded_at.load(Ordering::Relaxed));
    }

    fn connections(&self, page: &mut Page) {
        page.counter("sealion_connections_accepted_total", "Connections taken from the listening sockets.")
            .value(self.count(|w| &w.accepted));
        page.counter(
            "sealion_accept_errors_total",
            "Failures to take a connection, for want of descriptors or memory.",
        )
        .value(self.count(|w| &w.accept_errors));
        page.counter(
            "sealion_proxy_protocol_refused_total",
            "Connections closed because their PROXY protocol header is missing or malformed, or from an address that is not believed.",
        )
        .value(self.shared.proxies_refused.load(Ordering::Relaxed));
        let connections = super::summary::connections(self.shared, &self.workers);
        page.gauge("sealion_connections", "Open connections by what they do.")
            .sample(&[("state", "handshaking")], connections.handshaking)
            .sample(&[("state", "idle")], connections.idle)
            .sample(&[("state", "active")], connections.active)
            .sample(&[("state", "lingering")], connections.lingering);
        page.gauge("sealion_connections_max", "Connections that may be open.").value(connections.most);
    }

    fn handshakes(&self, page: &mut Page) {
        page.counter("sealion_tls_handshakes_total", "Handshakes that succeeded.");
        for n in 0..=SUITES.len() {
            for (resumed, label) in [(0, "no"), (1, "yes")] {
                let count = self.count(|w| &w.handshakes[n][resumed]);
                let (version, suite) = match SUITES.get(n) {
                    Some((sealion_tls::Version::Tls13, suite)) => ("1.3", *suite),
                    Some((sealion_tls::Version::Tls12, suite)) => ("1.2", *suite),
                    None if count == 0 => continue,
                    None => ("other", "other"),
                };
                page.sample(&[("version", version), ("suite", suite), ("resumed", label)], count);
            }
        }
        page.counter("sealion_tls_handshake_failures_total", "Handshakes that failed, by reason.");
        for &failure in HandshakeFailure::ALL {
            page.sample(&[("reason", failure.label())], self.count(|w| &w.handshake_failures[failure as usize]));
        }
        page.histogram(
            "sealion_tls_handshake_duration_seconds",
            "Time from accepting a connection to the end of its handshake.",
            self.histogram(|w| &w.handshake_time),
        );
        page.gauge(
            "sealion_tls_certificate_expiry_timestamp_seconds",
            "When a certificate in use expires, in seconds since 1970.",
        );
        for (n, certificate) in self.shared.generations.latest().certificates.in_use().into_iter().enumerate() {
            let expiry = certificate.facts.not_after.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            page.sample(&[("site", &certificate.site), ("certificate", &n.to_string())], expiry.as_secs());
        }
        page.counter("sealion_tls_key_updates_total", "Changes of keys, by who announced them.")
            .sample(&[("direction", "sent")], self.count(|w| &w.key_updates[0]))
            .sample(&[("direction", "received")], self.count(|w| &w.key_updates[1]));
        page.counter("sealion_tls_alerts_total", "Alerts on established connections.");
        for alert in (0..=u8::MAX).map(AlertDescription) {
            let (sent, received) =
                (self.count(|w| w.alerts_sent.of(alert.0)), self.count(|w| w.alerts_received.of(alert.0)));
            // Of 256 a handful is ever seen.
            for (direction, count) in [("sent", sent), ("received", received)] {
                if count > 0 || alert == AlertDescription::CLOSE_NOTIFY {
                    page.sample(&[("direction", direction), ("alert", &alert.to_string())], count);
                }
            }
        }
    }

    fn responses(&self, page: &mut Page) {
        page.counter("sealion_http_responses_total", "Responses by status.");
        for code in 100..600 {
            let count = self.count(|w| w.statuses.of(code));
            // Those that we send are there before the first, so that its rise is seen.
            if count > 0 || Status::NAMED.iter().any(|status| status.code() == code) {
                page.sample(&[("code", &code.to_string())], count);
            }
        }
        page.counter("sealion_responses_total", "Responses by who sealed them, and why.");
        self.by_reason(page, |worker| &worker.responses);
        page.counter("sealion_response_bytes_total", "Bytes of these responses, heads and bodies, once they are sent.");
        self.by_reason(page, |worker| &worker.response_bytes);
        page.counter(
            "sealion_sent_bytes_total",
            "Bytes of responses given to TCP or the kernel so far, by who seals them.",
        );
        for path in [Path::User, Path::Kernel] {
            page.sample(&[("path", path.as_str())], self.sum(|w| w.progress.sent(path)));
        }
        page.histogram(
            "sealion_http_request_duration_seconds",
            "Time from the end of a request's head to the response's last byte.",
            self.histogram(|w| &w.request_time),
        );
        page.counter("sealion_file_cache_hits_total", "Files found in the workers' caches.")
            .value(self.count(|w| &w.cache_hits));
        page.counter("sealion_file_cache_misses_total", "Files looked for in the file system.")
            .value(self.count(|w| &w.cache_misses));
        page.gauge("sealion_file_cache_entries", "Files in the workers' caches.")
            .value(self.sum(|w| w.cache_entries.load(Ordering::Relaxed)));
        page.gauge("sealion_file_cache_bytes", "Bytes of files in the workers' caches.")
            .value(self.sum(|w| w.cache_bytes.load(Ordering::Relaxed)));
    }

    fn by_reason(&self, page: &mut Page, counters: impl Fn(&WorkerMetrics) -> &[Counter]) {
        for &why in PathReason::ALL {
            let labels = [("path", why.sealed_by().as_str()), ("reason", why.label())];
            page.sample(&labels, self.count(|w| &counters(w)[why as usize]));
        }
        let labels = [("path", "none"), ("reason", "connection-lost")];
        page.sample(&labels, self.count(|w| &counters(w)[PathReason::ALL.len()]));
    }

    fn kernel_path(&self, page: &mut Page) {
        page.histogram(
            "sealion_ktls_set_up_duration_seconds",
            "Time that the kernel took to accept a connection.",
            self.histogram(|w| &w.set_up_time),
        );
        let kernel = &self.shared.kernel;
        let offers: Vec<_> = combinations()
            .map(|(version, aead)| {
                let version_label = if version == sealion_tls::Version::Tls13 { "1.3" } else { "1.2" };
                (version_label, aead.cipher().to_string(), kernel.for_connection(version, aead))
            })
            .collect();
        page.gauge("sealion_ktls_offered", "1 if the kernel seals this version and cipher.");
        for (version, cipher, offer) in &offers {
            let offered = !matches!(offer, Offer::Absent | Offer::NoCipher);
            page.sample(&[("version", version), ("cipher", cipher)], u8::from(offered));
        }
        page.gauge("sealion_ktls_quarantined", "1 if the kernel was seen to seal this version and cipher wrongly.");
        for (version, cipher, offer) in &offers {
            page.sample(&[("version", version), ("cipher", cipher)], u8::from(*offer == Offer::Quarantined));
        }
        let suspended = offers.iter().any(|(_, _, offer)| *offer == Offer::Suspended);
        page.gauge("sealion_ktls_suspended", "1 if the kernel is left alone for a while because it refused.")
            .value(u8::from(suspended));
        let origin = match &self.shared.costs.origin {
            Origin::Calibrated { .. } => "calibrated",
            Origin::Shipped { .. } => "shipped",
        };
        page.gauge("sealion_calibration_info", "Where the costs of the two paths come from; always 1.")
            .sample(&[("origin", origin)], 1);
    }

    fn trouble(&self, page: &mut Page) {
        page.counter("sealion_connection_errors_total", "Established connections that ended other than in order.");
        for &kind in ErrorKind::ALL {
            page.sample(&[("kind", kind.label())], self.count(|w| &w.errors[kind as usize]));
        }
        page.counter("sealion_timeouts_total", "Deadlines that passed.");
        for &deadline in Deadline::ALL {
            page.sample(&[("kind", deadline.label())], self.count(|w| &w.timeouts[deadline as usize]));
        }
        let (written, dropped) = self.shared.access_log.counts();
        page.counter("sealion_access_log_lines_total", "Lines of the access log.")
            .sample(&[("result", "written")], written)
            .sample(&[("result", "dropped")], dropped);
    }

    /// The kernel counts for the whole network namespace. Names as it writes them.
    fn kernel_counters(&self, page: &mut Page) {
        let Some(stat) = self.shared.metrics.process.tls_stat() else { return };
        let is_level = |name: &str| name.starts_with("TlsCurr");
        page.gauge("sealion_kernel_tls_sockets", "Sockets of this network namespace that use kernel TLS now.");
        for (name, value) in stat.iter().filter(|(name, _)| is_level(name)) {
            page.sample(&[("counter", name)], value);
        }
        page.counter(
            "sealion_kernel_tls_events_total",
            "Other counters of the kernel's TLS layer in this network namespace.",
        );
        for (name, value) in stat.iter().filter(|(name, _)| !is_level(name)) {
            page.sample(&[("counter", name)], value);
        }
    }
}
