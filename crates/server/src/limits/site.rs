//! `[site.limits]`

use std::collections::HashMap;
use std::net::IpAddr;
use std::num::{NonZeroU32, NonZeroU64};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use governor::Quota as Rate;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::ClientNetwork;
use super::bandwidth::{Bucket, ClientBuckets, Pace};
use super::concurrent::{Concurrent, ConcurrentConfig, ConcurrentZones, Place};
use super::requests::{Counted, Requests};
use crate::placeholders::{Known, Template};
use crate::values::{At, Bounded, Problems, Size};

/// Limits of a site. A reload resets the counts.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct SiteLimitsConfig {
    /// Requests per second from one client, an IPv4 address or an IPv6 /64. Further requests get 429 with Retry-After
    /// [default: unlimited]
    pub requests_per_second: Option<Bounded<1, 1_000_000>>,
    /// The same by the minute, for rates below one request per second: 5 admits one request every twelve seconds [default: unlimited]
    pub requests_per_minute: Option<At<Bounded<1, 1_000_000>>>,
    /// Value that requests are counted by in place of the client, with placeholders: `{header.x-api-key}`, `{cookie.session}`, `{host}`. Requests with an
    /// empty value are not counted [default: the client]
    pub key: Option<At<String>>,
    /// Requests that one client may send at once after a pause [default: as many as `requests_per_second` or `requests_per_minute`]
    pub burst: Option<At<Bounded<1, 1_000_000>>>,
    /// Name of a count that routes and sites share: those with one name and one `key` count their requests together, and have one rate
    /// [default: a count of its own]
    pub zone: Option<At<String>>,
    /// Requests in progress at a time, by client or by a value of the request: `[{ requests = 10 }]` admits ten of each client [default: unlimited]
    pub concurrent: Vec<ConcurrentConfig>,
    /// Concurrent connections with requests for this site; requests on further connections get 503 [default: unlimited]
    pub connections: Option<Bounded<1, 4_294_967_295>>,
    /// Bytes per second on one connection, paced by TCP (SO_MAX_PACING_RATE) on both paths [default: unlimited]
    pub bandwidth: Option<At<Size>>,
    /// Bytes of content per second to one client, an IPv4 address or an IPv6 /64, on all its connections together
    /// [default: unlimited]
    pub client_bandwidth: Option<At<Size>>,
    /// Bytes of content per second to all clients together. They are shared evenly by response: a client with ten downloads gets ten shares, up to its
    /// `client_bandwidth` [default: unlimited]
    pub site_bandwidth: Option<At<Size>>,
}

/// The minimum permitted bandwidth in bytes per second: a full record takes four seconds, and clients do not wait much
/// longer.
pub(super) const MIN_BANDWIDTH: u64 = 4096;

/// The limits of a site, with their counts.
#[derive(Debug, Default)]
pub(crate) struct SiteLimits {
    requests: Option<Arc<Requests>>,
    /// `None`: requests are counted by client.
    key: Option<Template>,
    concurrent: Vec<Concurrent>,
    connections: Option<Arc<Slots>>,
    /// Bytes per second.
    bandwidth: Option<u64>,
    site_bandwidth: Option<Arc<Bucket>>,
    client_bandwidth: Option<ClientBuckets>,
}

/// The counts that routes share, by the names of their zones and the texts of their keys.
#[derive(Debug, Default)]
pub(crate) struct Zones {
    requests: HashMap<(String, Option<String>), (Rate, Arc<Requests>)>,
    concurrent: ConcurrentZones,
}

impl Zones {
    /// The count of a zone. `None`: it has another rate elsewhere.
    fn requests(&mut self, name: &str, key: Option<&String>, rate: Rate) -> Option<Arc<Requests>> {
        let begun = || (rate, Arc::new(Requests::new(rate)));
        let (own, requests) = self.requests.entry((name.to_owned(), key.cloned())).or_insert_with(begun);
        (*own == rate).then(|| Arc::clone(requests))
    }
}

#[derive(Debug)]
struct Slots {
    most: u64,
    taken: AtomicU64,
}

/// A connection's slot on a site, until dropped.
#[derive(Debug)]
struct Quota(Arc<Slots>);

/// The reason for rejecting a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// 429 with Retry-After: this client exceeds its rate.
    TooMany(Duration),
    /// 503: all connection slots of the site, or all places for requests in progress, are taken.
    NoPlace,
}

impl SiteLimitsConfig {
    /// Checks the configuration and starts counting. `None`: the site has no limits.
    pub(crate) fn build(
        &self,
        known: Known<'_>,
        key: &str,
        zones: &mut Zones,
        problems: &mut Problems,
    ) -> Option<SiteLimits> {
        if self == &Self::default() {
            return None;
        }
        self.check_rate(key, problems);
        let bandwidths = [
            ("bandwidth", &self.bandwidth),
            ("client_bandwidth", &self.client_bandwidth),
            ("site_bandwidth", &self.site_bandwidth),
        ];
        let mut wider = None;
        for (name, bandwidth) in bandwidths.into_iter().rev() {
            let Some(bandwidth) = bandwidth else { continue };
            let name_key = format!("{key}.{name}");
            if bandwidth.0 < MIN_BANDWIDTH {
                let what = format_args!("{} per second is too low: write {MIN_BANDWIDTH} or more", bandwidth.value);
                problems.add(&bandwidth.span, &name_key, what);
            }
            if let Some((other, most)) = wider.filter(|(_, most)| bandwidth.0 > *most) {
                let what =
                    format_args!("never takes effect beside {other} = \"{}\": write less, or remove it", Size(most));
                problems.add(&bandwidth.span, &name_key, what);
            }
            wider = Some((name, bandwidth.0));
        }
        let counted_by = self.key.as_ref();
        let counted_by = counted_by.and_then(|own| Template::parse(own, known, &format!("{key}.key"), problems));
        let concurrent = self.concurrent.iter();
        let concurrent =
            concurrent.map(|own| own.build(known, &format!("{key}.concurrent"), &mut zones.concurrent, problems));
        let concurrent = concurrent.collect();
        Some(SiteLimits {
            key: counted_by,
            concurrent,
            requests: self.rate().map(|rate| self.requests(rate, key, zones, problems)),
            connections: self.connections.map(|most| Arc::new(Slots { most: most.get(), taken: AtomicU64::new(0) })),
            bandwidth: self.bandwidth.as_ref().map(|bandwidth| bandwidth.0),
            site_bandwidth: self.site_bandwidth.as_ref().map(|bandwidth| Arc::new(Bucket::new(bandwidth.0.max(1)))),
            client_bandwidth: self.client_bandwidth.as_ref().map(|bandwidth| ClientBuckets::new(bandwidth.0.max(1))),
        })
    }
}

impl SiteLimitsConfig {
    /// The count of requests.
    fn requests(&self, rate: Rate, key: &str, zones: &mut Zones, problems: &mut Problems) -> Arc<Requests> {
        let own = || Arc::new(Requests::new(rate));
        let Some(zone) = &self.zone else { return own() };
        zones.requests(zone, self.key.as_deref(), rate).unwrap_or_else(|| {
            let what = "has another rate or burst elsewhere: write the same here, or another name";
            problems.add(&zone.span, &format!("{key}.zone"), what);
            own()
        })
    }

    /// Refuses keys that would have no effect.
    fn check_rate(&self, key: &str, problems: &mut Problems) {
        let spans = [
            ("burst", self.burst.as_ref().map(|at| &at.span)),
            ("key", self.key.as_ref().map(|at| &at.span)),
            ("zone", self.zone.as_ref().map(|at| &at.span)),
        ];
        let has_rate = self.requests_per_second.is_some() || self.requests_per_minute.is_some();
        for (name, span) in spans.into_iter().filter(|_| !has_rate) {
            let Some(span) = span else { continue };
            let what =
                "has no effect without requests_per_second or requests_per_minute: add one of them, or remove this key";
            problems.add(span, &format!("{key}.{name}"), what);
        }
        if let (Some(_), Some(minute)) = (self.requests_per_second, &self.requests_per_minute) {
            let what = "has no effect beside requests_per_second: remove one of them";
            problems.add(&minute.span, &format!("{key}.requests_per_minute"), what);
        }
    }

    /// The rate and the burst. `None`: requests are not counted.
    fn rate(&self) -> Option<Rate> {
        let number = |number: Bounded<1, 1_000_000>| NonZeroU32::new(number.get() as u32).unwrap_or(NonZeroU32::MIN);
        let minute = self.requests_per_minute.as_ref().map(|minute| Rate::per_minute(number(minute.value)));
        let rate = self.requests_per_second.map(|second| Rate::per_second(number(second))).or(minute)?;
        Some(self.burst.as_ref().map_or(rate, |burst| rate.allow_burst(number(burst.value))))
    }
}

impl SiteLimits {
    /// The value that requests are counted by. `None`: by client.
    pub(crate) fn key(&self) -> Option<&Template> {
        self.key.as_ref()
    }

    /// Counts a request of this client until its places are dropped. `value`: renders a key.
    ///
    /// # Errors
    /// The request must be rejected.
    pub(crate) fn enter(
        &self,
        client: Option<IpAddr>,
        value: impl Fn(&Template) -> Option<Vec<u8>>,
    ) -> Result<Box<[Place]>, Refusal> {
        let places = self.concurrent.iter().filter_map(|limit| limit.enter(client, &value).transpose());
        places.collect()
    }

    /// Bytes per second on one connection.
    pub(crate) fn bandwidth(&self) -> Option<NonZeroU64> {
        NonZeroU64::new(self.bandwidth?)
    }

    /// Whether requests are counted.
    pub(crate) fn counts(&self) -> bool {
        self.requests.is_some()
    }

    /// Whether both count requests in one place.
    pub(crate) fn counts_as(&self, other: &Self) -> bool {
        matches!((&self.requests, &other.requests), (Some(own), Some(other)) if Arc::ptr_eq(own, other))
    }

    /// Counts a request of this client, or with this value, and says whether it is counted.
    ///
    /// # Errors
    /// The request must be rejected.
    pub(crate) fn count(&self, client: Option<IpAddr>, value: Option<&[u8]>) -> Result<bool, Refusal> {
        let Some(requests) = &self.requests else { return Ok(false) };
        let counted = match value {
            Some(b"") => None,
            Some(value) => Some(requests.by_value(value)),
            // Peers on a Unix socket have no address, so their rate is not limited.
            None => client.map(|client| Counted::Client(ClientNetwork::of(client))),
        };
        let Some(counted) = counted else { return Ok(false) };
        requests.take(counted).map_err(Refusal::TooMany)?;
        Ok(true)
    }

    /// The same on a connection that may already hold slots of this and other sites.
    ///
    /// # Errors
    /// The request must be rejected.
    fn admit(&self, client: Option<IpAddr>, value: Option<&[u8]>, quotas: &mut Vec<Quota>) -> Result<(), Refusal> {
        self.count(client, value)?;
        if let Some(slots) = &self.connections
            && !quotas.iter().any(|quota| Arc::ptr_eq(&quota.0, slots))
        {
            quotas.push(slots.take().ok_or(Refusal::NoPlace)?);
        }
        Ok(())
    }
}

impl SiteLimits {
    /// The pacing of the content of a response to this client. `None`: no pacing. Peers on a Unix socket have no
    /// address, and only share the site's bandwidth.
    pub(crate) fn pace(&self, client: Option<IpAddr>) -> Option<Pace> {
        let of_client = self.client_bandwidth.as_ref().and_then(|clients| Some(clients.of(client?)));
        Pace::of([of_client, self.site_bandwidth.clone()])
    }
}

/// How fast a connection may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PacingRate {
    /// Bytes per second.
    Limited(u64),
    /// A limit of another site, or from before a reload, is lifted.
    Unlimited,
}

impl PacingRate {
    /// As `SO_MAX_PACING_RATE` takes it (socket(7)).
    pub(crate) fn bytes_per_second(self) -> u64 {
        match self {
            Self::Limited(rate) => rate,
            Self::Unlimited => u64::MAX,
        }
    }
}

/// The slots of a connection, one for each site that limits connections, and its pacing.
#[derive(Debug, Default)]
pub(crate) struct Permit {
    quotas: Vec<Quota>,
    /// Bytes per second, as the connection was last told.
    paced: Option<u64>,
    /// Whether other requests of the connection are in progress, so that its pacing may not increase: their pacing
    /// would increase too.
    pub(crate) is_shared: bool,
}

impl Permit {
    /// Of a connection that another process paced.
    pub(crate) fn of_paced(paced: Option<u64>) -> Self {
        Permit { paced, ..Permit::default() }
    }

    /// The connection's pace, in bytes per second.
    pub(crate) fn paced(&self) -> Option<u64> {
        self.paced
    }

    /// Counts the connection for a site whose response another process began. It is not refused.
    pub(crate) fn keep_place(&mut self, limits: Option<&SiteLimits>) {
        if let Some(slots) = limits.and_then(|limits| limits.connections.as_ref())
            && !self.quotas.iter().any(|quota| Arc::ptr_eq(&quota.0, slots))
        {
            self.quotas.extend(slots.take());
        }
    }

    /// Counts a request of this client. Returns the new rate of its connection, if the rate changes. `limits`: the site's limits, if any. `value`: the
    /// key to count under in place of the client.
    ///
    /// # Errors
    /// The request must be rejected.
    pub(crate) fn admit(
        &mut self,
        limits: Option<&SiteLimits>,
        client: Option<IpAddr>,
        value: Option<&[u8]>,
    ) -> Result<Option<PacingRate>, Refusal> {
        if let Some(limits) = limits {
            limits.admit(client, value, &mut self.quotas)?;
        }
        let mut bandwidth = limits.and_then(|limits| limits.bandwidth);
        if self.is_shared {
            bandwidth = [bandwidth, self.paced].into_iter().flatten().min();
        }
        if self.paced == bandwidth {
            return Ok(None);
        }
        self.paced = bandwidth;
        Ok(Some(bandwidth.map_or(PacingRate::Unlimited, PacingRate::Limited)))
    }
}

impl Slots {
    fn take(self: &Arc<Self>) -> Option<Quota> {
        let more = |taken| (taken < self.most).then_some(taken + 1);
        self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        Some(Quota(Arc::clone(self)))
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        self.0.taken.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn built(text: &str) -> (Option<SiteLimits>, Problems) {
        let config: SiteLimitsConfig = toml::from_str(text).unwrap();
        let mut problems = Problems::of_file(Path::new("x.toml"), text);
        let tables = crate::placeholders::Tables::default();
        let known = Known::of_request(None, &tables);
        (config.build(known, "site.limits", &mut Zones::default(), &mut problems), problems)
    }

    #[test]
    fn limits_of_one_zone_count_together() {
        let client = Some(IpAddr::from([192, 0, 2, 1]));
        let tables = crate::placeholders::Tables::default();
        let known = Known::of_request(None, &tables);
        let (mut zones, text) = (Zones::default(), "requests_per_second = 1\nburst = 2\nzone = 'login'");
        let mut problems = Problems::of_file(Path::new("x.toml"), text);
        let mut build = |text: &str| {
            let config: SiteLimitsConfig = toml::from_str(text).unwrap();
            config.build(known, "site.limits", &mut zones, &mut problems).unwrap()
        };
        let (one, same, own) = (build(text), build(text), build("requests_per_second = 1\nburst = 2"));
        build(&format!("{text}\nkey = '{{host}}'"));
        build("requests_per_second = 2\nburst = 2\nzone = 'login'");
        assert_eq!(one.admit(client, None, &mut Vec::new()), Ok(()));
        assert_eq!(same.admit(client, None, &mut Vec::new()), Ok(()));
        assert!(one.admit(client, None, &mut Vec::new()).is_err());
        assert!(same.admit(client, None, &mut Vec::new()).is_err());
        assert_eq!(own.admit(client, None, &mut Vec::new()), Ok(()));
        assert!(problems.to_string().contains("site.limits.zone: has another rate or burst elsewhere"));
    }

    #[test]
    fn nothing_is_counted_where_nothing_is_bounded() {
        assert!(built("").0.is_none());
    }

    #[test]
    fn what_bounds_nothing_or_everything_is_refused() {
        for (text, words) in [
            ("burst = 3", "x.toml:1: site.limits.burst: "),
            ("key = '{host}'", "x.toml:1: site.limits.key: has no effect"),
            ("zone = 'a'", "x.toml:1: site.limits.zone: has no effect"),
            (
                "requests_per_second = 1\nrequests_per_minute = 5",
                "x.toml:2: site.limits.requests_per_minute: has no effect beside requests_per_second",
            ),
            ("requests_per_second = 1\nkey = '{hots}'", "x.toml:2: site.limits.key: {hots} is not a placeholder"),
            ("bandwidth = '1B'", "write 4096 or more"),
            ("client_bandwidth = '1B'", "x.toml:1: site.limits.client_bandwidth: 1B per second is too low"),
            ("site_bandwidth = '0'", "x.toml:1: site.limits.site_bandwidth: 0B per second is too low"),
            (
                "site_bandwidth = '1MB'\nbandwidth = '2MB'",
                "x.toml:2: site.limits.bandwidth: never takes effect beside site_bandwidth",
            ),
            ("client_bandwidth = '1MB'\nbandwidth = '2MB'", "beside client_bandwidth = \"1000000B\""),
            (
                "client_bandwidth = '2MB'\nsite_bandwidth = '1MB'",
                "x.toml:1: site.limits.client_bandwidth: never takes effect",
            ),
        ] {
            let (_, problems) = built(text);
            assert!(problems.to_string().contains(words), "{problems}");
        }
    }

    #[test]
    fn a_connection_holds_one_place_and_gives_it_back() {
        let limits = built("connections = 1").0.unwrap();
        let client = "192.0.2.1".parse().ok();
        let (mut first, mut second) = (Vec::new(), Vec::new());
        assert_eq!(limits.admit(client, None, &mut first), Ok(()));
        assert_eq!(limits.admit(client, None, &mut first), Ok(()));
        assert_eq!(limits.admit(client, None, &mut second), Err(Refusal::NoPlace));
        let other = built("connections = 1").0.unwrap();
        assert_eq!(other.admit(client, None, &mut first), Ok(()));
        assert_eq!(
            limits.admit(client, None, &mut second),
            Err(Refusal::NoPlace),
            "a request to another site frees no place"
        );
        drop(first);
        assert_eq!(limits.admit(client, None, &mut second), Ok(()));
    }

    #[test]
    fn requests_above_the_rate_are_told_when_to_come_again() {
        let limits = built("requests_per_second = 1\nburst = 2").0.unwrap();
        let client = "2001:db8::1".parse().ok();
        assert_eq!(limits.admit(client, None, &mut Vec::new()), Ok(()));
        assert_eq!(limits.admit(client, None, &mut Vec::new()), Ok(()));
        assert!(matches!(limits.admit(client, None, &mut Vec::new()), Err(Refusal::TooMany(_))));
        for _ in 0..5 {
            assert_eq!(
                limits.admit(None, None, &mut Vec::new()),
                Ok(()),
                "nobody counts those without an address as one"
            );
        }
    }

    #[test]
    fn a_rate_by_the_minute_waits_longer_than_a_second() {
        let client = "192.0.2.1".parse().ok();
        for (text, burst) in [("requests_per_minute = 5\nburst = 3", 3), ("requests_per_minute = 5", 5)] {
            let limits = built(text).0.unwrap();
            for _ in 0..burst {
                assert_eq!(limits.admit(client, None, &mut Vec::new()), Ok(()), "{text}");
            }
            let Err(Refusal::TooMany(wait)) = limits.admit(client, None, &mut Vec::new()) else { panic!("{text}") };
            // The first token comes back twelve seconds after the first request.
            assert!(wait > Duration::from_secs(1) && wait <= Duration::from_secs(12), "{text}: {wait:?}");
        }
    }

    #[test]
    fn requests_are_counted_by_a_value_in_place_of_the_client() {
        let limits = built("requests_per_second = 1\nburst = 1\nkey = '{header.x-key}'").0.unwrap();
        assert!(limits.key().is_some());
        let [one, other] = ["192.0.2.1", "192.0.2.2"].map(|client| client.parse().ok());
        assert_eq!(limits.admit(one, Some(b"a"), &mut Vec::new()), Ok(()));
        assert!(matches!(limits.admit(other, Some(b"a"), &mut Vec::new()), Err(Refusal::TooMany(_))));
        assert_eq!(limits.admit(one, Some(b"b"), &mut Vec::new()), Ok(()));
        for _ in 0..5 {
            assert_eq!(limits.admit(one, Some(b""), &mut Vec::new()), Ok(()), "an empty value is not counted");
        }
        // A request whose value is unclear counts for its client.
        assert_eq!(limits.admit(one, None, &mut Vec::new()), Ok(()));
        assert!(matches!(limits.admit(one, None, &mut Vec::new()), Err(Refusal::TooMany(_))));
    }

    #[test]
    fn pacing_rises_only_when_no_other_request_is_in_progress() {
        let [slow, fast] = ["bandwidth = '50kB'", "bandwidth = '1MB'"].map(|text| built(text).0.unwrap());
        let mut permit = Permit::default();
        let mut paced = |limits: Option<&SiteLimits>, is_shared| {
            permit.is_shared = is_shared;
            permit.admit(limits, None, None).unwrap();
            permit.paced
        };
        let lowest = paced(Some(&slow), false);
        assert!(lowest.is_some());
        assert_eq!(paced(Some(&fast), true), lowest);
        assert_eq!(paced(None, true), lowest, "a site without a limit lifts none");
        assert!(paced(Some(&fast), false) > lowest);
        assert_eq!(paced(Some(&slow), true), lowest, "it may sink");
        assert_eq!(paced(None, false), None);
    }
}
