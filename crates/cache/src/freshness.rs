//! How long a stored response may be used (RFC 9111 §4.2), including stale responses (RFC 9111 §4.2.4, RFC 5861).

use http::header::{AGE, DATE, EXPIRES, LAST_MODIFIED};
use http::{HeaderMap, HeaderValue};

use crate::Seconds;
use crate::directives::{DELTA_MAX, RequestDirectives, ResponseDirectives, Scope, delta_seconds};
use crate::policy::Policy;

/// The use of a stored response: its age, its lifetime, and the permissions once it is stale.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lifetime {
    /// The time of receipt in seconds since 1970, in the bits above [`FLAGS`].
    received_and_flags: u64,
    /// The age at receipt.
    initial_age: u32,
    /// The age at which the response becomes stale.
    freshness: u32,
    /// How many seconds the stale response may be sent while it is revalidated.
    stale_while_revalidate: u32,
    /// How many seconds the stale response may be sent if the origin fails.
    stale_if_error: u32,
}

/// How a stored response may be used for one request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Assessment {
    /// It may be sent: it is fresh, or the request accepts a stale response (`max-stale`).
    Fresh,
    /// It may be sent now, and is to be revalidated in the background.
    StaleWhileRevalidate,
    /// It must be revalidated first.
    Stale {
        /// Whether it may be sent if the origin returns an error ([`is_error_for_stale`]) or is unreachable. False:
        /// neither the response nor the request permits it. RFC 9111 §4.2.4 leaves the decision to the cache if the
        /// origin is unreachable.
        may_serve_on_error: bool,
    },
    /// It must be revalidated first, and must not be sent if that fails.
    MustRevalidate,
}

impl Lifetime {
    /// The length of [`Self::to_bytes`].
    pub const LENGTH: usize = 24;

    /// The lifetime of a response, from its fields and directives.
    pub(crate) fn new(
        policy: &Policy,
        status: u16,
        fields: &HeaderMap,
        directives: &ResponseDirectives,
        explicit: Option<u32>,
        [requested, received]: [Seconds; 2],
    ) -> Lifetime {
        let freshness = explicit.or_else(|| policy.ttl(status)).unwrap_or_else(|| heuristic(policy, fields, received));
        // The operator's seconds extend a lifetime. A response without a lifetime may be for one user only, so it is
        // never sent stale.
        let or_added =
            |granted: Option<u32>, added: Option<u32>| granted.or(added.filter(|_| freshness > 0)).unwrap_or(0);
        let flags = [
            (NO_CACHE, directives.no_cache == Scope::Response),
            (NO_STALE, directives.must_revalidate || directives.proxy_revalidate),
            (S_MAXAGE, directives.s_maxage.is_some()),
            (IMMUTABLE, directives.immutable),
        ];
        let flags = flags.into_iter().filter(|(_, is_set)| *is_set).fold(0, |all, (flag, _)| all | flag);
        Lifetime {
            received_and_flags: received.min(u64::MAX >> FLAG_BITS) << FLAG_BITS | flags,
            initial_age: initial_age(fields, requested, received),
            freshness,
            stale_while_revalidate: or_added(directives.stale_while_revalidate, policy.stale_while_revalidate),
            stale_if_error: or_added(directives.stale_if_error, policy.stale_if_error),
        }
    }

    /// Whether a request without directives can get the response without validation at any time after its receipt.
    pub(crate) fn is_ever_usable(&self) -> bool {
        let stale = self.stale_while_revalidate.max(self.stale_if_error);
        let usable = self.freshness.saturating_add(if self.has(NO_STALE) { 0 } else { stale });
        !self.has(NO_CACHE) && usable > self.initial_age
    }

    /// The value of Age (RFC 9111 §4.2.3).
    pub fn age(&self, now: Seconds) -> u64 {
        u64::from(self.initial_age) + now.saturating_sub(self.received())
    }

    /// The time at which it becomes or became stale.
    pub fn expires(&self) -> Seconds {
        (self.received() + u64::from(self.freshness)).saturating_sub(self.initial_age.into())
    }

    /// The same response, stale from `now` on, for a purge. Afterwards it can still be revalidated, or be sent
    /// meanwhile, as far as the response permits.
    #[must_use]
    pub fn made_stale(self, now: Seconds) -> Self {
        let age = u32::try_from(self.age(now)).unwrap_or(u32::MAX);
        Lifetime { freshness: self.freshness.min(age), ..self }
    }

    /// The same response, which must be validated before it is sent again, unless the origin fails: another response
    /// may have replaced it meanwhile.
    #[must_use]
    pub fn made_doubtful(self, now: Seconds) -> Self {
        let Lifetime { received_and_flags, .. } = self;
        Lifetime {
            // s-maxage overrides the permission of a request's max-stale.
            received_and_flags: received_and_flags | S_MAXAGE,
            stale_while_revalidate: 0,
            ..self.made_stale(now)
        }
    }

    /// How the response may be used for a request.
    pub fn assess(&self, request: &RequestDirectives, now: Seconds) -> Assessment {
        if self.has(NO_CACHE) || request.no_cache {
            return Assessment::MustRevalidate;
        }
        let (age, freshness) = (self.age(now), u64::from(self.freshness));
        let is_fresh = age < freshness;
        let stale_for = age.saturating_sub(freshness);
        let is_within = |seconds: u32| stale_for < seconds.into();
        // A reload of an immutable response needs no validation (RFC 8246 §2.1).
        let is_young = request.max_age.is_none_or(|most| age <= most.into() || is_fresh && self.has(IMMUTABLE));
        let stays_fresh = request.min_fresh.is_none_or(|least| freshness >= age + u64::from(least));
        if is_fresh && is_young && stays_fresh {
            return Assessment::Fresh;
        }
        if !is_fresh && self.has(NO_STALE) {
            return Assessment::MustRevalidate;
        }
        // RFC 9111 §5.2.2.10: s-maxage also forbids stale use, unless the same response or the operator permits it.
        let asked = |seconds: Option<u32>| seconds.filter(|_| !self.has(S_MAXAGE));
        if !is_fresh && is_young && request.min_fresh.is_none() {
            // Inclusive: a response that has just become stale is 0 seconds stale.
            if asked(request.max_stale).is_some_and(|most| stale_for <= most.into()) {
                return Assessment::Fresh;
            }
            // RFC 9111 §5.2.1.1: a request with max-age does not want a stale response.
            if request.max_age.is_none() && is_within(self.stale_while_revalidate) {
                return Assessment::StaleWhileRevalidate;
            }
        }
        // RFC 5861 §4: regardless of other freshness information.
        let may_serve_on_error = is_within(self.stale_if_error) || asked(request.stale_if_error).is_some_and(is_within);
        if !is_fresh && self.has(S_MAXAGE) && !may_serve_on_error {
            return Assessment::MustRevalidate;
        }
        Assessment::Stale { may_serve_on_error }
    }

    /// Serializes to a fixed form for a file.
    pub fn to_bytes(&self) -> [u8; Self::LENGTH] {
        let Lifetime { received_and_flags, initial_age, freshness, stale_while_revalidate, stale_if_error } = self;
        let mut bytes = [0; Self::LENGTH];
        bytes[..8].copy_from_slice(&received_and_flags.to_le_bytes());
        for (part, number) in
            bytes[8..].chunks_exact_mut(4).zip([initial_age, freshness, stale_while_revalidate, stale_if_error])
        {
            part.copy_from_slice(&number.to_le_bytes());
        }
        bytes
    }

    /// Parses the form of [`Self::to_bytes`]. `None`: an unknown flag, for instance of a newer version.
    pub fn from_bytes(bytes: [u8; Self::LENGTH]) -> Option<Self> {
        let number = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let received_and_flags = u64::from(number(0)) | u64::from(number(4)) << 32;
        (received_and_flags & FLAGS & !(NO_CACHE | NO_STALE | S_MAXAGE | IMMUTABLE) == 0).then_some(Lifetime {
            received_and_flags,
            initial_age: number(8),
            freshness: number(12),
            stale_while_revalidate: number(16),
            stale_if_error: number(20),
        })
    }

    fn has(&self, flag: u64) -> bool {
        self.received_and_flags & flag != 0
    }

    fn received(&self) -> Seconds {
        self.received_and_flags >> FLAG_BITS
    }
}

/// Whether a response of the origin counts as a failure (RFC 5861 §4).
pub fn is_error_for_stale(status: u16) -> bool {
    matches!(status, 500 | 502 | 503 | 504)
}

/// The lifetime set by the origin (RFC 9111 §4.2.1), for a shared cache. `is_targeted`: Expires does not count (RFC
/// 9213 §2.2).
pub(crate) fn explicit(
    policy: &Policy,
    fields: &HeaderMap,
    directives: &ResponseDirectives,
    is_targeted: bool,
    received: Seconds,
) -> Option<u32> {
    let until = |time: Seconds| bounded(time.saturating_sub(date_of(fields, received)));
    let expires = || {
        let value = fields.get(EXPIRES).filter(|_| !is_targeted && !policy.ignores(&EXPIRES))?;
        // An invalid date, especially `0`, is in the past (RFC 9111 §5.3).
        Some(until(date(value).unwrap_or(0)))
    };
    directives.s_maxage.or(directives.max_age).or(directives.expires.map(until)).or_else(expires)
}

/// The lifetime if the origin sets none (RFC 9111 §4.2.2): a tenth of the time since the last modification.
fn heuristic(policy: &Policy, fields: &HeaderMap, received: Seconds) -> u32 {
    let modified = fields.get(LAST_MODIFIED).and_then(date);
    let unmodified = modified.map_or(0, |modified| date_of(fields, received).saturating_sub(modified));
    bounded(unmodified / 10).min(policy.heuristic_max)
}

/// The age at receipt (RFC 9111 §4.2.3).
fn initial_age(fields: &HeaderMap, requested: Seconds, received: Seconds) -> u32 {
    let apparent = received.saturating_sub(date_of(fields, received));
    let corrected = u64::from(age_field(fields)) + received.saturating_sub(requested);
    bounded(apparent.max(corrected))
}

/// The value of Age. In a list, the first member counts (RFC 9111 §5.1). If there are several lines, which no cache
/// sends, the greatest counts. An invalid value counts as very old: RFC 9111 §5.1 would ignore it, but §4.2.1 treats
/// invalid freshness information as stale.
fn age_field(fields: &HeaderMap) -> u32 {
    let first = |line: &HeaderValue| {
        let member = line.as_bytes().split(|byte| *byte == b',').next().unwrap_or_default();
        delta_seconds(member.trim_ascii()).unwrap_or(DELTA_MAX)
    };
    fields.get_all(AGE).iter().map(first).max().unwrap_or(0)
}

/// Date, or the time of receipt if Date is absent or invalid (RFC 9110 §6.6.1).
fn date_of(fields: &HeaderMap, received: Seconds) -> Seconds {
    fields.get(DATE).and_then(date).unwrap_or(received)
}

/// An HTTP-date in any of its three formats, as seconds since 1970.
pub(crate) fn date(value: &HeaderValue) -> Option<Seconds> {
    let time = httpdate::parse_http_date(std::str::from_utf8(value.as_bytes()).ok()?).ok()?;
    Some(time.duration_since(std::time::UNIX_EPOCH).ok()?.as_secs())
}

fn bounded(seconds: u64) -> u32 {
    seconds.min(DELTA_MAX.into()) as u32
}

const FLAG_BITS: u32 = 8;
const FLAGS: u64 = (1 << FLAG_BITS) - 1;
/// `no-cache` for the whole response.
const NO_CACHE: u64 = 1;
/// `must-revalidate` or `proxy-revalidate`.
const NO_STALE: u64 = 2;
/// `s-maxage`.
const S_MAXAGE: u64 = 4;
/// `immutable`.
const IMMUTABLE: u64 = 8;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{NOW, date, fields};
    use crate::storing::{NotStored, StoreRequest, may_store};

    /// The lifetime of a response to a request without directives, sent and received at [`NOW`].
    fn stored(policy: &Policy, lines: &[&str]) -> Result<Lifetime, NotStored> {
        let method = sealion_http::Method::Get;
        let request = StoreRequest { method, has_authorization: false, directives: RequestDirectives::default() };
        may_store(policy, &request, 200, &fields(lines), NOW, NOW)
    }

    fn lifetime(lines: &[&str]) -> Lifetime {
        stored(&Policy::default(), lines).unwrap()
    }

    const ETAG: &str = "etag: \"a\"";

    #[test]
    fn the_end_of_freshness() {
        let at = |name: &str, seconds| format!("{name}: {}", date(seconds));
        for (lines, remaining) in [
            (&["cache-control: max-age=60"][..], 60),
            (&["cache-control: s-maxage=5, max-age=60"], 5),
            (&["cache-control: max-age=5, s-maxage=60"], 60),
            (&["cache-control: s-maxage=x, max-age=60"], 0),
            (&[&at("expires", NOW + 60)], 60),
            (&[&at("expires", NOW)], 0),
            (&[&at("expires", NOW - 60)], 0),
            (&["expires: 0"], 0),
            (&["expires: "], 0),
            (&["expires: Sunday, 06-Nov-94 08:50:37 GMT"], 60),
            (&["expires: Sun Nov  6 08:50:37 1994"], 60),
            (&["expires: Sun, 06 Nov 1994 08:50:37 UTC"], 0),
            // The first of two counts.
            (&[&at("expires", NOW + 60), &at("expires", NOW + 5)], 60),
            (&[&at("expires", NOW + 5), "cache-control: max-age=60"], 60),
            (&["expires: 0", "cache-control: max-age=60"], 60),
            (&[&at("expires", NOW + 60), "cache-control: max-age=0"], 0),
            // By the clock of the origin.
            (&[&at("expires", NOW + 70), &at("date", NOW + 10)], 60),
            (&[&at("expires", NOW + 50), &at("date", NOW - 10)], 50),
            (&[&at("expires", NOW + 300), &at("date", NOW + 400)], 0),
            (&[&at("expires", NOW + 60), "date: yesterday"], 60),
            // Age and Date.
            (&["cache-control: max-age=60", "age: 20"], 40),
            (&["cache-control: max-age=60", &at("date", NOW - 20)], 40),
            (&["cache-control: max-age=60", &at("date", NOW - 20), "age: 30"], 30),
            (&["cache-control: max-age=60", &at("date", NOW + 20), "age: 30"], 30),
            (&["cache-control: max-age=60", "age: 20, 70"], 40),
            (&["cache-control: max-age=60", "age: 70, 20"], 0),
            (&["cache-control: max-age=60", "age: 20", "age: 30"], 30),
            (&["cache-control: max-age=60", "age: 30", "age: 20"], 30),
            (&["cache-control: max-age=60", "age: -1"], 0),
            (&["cache-control: max-age=60", "age: 1.0"], 0),
            (&["cache-control: max-age=60", "age: abc"], 0),
            (&["cache-control: max-age=60", "age: 1;a=b"], 0),
            (&["cache-control: max-age=60", "age: 99999999999"], 0),
            // The maximum lifetime.
            (&["cache-control: max-age=99999999999"], 1 << 31),
            (&["expires: Fri, 31 Dec 9999 23:59:59 GMT"], 1 << 31),
            // A targeted field replaces the others.
            (&["cdn-cache-control: max-age=60", "cache-control: max-age=5"], 60),
            (&["cdn-cache-control: max-age=5", "cache-control: s-maxage=60"], 5),
            (&["cdn-cache-control: public", &at("expires", NOW + 60)], 0),
            (&["cdn-cache-control: max-age=&", "cache-control: max-age=60"], 60),
            (&["sealion-cache-control: max-age=60", "cdn-cache-control: max-age=5"], 60),
            // Heuristics: a tenth of the time since the last modification, at most a day.
            (&[&at("last-modified", NOW - 600)], 60),
            (&[&at("last-modified", NOW - 610), &at("date", NOW - 10)], 50),
            (&[&at("last-modified", NOW + 600)], 0),
            (&[&at("last-modified", NOW - 86_400 * 100)], 86_400),
            (&[&at("last-modified", NOW - 600), "cache-control: max-age=5"], 5),
            (&[&at("last-modified", NOW - 600), "expires: 0"], 0),
            (&["last-modified: yesterday"], 0),
            (&[], 0),
        ] {
            let lines: Vec<_> = lines.iter().copied().chain([ETAG]).collect();
            let lifetime = lifetime(&lines);
            let none = RequestDirectives::default();
            assert_eq!(lifetime.expires().saturating_sub(NOW), remaining, "{lines:?}");
            assert_eq!(lifetime.assess(&none, NOW) == Assessment::Fresh, remaining > 0, "{lines:?}");
            if remaining > 0 {
                assert_eq!(lifetime.assess(&none, NOW + remaining - 1), Assessment::Fresh, "{lines:?}");
            }
            assert_ne!(lifetime.assess(&none, NOW + remaining), Assessment::Fresh, "{lines:?}");
        }
    }

    #[test]
    fn age_counts_from_the_request_that_was_answered() {
        let method = sealion_http::Method::Get;
        let request = StoreRequest { method, has_authorization: false, directives: RequestDirectives::default() };
        let age = |lines: &[&str], requested, received, now| {
            may_store(&Policy::default(), &request, 200, &fields(lines), requested, received).unwrap().age(now)
        };
        const FRESH: &str = "cache-control: max-age=600";
        assert_eq!(age(&[FRESH], NOW, NOW, NOW), 0);
        assert_eq!(age(&[FRESH], NOW - 7, NOW, NOW + 3), 10);
        assert_eq!(age(&[FRESH, "age: 30"], NOW - 7, NOW, NOW + 3), 40);
        assert_eq!(age(&[FRESH, "age: 30", &format!("date: {}", date(NOW - 60))], NOW - 7, NOW, NOW + 3), 63);
        // Clocks that were set back.
        assert_eq!(age(&[FRESH, "age: 30"], NOW + 7, NOW, NOW - 3), 30);
    }

    #[test]
    fn what_may_be_sent_stale() {
        use Assessment::{Fresh, MustRevalidate, StaleWhileRevalidate};
        const STALE: Assessment = Assessment::Stale { may_serve_on_error: false };
        const ON_ERROR: Assessment = Assessment::Stale { may_serve_on_error: true };
        let request = |line: &str| RequestDirectives::parse([line.as_bytes()].into_iter(), std::iter::empty());
        // The response's directives, the request's directives, the age, and the assessment.
        for (response, directives, age, expected) in [
            ("max-age=60", "", 59, Fresh),
            ("max-age=60", "", 60, STALE),
            ("max-age=60", "no-cache", 0, MustRevalidate),
            ("max-age=60", "no-cache, max-stale, stale-if-error=60", 60, MustRevalidate),
            ("max-age=60, no-cache", "max-stale", 0, MustRevalidate),
            ("max-age=60, no-cache, stale-if-error=60", "stale-if-error=60", 60, MustRevalidate),
            ("max-age=60, no-cache=\"a\"", "", 0, Fresh),
            // Maximum age.
            ("max-age=60", "max-age=30", 30, Fresh),
            ("max-age=60", "max-age=30", 31, STALE),
            ("max-age=60, stale-if-error=5", "max-age=30", 31, ON_ERROR),
            ("max-age=60, must-revalidate, stale-if-error=5", "max-age=30", 31, ON_ERROR),
            ("max-age=60, immutable", "max-age=0", 59, Fresh),
            ("max-age=60, immutable", "max-age=0", 60, STALE),
            ("max-age=60, immutable", "max-age=0, max-stale", 60, STALE),
            ("max-age=60, immutable", "no-cache", 59, MustRevalidate),
            ("max-age=60, immutable", "min-fresh=2", 59, STALE),
            // Minimum remaining freshness.
            ("max-age=60", "min-fresh=30", 30, Fresh),
            ("max-age=60", "min-fresh=30", 31, STALE),
            ("max-age=60, stale-while-revalidate=60", "min-fresh=30", 31, STALE),
            ("max-age=60, stale-while-revalidate=60", "min-fresh=0", 61, STALE),
            // Stale, but the request accepts it.
            ("max-age=60", "max-stale=5", 65, Fresh),
            ("max-age=60", "max-stale=5", 66, STALE),
            ("max-age=60", "max-stale", 1_000_000, Fresh),
            ("max-age=60", "max-stale=5, max-age=62", 62, Fresh),
            ("max-age=60", "max-stale=5, max-age=62", 63, STALE),
            ("max-age=60", "max-stale=5, min-fresh=1", 62, STALE),
            ("max-age=60, must-revalidate", "max-stale", 60, MustRevalidate),
            ("max-age=60, proxy-revalidate", "max-stale", 60, MustRevalidate),
            ("s-maxage=60", "max-stale", 60, MustRevalidate),
            ("s-maxage=60", "", 59, Fresh),
            // Stale during revalidation.
            ("max-age=60, stale-while-revalidate=10", "", 60, StaleWhileRevalidate),
            ("max-age=60, stale-while-revalidate=10", "", 69, StaleWhileRevalidate),
            ("max-age=60, stale-while-revalidate=10", "", 70, STALE),
            ("max-age=60, stale-while-revalidate=10", "max-age=100", 60, STALE),
            ("max-age=60, stale-while-revalidate=10, must-revalidate", "", 60, MustRevalidate),
            ("max-age=60, stale-while-revalidate=10, proxy-revalidate", "", 60, MustRevalidate),
            ("max-age=60, stale-while-revalidate=x", "", 60, STALE),
            // The same response permits what s-maxage alone would forbid.
            ("s-maxage=60, stale-while-revalidate=10", "", 60, StaleWhileRevalidate),
            ("s-maxage=60, stale-while-revalidate=10", "", 70, MustRevalidate),
            ("s-maxage=60, stale-if-error=10", "", 69, ON_ERROR),
            ("s-maxage=60, stale-if-error=10", "", 70, MustRevalidate),
            ("s-maxage=60", "stale-if-error=10", 60, MustRevalidate),
            // Stale if the origin fails.
            ("max-age=60, stale-if-error=10", "", 69, ON_ERROR),
            ("max-age=60, stale-if-error=10", "", 70, STALE),
            ("max-age=60", "stale-if-error=10", 69, ON_ERROR),
            ("max-age=60", "stale-if-error=10", 70, STALE),
            ("max-age=60, must-revalidate", "stale-if-error=10", 60, MustRevalidate),
            ("max-age=60, stale-if-error=10, must-revalidate", "", 60, MustRevalidate),
            ("max-age=60, stale-while-revalidate=5, stale-if-error=10", "", 64, StaleWhileRevalidate),
            ("max-age=60, stale-while-revalidate=5, stale-if-error=10", "", 65, ON_ERROR),
        ] {
            let lifetime = lifetime(&[&format!("cache-control: {response}"), ETAG]);
            assert_eq!(lifetime.assess(&request(directives), NOW + age), expected, "{response} | {directives} | {age}");
        }
    }

    #[test]
    fn an_operators_stale_use_extends_a_lifetime() {
        use Assessment::{MustRevalidate, StaleWhileRevalidate};
        let policy = Policy { stale_while_revalidate: Some(10), stale_if_error: Some(20), ..Policy::default() };
        let at =
            |line: &str, age| stored(&policy, &[line, ETAG]).unwrap().assess(&RequestDirectives::default(), NOW + age);
        const ON_ERROR: Assessment = Assessment::Stale { may_serve_on_error: true };
        const STALE: Assessment = Assessment::Stale { may_serve_on_error: false };
        assert_eq!(at("cache-control: max-age=60", 69), StaleWhileRevalidate);
        assert_eq!(at("cache-control: max-age=60", 79), ON_ERROR);
        assert_eq!(at("cache-control: s-maxage=60", 69), StaleWhileRevalidate);
        assert_eq!(at("cache-control: max-age=60, stale-while-revalidate=0", 60), ON_ERROR);
        assert_eq!(at("cache-control: max-age=60, stale-if-error=0, stale-while-revalidate=0", 60), STALE);
        assert_eq!(at("cache-control: max-age=60, must-revalidate", 60), MustRevalidate);
        // A response without a lifetime may be for one user only.
        assert_eq!(at("server: a", 0), STALE);
        assert_eq!(at("cache-control: max-age=0", 0), STALE);
        assert_eq!(stored(&policy, &["server: a"]), Err(NotStored::NoLifetime));
    }

    #[test]
    fn a_doubtful_response_is_validated_first_and_serves_on_errors() {
        let fresh = lifetime(&["cache-control: max-age=60, stale-while-revalidate=60, stale-if-error=60"]);
        let doubtful = fresh.made_doubtful(NOW + 20);
        let any_age = RequestDirectives { max_stale: Some(u32::MAX), ..RequestDirectives::default() };
        for request in [RequestDirectives::default(), any_age] {
            assert_eq!(doubtful.assess(&request, NOW + 20), Assessment::Stale { may_serve_on_error: true });
        }
    }

    #[test]
    fn a_response_made_stale_keeps_its_stale_use_from_then_on() {
        let fresh = lifetime(&["cache-control: max-age=60, stale-while-revalidate=10", "age: 5"]);
        let none = RequestDirectives::default();
        let stale = fresh.made_stale(NOW + 20);
        assert_eq!(stale.expires(), NOW + 20);
        assert_eq!(stale.age(NOW + 20), 25);
        assert_eq!(stale.assess(&none, NOW + 29), Assessment::StaleWhileRevalidate);
        assert_eq!(stale.assess(&none, NOW + 30), Assessment::Stale { may_serve_on_error: false });
        assert_eq!(stale.made_stale(NOW + 40), stale, "what is stale stays as it is");
        let must = lifetime(&["cache-control: max-age=60, must-revalidate"]).made_stale(NOW);
        assert_eq!(must.assess(&none, NOW), Assessment::MustRevalidate);
    }

    #[test]
    fn bytes_give_the_lifetime_back() {
        assert_eq!(size_of::<Lifetime>(), Lifetime::LENGTH);
        let all = lifetime(&[
            "cache-control: s-maxage=60, stale-while-revalidate=10, stale-if-error=20, no-cache, must-revalidate, immutable",
            "age: 5",
            ETAG,
        ]);
        let bytes = all.to_bytes();
        assert_eq!(Lifetime::from_bytes(bytes), Some(all));
        assert_eq!(bytes[..8], ((NOW << 8) | 15).to_le_bytes());
        assert_eq!(bytes[8..], [5u32, 60, 10, 20].map(u32::to_le_bytes).concat());
        let unknown = [bytes[0] | 16].into_iter().chain(bytes[1..].iter().copied()).collect::<Vec<_>>();
        assert_eq!(Lifetime::from_bytes(unknown.try_into().unwrap()), None);
    }

    #[test]
    fn errors_that_stale_responses_stand_in_for() {
        let errors: Vec<_> = (100..600).filter(|status| is_error_for_stale(*status)).collect();
        assert_eq!(errors, [500, 502, 503, 504]);
    }
}
