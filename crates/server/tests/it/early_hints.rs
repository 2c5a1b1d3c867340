//! Early hints (RFC 8297): which requests get them.

use std::fs;

use sealion_testkit::http;

use crate::support::configured::Configured;
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, access_lines, curl};

const NAVIGATE: &str = "Sec-Fetch-Mode: navigate";

const LINK: &str = "early_hints = ['</other.css>; rel=preload; as=style']\n";

/// A site that is forwarded beneath `/app/`, where no answer is in a cache.
fn serve(upstream: &Upstream, routes: &str) -> Configured {
    let site = Site::new();
    site.add("f", "content");
    let hash = bcrypt::hash_with_result("right", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("written");
    let app = format!(
        "route = [{{ path = '/app/', proxy = {{ to = '{}' }}, route = [\n\
           {{ path = '= /app/page', early_hints = ['</one.css>; rel=preload; as=style', '<https://cdn.example>; rel=preconnect'] }},\n\
           {routes}\n\
         ] }}]\n",
        upstream.url()
    );
    Configured::serve(site, &[LINK, &app].concat())
}

/// The links of a response 103, and the status of the response behind it.
#[track_caller]
fn hinted(served: &Configured, target: &str, options: &[&str]) -> (Vec<String>, u16) {
    let first = served.get(target, options);
    if first.status != 103 {
        return (Vec::new(), first.status);
    }
    let links = first.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("link"));
    (links.map(|(_, value)| value.clone()).collect(), curl::parse_response(&first.body).0.status)
}

#[test]
fn a_navigation_gets_the_links_of_its_route_while_it_waits() {
    let upstream = Upstream::answering(|_| ok(b"page"));
    let served = serve(&upstream, "");
    for version in ["--http1.1", "--http2"] {
        let page = ["</one.css>; rel=preload; as=style", "<https://cdn.example>; rel=preconnect"].map(str::to_owned);
        assert_eq!(hinted(&served, "/app/page", &[version, "-H", NAVIGATE]), (page.to_vec(), 200), "{version}");
        let other = vec!["</other.css>; rel=preload; as=style".to_owned()];
        assert_eq!(hinted(&served, "/app/x", &[version, "-H", NAVIGATE]), (other.clone(), 200), "{version}");
        // A file that was never requested before has to be opened, and a missing one looked for.
        assert_eq!(hinted(&served, "/none", &[version, "-H", NAVIGATE]), (other, 404), "{version}");
    }
    assert_eq!(access_lines(&served.server, 6).len(), 6, "a response is one, with its hints");
}

#[test]
fn other_requests_get_no_hints() {
    let upstream = Upstream::answering(|_| ok(b"page"));
    let served = serve(
        &upstream,
        "{ path = '= /app/old', redirect = '/app/new' },\n\
         { path = '/app/in/', basic_auth = { users = 'users' } },\n\
         { path = '/app/closed/', access = { deny = ['127.0.0.0/8'] } },\n",
    );
    for version in ["--http1.1", "--http2"] {
        for (target, options, status) in [
            ("/app/page", &[][..], 200),
            ("/app/page", &["-H", "Sec-Fetch-Mode: no-cors"], 200),
            ("/app/page", &["-H", NAVIGATE, "--head"], 200),
            ("/app/page", &["-H", NAVIGATE, "-d", "content"], 200),
            ("/app/old", &["-H", NAVIGATE], 308),
            ("/app/in/x", &["-H", NAVIGATE], 401),
            ("/app/in/x", &["-H", NAVIGATE, "-u", "ada:wrong"], 401),
            ("/app/closed/x", &["-H", NAVIGATE], 403),
        ] {
            let options = [&[version], options].concat();
            assert_eq!(hinted(&served, target, &options), (Vec::new(), status), "{target} {options:?}");
        }
    }
    // HTTP/1.0 knows no response but the final one.
    let mut client = served.site.connect(&served.server);
    client.send(b"GET /app/page HTTP/1.0\r\nHost: localhost\r\nSec-Fetch-Mode: navigate\r\n\r\n").expect("it leaves");
    assert_eq!(http::read_response(&mut client, "GET").expect("a response").status, 200);
}

#[test]
fn a_file_from_the_cache_comes_without_hints() {
    let site = Site::new();
    site.add("f", "content");
    let served = Configured::serve(site, LINK);
    let mut client = served.site.connect(&served.server);
    let fields = [("Sec-Fetch-Mode", "navigate")];
    // Until a worker's cache has it.
    let mut asked = 0;
    while http::request(&mut client, "GET", "/f", &fields).expect("a response").status == 103 {
        http::read_response(&mut client, "GET").expect("the response");
        asked += 1;
        assert!(asked < 100, "hints with a file from the cache");
    }
    assert!(asked > 0, "the first one has to be opened");
}

#[test]
fn links_that_are_none_are_refused() {
    for keys in ["early_hints = ['/app.css']", "route = [{ path = '/a/', early_hints = ['/app.css'] }]"] {
        let problems = Site::new().config(keys).problems();
        assert!(problems.contains("early_hints: \"/app.css\" is not a link: write for instance"), "{problems}");
    }
}
