//! The metrics: the content of `/metrics` and of OTLP messages. A test checks that docs/metrics.md explains every
//! metric.

use std::sync::atomic::Ordering;

use sealion_http::Status;
use sealion_tls::{AlertDescription, SealedBy};

use super::families::{Families, Family};
use crate::exchange::Shared;
use crate::observe::access_log::CacheOutcome;
use crate::observe::messages;
use crate::observe::metrics::{
    self, Counter, DIRECTIONS, Deadline, Durations, ErrorKind, HandshakeFailure, Histogram, PROTOCOLS, SIDES, SUITES,
    SiteNumber, StreamMetrics, StreamResult, WorkerMetrics,
};
use crate::path::costs::Origin;
use crate::path::offer::combinations;
use crate::path::policy::{Offer, PathReason};
use crate::store::DiskState;
use crate::upstream::{AdminState, CLASSES, FailureKind, MirrorOutcome};

/// The current metrics.
pub(super) fn collect(shared: &Shared) -> Vec<Family> {
    let scrape = Scrape { shared, workers: shared.metrics.workers() };
    let mut page = Families::default();
    scrape.process(&mut page);
    scrape.messages(&mut page);
    scrape.connections(&mut page);
    scrape.handshakes(&mut page);
    scrape.responses(&mut page);
    scrape.http2(&mut page);
    scrape.http3(&mut page);
    scrape.upstreams(&mut page);
    scrape.store(&mut page);
    scrape.kernel_path(&mut page);
    scrape.trouble(&mut page);
    scrape.kernel_counters(&mut page);
    page.finish()
}

type OfDisk = (&'static str, &'static str, fn(&DiskState) -> u64);

const GAUGES_OF_DISKS: [OfDisk; 4] = [
    ("sealion_cache_objects", "Stored responses.", |disk| disk.objects),
    ("sealion_cache_disk_bytes", "Bytes that stored responses take on the disk.", |disk| disk.bytes),
    ("sealion_cache_index_bytes", "Memory that the index of stored responses takes.", |disk| disk.index_bytes),
    ("sealion_cache_up", "1 if responses are stored, 0 after a failure of the disk.", |disk| disk.is_up.into()),
];

const COUNTERS_OF_DISKS: [OfDisk; 6] = [
    ("sealion_cache_stored_total", "Responses that were stored.", |disk| disk.stored),
    ("sealion_cache_evicted_total", "Responses that were removed to make room.", |disk| disk.evicted),
    ("sealion_cache_failures_total", "Failures of the disk.", |disk| disk.failures),
    ("sealion_cache_variants_removed_total", "Responses that were removed because their URL had too many.", |disk| {
        disk.variants_removed
    }),
    ("sealion_cache_slices_changed_total", "Responses that changed while their slices were fetched.", |disk| {
        disk.slices_changed
    }),
    ("sealion_cache_dropped_total", "Responses that were not stored because the disk writes too slowly.", |disk| {
        disk.dropped
    }),
];

struct Scrape<'a> {
    shared: &'a Shared,
    workers: Vec<&'static WorkerMetrics>,
}

impl Scrape<'_> {
    fn sum(&self, counter: impl Fn(&WorkerMetrics) -> u64) -> u64 {
        // Wraps, because a level may decrease between two reads.
        self.workers.iter().fold(0, |sum, worker| sum.wrapping_add(counter(worker)))
    }

    fn count(&self, counter: impl Fn(&WorkerMetrics) -> &Counter) -> u64 {
        self.sum(|worker| counter(worker).get())
    }

    fn histogram(&self, histogram: impl Fn(&WorkerMetrics) -> &Histogram) -> Durations {
        self.workers.iter().map(|worker| histogram(worker).get()).sum()
    }

    fn upstreams(&self, page: &mut Families) {
        let generation = self.shared.generations.latest();
        let upstreams = generation.upstreams.iter();
        let servers: Vec<_> =
            upstreams.flat_map(|upstream| upstream.servers().map(|server| (&*upstream.name, server))).collect();
        if servers.is_empty() {
            return;
        }
        page.counter("sealion_upstream_answers_total", "Answers of servers by class of status.");
        for (upstream, server) in &servers {
            for (class, count) in CLASSES.into_iter().zip(server.counted.answers) {
                page.sample(&[("upstream", upstream), ("server", server.name), ("class", class)], count);
            }
        }
        page.counter("sealion_upstream_failures_total", "Failed tries of requests to a server.");
        for (upstream, server) in &servers {
            for (kind, count) in FailureKind::ALL.iter().zip(server.counted.failures) {
                page.sample(&[("upstream", upstream), ("server", server.name), ("kind", kind.label())], count);
            }
        }
        page.counter("sealion_upstream_connections_total", "Connections to servers that were opened, or tried to be.");
        for (upstream, server) in &servers {
            page.sample(&[("upstream", upstream), ("server", server.name)], server.counted.connections);
        }
        page.histograms(
            "sealion_upstream_answer_duration_seconds",
            "Time from sending a request to the head of the server's answer.",
        );
        for (upstream, server) in &servers {
            page.durations(&[("upstream", upstream), ("server", server.name)], server.counted.times.clone());
        }
        page.counter("sealion_upstream_received_bytes_total", "Bytes of the contents of answers.");
        for (upstream, server) in &servers {
            page.sample(&[("upstream", upstream), ("server", server.name)], server.counted.received);
        }
        page.counter(
            "sealion_upstream_piped_bytes_total",
            "Bytes of these contents that passed to the client by a pipe, without being read.",
        );
        for (upstream, server) in &servers {
            page.sample(&[("upstream", upstream), ("server", server.name)], server.counted.piped);
        }
        page.gauge("sealion_upstream_active", "Requests that a server is answering.");
        for (upstream, server) in &servers {
            page.sample(&[("upstream", upstream), ("server", server.name)], server.active);
        }
        page.gauge("sealion_upstream_up", "1 if the server gets requests, 0 if it is left out.");
        for (upstream, server) in &servers {
            page.sample(&[("upstream", upstream), ("server", server.name)], u8::from(server.is_up));
        }
        page.gauge("sealion_upstream_draining", "1 if the server gets no new clients by configuration or order.");
        for (upstream, server) in &servers {
            let drains = server.state == AdminState::Drain;
            page.sample(&[("upstream", upstream), ("server", server.name)], u8::from(drains));
        }
        let upstreams = generation.upstreams.iter();
        let mirrors: Vec<_> = upstreams.filter_map(|upstream| Some((&upstream.name, upstream.mirrored()?))).collect();
        if !mirrors.is_empty() {
            page.counter("sealion_mirrored_requests_total", "Copies of requests, by the upstream they are for.");
        }
        for (upstream, counts) in mirrors {
            for (outcome, count) in MirrorOutcome::ALL.iter().zip(counts) {
                page.sample(&[("upstream", upstream), ("outcome", outcome.label())], count);
            }
        }
    }

    fn store(&self, page: &mut Families) {
        let Some(store) = self.shared.generations.latest().store.clone() else { return };
        page.counter("sealion_cache_requests_total", "Requests that met the cache of responses, by outcome.");
        for (n, outcome) in CacheOutcome::ALL.iter().enumerate() {
            page.sample(&[("outcome", outcome.label())], self.count(|w| &w.reused[n]));
        }
        page.counter("sealion_cache_body_bytes_total", "Bytes of bodies sent for these requests.");
        for (n, outcome) in CacheOutcome::ALL.iter().enumerate() {
            page.sample(&[("outcome", outcome.label())], self.count(|w| &w.reused_bytes[n]));
        }
        page.counter("sealion_cache_collapsed_total", "Requests that shared the fetch of another.")
            .value(self.count(|w| &w.collapsed));
        if let Some(stream) = store.stream_state() {
            page.gauge("sealion_cache_purge_stream_up", "1 if purges of other nodes are read, 0 without a connection.")
                .value(u8::from(stream.is_connected));
            page.gauge("sealion_cache_purge_stream_lag_seconds", "Time since all purges of other nodes were applied.")
                .value(stream.lag);
        }
        let disks: Vec<_> = store.disk_states().collect();
        for (name, help, value) in GAUGES_OF_DISKS {
            page.gauge(name, help);
            for disk in &disks {
                page.sample(&[("directory", &disk.directory)], value(disk));
            }
        }
        for (name, help, value) in COUNTERS_OF_DISKS {
            page.counter(name, help);
            for disk in &disks {
                page.sample(&[("directory", &disk.directory)], value(disk));
            }
        }
    }

    fn process(&self, page: &mut Families) {
        let metrics = &self.shared.metrics;
        let process = &metrics.process;
        page.gauge("sealion_build_info", "The running version; always 1.")
            .sample(&[("version", env!("CARGO_PKG_VERSION"))], 1_u8);
        page.gauge("process_start_time_seconds", "Start time of the process, in seconds since 1970.")
            .value(metrics.started_at);
        page.counter("process_cpu_seconds_total", "CPU time in user space and in the kernel.")
            .value(process.cpu_seconds());
        if let Some(bytes) = process.resident_bytes() {
            page.gauge("process_resident_memory_bytes", "Memory in use.").value(bytes);
        }
        if let Some(count) = process.open_descriptors() {
            page.gauge("process_open_fds", "File descriptors in use.").value(count);
        }
        if let Some(count) = process.most_descriptors() {
            page.gauge("process_max_fds", "Limit on file descriptors.").value(count);
        }
        page.gauge("sealion_workers", "Worker threads.").value(self.workers.len());
        let draining = !self.shared.is_serving();
        page.gauge("sealion_draining", "1 if the server accepts no new connections and is about to end.")
            .value(u8::from(draining));
        let predecessors = self.shared.predecessors.left();
        page.gauge("sealion_predecessors", "Processes that upgrades have replaced and that have not ended.")
            .value(predecessors.len());
        page.gauge("sealion_predecessor_connections", "Connections of these processes.");
        page.sample(&[("state", "active")], predecessors.iter().map(|left| left.active).sum::<u64>());
        page.sample(&[("state", "idle")], predecessors.iter().map(|left| left.idle).sum::<u64>());
        let number = self.shared.generations.number();
        page.gauge("sealion_config_generation", "Configurations loaded since the start.").value(number);
        page.counter(
            "sealion_config_reloads_refused_total",
            "Reloads that were rejected because the configuration had problems.",
        )
        .value(metrics.reloads_refused.load(Ordering::Relaxed));
        page.gauge("sealion_config_last_reload_success", "0 if the last reload was rejected.")
            .value(1 - metrics.last_reload_refused.load(Ordering::Relaxed));
        page.gauge(
            "sealion_config_last_reload_timestamp_seconds",
            "Time of the last reload, successful or not, in seconds since 1970; 0 before the first.",
        )
        .value(metrics.reloaded_at.load(Ordering::Relaxed));
    }

    fn messages(&self, page: &mut Families) {
        page.counter("sealion_messages_lost_total", "Messages lost because standard error was not read.")
            .value(messages::lost());
        page.counter("sealion_otlp_failures_total", "Messages of OTLP that the collector did not take.")
            .value(self.shared.metrics.otlp_failures.load(Ordering::Relaxed));
        page.counter(
            "sealion_otlp_dropped_total",
            "Spans that are lost: the queue was full, or the collector did not take them.",
        )
        .value(self.shared.metrics.otlp_dropped.load(Ordering::Relaxed));
    }

    fn connections(&self, page: &mut Families) {
        page.counter("sealion_connections_accepted_total", "Accepted connections.").value(self.count(|w| &w.accepted));
        page.counter(
            "sealion_accept_errors_total",
            "Failures to accept a connection, for lack of descriptors or memory.",
        )
        .value(self.count(|w| &w.accept_errors));
        page.counter("sealion_connections_taken_over_total", "Connections of the process before that went on here.")
            .value(self.count(|w| &w.taken_over));
        page.counter("sealion_connections_evicted_total", "Idle connections closed to make room for new ones.")
            .value(self.count(|w| &w.evicted));
        page.counter(
            "sealion_proxy_protocol_refused_total",
            "Connections closed because their PROXY protocol header was missing or malformed, or came from an untrusted address.",
        )
        .value(self.shared.proxies_refused.load(Ordering::Relaxed));
        let connections = super::summary::connections(self.shared, &self.workers);
        page.gauge("sealion_connections", "Open connections by state.")
            .sample(&[("state", "handshaking")], connections.handshaking)
            .sample(&[("state", "idle")], connections.idle)
            .sample(&[("state", "active")], connections.active)
            .sample(&[("state", "lingering")], connections.lingering);
        page.gauge("sealion_connections_max", "Limit on open connections.").value(connections.most);
        let free = self.shared.streams.free() as u64;
        page.gauge("sealion_stream_places_free", "Further HTTP/2 responses that may hold a file or a connection open.")
            .value(free);
    }

    fn handshakes(&self, page: &mut Families) {
        page.counter("sealion_tls_handshakes_total", "Successful handshakes.");
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
        page.counter("sealion_tls_handshake_failures_total", "Failed handshakes by reason.");
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
            "Expiry of each certificate in use, in seconds since 1970.",
        );
        for (n, certificate) in self.shared.generations.latest().certificates.in_use().into_iter().enumerate() {
            let expiry = certificate.facts.not_after.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
            page.sample(&[("site", &certificate.site), ("certificate", &n.to_string())], expiry.as_secs());
        }
        page.counter("sealion_tls_key_updates_total", "KeyUpdates sent and received.")
            .sample(&[("direction", "sent")], self.count(|w| &w.key_updates[0]))
            .sample(&[("direction", "received")], self.count(|w| &w.key_updates[1]));
        page.counter("sealion_tls_alerts_total", "Alerts on established connections.");
        for alert in (0..=u8::MAX).map(AlertDescription) {
            let (sent, received) =
                (self.count(|w| w.alerts_sent.of(alert.0)), self.count(|w| w.alerts_received.of(alert.0)));
            // Alerts that never occurred are left out.
            for (direction, count) in [("sent", sent), ("received", received)] {
                if count > 0 || alert == AlertDescription::CLOSE_NOTIFY {
                    page.sample(&[("direction", direction), ("alert", &alert.to_string())], count);
                }
            }
        }
    }

    fn responses(&self, page: &mut Families) {
        page.counter("sealion_http_responses_total", "Responses by status.");
        for code in 100..600 {
            let count = self.count(|w| w.statuses.of(code));
            // Statuses that the server sends start at 0, so that a rate includes the first response.
            if count > 0 || Status::NAMED.iter().any(|status| status.code() == code) {
                page.sample(&[("code", &code.to_string())], count);
            }
        }
        page.counter(
            "sealion_responses_total",
            "Responses by path (sealed in user space, by the kernel, or plain) and reason.",
        );
        self.by_reason(page, |worker| &worker.responses);
        page.counter(
            "sealion_response_bytes_total",
            "Bytes of finished responses, heads and bodies, by path and reason.",
        );
        self.by_reason(page, |worker| &worker.response_bytes);
        page.counter("sealion_sent_bytes_total", "Bytes of responses passed to the kernel so far, by path.");
        for path in [SealedBy::Nobody, SealedBy::User, SealedBy::Kernel] {
            page.sample(&[("path", path.as_str())], self.sum(|w| w.progress.sent(path)));
        }
        self.sites(page);
        self.routes(page);
        page.histogram(
            "sealion_http_request_duration_seconds",
            "Time from the end of a request's head to the last byte of the response.",
            self.workers.iter().map(|w| w.sites.durations()).sum(),
        );
        page.counter("sealion_file_cache_hits_total", "Files found in the workers' caches.")
            .value(self.count(|w| &w.cache_hits));
        page.counter("sealion_file_cache_misses_total", "Files opened because no cache had them.")
            .value(self.count(|w| &w.cache_misses));
        page.gauge("sealion_file_cache_entries", "Files in the workers' caches.")
            .value(self.sum(|w| w.cache_entries.load(Ordering::Relaxed)));
        page.gauge("sealion_file_cache_bytes", "Bytes of files in the workers' caches, with names and metadata.")
            .value(self.sum(|w| w.cache_bytes.load(Ordering::Relaxed)));
    }

    fn sites(&self, page: &mut Families) {
        let sites = SiteNumber::all();
        let of = |site: SiteNumber, protocol: usize, class: usize| -> Durations {
            self.workers.iter().filter_map(|w| w.sites.durations_of(site, protocol, class)).sum()
        };
        page.counter("sealion_site_responses_total", "Responses by site and class of status.");
        for (site, name) in &sites {
            for (place, class) in metrics::CLASSES.into_iter().enumerate() {
                let count: u64 = (0..PROTOCOLS.len()).map(|protocol| of(*site, protocol, place).count()).sum();
                page.sample(&[("site", name), ("class", class)], count);
            }
        }
        page.counter(
            "sealion_site_response_bytes_total",
            "Bytes of responses, heads and bodies, as far as they were sent, by site.",
        );
        for (site, name) in &sites {
            page.sample(&[("site", name)], self.sum(|w| w.sites.bytes(*site)));
        }
        page.histograms(
            "sealion_site_request_duration_seconds",
            "Time from the end of a request's head to the last byte of the response, by site, protocol and class of status.",
        );
        for (site, name) in &sites {
            for (protocol, version) in PROTOCOLS.into_iter().enumerate() {
                for (place, class) in metrics::CLASSES.into_iter().enumerate() {
                    let durations = of(*site, protocol, place);
                    // Combinations without a response are left out.
                    if durations.count() > 0 {
                        page.durations(&[("site", name), ("protocol", version), ("class", class)], durations);
                    }
                }
            }
        }
    }

    fn routes(&self, page: &mut Families) {
        let routes: Vec<_> = super::summary::routes(&self.workers).collect();
        // The routes beyond the bound share one entry.
        if routes.len() == 1 {
            return;
        }
        page.counter("sealion_route_responses_total", "Responses by route and class of status.");
        for (site, route, totals) in &routes {
            for (class, count) in metrics::CLASSES.into_iter().zip(totals.responses) {
                page.sample(&[("site", site), ("route", route), ("class", class)], count);
            }
        }
        page.counter(
            "sealion_route_response_bytes_total",
            "Bytes of responses, heads and bodies, as far as they were sent, by route.",
        );
        for (site, route, totals) in &routes {
            page.sample(&[("site", site), ("route", route)], totals.bytes);
        }
        page.histograms(
            "sealion_route_request_duration_seconds",
            "Time from the end of a request's head to the last byte of the response, by route.",
        );
        for (site, route, totals) in routes {
            if totals.durations.count() > 0 {
                page.durations(&[("site", &site), ("route", &route)], totals.durations);
            }
        }
    }

    fn http2(&self, page: &mut Families) {
        use sealion_h2::{ErrorCode, Flood};
        page.counter("sealion_http2_streams_total", "Streams that clients opened, by outcome.");
        self.fates(page, |w| &w.http2);
        page.counter(
            "sealion_http2_resets_total",
            "RST_STREAM frames by the side that sent them and their error code.",
        );
        let codes = ErrorCode::REGISTERED.iter().filter_map(|code| code.name());
        self.resets(page, codes, |w| &w.http2);
        page.counter("sealion_http2_stalls_total", "Waits of responses for the client to open a flow-control window.")
            .value(self.count(|w| &w.http2_stalls));
        page.counter("sealion_http2_floods_total", "Connections ended by a limit against abuse, by limit.");
        for &flood in Flood::ALL {
            page.sample(&[("limit", flood.name())], self.count(|w| &w.http2.floods[flood as usize]));
        }
    }

    fn http3(&self, page: &mut Families) {
        use sealion_h3::{ErrorCode, Flood};
        page.gauge("sealion_http3_connections", "Open connections over HTTP/3.")
            .value(self.sum(|w| w.http3.open.get()));
        page.counter("sealion_http3_handshakes_total", "Handshakes over QUIC that succeeded.")
            .value(self.count(|w| &w.http3.handshakes));
        page.counter("sealion_http3_responses_total", "Responses over HTTP/3.")
            .value(self.count(|w| &w.http3.responses));
        page.counter("sealion_http3_streams_total", "Requests that clients opened over HTTP/3, by outcome.");
        self.fates(page, |w| &w.http3.streams);
        page.counter("sealion_http3_resets_total", "Requests cancelled, by the side that did so and the error code.");
        let codes = ErrorCode::REGISTERED.iter().filter_map(|code| code.name());
        self.resets(page, codes, |w| &w.http3.streams);
        page.counter("sealion_http3_floods_total", "Connections ended by a limit against abuse, by limit.");
        for &flood in Flood::ALL {
            page.sample(&[("limit", flood.name())], self.count(|w| &w.http3.streams.floods[flood as usize]));
        }
        page.counter("sealion_quic_datagrams_total", "UDP datagrams of QUIC, by direction.");
        for (place, direction) in DIRECTIONS.into_iter().enumerate() {
            page.sample(&[("direction", direction)], self.count(|w| &w.http3.datagrams[place]));
        }
        page.counter("sealion_quic_bytes_total", "Bytes of UDP payload, by direction.");
        for (place, direction) in DIRECTIONS.into_iter().enumerate() {
            page.sample(&[("direction", direction)], self.count(|w| &w.http3.bytes[place]));
        }
        page.counter("sealion_quic_lost_bytes_total", "Bytes of packets that were deemed lost and sent again.")
            .value(self.count(|w| &w.http3.lost_bytes));
        page.counter("sealion_quic_retries_total", "Retry packets, which have new clients prove their address.")
            .value(self.count(|w| &w.http3.retries));
    }

    fn fates<const CODES: usize, const FLOODS: usize>(
        &self,
        page: &mut Families,
        of: impl Fn(&WorkerMetrics) -> &StreamMetrics<CODES, FLOODS>,
    ) {
        for &result in StreamResult::ALL {
            page.sample(&[("result", result.label())], self.count(|w| &of(w).streams[result as usize]));
        }
    }

    fn resets<'a, const CODES: usize, const FLOODS: usize>(
        &self,
        page: &mut Families,
        codes: impl Iterator<Item = &'a str> + Clone,
        of: impl Fn(&WorkerMetrics) -> &StreamMetrics<CODES, FLOODS>,
    ) {
        for (side, (_, by)) in SIDES.into_iter().enumerate() {
            for (code, name) in codes.clone().chain(["other"]).enumerate() {
                page.sample(&[("by", by), ("code", name)], self.count(|w| &of(w).resets[side][code]));
            }
        }
    }

    fn by_reason(&self, page: &mut Families, counters: impl Fn(&WorkerMetrics) -> &[Counter]) {
        for &reason in PathReason::ALL {
            let labels = [("path", reason.sealed_by().as_str()), ("reason", reason.label())];
            page.sample(&labels, self.count(|w| &counters(w)[reason as usize]));
        }
        let labels = [("path", "none"), ("reason", "connection-lost")];
        page.sample(&labels, self.count(|w| &counters(w)[PathReason::ALL.len()]));
    }

    fn kernel_path(&self, page: &mut Families) {
        page.histogram(
            "sealion_ktls_set_up_duration_seconds",
            "Time to move a connection to kernel TLS.",
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
        page.gauge(
            "sealion_ktls_quarantined",
            "1 if the self-check found that the kernel seals this version and cipher wrongly.",
        );
        for (version, cipher, offer) in &offers {
            page.sample(&[("version", version), ("cipher", cipher)], u8::from(*offer == Offer::Quarantined));
        }
        let suspended = offers.iter().any(|(_, _, offer)| *offer == Offer::Suspended);
        page.gauge("sealion_ktls_suspended", "1 if kernel TLS is suspended for a while after an error.")
            .value(u8::from(suspended));
        let origin = match &self.shared.costs.origin {
            Origin::Calibrated { .. } => "calibrated",
            Origin::Shipped { .. } => "shipped",
        };
        page.gauge("sealion_calibration_info", "Origin of the costs of both paths; always 1.")
            .sample(&[("origin", origin)], 1_u8);
    }

    fn trouble(&self, page: &mut Families) {
        page.counter("sealion_connection_errors_total", "Established connections that ended with an error, by kind.");
        for &kind in ErrorKind::ALL {
            page.sample(&[("kind", kind.label())], self.count(|w| &w.errors[kind as usize]));
        }
        page.counter("sealion_timeouts_total", "Expired deadlines by kind.");
        for &deadline in Deadline::ALL {
            page.sample(&[("kind", deadline.label())], self.count(|w| &w.timeouts[deadline as usize]));
        }
        let (written, dropped) = self.shared.access_log.counts();
        page.counter("sealion_access_log_lines_total", "Lines of the access log, written or dropped.")
            .sample(&[("result", "written")], written)
            .sample(&[("result", "dropped")], dropped);
    }

    /// Counters of /proc/net/tls_stat for the whole network namespace, with the kernel's names.
    fn kernel_counters(&self, page: &mut Families) {
        let Some(stat) = self.shared.metrics.process.tls_stat() else { return };
        let is_level = |name: &str| name.starts_with("TlsCurr");
        page.gauge("sealion_kernel_tls_sockets", "Sockets of this network namespace that use kernel TLS.");
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
