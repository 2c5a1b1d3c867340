//! The view as plain text, and number formats.

use std::fmt::Write as _;

use super::rates::Rates;
use crate::monitor::{Http3Summary, Summary};
use crate::observe::Left;

/// The maximum number of paths on a page of text.
const PATHS: usize = 20;

/// The maximum number of servers and of routes on it.
const PARTS: usize = 20;

/// The whole view, for output that is not a terminal.
pub(super) fn page(now: &Summary, rates: &Rates) -> String {
    let mut page = String::new();
    for line in lines(now, rates).into_iter().chain(parts(rates, PARTS)) {
        // Writing to a String cannot fail.
        let _ = writeln!(page, "{:<13}{}", line.0, line.1);
    }
    let _ = writeln!(page, "\n{:>10} {:>12} {:>10}  path", "requests/s", "requests", "bytes");
    for (path, rate) in rates.paths.iter().take(PATHS) {
        let _ = writeln!(
            page,
            "{:>10} {:>12} {:>10}  {}",
            number(*rate),
            path.requests,
            bytes(path.bytes as f64),
            path.path
        );
    }
    page
}

/// The counters, one line per topic.
pub(super) fn lines(now: &Summary, rates: &Rates) -> Vec<(&'static str, String)> {
    let c = &now.connections;
    let percent = |share: Option<f64>| share.map_or("-".to_owned(), |share| format!("{:.0} %", share * 100.0));
    let [p50, p90, p99, p999] = rates.latency.map(|latency| latency.map_or("-".to_owned(), time));
    let [s1, s2, s3, s4, s5] = rates.statuses.map(number);
    let mut lines = vec![
        (
            "server",
            format!(
                "{} {}, up {}, {} workers, configuration {}",
                now.version,
                if now.draining { "DRAINING" } else { "serving" },
                up(now.uptime_seconds),
                now.workers,
                now.config_generation,
            ),
        ),
        (
            "process",
            format!(
                "CPU {:.0} %, memory {}, {} descriptors",
                rates.cpu * 100.0,
                bytes(now.resident_bytes as f64),
                now.open_descriptors
            ),
        ),
        (
            "requests",
            format!(
                "{}/s  1xx {s1}  2xx {s2}  3xx {s3}  4xx {s4}  5xx {s5}  errors {}/s",
                number(rates.requests),
                number(rates.errors)
            ),
        ),
        (
            "sent",
            format!(
                "user {}/s, kernel {}/s ({} of responses), moves {}/s",
                bytes(rates.bytes_user),
                bytes(rates.bytes_kernel),
                percent(rates.kernel_share),
                number(rates.moves)
            ),
        ),
        (
            "connections",
            format!(
                "handshaking {}  idle {}  active {}  lingering {}  of {}",
                c.handshaking, c.idle, c.active, c.lingering, c.most
            ),
        ),
        (
            "handshakes",
            format!(
                "{}/s, {} resumed, failed {}/s ({} of {})",
                number(rates.handshakes),
                percent(rates.resumed),
                number(rates.handshakes_failed),
                now.handshakes_failed,
                now.handshakes + now.handshakes_failed,
            ),
        ),
        ("latency", format!("50 % {p50}  90 % {p90}  99 % {p99}  99.9 % {p999}")),
        (
            "file cache",
            format!(
                "{} hits, {} files, {}",
                percent(rates.cache_hits),
                now.cache_entries,
                bytes(now.cache_bytes as f64)
            ),
        ),
        (
            "access log",
            format!("{} written, {} lost ({}/s)", now.log_written, now.log_dropped, number(rates.log_dropped)),
        ),
    ];
    if let Some(store) = now.store {
        let line = format!(
            "{} hits, {} responses, {}, {} of {} directories in use",
            percent(rates.stored_hits),
            store.objects,
            bytes(store.bytes as f64),
            store.up,
            store.directories
        );
        lines.push(("cache", line));
    }
    if now.http3 != Http3Summary::default() {
        let Http3Summary { connections, responses, bytes: sent, lost_bytes } = now.http3;
        let lost = if sent > 0 { lost_bytes as f64 / sent as f64 * 100.0 } else { 0.0 };
        let line =
            format!("{connections} connections, {responses} responses, sent {} ({lost:.1} % lost)", bytes(sent as f64));
        lines.insert(4, ("http/3", line));
    }
    if !now.predecessors.is_empty() {
        lines.insert(1, ("replaced", replaced(&now.predecessors)));
    }
    lines
}

/// A line for each server, each mirror and each route, the busiest routes first, at most `most` of each.
pub(super) fn parts(rates: &Rates, most: usize) -> Vec<(&'static str, String)> {
    let latency = |latency: [Option<f64>; 2]| {
        let [p50, p99] = latency.map(|latency| latency.map_or("-".to_owned(), time));
        format!("50 % {p50}  99 % {p99}")
    };
    let servers = rates.servers.iter().take(most).map(|server| {
        let now = &server.now;
        let state = if now.state == "out" { "LEFT OUT" } else { &now.state };
        let line = format!(
            "{} {} {state}, {}/s, errors {}/s, active {}, {}",
            now.upstream,
            now.server,
            number(server.requests),
            number(server.errors),
            now.active,
            latency(server.latency)
        );
        ("upstream", line)
    });
    let mirrors = rates.mirrors.iter().take(most).map(|(now, [sent, dropped])| {
        let line = format!(
            "{}: {}/s of {} sent, {}/s of {} dropped",
            now.upstream,
            number(*sent),
            now.sent,
            number(*dropped),
            now.dropped
        );
        ("mirror", line)
    });
    let routes = rates.routes.iter().take(most).map(|route| {
        let (name, requests, errors) = (&route.now.name, number(route.requests), number(route.errors));
        let (all, sent, latency) = (route.now.requests, bytes(route.now.bytes as f64), latency(route.latency));
        ("route", format!("{name}: {requests}/s of {all}, errors {errors}/s, {sent}, {latency}"))
    });
    servers.chain(mirrors).chain(routes).collect()
}

/// The processes before this one that have not ended.
fn replaced(processes: &[Left]) -> String {
    let process = |left: &Left| format!("process {}: active {}  idle {}", left.pid, left.active, left.idle);
    processes.iter().map(process).collect::<Vec<_>>().join(", ")
}

/// About three significant digits.
pub(super) fn number(number: f64) -> String {
    match number {
        0.0 => "0".to_owned(),
        n if n < 10.0 => format!("{n:.1}"),
        n if n < 100_000.0 => format!("{n:.0}"),
        n => format!("{:.0}k", n / 1e3),
    }
}

/// Bytes with a binary unit.
pub(super) fn bytes(bytes: f64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = if unit == 0 || value >= 100.0 { 0 } else { 1 };
    format!("{value:.digits$} {}", UNITS[unit])
}

fn time(seconds: f64) -> String {
    match seconds {
        s if s < 1e-3 => format!("{:.0} µs", s * 1e6),
        s if s < 1.0 => format!("{:.1} ms", s * 1e3),
        s => format!("{s:.1} s"),
    }
}

fn up(seconds: f64) -> String {
    let seconds = seconds as u64;
    match seconds {
        0..60 => format!("{seconds} s"),
        60..3600 => format!("{} min", seconds / 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds / 60 % 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds / 3600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_have_units() {
        assert_eq!([0.0, 0.04, 9.96, 10.4, 99_999.4, 1e6].map(number), ["0", "0.0", "10.0", "10", "99999", "1000k"]);
        let shown = [0.0, 999.0, 1000.0, 1536.0, 150.0 * 1024.0, 3e9].map(bytes);
        assert_eq!(shown, ["0 B", "999 B", "1.0 KiB", "1.5 KiB", "150 KiB", "2.8 GiB"]);
        assert_eq!([2e-5, 2.5e-3, 2.0].map(time), ["20 µs", "2.5 ms", "2.0 s"]);
        assert_eq!([5.0, 130.0, 7300.0, 90_000.0].map(up), ["5 s", "2 min", "2 h 1 min", "1 d 1 h"]);
    }
}
