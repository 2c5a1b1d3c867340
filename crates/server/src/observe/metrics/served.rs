//! The totals of a worker's responses, by site and by route.
//!
//! ```text
//! site ─► protocol × class of status ─► times, bytes          route ─► class of status, times, bytes
//! ```
//!
//! A cell is made by its first response, so that a site of one protocol takes the memory of a few. The sums of all cells are the worker's own.

use std::sync::OnceLock;
use std::time::Duration;

use sealion_http::Protocol;

use super::counter::{Counter, Durations, Histogram};
use super::{RouteNumber, SiteNumber};

/// Classes of status as labels. A response has no other: interim ones are not counted.
pub(crate) const CLASSES: [&str; 4] = ["2xx", "3xx", "4xx", "5xx"];

/// Versions of HTTP as labels.
pub(crate) const PROTOCOLS: [&str; 4] = ["1.0", "1.1", "2", "3"];

/// The counters of responses that have a site, a protocol and a class in common.
#[derive(Debug, Default)]
struct Cell {
    time: Histogram,
    bytes: Counter,
}

/// Cells by [`SiteNumber`], then by [`PROTOCOLS`] and [`CLASSES`].
#[derive(Debug)]
pub(crate) struct PerSite(Box<[[OnceLock<Box<Cell>>; CELLS]]>);

const CELLS: usize = PROTOCOLS.len() * CLASSES.len();

/// Counters by [`RouteNumber`].
#[derive(Debug)]
pub(crate) struct PerRoute(Box<[OnceLock<Box<RouteCounters>>]>);

/// The counters of a route.
#[derive(Debug, Default)]
struct RouteCounters {
    /// By [`CLASSES`].
    responses: [Counter; CLASSES.len()],
    cell: Cell,
}

/// The totals of a route's responses.
#[derive(Debug, Default)]
pub(crate) struct RouteTotals {
    /// By [`CLASSES`].
    pub(crate) responses: [u64; CLASSES.len()],
    pub(crate) bytes: u64,
    pub(crate) durations: Durations,
}

impl Default for PerSite {
    fn default() -> Self {
        PerSite((0..SiteNumber::COUNT).map(|_| std::array::from_fn(|_| OnceLock::new())).collect())
    }
}

impl Default for PerRoute {
    fn default() -> Self {
        PerRoute((0..RouteNumber::COUNT).map(|_| OnceLock::new()).collect())
    }
}

impl Cell {
    #[inline]
    fn sent(&self, bytes: u64, took: Duration) {
        self.time.observe(took);
        self.bytes.add(bytes);
    }
}

impl PerSite {
    /// Counts a response.
    #[inline]
    pub(super) fn sent(&self, site: SiteNumber, protocol: Protocol, status: u16, bytes: u64, took: Duration) {
        let cell = CLASSES.len() * protocol as usize + class(status);
        self.0[site.index()][cell].get_or_init(Box::default).sent(bytes, took);
    }

    /// The times of all responses.
    pub(crate) fn durations(&self) -> Durations {
        self.0.iter().flatten().filter_map(OnceLock::get).map(|cell| cell.time.get()).sum()
    }

    /// The times of responses of a site. `None`: there were none. `protocol` and `class`: their places among the labels.
    pub(crate) fn durations_of(&self, site: SiteNumber, protocol: usize, class: usize) -> Option<Durations> {
        Some(self.0[site.index()][CLASSES.len() * protocol + class].get()?.time.get())
    }

    /// Bytes of the responses of a site.
    pub(crate) fn bytes(&self, site: SiteNumber) -> u64 {
        self.0[site.index()].iter().filter_map(OnceLock::get).map(|cell| cell.bytes.get()).sum()
    }
}

impl PerRoute {
    /// Counts a response.
    #[inline]
    pub(crate) fn sent(&self, route: RouteNumber, status: u16, bytes: u64, took: Duration) {
        let route = self.0[route.index()].get_or_init(Box::default);
        route.responses[class(status)].add(1);
        route.cell.sent(bytes, took);
    }

    /// Adds the numbers of a route to `totals`.
    pub(crate) fn add_to(&self, route: RouteNumber, totals: &mut RouteTotals) {
        let Some(route) = self.0[route.index()].get() else { return };
        totals.responses.iter_mut().zip(&route.responses).for_each(|(sum, count)| *sum += count.get());
        totals.bytes += route.cell.bytes.get();
        totals.durations += route.cell.time.get();
    }
}

/// The place of a status among [`CLASSES`].
#[inline]
fn class(status: u16) -> usize {
    usize::from(status / 100).clamp(2, 5) - 2
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cells_of_a_site_add_up_to_the_worker() {
        let sites = PerSite::default();
        let took = Duration::from_micros(3);
        for (protocol, status, bytes) in [
            (Protocol::Http11, 200, 5),
            (Protocol::Http3, 206, 7),
            (Protocol::Http3, 599, 11),
            (Protocol::Http2, 101, 13),
        ] {
            sites.sent(SiteNumber::NONE, protocol, status, bytes, took);
        }
        let count =
            |protocol, class| sites.durations_of(SiteNumber::NONE, protocol, class).map(|durations| durations.count());
        assert_eq!((count(1, 0), count(3, 0), count(3, 3), count(2, 0)), (Some(1), Some(1), Some(1), Some(1)));
        assert_eq!((count(1, 1), count(0, 0)), (None, None));
        assert_eq!((sites.durations().count(), sites.bytes(SiteNumber::NONE)), (4, 36));
    }

    #[test]
    fn labels_are_those_of_the_protocols() {
        for protocol in [Protocol::Http10, Protocol::Http11, Protocol::Http2, Protocol::Http3] {
            let name = format!("{protocol:?}").trim_start_matches("Http").to_owned();
            assert_eq!(name, PROTOCOLS[protocol as usize].replace('.', ""));
        }
    }
}
