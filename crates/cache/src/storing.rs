//! Whether a response may be stored (RFC 9111 §3), and which of its fields.

use http::header::{AGE, CACHE_CONTROL, CONNECTION, DATE, ETAG, LAST_MODIFIED, PROXY_AUTHENTICATE, SET_COOKIE};
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::{HOP_BY_HOP, Method};

use crate::Seconds;
use crate::accel::{X_ACCEL_EXPIRES, accel};
use crate::directives::{RequestDirectives, ResponseDirectives, Scope};
use crate::freshness::{self, Lifetime};
use crate::policy::Policy;
use crate::{targeted, vary};

/// The properties of the request that decide whether its response may be stored.
#[derive(Debug, Clone, Copy)]
pub struct StoreRequest<'a> {
    /// Its method.
    pub method: Method<'a>,
    /// Whether it has Authorization.
    pub has_authorization: bool,
    /// Its directives.
    pub directives: RequestDirectives,
}

/// The reason why a response is not stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotStored {
    /// The method is not GET.
    Method,
    /// The request has `no-store`.
    RequestNoStore,
    /// The response has `no-store`.
    NoStore,
    /// The response has `private`.
    Private,
    /// The request has Authorization, and the response does not permit storing (RFC 9111 §3.5).
    Authorization,
    /// The response has Set-Cookie.
    SetCookie,
    /// No other request would match: `Vary: *`, or a malformed Vary.
    VaryAny,
    /// The response is part of a representation (206).
    Range,
    /// The status does not permit storing, either never or only with a lifetime set by the origin.
    Status,
    /// The response would never be used: it is stale on arrival and has no validator.
    NoLifetime,
}

impl NotStored {
    /// A word for logs and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            NotStored::Method => "method",
            NotStored::RequestNoStore => "request-no-store",
            NotStored::NoStore => "no-store",
            NotStored::Private => "private",
            NotStored::Authorization => "authorization",
            NotStored::SetCookie => "set-cookie",
            NotStored::VaryAny => "vary-any",
            NotStored::Range => "range",
            NotStored::Status => "status",
            NotStored::NoLifetime => "no-lifetime",
        }
    }

    /// Whether the request is the reason, so that the response to another request may be stored.
    pub fn is_of_request(self) -> bool {
        matches!(self, NotStored::Authorization | NotStored::RequestNoStore)
    }
}

/// Whether a response may be stored, and how it may be used. `requested`: when the request was sent. `received`: when
/// the head of the response arrived.
pub fn may_store(
    policy: &Policy,
    request: &StoreRequest<'_>,
    status: u16,
    fields: &HeaderMap,
    requested: Seconds,
    received: Seconds,
) -> Result<Lifetime, NotStored> {
    if request.method != Method::Get {
        return Err(NotStored::Method);
    }
    match status {
        206 => return Err(NotStored::Range),
        // 304 stands for the content of another response, and 1xx is not a final response.
        304 | ..200 => return Err(NotStored::Status),
        _ => {}
    }
    if request.directives.no_store && !policy.ignore_request_directives {
        return Err(NotStored::RequestNoStore);
    }
    let (directives, is_targeted) = directives(policy, fields);
    if directives.must_understand {
        // It overrides no-store for caches that understand the status (RFC 9111 §5.2.2.3).
        if !is_understood(status) {
            return Err(NotStored::Status);
        }
    } else if directives.no_store {
        return Err(NotStored::NoStore);
    }
    if directives.private == Scope::Response {
        return Err(NotStored::Private);
    }
    if request.has_authorization && !(directives.must_revalidate || directives.public || directives.s_maxage.is_some())
    {
        return Err(NotStored::Authorization);
    }
    let drops_set_cookie =
        || policy.ignores(&SET_COOKIE) || directives.excluded_fields().any(|name| name == SET_COOKIE);
    if fields.contains_key(SET_COOKIE) && !policy.store_set_cookie && !drops_set_cookie() {
        return Err(NotStored::SetCookie);
    }
    if vary::vary(fields, policy).is_none() {
        return Err(NotStored::VaryAny);
    }
    let explicit = freshness::explicit(policy, fields, &directives, is_targeted, received);
    if explicit.is_none() && !directives.public && policy.ttl(status).is_none() && !is_heuristically_cacheable(status) {
        return Err(NotStored::Status);
    }
    let lifetime = Lifetime::new(policy, status, fields, &directives, explicit, [requested, received]);
    let has_validator = fields.contains_key(ETAG) || fields.contains_key(LAST_MODIFIED);
    if has_validator || lifetime.is_ever_usable() { Ok(lifetime) } else { Err(NotStored::NoLifetime) }
}

/// Whether the origin or the operator sets a lifetime. Otherwise the lifetime is heuristic, or each request validates
/// the response.
pub fn has_lifetime(policy: &Policy, status: u16, fields: &HeaderMap) -> bool {
    let (directives, is_targeted) = directives(policy, fields);
    policy.ttl(status).is_some() || freshness::explicit(policy, fields, &directives, is_targeted, 0).is_some()
}

/// The fields of a response to store: all except connection fields, Age, which [`Lifetime::age`] replaces, and the
/// fields that `no-cache` and `private` name. A missing Date is added (RFC 9110 §6.6.1).
pub fn storable_fields(policy: &Policy, fields: &HeaderMap, received: Seconds) -> HeaderMap {
    let excluded = Excluded::of(policy, fields);
    let mut stored = HeaderMap::with_capacity(fields.len() + 1);
    for (name, value) in fields {
        if !excluded.contains(name) {
            stored.append(name, value.clone());
        }
    }
    add_date(&mut stored, received);
    stored
}

/// Replaces a Date that is missing or invalid.
pub(crate) fn add_date(fields: &mut HeaderMap, received: Seconds) {
    if fields.get(DATE).and_then(freshness::date).is_none() {
        // HTTP-dates end with the year 9999.
        let received = received.min(253_402_300_799);
        let time = std::time::UNIX_EPOCH + std::time::Duration::from_secs(received);
        let value = HeaderValue::try_from(httpdate::fmt_http_date(time)).expect("an HTTP-date is visible ASCII");
        fields.insert(DATE, value);
    }
}

/// The directives that apply, and whether they come from a targeted field.
fn directives(policy: &Policy, fields: &HeaderMap) -> (ResponseDirectives, bool) {
    let ignores_cache_control = policy.ignores(&CACHE_CONTROL);
    let targeted = if ignores_cache_control { None } else { targeted::targeted(fields) };
    let of_accel = || if policy.ignores(&X_ACCEL_EXPIRES) { None } else { accel(fields) };
    match targeted.or_else(of_accel) {
        Some(directives) => (directives, true),
        None if ignores_cache_control => Default::default(),
        None => {
            let lines = fields.get_all(CACHE_CONTROL).iter().map(HeaderValue::as_bytes);
            (ResponseDirectives::parse(lines), false)
        }
    }
}

/// Fields that are not stored (RFC 9111 §3.1).
pub(crate) struct Excluded {
    named: Vec<HeaderName>,
}

impl Excluded {
    pub(crate) fn of(policy: &Policy, fields: &HeaderMap) -> Self {
        let lines = fields.get_all(CONNECTION).iter().map(HeaderValue::as_bytes);
        let members = lines.flat_map(|line| line.split(|byte| *byte == b','));
        let mut named: Vec<_> = members.filter_map(|member| HeaderName::from_bytes(member.trim_ascii()).ok()).collect();
        named.extend(directives(policy, fields).0.excluded_fields().cloned());
        if policy.ignores(&SET_COOKIE) && !policy.store_set_cookie {
            named.push(SET_COOKIE);
        }
        Excluded { named }
    }

    pub(crate) fn contains(&self, name: &HeaderName) -> bool {
        HOP_BY_HOP.contains(&name.as_str())
            || name == AGE
            || name == PROXY_AUTHENTICATE
            || name == "proxy-authentication-info"
            || self.named.contains(name)
    }
}

/// Statuses that may be stored without a lifetime set by the origin (RFC 9110 §15.1), except 206.
fn is_heuristically_cacheable(status: u16) -> bool {
    matches!(status, 200 | 203 | 204 | 300 | 301 | 308 | 404 | 405 | 410 | 414 | 501)
}

/// Statuses whose caching rules are implemented: RFC 9110 §15 except 206 and 304, which are not stored, and some newer
/// statuses.
fn is_understood(status: u16) -> bool {
    matches!(status, 200..=205 | 300..=303 | 307 | 308 | 400..=417 | 421 | 422 | 426 | 428 | 429 | 431 | 451 | 500..=505 | 511)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::{NOW, fields};

    const GET: StoreRequest<'_> = StoreRequest {
        method: Method::Get,
        has_authorization: false,
        directives: RequestDirectives {
            no_cache: false,
            no_store: false,
            only_if_cached: false,
            max_age: None,
            min_fresh: None,
            max_stale: None,
            stale_if_error: None,
        },
    };

    fn result(policy: &Policy, request: &StoreRequest<'_>, status: u16, lines: &[&str]) -> Result<(), NotStored> {
        may_store(policy, request, status, &fields(lines), NOW, NOW).map(|_| ())
    }

    const FRESH: &str = "cache-control: max-age=60";
    const ETAG: &str = "etag: \"a\"";
    const COOKIE: &str = "set-cookie: a=b";

    #[test]
    fn what_is_stored() {
        use NotStored::{NoLifetime, NoStore, Private, SetCookie, VaryAny};
        for (lines, expected) in [
            (&[FRESH][..], Ok(())),
            (&["cache-control: no-store"], Err(NoStore)),
            (&["cache-control: max-age=60, no-store"], Err(NoStore)),
            (&[FRESH, "cache-control: NO-STORE"], Err(NoStore)),
            (&["cache-control: max-age=60, private"], Err(Private)),
            (&["cache-control: max-age=60, private=\"a\""], Ok(())),
            (&["cache-control: max-age=60, no-cache=\"a\""], Ok(())),
            // Stale on arrival: stored only with a validator.
            (&[], Err(NoLifetime)),
            (&[ETAG], Ok(())),
            (&["last-modified: yesterday"], Ok(())),
            (&["cache-control: max-age=0"], Err(NoLifetime)),
            (&["cache-control: max-age=0", ETAG], Ok(())),
            (&["cache-control: max-age=60, no-cache"], Err(NoLifetime)),
            (&["cache-control: max-age=60, no-cache", ETAG], Ok(())),
            (&["cache-control: max-age=60", "age: 60"], Err(NoLifetime)),
            (&["cache-control: max-age=0, stale-while-revalidate=5"], Ok(())),
            (&["cache-control: max-age=0, stale-if-error=5"], Ok(())),
            (&["cache-control: max-age=0, stale-if-error=5, must-revalidate"], Err(NoLifetime)),
            (&["expires: 0"], Err(NoLifetime)),
            // Vary.
            (&[FRESH, "vary: accept, foo"], Ok(())),
            (&[FRESH, "vary: *"], Err(VaryAny)),
            (&[FRESH, "vary: foo", "vary: *"], Err(VaryAny)),
            (&[FRESH, "vary: a b"], Err(VaryAny)),
            // Set-Cookie is not stored, unless the origin excludes only the field.
            (&[FRESH, COOKIE], Err(SetCookie)),
            (&["cache-control: max-age=60, no-cache=\"Set-Cookie\"", COOKIE], Ok(())),
            (&["cache-control: max-age=60, private=\"set-cookie, a\"", COOKIE], Ok(())),
            (&["cache-control: max-age=60, no-cache=\"a\"", COOKIE], Err(SetCookie)),
            // must-understand replaces no-store.
            (&["cache-control: max-age=60, no-store, must-understand"], Ok(())),
            // Targeted fields.
            (&["cache-control: no-store", "cdn-cache-control: max-age=60"], Ok(())),
            (&[FRESH, "cdn-cache-control: no-store"], Err(NoStore)),
            (&[FRESH, "cdn-cache-control: private"], Err(Private)),
            // Pragma has no meaning in a response (RFC 9111 §5.4).
            (&[FRESH, "pragma: no-cache"], Ok(())),
        ] {
            assert_eq!(result(&Policy::default(), &GET, 200, lines), expected, "{lines:?}");
        }
    }

    #[test]
    fn requests_whose_responses_are_not_stored() {
        let policy = Policy::default();
        for (method, expected) in [("GET", Ok(())), ("HEAD", Err(NotStored::Method)), ("POST", Err(NotStored::Method))]
        {
            let request = StoreRequest { method: Method::from_token(method), ..GET };
            assert_eq!(result(&policy, &request, 200, &[FRESH]), expected, "{method}");
        }
        let no_store = StoreRequest { directives: RequestDirectives { no_store: true, ..GET.directives }, ..GET };
        assert_eq!(result(&policy, &no_store, 200, &[FRESH]), Err(NotStored::RequestNoStore));
        let ignoring = Policy { ignore_request_directives: true, ..Policy::default() };
        assert_eq!(result(&ignoring, &no_store, 200, &[FRESH]), Ok(()));

        let authorized = StoreRequest { has_authorization: true, ..GET };
        for (directives, expected) in [
            ("max-age=60", Err(NotStored::Authorization)),
            ("max-age=60, proxy-revalidate", Err(NotStored::Authorization)),
            ("max-age=60, public", Ok(())),
            ("max-age=60, must-revalidate", Ok(())),
            ("s-maxage=60", Ok(())),
            ("s-maxage=60, private", Err(NotStored::Private)),
        ] {
            let line = format!("cache-control: {directives}");
            assert_eq!(result(&policy, &authorized, 200, &[&line]), expected, "{directives}");
        }
    }

    #[test]
    fn statuses() {
        let policy = Policy::default();
        let stored = |lines: &[&str]| -> Vec<u16> {
            (100..600).filter(|status| result(&policy, &GET, *status, lines).is_ok()).collect()
        };
        let by_default = stored(&[ETAG]);
        assert_eq!(by_default, [200, 203, 204, 300, 301, 308, 404, 405, 410, 414, 501]);
        for line in [FRESH, "cache-control: public", "expires: Sun, 06 Nov 1994 08:50:37 GMT"] {
            assert_eq!(stored(&[line, ETAG]).len(), 400 - 2, "every final one but 206 and 304: {line}");
        }
        let understood = |status| result(&policy, &GET, status, &["cache-control: max-age=60, must-understand"]);
        assert_eq!(
            (understood(404), understood(299), understood(599)),
            (Ok(()), Err(NotStored::Status), Err(NotStored::Status))
        );
        assert_eq!(result(&policy, &GET, 206, &[FRESH]), Err(NotStored::Range));
        assert_eq!(result(&policy, &GET, 302, &[ETAG]), Err(NotStored::Status));
    }

    #[test]
    fn lifetimes_of_an_operator() {
        let policy = Policy { default_ttl: vec![(200, 60), (302, 5), (404, 0)], ..Policy::default() };
        let expires = |status, lines: &[&str]| {
            may_store(&policy, &GET, status, &fields(lines), NOW, NOW).map(|lifetime| lifetime.expires() - NOW)
        };
        assert_eq!(expires(200, &[]), Ok(60));
        assert_eq!(expires(302, &[]), Ok(5));
        assert_eq!(expires(303, &[]), Err(NotStored::Status));
        assert_eq!(expires(404, &[]), Err(NotStored::NoLifetime));
        assert_eq!(expires(200, &["cache-control: max-age=7"]), Ok(7));
        assert_eq!(expires(200, &["last-modified: Sun, 06 Nov 1994 08:39:37 GMT"]), Ok(60), "not a guess");
        assert_eq!(expires(200, &["cache-control: no-store"]), Err(NotStored::NoStore));
        let no_guess = Policy { heuristic_max: 0, ..Policy::default() };
        let modified = fields(&["last-modified: Sun, 06 Nov 1994 08:39:37 GMT"]);
        assert_eq!(may_store(&no_guess, &GET, 200, &modified, NOW, NOW).unwrap().expires(), NOW);
    }

    #[test]
    fn x_accel_expires_goes_before_what_is_for_all_caches() {
        let policy = Policy { default_ttl: vec![(200, 60)], ..Policy::default() };
        let expires = |lines: &[&str]| {
            may_store(&policy, &GET, 200, &fields(lines), NOW, NOW).map(|lifetime| lifetime.expires() - NOW)
        };
        let at = format!("x-accel-expires: @{}", NOW + 30);
        for (lines, expected) in [
            (&["x-accel-expires: 0"][..], Err(NotStored::NoStore)),
            (&["x-accel-expires: 0", FRESH, "expires: Sun, 06 Nov 1994 08:50:37 GMT"], Err(NotStored::NoStore)),
            (&["x-accel-expires: 7", "cache-control: private, max-age=5", "expires: 0"], Ok(7)),
            (&[&at, "cache-control: no-store"], Ok(30)),
            // By the clock of the origin, as with Expires.
            (&[&at, "date: Sun, 06 Nov 1994 08:49:27 GMT"], Ok(30)),
            (&["x-accel-expires: @1", FRESH], Err(NotStored::NoLifetime)),
            (&["x-accel-expires: 7", "cdn-cache-control: max-age=8"], Ok(8)),
            (&["x-accel-expires: 0", "surrogate-control: max-age=8"], Ok(8)),
            (&["x-accel-expires: 7", "surrogate-control: no-store"], Err(NotStored::NoStore)),
            // The value has no meaning: the next field counts.
            (&["x-accel-expires: soon", "cache-control: no-store"], Err(NotStored::NoStore)),
            (&["x-accel-expires: off", "cache-control: max-age=5"], Ok(5)),
            (&["x-accel-expires: 7", COOKIE], Err(NotStored::SetCookie)),
        ] {
            assert_eq!(expires(lines), expected, "{lines:?}");
        }
        let authorized = StoreRequest { has_authorization: true, ..GET };
        assert_eq!(
            result(&policy, &authorized, 200, &["x-accel-expires: 7"]),
            Err(NotStored::Authorization),
            "it is no permission for others"
        );
        assert!(has_lifetime(&Policy::default(), 200, &fields(&["x-accel-expires: 7"])));
    }

    #[test]
    fn fields_of_responses_can_be_ignored() {
        let ignoring = |names: &[&'static str]| Policy {
            default_ttl: vec![(200, 60)],
            ignore_response: names.iter().map(|name| HeaderName::from_static(name)).collect(),
            ..Policy::default()
        };
        let expires = |policy: &Policy, lines: &[&str]| {
            may_store(policy, &GET, 200, &fields(lines), NOW, NOW).map(|lifetime| lifetime.expires() - NOW)
        };
        let lines =
            ["cache-control: private, max-age=5", "cdn-cache-control: no-store", "expires: 0", COOKIE, "vary: *"];
        assert_eq!(expires(&ignoring(&["cache-control", "expires", "set-cookie", "vary"]), &lines), Ok(60));
        assert_eq!(expires(&ignoring(&["expires", "set-cookie", "vary"]), &lines), Err(NotStored::NoStore));
        assert_eq!(expires(&ignoring(&["cache-control", "set-cookie", "vary"]), &lines), Err(NotStored::NoLifetime));
        assert_eq!(expires(&ignoring(&["cache-control", "expires", "vary"]), &lines), Err(NotStored::SetCookie));
        assert_eq!(expires(&ignoring(&["cache-control", "expires", "set-cookie"]), &lines), Err(NotStored::VaryAny));
        // As in nginx, `0` in this field forbids a response that Cache-Control permits.
        let forbidden = ["cache-control: max-age=5", "x-accel-expires: 0"];
        assert_eq!(expires(&ignoring(&["cache-control"]), &forbidden), Err(NotStored::NoStore));
        assert_eq!(expires(&ignoring(&["x-accel-expires"]), &forbidden), Ok(5));
        assert_eq!(expires(&ignoring(&["x-accel-expires", "cache-control"]), &forbidden), Ok(60));
        let storing = Policy { store_set_cookie: true, ..Policy::default() };
        assert_eq!(expires(&storing, &[FRESH, COOKIE]), Ok(60));
        assert!(storable_fields(&storing, &fields(&lines), NOW).contains_key(SET_COOKIE));
        assert!(!storable_fields(&ignoring(&["set-cookie"]), &fields(&lines), NOW).contains_key(SET_COOKIE));
    }

    #[test]
    fn fields_that_are_stored() {
        let response = fields(&[
            "connection: close, X-Hop",
            "x-hop: 1",
            "keep-alive: 1",
            "te: trailers",
            "transfer-encoding: chunked",
            "upgrade: h2c",
            "proxy-authenticate: Basic",
            "proxy-authentication-info: a",
            "proxy-authorization: a",
            "proxy-connection: close",
            "content-length: 3",
            "age: 5",
            "cache-control: max-age=60, no-cache=\"x-one\", private=\"x-two\"",
            "x-one: 1",
            "x-two: 2",
            "x-three: 3",
            "x-three: 4",
            "content-type: text/plain",
        ]);
        let stored = storable_fields(&Policy::default(), &response, NOW);
        let expected = fields(&[
            "cache-control: max-age=60, no-cache=\"x-one\", private=\"x-two\"",
            "x-three: 3",
            "x-three: 4",
            "content-type: text/plain",
            "date: Sun, 06 Nov 1994 08:49:37 GMT",
        ]);
        assert_eq!(stored, expected);
        for (date, kept) in [("Sun, 06 Nov 1994 08:49:00 GMT", true), ("yesterday", false)] {
            let stored = storable_fields(&Policy::default(), &fields(&[&format!("date: {date}")]), NOW);
            assert_eq!(stored[DATE] == date, kept);
        }
        assert_eq!(
            storable_fields(&Policy::default(), &HeaderMap::new(), u64::MAX)[DATE],
            "Fri, 31 Dec 9999 23:59:59 GMT"
        );
    }
}
