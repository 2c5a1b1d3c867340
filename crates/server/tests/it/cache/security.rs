//! Attacks of a client on others by way of the cache: poisoning, deception, confused keys.

use std::sync::atomic::{AtomicUsize, Ordering};

use sealion_testkit::http;

use super::{Cached, answer, counting, status};
use crate::support::upstream::{Received, Upstream};
use crate::support::{Site, wait_for_cache, wait_until};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";

/// Answers with what an application could read of a request.
fn echo(request: &Received) -> Vec<u8> {
    let mut seen = format!("{}\nhost: {}\n", request.line(), request.all("host").concat());
    for line in request.head.lines().skip(1) {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        if !["host", "cookie", "via", "x-request-id", "surrogate-capability"].contains(&name.as_str()) {
            seen.push_str(&format!("{line}\n"));
        }
    }
    answer(200, FRESH, seen.as_bytes())
}

/// Field names by which some applications take another URL, host, scheme or method than the request line says.
const OVERRIDES: [&str; 70] = [
    "X-Forwarded-Host",
    "X-Forwarded-Proto",
    "X-Forwarded-Port",
    "X-Forwarded-Scheme",
    "X-Forwarded-Server",
    "X-Forwarded-Prefix",
    "X-Host",
    "X-Original-Host",
    "X-Original-URL",
    "X-Rewrite-URL",
    "X-HTTP-Method-Override",
    "X-HTTP-Method",
    "X-Method-Override",
    "Forwarded",
    "X-Forwarded-Ssl",
    "X-Forwarded-Protocol",
    "X-Forwarded-Uri",
    "X-Forwarded-Url",
    "X-Forwarded-Path",
    "X-Forwarded-Method",
    "X-Forwarded-Context",
    "X-Forwarded-Base",
    "X-Forwarded-Https",
    "X-Forward-Host",
    "X-Forward-Proto",
    "X-Original-Uri",
    "X-Original-Method",
    "X-Original-Path",
    "X-Original-Proto",
    "X-Original-Scheme",
    "X-Rewrite-Uri",
    "X-Url-Scheme",
    "X-Scheme",
    "X-Proto",
    "X-Ssl",
    "X-Https",
    "X-Client-Scheme",
    "X-Real-Host",
    "X-Proxy-Host",
    "X-Host-Override",
    "X-HTTP-Host-Override",
    "X-HTTP-Path-Override",
    "X-Invoke-Path",
    "X-Script-Name",
    "X-Envoy-Original-Path",
    "X-Arr-Ssl",
    "Front-End-Https",
    "CloudFront-Forwarded-Proto",
    "Fastly-Ssl",
    "CF-Visitor",
    "Proxy-Host",
    "X-Invoke-Query",
    "X-Invoke-Output",
    "X-Matched-Path",
    "X-Now-Route-Matches",
    "X-Middleware-Subrequest",
    "X-Nextjs-Data",
    "X-Ms-Original-Url",
    "X-Waws-Unencoded-Url",
    "WL-Proxy-SSL",
    "X-Path",
    "X-Path-Info",
    "X-Url",
    "X-Forwarded",
    "X-Forwarded-Query",
    "X-Forwarded-Root",
    "X-Request-Scheme",
    "X-Is-Https",
    "X-Vhost",
    "X-Virtual-Host",
];

#[test]
fn a_field_that_makes_another_request_of_it_poisons_nothing() {
    let cached = Cached::new(Upstream::answering(echo));
    for name in OVERRIDES {
        let target = format!("/{name}");
        let poisoned = cached.get(&target, &[(name, "evil.example")]).body;
        let poisoned = String::from_utf8(poisoned).expect("text");
        assert!(!poisoned.contains("evil"), "{name}: {poisoned}");
        let clean = cached.get(&target, &[]).body;
        assert!(!String::from_utf8_lossy(&clean).contains("evil"), "{name}");
    }
}

/// The operator's own value is the same for every client; one that belongs to the key is the client's.
#[test]
fn fields_that_the_rule_sets_or_the_key_has_reach_the_origin() {
    let cached = Cached::stopped(Upstream::answering(echo), "", "");
    let rule = "default = true\nproxy = { to = 'app', cache = { key_headers = ['X-Scheme'] }, \
                request_headers = [{ name = 'X-Forwarded-Ssl', value = 'on' }, { name = 'X-Forwarded-Port', value = '443' }] }";
    let tables = format!(
        "[[upstream]]\nname = 'app'\nservers = [{{ url = '{}' }}]\n[cache]\ndirectories = ['{}']\n",
        cached.origin.url(),
        cached.directory.display()
    );
    let server = cached.site.config(rule).table(&tables).serve_from_user_space();
    wait_for_cache(&server, &cached.directory);
    let cached = Cached { server: Some(server), ..cached };
    let evil = [("X-Forwarded-Ssl", "evil"), ("X-Forwarded-Port", "evil"), ("X-Scheme", "one")];
    let seen = String::from_utf8(cached.get("/a", &evil).body).expect("text").to_ascii_lowercase();
    for line in ["x-forwarded-ssl: on\n", "x-forwarded-port: 443\n", "x-scheme: one\n"] {
        assert!(seen.contains(line) && !seen.contains("evil"), "{seen}");
    }
    assert_ne!(status(&cached.get("/a", &[("X-Scheme", "two")])), "hit");
}

#[test]
fn a_parameter_that_is_no_part_of_the_key_does_not_reach_the_origin_in_any_spelling() {
    let origin = Upstream::answering(|request| answer(200, FRESH, request.line().as_bytes()));
    let cached = Cached::with(origin, "", "query = 'sorted', drop_parameters = ['utm_*']");
    let queries = [
        "a=1&utm_x=1;a=evil",
        "a=1;utm_x=evil",
        "utm_x=1%26a=evil&a=1",
        "a=1&utm%5Fx=evil",
        "a=1&UTM_x=evil",
        "a=1&&utm_x=evil",
        "a=1&utm_x=evil&",
        "&a=1",
        "a=1&a=2",
        "a=2&a=1",
        "a=1&utm_[]=evil",
        "utm_x",
        "a=1?utm_x=evil",
    ];
    for query in queries {
        for _ in 0..2 {
            let response = cached.get(&format!("/a?{query}"), &[]);
            let seen = String::from_utf8(response.body).expect("text");
            // The origin got the request that the key describes: another spelling with this key gives this answer.
            let as_origin = seen.strip_prefix("GET ").expect("a request line");
            let direct = cached.get(as_origin, &[]);
            assert_eq!((direct.body.as_slice(), status(&direct).as_str()), (seen.as_bytes(), "hit"), "{query}");
        }
    }
}

/// A path that looks like a file of a style to the cache, and like the account to the application.
#[test]
fn an_account_under_the_name_of_a_style_is_not_stored_for_others() {
    let spellings = [
        "/account/x.css",
        "/account;x.css",
        "/account%2fx.css",
        "/account%3Bx.css",
        "/account%00x.css",
        "/account%0Ax.css",
        "/account%23x.css",
        "/account%3Fx.css",
        "/static/..%2faccount.css",
        "/static/../account.css",
        "/static/%2e%2e/account.css",
    ];
    let of_user = |fields: &'static str| {
        let count = AtomicUsize::new(0);
        Upstream::answering(move |request| {
            let n = count.fetch_add(1, Ordering::Relaxed);
            answer(200, fields, format!("account of {} {n}", request.all("cookie").concat()).as_bytes())
        })
    };
    // The origin forbids it, or says nothing, and the operator has a lifetime for styles alone.
    for (fields, rule) in [
        ("Cache-Control: private\r\n", "ttl = { 200 = '10m' }"),
        ("Cache-Control: no-store\r\n", "ttl = { 200 = '10m' }"),
        ("Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT\r\n", ""),
        ("Set-Cookie: session=1\r\n", "ttl = { 200 = '10m' }"),
    ] {
        let cached = Cached::with(of_user(fields), "", rule);
        for target in spellings {
            let victim = cached.get(target, &[("Cookie", "session=victim")]);
            let attacker = cached.get(target, &[]);
            assert!(!String::from_utf8_lossy(&attacker.body).contains("victim"), "{target} {fields:?}");
            assert_ne!(status(&attacker), "hit", "{target} {fields:?}");
            drop(victim);
        }
    }
}

/// A rule for a path must not be reached by a spelling that the application reads as another path.
#[test]
fn a_lifetime_for_one_path_is_not_one_for_another_in_disguise() {
    let origin = Upstream::answering(|request| answer(200, "", request.line().as_bytes()));
    let cached = Cached::below("/static/", origin, "ttl = { 200 = '10m' }");
    for target in [
        "/static/../account",
        "/static/..%2faccount",
        "/static%2f..%2faccount",
        "/static/%2e%2e/account",
        "/static/.%2e/account",
        "/static/..%5caccount",
        "/static/..;/account",
    ] {
        for _ in 0..3 {
            assert_ne!(status(&cached.get(target, &[])), "hit", "{target}");
        }
    }
    assert_eq!(cached.get("/static/a.css", &[]).status, 200);
    wait_until("it is stored", || status(&cached.get("/static/a.css", &[])) == "hit");
}

#[test]
fn requests_that_differ_for_the_origin_never_share_a_response() {
    let cached = Cached::with(Upstream::answering(echo), "", "bypass_cookies = ['bypass']");
    let targets = [
        "/a",
        "/a/",
        "/A",
        "/%61",
        "/a?",
        "/a??",
        "/a?b",
        "/a%3Fb",
        "/a?%62",
        "//a",
        "/./a",
        "/b/../a",
        "/a%2F",
        "/a//",
        "/%2561",
        "/a;b",
        "/a%3Bb",
        "/a%0A",
        "/a%0a",
        "/a%00",
        "/a%20",
        "/a+",
        "/a#",
        "/caf%C3%A9",
        "/caf%c3%a9",
        "https://localhost/a",
        "https://LOCALHOST/a",
        "https://localhost:443/a",
        "https://other.example/a",
    ];
    let hosts =
        ["localhost", "LOCALHOST", "localhost:443", "localhost:8443", "localhost.", "other.example", "localhost:"];
    let all: Vec<_> = targets.iter().flat_map(|target| hosts.map(|host| (*target, host))).collect();
    let mut hits = 0;
    for is_reversed in [false, true] {
        let mut all = all.clone();
        if is_reversed {
            all.reverse();
        }
        for (target, host) in all {
            let right = cached.get(target, &[("Host", host), ("Cookie", "bypass=1")]);
            let stored = cached.get(target, &[("Host", host)]);
            assert_eq!((stored.status, &stored.body), (right.status, &right.body), "{host} {target}");
            hits += usize::from(status(&stored) == "hit");
        }
    }
    assert!(hits > 100, "{hits} hits");
}

/// A request in one client's spelling is answered for all clients with another spelling.
#[test]
fn the_origin_gets_fields_as_they_are_compared() {
    let origin = Upstream::answering(|request| {
        let seen = format!("{:?}", request.all("accept-language"));
        answer(200, &format!("{FRESH}Vary: Accept-Language\r\n"), seen.as_bytes())
    });
    let cached = Cached::new(origin);
    let odd = cached.get("/a", &[("Accept-Language", "DE ,en")]);
    let usual = cached.get("/a", &[("Accept-Language", "de, en")]);
    assert_eq!((status(&usual).as_str(), odd.body.as_slice()), ("hit", &b"[\"de, en\"]"[..]));
    assert_eq!(usual.body, odd.body);
}

#[test]
fn fields_that_some_servers_take_for_others_do_not_reach_the_origin() {
    let cached = Cached::new(Upstream::answering(|request| answer(200, FRESH, request.head.as_bytes())));
    for name in ["X.Forwarded.Host", "X!Forwarded!Host", "X_Forwarded_Host", "X-Forwarded~Host", "Surrogate-Capability"]
    {
        let target = format!("/{}", name.len() + usize::from(name.as_bytes()[1]));
        let seen = cached.get(&target, &[(name, "evil.example")]).body;
        assert!(!String::from_utf8_lossy(&seen).contains("evil.example"), "{name}");
    }
}

#[test]
fn who_waits_for_the_fetch_of_another_does_not_get_its_failure() {
    let (go_on, wait) = std::sync::mpsc::channel::<()>();
    let wait = std::sync::Mutex::new(wait);
    let origin = Upstream::start(move |accepted| {
        while let Some(request) = accepted.request() {
            if !request.all("x-bad").is_empty() {
                let _ = wait.lock().unwrap().recv();
                return;
            }
            accepted.write(&answer(200, FRESH, b"the body"));
        }
    });
    let cached = Cached::new(origin);
    let mut hostile = cached.site.connect(cached.server());
    hostile.send(http::head("GET", "/a", &[("X-Bad", "1")]).as_bytes()).expect("the request leaves");
    wait_until("the origin has it", || cached.fetches() == 1);
    let mut others: Vec<_> = (0..5).map(|_| cached.site.connect(cached.server())).collect();
    for other in &mut others {
        other.send(http::head("GET", "/a", &[]).as_bytes()).expect("the request leaves");
    }
    go_on.send(()).expect("the origin waits");
    drop(go_on);
    for other in &mut others {
        assert_eq!(http::read_response(other, "GET").expect("a response").body, b"the body");
    }
}

#[test]
fn a_field_and_a_cookie_of_one_name_are_two_parts_of_a_key() {
    let origin = Upstream::answering(|request| {
        let seen = format!("{:?} {:?}", request.all("lang"), request.all("cookie"));
        answer(200, FRESH, seen.as_bytes())
    });
    let cached = Cached::with(origin, "", "key_headers = ['lang'], key_cookies = ['lang']");
    let by_field = cached.get("/a", &[("Lang", "de")]);
    assert_ne!(cached.get("/a", &[("Cookie", "lang=de")]).body, by_field.body);
}

#[test]
fn a_value_of_the_key_tells_responses_apart() {
    let origin = Upstream::answering(|request| answer(200, FRESH, request.all("x-device").join("|").as_bytes()));
    let table =
        "[[map]]\nname = 'device'\nfrom = '{header.x-device}'\ndefault = 'desk'\nentries = { '~* phone' = 'phone' }";
    let cached = Cached::with(origin, table, "key_values = ['{map.device}']");
    for (device, expected) in
        [("Phone A", "Phone A"), ("phone B", "Phone A"), ("x", "x"), ("y", "x"), ("Phone C", "Phone A")]
    {
        let response = cached.get("/a", &[("X-Device", device)]);
        assert_eq!(String::from_utf8_lossy(&response.body), expected, "{device}");
    }
    let site = Site::new();
    let keys = "proxy = { to = 'http://127.0.0.1:1', cache = { key_values = ['{split.half}'] } }";
    let tables = "[cache]\ndirectories = ['cache']\n[[split]]\nname = 'half'\nfrom = '{client}'\nshares = { a = '50%', b = '*' }";
    let problems = site.config(keys).table(tables).problems();
    assert!(problems.contains("cache.key_values: depends on the client's address"), "{problems}");
}

/// Neither a field name in another case nor a second one of a name leads to another's response.
#[test]
fn a_cookie_or_field_of_the_key_counts_however_it_is_written() {
    let origin = Upstream::answering(|request| {
        let seen = [request.all("x-country"), request.all("cookie")].concat().join(" | ");
        answer(200, FRESH, seen.as_bytes())
    });
    let cached =
        Cached::with(origin, "", "key_headers = ['x-country'], key_cookies = ['tenant'], bypass_cookies = ['bypass']");
    let requests: [&[(&str, &str)]; 9] = [
        &[],
        &[("X-Country", "de")],
        &[("x-country", "fr")],
        &[("X-Country", "de"), ("X-Country", "fr")],
        &[("X-Country", "fr"), ("X-Country", "de")],
        &[("X-Country", "de, fr")],
        &[("Cookie", "tenant=1")],
        &[("Cookie", "tenant=2")],
        &[("Cookie", "tenant=1; tenant=2")],
    ];
    for round in 0..2 {
        for request in requests {
            let all = |own: &str| -> Vec<&str> {
                request.iter().filter(|(name, _)| name.eq_ignore_ascii_case(own)).map(|(_, value)| *value).collect()
            };
            // Several lines of a field reach the origin as one.
            let parts = [all("x-country").join(", "), all("cookie").concat()];
            let expected: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
            let response = cached.get("/a", request);
            assert_eq!(String::from_utf8_lossy(&response.body), expected.join(" | "), "{request:?} in round {round}");
        }
    }
}

#[test]
fn what_x_accel_expires_forbids_to_store_is_not_stored_and_no_client_sees_the_field() {
    for (rule, expected) in [("", ["bypass", "bypass"]), ("ignore = ['X-Accel-Expires']", ["miss", "hit"])] {
        let cached = Cached::with(counting("X-Accel-Expires: 0\r\nCache-Control: max-age=1000\r\n"), "", rule);
        let answers = [(); 2].map(|()| cached.get("/account", &[]));
        let seen = answers.each_ref().map(status);
        assert_eq!(answers.each_ref().map(|answer| answer.field("x-accel-expires")), [None, None], "{rule}");
        assert_eq!(seen.each_ref().map(|word| word == "hit"), expected.map(|word| word == "hit"), "{rule}: {seen:?}");
    }
    let cached =
        Cached::new(counting("X-Accel-Expires: 1000\r\nSurrogate-Control: content=\"ESI/1.0\"\r\nX-All: 1\r\n"));
    for _ in 0..2 {
        let answer = cached.get("/a", &[]);
        let names = ["x-accel-expires", "surrogate-control", "x-all"];
        assert_eq!(names.map(|name| answer.field(name)), [None, None, Some("1")]);
    }
    assert_eq!(cached.fetches(), 1);
}
