//! Shadow requests: copies for another upstream, which no client waits for.

use std::collections::BTreeSet;
use std::process::Command;
use std::sync::Mutex;
use std::sync::mpsc::channel;

use sealion_testkit::http;

use super::post;
use crate::support::configured::Configured;
use crate::support::upstream::{Received, Upstream, ok};
use crate::support::watch::Watched;
use crate::support::{PROGRAM, Site, get, wait_for_message, wait_until};
use crate::top::top;

/// A site that forwards to `first` and copies to the upstream `next`, at `shadow`, with these further keys of `mirror`.
fn serve(site: &Site, first: &Upstream, shadow: &str, keys: &str) -> Watched {
    let more = if keys.is_empty() { String::new() } else { format!(", {keys}") };
    let rule = format!("proxy = {{ to = '{}', mirror = {{ to = 'next'{more} }} }}", first.url());
    let tables =
        format!("[[upstream]]\nname = 'next'\nservers = [{{ url = '{shadow}' }}]\n[metrics]\nlisten = '127.0.0.1:0'\n");
    Watched::of(site.config(&rule).table(&tables).serve_from_user_space())
}

fn count(watched: &Watched, outcome: &str) -> f64 {
    let series = format!("sealion_mirrored_requests_total{{upstream=\"next\",outcome=\"{outcome}\"}}");
    watched.scrape().get(&series)
}

/// The lines of a request's head but for Host and its framing, in any order.
fn lines(request: &Received) -> BTreeSet<&str> {
    let is_framing = |line: &&str| {
        let line = line.to_ascii_lowercase();
        ["host:", "content-length:", "transfer-encoding:"].iter().any(|name| line.starts_with(name))
    };
    request.head.lines().filter(|line| !is_framing(line)).collect()
}

#[test]
fn a_copy_has_the_path_the_fields_and_the_content_of_the_request() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::answering(|_| ok(b"of the shadow")));
    let keys = format!(
        "[[site.route]]\npath = '/api/'\nproxy = {{ to = '{}', strip_prefix = true, to_prefix = '/v1', request_headers = [{{ name = 'X-Site', value = '{{host}}' }}], mirror = {{ to = '{}' }} }}",
        first.url(),
        shadow.url()
    );
    let served = Configured::serve(site, &keys);
    let mut asked = 0;
    let mut ask = |options: &[&str], content: &[u8]| {
        let fields = ["-H", "Cookie: sid=1", "-H", "Authorization: Bearer t"];
        let response = served.get("/api/users?x=%2F", &[&fields[..], options].concat());
        assert_eq!((response.status, &response.body[..]), (200, content), "{options:?}");
        asked += 1;
        wait_until("the shadow has it", || shadow.requests().len() == asked);
        let (request, copy) = (first.last(), shadow.last());
        assert_eq!((copy.line(), &copy.body[..]), (request.line(), content), "{options:?}");
        assert_eq!(lines(&copy), lines(&request));
        assert_eq!((copy.field("host"), copy.field("authorization")), (request.field("host"), "Bearer t"));
        assert_eq!(copy.field("x-request-id"), request.field("x-request-id"));
        assert_eq!(copy.field("x-site"), "127.0.0.1");
    };
    for version in ["--http1.1", "--http2"] {
        ask(&[version], b"");
        ask(&[version, "-X", "DELETE"], b"");
        ask(&[version, "--data-binary", "some content"], b"some content");
        ask(&[version, "-H", "Transfer-Encoding: chunked", "--data-binary", "in chunks"], b"in chunks");
    }
    assert_eq!(shadow.last().line(), "POST /v1/users?x=%2F");
}

#[test]
fn a_copy_may_have_other_fields_another_host_and_no_content() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let keys = "host = 'upstream', content = false, request_headers = [{ name = 'X-Shadow', value = '{path}' }, { name = 'Cookie', value = '' }]";
    let watched = serve(&site, &first, &shadow.url(), keys);
    let mut client = site.connect(&watched.server);
    let fields = [("Content-Length", "4"), ("Cookie", "sid=1")];
    assert_eq!(post(&mut client, "/a", &fields, b"text").body, b"text");
    wait_until("the shadow has it", || shadow.requests().len() == 1);
    let copy = shadow.last();
    assert_eq!((copy.field("x-shadow"), copy.all("cookie"), &copy.body[..]), ("/a", vec![], &b""[..]));
    assert_eq!(copy.field("content-length"), "0");
    assert_eq!(copy.field("host"), shadow.address().to_string());
    assert_eq!((first.last().field("host"), first.last().field("cookie")), ("localhost", "sid=1"));
    assert_eq!(first.last().all("x-shadow"), Vec::<&str>::new());
}

/// The shadow takes requests and never answers; the answers of the first server come all the same.
#[test]
fn a_shadow_that_hangs_holds_no_client_up_and_its_places_are_bounded() {
    let site = Site::new();
    let (go_on, told) = channel::<()>();
    let told = Mutex::new(told);
    let first = Upstream::echo();
    let shadow = Upstream::answering(move |_| {
        told.lock().expect("no panic").recv().expect("the test goes on");
        ok(b"late")
    });
    let watched = serve(&site, &first, &shadow.url(), "max_requests = 1");
    let mut client = site.connect(&watched.server);
    for content in ["one", "two", "three"] {
        let length = content.len().to_string();
        let response = post(&mut client, "/", &[("Content-Length", &length)], content.as_bytes());
        assert_eq!((response.status, &response.body[..]), (200, content.as_bytes()));
        wait_until("the shadow has the first", || shadow.requests().len() == 1);
    }
    assert_eq!(http::get(&mut client, "/").expect("a response").status, 200);
    wait_until("the others are counted", || count(&watched, "busy") == 3.0);
    assert_eq!((count(&watched, "answered"), shadow.requests().len()), (0.0, 1));
    go_on.send(()).expect("the shadow goes on");
    wait_until("the first is over", || count(&watched, "answered") == 1.0);
    assert_eq!(http::get(&mut client, "/").expect("a response").status, 200);
    wait_until("the place is free", || shadow.requests().len() == 2);
    let output = top(&["--once", "--url", &format!("http://{}", watched.address)]);
    let text = String::from_utf8(output.stdout).expect("text");
    let line = text.lines().find(|line| line.starts_with("mirror ")).unwrap_or_else(|| panic!("{text}"));
    assert!(line.contains("next: 0/s of 1 sent, 0/s of 3 dropped"), "{line}");
    go_on.send(()).expect("the shadow goes on");
}

/// A text with placeholders makes a rule for each target. Their copies count together.
#[test]
fn all_targets_of_a_rule_share_the_places_of_its_copies() {
    let site = Site::new();
    let (go_on, told) = channel::<()>();
    let told = Mutex::new(told);
    let servers = ["a", "b"].map(|name| Upstream::answering(move |_| ok(name.as_bytes())));
    let shadow = Upstream::answering(move |_| {
        let _ = told.lock().expect("no panic").recv();
        ok(b"late")
    });
    let rule = "proxy = { to = '{header.x-pool}', mirror = { to = 'next', max_requests = 1 } }";
    let table = |name: &str, url: &str| format!("[[upstream]]\nname = '{name}'\nservers = [{{ url = '{url}' }}]\n");
    let tables = [
        table("a", &servers[0].url()),
        table("b", &servers[1].url()),
        table("next", &shadow.url()),
        "[metrics]\nlisten = '127.0.0.1:0'\n".to_owned(),
    ];
    let watched = Watched::of(site.config(rule).table(&tables.concat()).serve_from_user_space());
    let mut client = site.connect(&watched.server);
    for (pool, busy) in [("a", 0.0), ("b", 1.0), ("a", 2.0)] {
        let response = http::request(&mut client, "GET", "/", &[("X-Pool", pool)]).expect("a response");
        assert_eq!((response.status, &response.body[..]), (200, pool.as_bytes()));
        wait_until("the shadow has the first", || shadow.requests().len() == 1);
        wait_until("the others are counted", || count(&watched, "busy") == busy);
    }
    drop(go_on);
}

#[test]
fn no_client_learns_of_a_shadow_that_is_dead_or_breaks_off() {
    let site = Site::new();
    let first = Upstream::echo();
    let broken = Upstream::start(|accepted| {
        accepted.request();
        accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nthe begin");
    });
    let dead = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
        format!("http://{}", listener.local_addr().expect("an address"))
    };
    for shadow in [&broken.url(), &dead] {
        let watched = serve(&site, &first, shadow, "");
        let mut client = site.connect(&watched.server);
        for _ in 0..3 {
            assert_eq!(post(&mut client, "/", &[("Content-Length", "1")], b"x").body, b"x");
        }
        wait_until("all have failed", || count(&watched, "failed") == 3.0);
        assert_eq!(count(&watched, "answered"), 0.0);
    }
}

/// A shadow that never ends its answer holds a place for `timeout`.
#[test]
fn a_copy_has_a_time_in_all() {
    let site = Site::new();
    let first = Upstream::echo();
    let endless = Upstream::start(|accepted| {
        accepted.request();
        accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n");
        while accepted.try_write(b"1\r\nx\r\n") {}
    });
    let watched = serve(&site, &first, &endless.url(), "timeout = '300ms'");
    assert_eq!(http::get(&mut site.connect(&watched.server), "/").expect("a response").status, 200);
    wait_until("it has failed", || count(&watched, "failed") == 1.0);
}

#[test]
fn a_long_content_is_forwarded_and_not_copied() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let watched = serve(&site, &first, &shadow.url(), "max_body = '8B'");
    let mut client = site.connect(&watched.server);
    assert_eq!(post(&mut client, "/", &[("Content-Length", "9")], b"123456789").body, b"123456789");
    wait_until("the announced one is counted", || count(&watched, "too-long") == 1.0);
    let chunks = b"5\r\n12345\r\n4\r\n6789\r\n0\r\n\r\n";
    assert_eq!(post(&mut client, "/", &[("Transfer-Encoding", "chunked")], chunks).body, b"123456789");
    wait_until("the other is counted", || count(&watched, "too-long") == 2.0);
    assert_eq!(post(&mut client, "/", &[("Content-Length", "8")], b"12345678").body, b"12345678");
    wait_until("the short one is copied", || count(&watched, "answered") == 1.0);
    assert_eq!(shadow.requests().len(), 1);
    assert_eq!(shadow.last().body, b"12345678");
}

#[test]
fn the_memory_of_copies_is_bounded_and_leaves_room_for_contents() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let rule = format!("proxy = {{ to = '{}', mirror = {{ to = 'next' }} }}", first.url());
    let tables = format!(
        "[[upstream]]\nname = 'next'\nservers = [{{ url = '{}' }}]\n[metrics]\nlisten = '127.0.0.1:0'\n[limits]\nmax_buffered = '128KiB'\n",
        shadow.url()
    );
    let watched = Watched::of(site.config(&rule).table(&tables).serve_from_user_space());
    let content = vec![b'x'; 100_000];
    let mut client = site.connect(&watched.server);
    let response = post(&mut client, "/", &[("Content-Length", "100000")], &content);
    assert!(response.body == content, "{} bytes", response.body.len());
    wait_until("it is counted", || count(&watched, "too-long") == 1.0);
    assert_eq!(shadow.connections(), 0);
}

#[test]
fn a_content_that_breaks_off_or_is_not_taken_is_not_copied() {
    let site = Site::new();
    let first = Upstream::start(|accepted| {
        let Some(head) = accepted.head() else { return };
        if head.starts_with("POST /refused") {
            accepted.write(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
            return;
        }
        accepted.read_to_end();
    });
    let shadow = Upstream::echo();
    let watched = serve(&site, &first, &shadow.url(), "");
    let mut client = site.connect(&watched.server);
    client.send(http::head("POST", "/broken", &[("Content-Length", "9")]).as_bytes()).expect("it leaves");
    client.send(b"1234").expect("it leaves");
    wait_until("the server has the head", || first.connections() == 1);
    client.reset().expect("it closes");
    wait_until("it is counted", || count(&watched, "incomplete") == 1.0);
    let mut client = site.connect(&watched.server);
    client.send(http::head("POST", "/refused", &[("Content-Length", "9")]).as_bytes()).expect("it leaves");
    assert_eq!(http::read_response(&mut client, "POST").expect("a response").status, 413);
    wait_until("it is counted", || count(&watched, "incomplete") == 2.0);
    assert_eq!(shadow.connections(), 0);
}

#[test]
fn a_share_of_the_requests_is_copied() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let watched = serve(&site, &first, &shadow.url(), "share = '50%'");
    let mut client = site.connect(&watched.server);
    for _ in 0..200 {
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 200);
    }
    wait_until("all copies are over", || count(&watched, "answered") as usize == shadow.requests().len());
    // Another number of copies has a chance of less than 10⁻⁹.
    let copies = shadow.requests().len();
    assert!((55..=145).contains(&copies), "{copies}");
}

#[test]
fn responses_of_the_cache_are_copied_too_and_tunnels_are_not() {
    let site = Site::new();
    let first = Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            if request.all("upgrade") == ["other"] {
                accepted
                    .write(b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\nhello");
                return;
            }
            accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\nCache-Control: max-age=600\r\n\r\nstored");
        }
    });
    let shadow = Upstream::echo();
    let keys = format!(
        "proxy = {{ to = '{}', upgrade = ['other'], cache = {{}}, mirror = {{ to = '{}' }} }}",
        first.url(),
        shadow.url()
    );
    let disk = tempfile::tempdir().expect("a directory");
    let cache = format!("[cache]\ndirectories = ['{}']\nsize = '64MiB'\n", disk.path().display());
    let server = site.config(&keys).table(&cache).serve_from_user_space();
    crate::support::wait_for_cache(&server, disk.path());
    let mut client = site.connect(&server);
    for asked in 1..=3 {
        assert_eq!(http::get(&mut client, "/").expect("a response").body, b"stored");
        wait_until("the shadow has it", || shadow.requests().len() == asked);
    }
    assert_eq!(first.requests().len(), 1);
    let upgrade = "GET / HTTP/1.1\r\nHost: localhost\r\nConnection: Upgrade\r\nUpgrade: other\r\n\r\n";
    client.send(upgrade.as_bytes()).expect("it leaves");
    assert!(client.read_until(b"hello").is_ok());
    let mut client = site.connect(&server);
    client.send(get("/last").as_bytes()).expect("it leaves");
    wait_until("the next is copied", || shadow.requests().len() == 4);
    assert_eq!(shadow.last().line(), "GET /last");
}

/// The cookie names a server of the first upstream, which has more servers.
#[test]
fn copies_of_clients_with_a_server_of_their_own_go_to_the_servers_of_the_mirror() {
    let site = Site::new();
    let (servers, shadow) = ([Upstream::echo(), Upstream::echo(), Upstream::echo()], Upstream::echo());
    let urls: Vec<_> = servers.iter().map(|server| format!("{{ url = '{}' }}", server.url())).collect();
    let table = format!("[[upstream]]\nname = 'app'\nsticky = true\nservers = [{}]\n", urls.join(", "));
    let rule = format!("proxy = {{ to = 'app', mirror = {{ to = '{}' }} }}", shadow.url());
    let server = site.config(&rule).table(&table).serve_from_user_space();
    let mut client = site.connect(&server);
    for asked in 1..=3 {
        let first = http::get(&mut client, "/").expect("a response");
        let cookie = first.field("set-cookie").and_then(|cookie| cookie.split(';').next()).expect("a cookie");
        let again = http::request(&mut client, "GET", "/", &[("Cookie", cookie)]).expect("a response");
        assert_eq!((again.status, again.field("set-cookie")), (200, None));
        wait_until("the shadow has both", || shadow.requests().len() == 2 * asked);
    }
    assert!(servers.iter().all(|server| server.requests().len() == 2));
}

#[test]
fn guards_come_before_copies() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let keys = format!(
        "[[site.route]]\npath = '/closed/'\ndeny = true\n[[site.route]]\npath = '/'\nproxy = {{ to = '{}', mirror = {{ to = '{}' }} }}",
        first.url(),
        shadow.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for path in ["/closed/x", "/closed%2Fx", "/open/..%2Fclosed/x", "//closed/x"] {
        let status = http::get(&mut site.connect(&server), path).expect("a response").status;
        assert!(matches!(status, 400 | 403 | 404), "{path}: {status}");
    }
    assert_eq!(http::get(&mut site.connect(&server), "/open").expect("a response").status, 200);
    wait_until("the shadow has it", || !shadow.requests().is_empty());
    assert_eq!(shadow.requests().len(), 1);
    assert_eq!(shadow.last().line(), "GET /open");
}

/// The first of many has a line, with the name of the upstream; the others are counted in a later one.
#[test]
fn copies_that_take_too_long_have_one_line_a_second() {
    let site = Site::new();
    let (first, hanging) = (Upstream::echo(), Upstream::start(|accepted| while accepted.request().is_some() {}));
    let watched = serve(&site, &first, &hanging.url(), "timeout = '300ms'");
    let mut client = site.connect(&watched.server);
    let begun = std::time::Instant::now();
    for _ in 0..20 {
        assert_eq!(http::get(&mut client, "/").expect("a response").status, 200);
    }
    wait_until("all have failed", || count(&watched, "failed") == 20.0);
    // A line is written behind the count.
    wait_for_message(&watched.server, "did not end within");
    let lines = watched.server.lines().into_iter().map(|line| line.text);
    let lines: Vec<_> = lines.filter(|line| line.contains("did not end within")).collect();
    assert!(!lines.is_empty() && lines.len() as u64 <= 1 + begun.elapsed().as_secs(), "{lines:?}");
    assert!(lines[0].contains("upstream next: the copy of a request failed: the answer did not end"), "{lines:?}");
}

#[test]
fn a_copy_whose_fields_get_an_unfit_value_counts_as_failed() {
    let site = Site::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let watched = serve(&site, &first, &shadow.url(), "request_headers = [{ name = 'X-A', value = '{query.a}' }]");
    let mut client = site.connect(&watched.server);
    assert_eq!(http::get(&mut client, "/?a=x%0Ay").expect("a response").status, 200);
    wait_until("it is counted", || count(&watched, "failed") == 1.0);
    assert_eq!(http::get(&mut client, "/?a=x").expect("a response").status, 200);
    wait_until("the other is copied", || shadow.requests().len() == 1);
}

#[test]
fn a_mirror_that_cannot_be_is_refused() {
    let problems = |mirror: &str| {
        let upstream =
            "[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{ url = 'fastcgi://127.0.0.1:9000' }]\n";
        let rule = format!("proxy = {{ to = 'http://127.0.0.1:3000', mirror = {{ {mirror} }} }}");
        Site::new().config(&rule).table(upstream).problems()
    };
    for (mirror, words) in [
        ("share = '10%'", "mirror.to: is missing"),
        ("to = 'none'", "mirror.to: there is no [[upstream]] with the name \"none\""),
        ("to = 'php'", "mirror.to: has protocol = \"fastcgi\", and the copied requests \"http1\""),
        ("to = 'http://a', share = '0%'", "mirror.share: write a share above 0 in per cent"),
        ("to = 'http://a', share = '101%'", "mirror.share: write a share above 0 in per cent"),
        ("to = 'http://a', host = 'a b'", "mirror.host: write client, upstream, or a host"),
    ] {
        let problems = problems(mirror);
        assert!(problems.contains(words), "{mirror}: {problems}");
    }
}

#[test]
fn copies_in_progress_count_for_the_limit_on_open_files() {
    let site = Site::new();
    let check = |copies: u32| {
        let rule = format!(
            "proxy = {{ to = 'http://127.0.0.1:3000', mirror = {{ to = 'http://127.0.0.1:3001', max_requests = {copies} }} }}"
        );
        let file = site.config(&rule).table("[limits]\nmax_connections = 100\n").write();
        let mut check = Command::new("prlimit");
        check.args(["--nofile=4096:4096", PROGRAM, "check", "--config"]).arg(file);
        let output = check.output().expect("it runs");
        (output.status.success(), String::from_utf8(output.stderr).expect("text"))
    };
    let (is_valid, problem) = check(100);
    assert!(is_valid, "{problem}");
    let (is_valid, problem) = check(4000);
    assert!(!is_valid && problem.contains("open files"), "{problem}");
}

#[test]
fn the_way_of_a_request_names_the_mirror() {
    let site = Site::new();
    let rule = "names = ['localhost']\nproxy = { to = 'http://127.0.0.1:3000', mirror = { to = 'http://127.0.0.1:3001', share = '2.5%' } }";
    let file = site.config(rule).write();
    let mut check = Command::new(PROGRAM);
    check.args(["check", "--config"]).arg(file).args(["--explain", "GET https://localhost/x"]);
    let shown = String::from_utf8(check.output().expect("it runs").stdout).expect("text");
    assert!(
        shown.contains("forwards to http://127.0.0.1:3000\n    copies 2.5% of the requests to http://127.0.0.1:3001"),
        "{shown}"
    );
}
