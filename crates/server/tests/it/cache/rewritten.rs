//! Rules behind a rewrite, and rules that differ in what they add to a request: a request that the origin answers otherwise gets no stored response of the other.

use sealion_testkit::http::{self, Response};
use sealion_testkit::server::Server;
use tempfile::TempDir;

use super::{answer, status};
use crate::support::fastcgi::{end, read_request, stdout};
use crate::support::upstream::Upstream;
use crate::support::{Site, wait_for_cache};

const FRESH: &str = "Cache-Control: max-age=1000\r\n";

/// A server with routes to one origin.
struct Routed {
    site: Site,
    _scratch: TempDir,
    server: Server,
}

impl Routed {
    /// `origin`: keys of the upstream `origin`.
    #[track_caller]
    fn new(site: Site, origin: &str, keys: &str) -> Self {
        let scratch = TempDir::new().expect("a directory");
        let directory = scratch.path().join("cache");
        let table = format!(
            "[[upstream]]\nname = 'origin'\n{origin}\n[cache]\ndirectories = ['{}']\nfree = '0B'\n",
            directory.display()
        );
        let server = site.config(keys).table(&table).serve_from_user_space();
        wait_for_cache(&server, &directory);
        Routed { site, _scratch: scratch, server }
    }

    #[track_caller]
    fn ask(&self, method: &str, target: &str, fields: &[(&str, &str)]) -> Response {
        http::request(&mut self.site.connect(&self.server), method, target, fields).expect("a response")
    }

    /// The content for a client with this cookie.
    #[track_caller]
    fn get(&self, target: &str, cookie: &str) -> String {
        let fields: &[_] = if cookie.is_empty() { &[] } else { &[("Cookie", cookie)] };
        let response = self.ask("GET", target, fields);
        assert_eq!(response.status, 200, "{target}");
        String::from_utf8(response.body).expect("text")
    }
}

fn servers(origin: &Upstream) -> String {
    format!("servers = [{{ url = '{}' }}]", origin.url())
}

/// Leads a client with a cookie to what the cookie names, has no pages in `/shop/`, and answers others with their request line.
fn origin() -> Upstream {
    Upstream::answering(|request| {
        let line = request.line();
        match request.all("cookie").first().and_then(|cookie| cookie.split_once('=')) {
            _ if line.contains(" /shop/") => answer(404, "", b"none"),
            None if line.contains(" /download/") => answer(200, "", b"refused"),
            Some((_, name)) if line.contains(" /download/") => {
                answer(200, &format!("X-Accel-Redirect: /store/{name}\r\n"), b"")
            }
            _ => answer(200, FRESH, line.as_bytes()),
        }
    })
}

const ROUTES: &str = r#"
    accel = true

    [[site.route]]
    path = "/download/"
    proxy = { to = "origin", cache = {} }

    [[site.route]]
    path = "/store/"
    internal = true
    proxy = { to = "origin", cache = { purge_from = ["0.0.0.0/0"] } }

    [[site.route]]
    path = "/of-cookie/"
    rewrite = "/store/{cookie.v}"

    [[site.route]]
    path = "/of-query/"
    rewrite = "/store/x?v={cookie.v}"

    [[site.route]]
    path = "/shop/"
    proxy = { to = "origin", cache = {}, intercept_errors = true }
    error_pages = { 404 = "/store/page" }
"#;

#[test]
fn a_response_is_stored_for_the_path_that_the_origin_gets() {
    let origin = origin();
    let routed = Routed::new(Site::new(), &servers(&origin), ROUTES);
    for _ in 0..2 {
        for name in ["a", "b"] {
            let cookie = format!("v={name}");
            let own = format!("GET /store/{name}");
            assert_eq!(routed.get("/download/x", &cookie), own);
            assert_eq!(routed.get("/of-cookie/x", &cookie), own);
            assert_eq!(routed.get("/of-query/x", &cookie), format!("GET /store/x?v={name}"));
        }
        // The application is asked about each client.
        assert_eq!(routed.get("/download/x", ""), "refused");
        let error = routed.ask("GET", "/shop/x", &[]);
        assert_eq!((error.status, error.body.as_slice()), (404, &b"GET /store/page"[..]));
    }
    let fetches = |line: &str| origin.requests().iter().filter(|request| request.line() == line).count();
    // A target of several paths is stored once.
    for line in ["GET /store/a", "GET /store/b", "GET /store/x?v=a", "GET /store/page"] {
        assert_eq!(fetches(line), 1, "{line}");
    }
    // PURGE takes the way of the requests whose response it removes.
    assert_eq!(routed.ask("PURGE", "/of-cookie/y", &[("Cookie", "v=a")]).status, 200);
    assert_eq!(routed.get("/download/x", "v=a"), "GET /store/a");
    assert_eq!((fetches("GET /store/a"), fetches("GET /store/b")), (2, 1));
}

#[test]
fn rules_that_change_requests_differently_share_no_response() {
    let origin = Upstream::answering(|request| {
        let seen = ["host", "x-plan", "x-country"].map(|name| request.all(name).concat()).join(" ");
        answer(200, FRESH, format!("{} {seen}", request.line()).as_bytes())
    });
    let beta = "match = { cookie = { beta = '1' } }";
    let keys = format!(
        r#"
        [[site.route]]
        path = "/host/"
        {beta}
        proxy = {{ to = "origin", cache = {{}}, host = "beta.test" }}

        [[site.route]]
        path = "/host/"
        proxy = {{ to = "origin", cache = {{}} }}

        [[site.route]]
        path = "/field/"
        {beta}
        proxy = {{ to = "origin", cache = {{}}, request_headers = [{{ name = "X-Plan", value = "pro" }}] }}

        [[site.route]]
        path = "/field/"
        proxy = {{ to = "origin", cache = {{}} }}

        [[site.route]]
        path = "/prefix/"
        {beta}
        proxy = {{ to = "origin", cache = {{}}, strip_prefix = true, to_prefix = "/beta" }}

        [[site.route]]
        path = "/prefix/"
        proxy = {{ to = "origin", cache = {{}} }}

        [[site.route]]
        path = "/country/"
        {beta}
        proxy = {{ to = "origin", cache = {{ key_headers = ["x-country"] }} }}

        [[site.route]]
        path = "/country/"
        proxy = {{ to = "origin", cache = {{}} }}
        "#
    );
    let routed = Routed::new(Site::new(), &servers(&origin), &keys);
    for (target, plain, of_beta) in [
        ("/host/x", "GET /host/x localhost  ", "GET /host/x beta.test  "),
        ("/field/x", "GET /field/x localhost  ", "GET /field/x localhost pro "),
        ("/prefix/x", "GET /prefix/x localhost  ", "GET /beta/x localhost  "),
    ] {
        for _ in 0..2 {
            assert_eq!(routed.get(target, "beta=1"), of_beta);
            assert_eq!(routed.get(target, ""), plain);
        }
    }
    let of_country = routed.ask("GET", "/country/x", &[("X-Country", "de")]);
    assert_eq!(of_country.body, b"GET /country/x localhost  de");
    assert_eq!(routed.get("/country/x", "beta=1"), "GET /country/x localhost  ");
    assert_eq!(origin.requests().len(), 8);
    let hit = routed.ask("GET", "/host/x", &[]);
    assert_eq!(status(&hit), "hit");
}

#[test]
fn a_script_behind_a_rewrite_answers_for_the_path_that_was_asked_for() {
    let site = Site::new();
    site.add("index.php", "");
    site.add("other.php", "");
    let php = Upstream::start(|accepted| {
        if let Some(request) = read_request(accepted) {
            let seen = format!("{} {}", request.param("SCRIPT_NAME"), request.param("REQUEST_URI"));
            let head = "Content-Type: text/plain\r\nCache-Control: max-age=1000\r\n\r\n";
            accepted.write(&[stdout(format!("{head}{seen}")), end()].concat());
        }
    });
    let keys = r#"
        [[site.route]]
        path = "~ ^/(page|news)"
        match = { cookie = { v = "2" } }
        rewrite = "/other.php"

        [[site.route]]
        path = "~ ^/(page|news)"
        rewrite = "/index.php"

        [[site.route]]
        path = '~ \.php$'
        proxy = { to = "origin", fastcgi = {}, cache = { purge_from = ["0.0.0.0/0"] } }
    "#;
    let url = php.url().replace("http://", "fastcgi://");
    let origin = format!("protocol = 'fastcgi'\nservers = [{{ url = '{url}' }}]");
    let routed = Routed::new(site, &origin, keys);
    for _ in 0..2 {
        assert_eq!(routed.get("/page", ""), "/index.php /page");
        assert_eq!(routed.get("/page", "v=2"), "/other.php /page");
        assert_eq!(routed.get("/news?a=1", ""), "/index.php /news?a=1");
    }
    assert_eq!(php.connections(), 3);
    // A purge names the URL that clients know, whichever script has answered.
    assert_eq!(routed.ask("PURGE", "/page", &[]).status, 200);
    assert_eq!(routed.get("/page", "v=2"), "/other.php /page");
    assert_eq!(routed.get("/news?a=1", ""), "/index.php /news?a=1");
    assert_eq!(php.connections(), 4);
}
