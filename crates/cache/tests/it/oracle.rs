//! `http-cache-semantics` as an oracle: for random responses, requests and times, both send a stored response without
//! validation, or neither does. [`DIFFERENCES`] lists the intended differences with reasons. Each of them must make a
//! difference in some case.

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use http::{HeaderMap, Request, Response};
use http_cache_semantics::{BeforeRequest, CacheOptions, CachePolicy};
use sealion_cache::{Assessment, Lifetime, NotStored, Policy, RequestDirectives, StoreRequest, may_store};
use sealion_http::Method;

/// The time of receipt: Sun, 06 Nov 1994 08:49:37 GMT.
const NOW: u64 = 784_111_777;

/// A response to a request, and a later request for the same resource.
#[derive(Debug, Default)]
struct Case {
    status: u16,
    /// Directives of the response, each a field line.
    directives: Vec<&'static str>,
    /// Seconds from now.
    date: Option<i64>,
    expires: Option<i64>,
    last_modified: Option<i64>,
    /// Other lines of the response.
    others: Vec<(&'static str, &'static str)>,
    has_authorization: bool,
    /// Cache-Control of the later request.
    request: Vec<&'static str>,
    /// The seconds until the later request.
    later: u64,
}

/// A reason for another decision, and the cases that it covers.
type Difference = (&'static str, fn(&Case) -> bool);

const DIFFERENCES: &[Difference] = &[
    ("there, proxy-revalidate is a lifetime of 0: RFC 9111 §5.2.2.8 speaks of stale responses only", |case| {
        case.says("proxy-revalidate")
    }),
    ("there, Set-Cookie is stored if the response is public or immutable, and sent stale for max-stale", |case| {
        case.has("set-cookie")
    }),
    ("there, the age does not count from Date: RFC 9111 §4.2.3 takes the apparent age", |case| {
        case.date.is_some_and(|date| date < 0)
    }),
    ("there, only known statuses are stored: RFC 9111 §3 allows every final one with a lifetime", |case| {
        matches!(case.status, 299 | 500)
    }),
    ("there, immutable gives a day: RFC 8246 gives no lifetime, and speaks of reloads", |case| case.says("immutable")),
    ("here, a guessed lifetime is a day at most", |case| case.last_modified.is_some_and(|at| at < -864_000)),
    ("there, no-cache for some fields is one for the response, and sent stale for max-stale", |case| {
        case.says_like("no-cache")
    }),
    ("there, private for some fields is one for the response", |case| case.says("private=\"x-a\"")),
    ("there, commas in quoted strings separate directives", |case| case.says("extension=\"a, no-store\"")),
    ("there, the case of directives matters: RFC 9111 §5.2 ignores it", |case| {
        case.says("Max-Age=60") || case.says("No-Store")
    }),
    ("there, a max-age without a value is none: here it is a lifetime of 0, as other invalid ones", |case| {
        case.says("max-age")
    }),
    ("there, Pragma of a response counts: RFC 9111 §5.4 gives it no meaning", |case| case.has("pragma")),
    ("there, must-understand is unknown (RFC 9111 §5.2.2.3)", |case| case.says("must-understand")),
    ("there, targeted fields are unknown (RFC 9213)", |case| case.has("cdn-cache-control")),
    (
        "there, an Age that is no number is 0; here the first member of a list counts, and what is invalid is old",
        |case| case.others.iter().any(|(name, value)| *name == "age" && value.parse::<u64>().is_err()),
    ),
    ("here, s-maxage forbids max-stale (RFC 9111 §5.2.2.10)", |case| {
        case.says_like("s-maxage") && case.asks_like("max-stale")
    }),
    ("there, max-stale=N means less than N: RFC 9111 §5.2.1.2 says no more than", |case| case.asks("max-stale=10")),
    ("here, a response that is stale on arrival and has no validator is not stored, for max-stale neither", |case| {
        case.asks_like("max-stale") && case.stored_here() == Err(NotStored::NoLifetime)
    }),
    ("there, two values of max-age are must-revalidate; here the first counts (RFC 9111 §4.2.1)", |case| {
        case.directives.iter().filter(|directive| directive.starts_with("max-age")).count() > 1
    }),
    ("there, an invalid max-age of a request is none; here it is 0", |case| case.asks("max-age=x")),
];

impl Case {
    fn says(&self, directive: &str) -> bool {
        self.directives.contains(&directive)
    }

    fn says_like(&self, start: &str) -> bool {
        self.directives.iter().any(|directive| directive.starts_with(start))
    }

    fn asks(&self, directive: &str) -> bool {
        self.request.contains(&directive)
    }

    fn asks_like(&self, start: &str) -> bool {
        self.request.iter().any(|directive| directive.starts_with(start))
    }

    fn has(&self, name: &str) -> bool {
        self.others.iter().any(|(other, _)| *other == name)
    }

    fn random(random: &mut Random) -> Case {
        const DIRECTIVES: [&str; 24] = [
            "max-age=60",
            "max-age=600",
            "max-age=0",
            "max-age=x",
            "max-age=99999999999",
            "max-age=\"60\"",
            "s-maxage=30",
            "s-maxage=0",
            "no-store",
            "public",
            "private",
            "must-revalidate",
            "stale-while-revalidate=60",
            "stale-if-error=60",
            "no-transform",
            "immutable",
            "proxy-revalidate",
            "no-cache=\"x-a\"",
            "private=\"x-a\"",
            "extension=\"a, no-store\"",
            "Max-Age=60",
            "No-Store",
            "max-age",
            "must-understand",
        ];
        const OTHERS: [(&str, &str); 12] = [
            ("age", "0"),
            ("age", "20"),
            ("age", "100"),
            ("age", "70, 0"),
            ("age", "-1"),
            ("etag", "\"a\""),
            ("vary", "*"),
            ("vary", "accept"),
            ("set-cookie", "a=b"),
            ("pragma", "no-cache"),
            ("cdn-cache-control", "max-age=100"),
            ("cdn-cache-control", "no-store"),
        ];
        const REQUEST: [&str; 10] = [
            "max-age=0",
            "max-age=30",
            "max-age=x",
            "min-fresh=30",
            "max-stale",
            "max-stale=10",
            "max-stale=1000",
            "no-cache",
            "no-store",
            "only-if-cached",
        ];
        let mut case = Case {
            status: random.one_of(&[200, 200, 200, 203, 299, 301, 302, 404, 500]),
            date: random.one_of(&[None, Some(0), Some(0), Some(-20), Some(20)]),
            expires: random.one_of(&[None, None, None, Some(60), Some(-60), Some(0), Some(100_000)]),
            last_modified: random.one_of(&[None, None, Some(-600), Some(-86_400), Some(-8_640_000), Some(60)]),
            has_authorization: random.below(6) == 0,
            later: random.one_of(&[0, 1, 10, 29, 30, 40, 59, 60, 61, 70, 90_000]),
            ..Case::default()
        };
        for _ in 0..random.below(4) {
            case.directives.push(random.one_of(&DIRECTIVES));
        }
        for _ in 0..random.below(3) {
            let other = random.one_of(&OTHERS);
            if !case.has(other.0) {
                case.others.push(other);
            }
        }
        for _ in 0..random.below(3) {
            case.request.push(random.one_of(&REQUEST));
        }
        case
    }

    fn response_fields(&self) -> HeaderMap {
        let mut fields = HeaderMap::new();
        for directive in &self.directives {
            fields.append("cache-control", directive.parse().unwrap());
        }
        for (name, value) in &self.others {
            fields.append(*name, value.parse().unwrap());
        }
        for (name, seconds) in [("date", self.date), ("expires", self.expires), ("last-modified", self.last_modified)] {
            if let Some(seconds) = seconds {
                let date = httpdate::fmt_http_date(time(NOW.saturating_add_signed(seconds)));
                fields.append(name, date.parse().unwrap());
            }
        }
        fields
    }

    /// Whether the oracle sends the stored response without validation.
    fn is_sent_there(&self) -> bool {
        let mut first = Request::get("https://example.org/");
        if self.has_authorization {
            first = first.header("authorization", "a");
        }
        let mut response = Response::builder().status(self.status).body(()).unwrap();
        *response.headers_mut() = self.response_fields();
        let options = CacheOptions::default();
        let policy = CachePolicy::new_options(&first.body(()).unwrap(), &response, time(NOW), options);
        let mut later = Request::get("https://example.org/");
        for directive in &self.request {
            later = later.header("cache-control", *directive);
        }
        let later = policy.before_request(&later.body(()).unwrap(), time(NOW + self.later));
        policy.is_storable() && matches!(later, BeforeRequest::Fresh(_))
    }

    fn stored_here(&self) -> Result<Lifetime, NotStored> {
        let directives = RequestDirectives::default();
        let request = StoreRequest { method: Method::Get, has_authorization: self.has_authorization, directives };
        may_store(&Policy::default(), &request, self.status, &self.response_fields(), NOW, NOW)
    }

    fn is_sent_here(&self) -> bool {
        let lines = self.request.iter().map(|line| line.as_bytes());
        let directives = RequestDirectives::parse(lines, std::iter::empty());
        self.stored_here().is_ok_and(|lifetime| lifetime.assess(&directives, NOW + self.later) == Assessment::Fresh)
    }
}

/// A linear congruential generator, for the same cases in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }
}

fn time(seconds: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(seconds)
}

#[test]
fn stored_responses_are_sent_as_by_the_oracle_or_for_a_reason() {
    let mut random = Random(1);
    // How often both sent, neither sent, and a reason made the difference.
    let mut agreed = [0; 2];
    let mut differed = BTreeMap::new();
    for _ in 0..200_000 {
        let case = Case::random(&mut random);
        let (here, there) = (case.is_sent_here(), case.is_sent_there());
        let mut reasons = DIFFERENCES.iter().filter(|(_, covers)| covers(&case)).map(|(reason, _)| *reason);
        match (reasons.next(), reasons.next()) {
            (None, _) => {
                assert_eq!(here, there, "{case:?}");
                agreed[usize::from(here)] += 1;
            }
            // A case with several reasons does not show the effect of each.
            (Some(reason), None) if here != there => *differed.entry(reason).or_insert(0) += 1,
            _ => {}
        }
    }
    for (reason, _) in DIFFERENCES {
        assert!(differed.contains_key(reason), "never made a difference: {reason}");
    }
    assert!(agreed.iter().all(|cases| *cases > 1000), "{agreed:?}");
}
