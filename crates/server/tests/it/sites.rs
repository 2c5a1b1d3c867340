//! The features of a site besides finding the file, through curl and the shipped binary.

use std::fs;
use std::os::unix::fs::symlink;

use sealion_testkit::http::Response;
use sealion_testkit::server::Signal;

use crate::support::configured::Configured;
use crate::support::{Site, tool, wait_until};

const BROWSER: &[&str] = &["-H", "Accept: text/html,application/xhtml+xml,*/*;q=0.8"];

fn body(response: &Response) -> &str {
    std::str::from_utf8(&response.body).expect("text")
}

/// `htpasswd -nbB -C 4 ada secret` and the like.
fn users(lines: &[(&str, &str)]) -> String {
    let hash =
        |password| bcrypt::hash_with_result(password, 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    lines.iter().map(|(user, password)| format!("{user}:{}\n", hash(password))).collect()
}

#[test]
fn fields_of_responses() {
    let site = Site::new();
    site.add("index.html", "home");
    site.add("assets/app.js", "js");
    site.add("data.own", "x");
    let served = Configured::serve(
        site,
        "server_header = false\nsecurity_headers = 'strict'\n\
         headers = { set = { X-All = '1', X-Frame-Options = 'SAMEORIGIN' } }\n\
         route = [\n\
           { path = '~ \\.html$', cache_control = 'no-cache' },\n\
           { path = '/assets/', headers = { set = { X-All = '2' }, unset = ['Referrer-Policy'] },\n\
             cache_control = 'max-age=31536000, immutable' },\n\
         ]\n\
         media_types = { own = 'text/x-own; charset=utf-8' }\n\
         [site.hsts]\nmax_age = '365d'\ninclude_subdomains = true\n",
    );
    let home = served.get("/", &[]);
    for (name, value) in [
        ("server", None),
        ("x-all", Some("1")),
        ("x-frame-options", Some("SAMEORIGIN")),
        ("x-content-type-options", Some("nosniff")),
        ("referrer-policy", Some("no-referrer")),
        ("strict-transport-security", Some("max-age=31536000; includeSubDomains")),
        ("cache-control", Some("no-cache")),
    ] {
        assert_eq!(home.field(name), value, "{name}");
    }
    let script = served.get("/assets/app.js", &[]);
    assert_eq!((script.field("x-all"), script.field("referrer-policy")), (Some("2"), None));
    assert_eq!(script.field("cache-control"), Some("max-age=31536000, immutable"));
    let etag = format!("If-None-Match: {}", script.field("etag").expect("a tag"));
    let unchanged = served.get("/assets/app.js", &["-H", &etag]);
    assert_eq!((unchanged.status, unchanged.field("cache-control")), (304, Some("max-age=31536000, immutable")));
    let missing = served.get("/assets/none.js", &[]);
    assert_eq!((missing.status, missing.field("cache-control"), missing.field("x-all")), (404, None, Some("2")));
    assert_eq!(served.get("/data.own", &[]).field("content-type"), Some("text/x-own; charset=utf-8"));
    let head = served.get("/", &["--head"]);
    let names = |response: &Response| response.fields.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&head), names(&home));
}

#[test]
fn cross_origin_requests() {
    let site = Site::new();
    site.add("data.json", "{}");
    let served = Configured::serve(
        site,
        "[site.cors]\norigins = ['https://app.example']\nheaders = ['X-Own']\nexpose = ['ETag']\nmax_age = '10m'\ncredentials = true\n",
    );
    let ours = served.get("/data.json", &["-H", "Origin: https://app.example"]);
    assert_eq!(ours.field("access-control-allow-origin"), Some("https://app.example"));
    assert_eq!(ours.field("access-control-allow-credentials"), Some("true"));
    assert_eq!((ours.field("access-control-expose-headers"), ours.field("vary")), (Some("ETag"), Some("Origin")));
    let theirs = served.get("/data.json", &["-H", "Origin: https://app.example.evil"]);
    assert_eq!(
        (theirs.status, theirs.field("access-control-allow-origin"), theirs.field("vary")),
        (200, None, Some("Origin"))
    );
    let preflight = |origin: &str| {
        let origin = format!("Origin: {origin}");
        served.get("/data.json", &["-X", "OPTIONS", "-H", &origin, "-H", "Access-Control-Request-Method: GET"])
    };
    let allowed = preflight("https://app.example");
    assert_eq!((allowed.status, allowed.field("content-length"), allowed.body.len()), (204, None, 0));
    assert_eq!(allowed.field("access-control-allow-methods"), Some("GET, HEAD"));
    assert_eq!(allowed.field("access-control-allow-headers"), Some("X-Own"));
    assert_eq!(allowed.field("access-control-max-age"), Some("600"));
    assert_eq!(preflight("https://b.example").field("access-control-allow-origin"), None);
    assert_eq!(served.get("/data.json", &["-X", "OPTIONS"]).status, 405);
}

#[test]
fn error_pages_keep_their_status() {
    let site = Site::new();
    site.add("404.html", "<h1>not here</h1>");
    site.add("403.html", "<h1>not you</h1>");
    site.add("secret/x", "x");
    let served = Configured::serve(
        site,
        "error_pages = { 404 = '/404.html', 403 = '/403.html', 405 = '/404.html' }\nroute = [{ path = '/secret/', access = { deny = ['127.0.0.0/8'] } }]\n",
    );
    for (target, status, page) in [
        ("/none", 404, "<h1>not here</h1>"),
        ("/.git", 404, "<h1>not here</h1>"),
        ("/secret/x", 403, "<h1>not you</h1>"),
    ] {
        let response = served.get(target, &[]);
        assert_eq!((response.status, body(&response)), (status, page), "{target}");
        assert_eq!(response.field("content-type"), Some("text/html; charset=utf-8"));
        assert_eq!((response.field("etag"), response.field("accept-ranges")), (None, None));
    }
    let post = served.get("/", &["-X", "POST"]);
    assert_eq!((post.status, post.field("allow"), body(&post)), (405, Some("GET, HEAD"), "<h1>not here</h1>"));
    let head = served.get("/none", &["--head"]);
    assert_eq!((head.status, head.field("content-length")), (404, Some("17")));
    // It is read again, and one that is gone leaves the plain answer.
    fs::remove_file(served.site.root().join("404.html")).expect("removed");
    wait_until("the page is let go", || body(&served.get("/none", &[])) == "404 Not Found\n");
}

#[test]
fn an_applications_own_paths() {
    let site = Site::new();
    site.add("index.html", "<app>");
    site.add("assets/app.js", "js");
    let served = Configured::serve(
        site,
        "fallback = '/index.html'\nroute = [{ path = '~ \\.html$', cache_control = 'no-cache' }]\n",
    );
    for (target, options, status) in [
        ("/users/42", &[][..], 200),
        ("/users/john.doe", BROWSER, 200),
        ("/users/", BROWSER, 200),
        ("/assets/app.js", &[], 200),
        ("/assets/old.js", &[], 404),
        ("/api/users", &["-H", "Accept: application/json"], 404),
        ("/.git/config", BROWSER, 404),
    ] {
        let response = served.get(target, options);
        assert_eq!(response.status, status, "{target}");
        let is_page = body(&response) == "<app>";
        assert_eq!(is_page, status == 200 && target != "/assets/app.js", "{target}");
        assert_eq!(response.field("cache-control"), is_page.then_some("no-cache"), "{target}");
    }
    // A page that is missing to one client is there for another: caches have to know.
    for accept in ["Accept: text/html", "Accept: application/json"] {
        assert_eq!(served.get("/deep/link", &["-H", accept]).field("vary"), Some("Accept"), "{accept}");
    }
    assert_eq!(served.get("/assets/app.js", &[]).field("vary"), None);
    let page = served.get("/deep/link", &["-H", "Range: bytes=1-3"]);
    assert_eq!((page.status, body(&page)), (206, "app"));
}

#[test]
fn listings() {
    let site = Site::new();
    site.add("index.html", "home");
    site.add("pub/<b>.txt", "four");
    site.add("pub/.hidden", "");
    site.add("pub/sub/x", "");
    site.add("pub/with/index.html", "own");
    site.add("private/x", "");
    symlink("/etc/passwd", site.root().join("pub/out")).expect("a link");
    let served = Configured::serve(
        site,
        "security_headers = 'strict'\ncache_control = 'max-age=9'\n\
         route = [{ path = '/pub/', listing = { max_entries = 3 } }]\n",
    );
    let page = served.get("/pub/", BROWSER);
    // There may be more in it in a moment.
    assert_eq!(page.field("cache-control"), None);
    let html = body(&page);
    assert_eq!((page.status, page.field("content-type")), (200, Some("text/html; charset=utf-8")));
    assert!(html.contains("<a href=\"./%3Cb%3E.txt\"><bdi>&lt;b&gt;.txt</bdi></a>"), "{html}");
    assert!(html.contains("<a href=\"./sub/\">") && !html.contains(".hidden") && !html.contains("./out"), "{html}");
    // The page's own policy stands alone: the site's would forbid its style.
    let policies = page.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("content-security-policy"));
    assert_eq!(policies.count(), 1);
    assert_eq!(page.field("x-frame-options"), Some("DENY"));
    let json = served.get("/pub/?sort=size&order=desc", &["-H", "Accept: application/json"]);
    let parsed: serde_json::Value = serde_json::from_slice(&json.body).expect("JSON");
    assert_eq!((&parsed["path"], &parsed["more"]), (&"/pub/".into(), &false.into()));
    assert_eq!(parsed["entries"][2]["href"], "./%3Cb%3E.txt");
    assert_eq!((&parsed["entries"][2]["size"], &parsed["entries"][0]["type"]), (&4.into(), &"directory".into()));
    assert_eq!(served.way("/pub", &[]), (301, Some("/pub/".to_owned())));
    assert_eq!(body(&served.get("/pub/with/", &[])), "own");
    for (target, status) in [("/private/", 404), ("/pub/none/", 404), ("/pub/sub/", 200), ("/pub/sub/x/", 404)] {
        assert_eq!(served.get(target, &[]).status, status, "{target}");
    }
    served.site.add("pub/more", "");
    assert!(body(&served.get("/pub/", &[])).contains("only 3 are listed"));
}

#[test]
fn redirects_and_rewrites() {
    let site = Site::new();
    site.add("new.html", "new");
    site.add("v2/a.txt", "two");
    site.add("v2/dir/index.html", "dir");
    let served = Configured::serve(
        site,
        "route = [\n\
           { path = '= /old', redirect = { to = '/new.html', status = 301 } },\n\
           { path = '~ ^/go/(.*)$', redirect = '/{1}' },\n\
           { path = '~ ^/shop/(.*)$', redirect = 'https://shop.example/{1}' },\n\
           { path = '~ ^/v1/(.*)$', rewrite = '/v2/{1}' },\n\
         ]\n",
    );
    for (target, status, location) in [
        ("/old?a=b", 301, Some("/new.html?a=b")),
        ("/go//evil.example/%0d%0aX:1", 308, Some("/evil.example/%0D%0AX:1")),
        ("/shop/a", 308, Some("https://shop.example/a")),
        ("/v1/a.txt", 200, None),
        ("/v1/dir", 301, Some("/v2/dir/")),
        ("/v1/none", 404, None),
        ("/old/", 404, None),
    ] {
        assert_eq!(served.way(target, &[]), (status, location.map(str::to_owned)), "{target}");
    }
    assert_eq!(body(&served.get("/old", &["-L"])), "new");
    assert_eq!(body(&served.get("/v1/dir/", &[])), "dir");
}

/// Guesses must not go unseen: a client that closes its direction, or leaves, before its password is verified is logged like any other.
#[test]
fn a_wrong_password_is_logged_whatever_its_client_does_meanwhile() {
    let site = Site::new();
    fs::write(site.outside().join("users"), users(&[("ada", "right")])).expect("written");
    let served = Configured::serve(site, "basic_auth = { users = 'users' }\n");
    // ada:wrong
    let request = "GET /guess HTTP/1.1\r\nHost: localhost\r\nAuthorization: Basic YWRhOndyb25n\r\n\r\n";
    let mut half_closed = served.site.connect(&served.server);
    half_closed.send(request.as_bytes()).expect("the server takes it");
    half_closed.socket().shutdown(std::net::Shutdown::Write).expect("FIN is sent");
    served.server.wait_for("the guess in the log", |line| {
        line.text.contains("target=\"/guess\"") && line.text.contains("status=401")
    });
}

#[test]
fn passwords() {
    let site = Site::new();
    site.add("in/x", "secret");
    site.add("open", "open");
    fs::write(site.outside().join("users"), users(&[("ada", "right"), ("bob", "b")])).expect("written");
    let served = Configured::serve(
        site,
        "route = [\n\
           { path = '/in/', basic_auth = { realm = 'inside', users = 'users' } },\n\
           { path = '= /around', rewrite = '/in/x' },\n\
         ]\n\
         [access_log]\nformat = 'combined'\n",
    );
    for (target, options, status) in [
        ("/open", &[][..], 200),
        ("/in/x", &[], 401),
        ("/in/x", &["-u", "ada:right"], 200),
        ("/in/x", &["-u", "ada:right"], 200),
        ("/in/x", &["-u", "ada:wrong"], 401),
        ("/in/x", &["-u", "eve:right"], 401),
        ("/%69n/x", &[], 401),
        ("//in//x", &[], 401),
        ("/in", &[], 401),
        ("/in/none", &[], 401),
        ("/in/none", &["-u", "bob:b"], 404),
        ("/around", &[], 401),
        ("/around", &["-u", "bob:b"], 200),
    ] {
        let response = served.get(target, options);
        assert_eq!(response.status, status, "{target} {options:?}");
        let challenge = (status == 401).then_some("Basic realm=\"inside\", charset=\"UTF-8\"");
        assert_eq!(response.field("www-authenticate"), challenge, "{target}");
    }
    served
        .server
        .wait_for("a line with the user", |line| line.text.contains(" - bob [") && line.text.contains("/around"));
    fs::write(served.site.outside().join("users"), "ada:$apr1$a$b\n").expect("written");
    let said = served.site.config("basic_auth = { users = 'users' }").problems();
    assert!(
        said.contains("site.basic_auth.users: ") && said.contains("users:1: ada: ") && said.contains("htpasswd -B"),
        "{said}"
    );
}

/// A file that a rule withholds is withheld under all of its names.
#[test]
fn what_is_sent_instead_of_what_was_asked_for_is_guarded_too() {
    let site = Site::new();
    for name in ["in/index.html", "in/a.html", "in/a.html.br", "in/a.html.gz", "second/home.htm", "app.html"] {
        site.add(name, "secret");
    }
    site.add("open/a.html.br", "open");
    fs::write(site.outside().join("users"), users(&[("ada", "right")])).expect("written");
    let served = Configured::serve(
        site,
        "index = ['index.html', 'home.htm']\nprecompressed = ['br']\nfallback = '/app.html'\n\
         route = [\n\
           { path = '= /around/', rewrite = '/in/' },\n\
           { path = '= /in/index.html', basic_auth = { users = 'users' } },\n\
           { path = '= /second/home.htm', basic_auth = { users = 'users' } },\n\
           { path = '= /in/a.html', access = { deny = ['127.0.0.0/8'] } },\n\
           { path = '= /app.html', access = { deny = ['127.0.0.0/8'] } },\n\
         ]\n",
    );
    for (target, status) in [
        ("/in/", 401),
        ("/around/", 401),
        ("/second/", 401),
        ("/in/a.html", 403),
        ("/in/a.html.br", 403),
        ("/in/a.html.gz", 403),
        ("/%69n/a.html%2Ebr", 403),
        ("/some/page", 403),
        ("/open/a.html.br", 200),
    ] {
        let refused = served.get(target, BROWSER);
        assert_eq!(refused.status, status, "{target}");
        assert!(!body(&refused).contains("secret"), "{target}");
        assert_eq!(served.get(target, &["--head"]).status, status, "{target}");
    }
    for target in ["/in/", "/around/", "/second/"] {
        assert_eq!(body(&served.get(target, &["-u", "ada:right"])), "secret", "{target}");
    }
}

#[test]
fn directories_elsewhere_indexes_and_hidden_files() {
    let site = Site::new();
    site.add("docs/hidden-by-the-route", "");
    site.add("a/home.htm", "home");
    site.add("a/.env", "shown");
    let docs = site.outside().join("docs/guide");
    fs::create_dir_all(&docs).expect("made");
    fs::write(docs.join("index.html"), "guide").expect("written");
    let served = Configured::serve(
        site,
        "index = ['index.html', 'home.htm']\nshow_dotfiles = true\n\
         route = [{ path = '~ \\.htm$', cache_control = 'no-cache' }, { path = '/docs/', alias = 'docs' }]\n",
    );
    for (target, status, expected) in [
        ("/a/", 200, "home"),
        ("/a/.env", 200, "shown"),
        ("/docs/guide/", 200, "guide"),
        ("/docs/guide/index.html", 200, "guide"),
        ("/docs/hidden-by-the-route", 404, "404 Not Found\n"),
        ("/documents", 404, "404 Not Found\n"),
        ("/docs/../a/.env", 400, "400 Bad Request\n"),
    ] {
        let response = served.get(target, &[]);
        assert_eq!((response.status, body(&response)), (status, expected), "{target}");
    }
    assert_eq!(
        served.get("/a/", &[]).field("cache-control"),
        Some("no-cache"),
        "the route is that of the file that is sent"
    );
    assert_eq!(served.way("/docs", &[]), (301, Some("/docs/".to_owned())));
    assert_eq!(served.way("/docs/guide?q", &[]), (301, Some("/docs/guide/?q".to_owned())));
}

#[test]
fn a_listener_without_tls_shows_the_way() {
    let site = Site::new();
    site.add("index.html", "home");
    let config = site
        .config("names = ['example.org']\nhsts = { max_age = '1h' }")
        .listen("address = '127.0.0.1:0'")
        .listen("address = '127.0.0.1:0'\ntls = false\nhttps_port = 8443");
    let served = Configured { server: config.serve_from_user_space(), site };
    let line =
        served.server.wait_for("where it listens without TLS", |line| line.text.contains("sending clients to HTTPS"));
    let port = line.text.split("http://localhost:").nth(1).and_then(|rest| rest.split(' ').next()).expect("a port");
    let ask = |target: &str, options: &[&str]| {
        let url = format!("http://127.0.0.1:{port}{target}");
        let arguments = [&["-s", "-i", "--max-time", "60"][..], options, &[&url]].concat();
        let answer = tool("curl", arguments);
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
        (head.to_owned(), body.to_owned())
    };
    let (head, _) = ask("/a%20b?c", &["-H", "Host: example.org"]);
    assert!(head.starts_with("HTTP/1.1 308 ") && head.contains("Location: https://example.org:8443/a%20b?c"), "{head}");
    assert!(!head.to_lowercase().contains("strict-transport"), "{head}");
    let (head, _) = ask("/a", &["-X", "POST", "-d", "x=1", "-H", "Host: example.org:80"]);
    assert!(head.ends_with("Location: https://example.org:8443/a"), "{head}");
    let (head, body) = ask("/.well-known/acme-challenge/x", &[]);
    assert!(head.starts_with("HTTP/1.1 404 ") && body == "404 Not Found\n", "{head}");
    let (head, body) = ask("/", &["--head", "-H", "Host: example.org"]);
    assert!(head.starts_with("HTTP/1.1 308 ") && body.is_empty(), "{head}");
}

#[test]
fn a_redirect_answers_every_method() {
    let served = Configured::serve(
        Site::new(),
        "route = [\n\
           { path = '= /kept', redirect = '/new' },\n\
           { path = '= /also', redirect = { to = '/new', status = 307 } },\n\
           { path = '= /got', redirect = { to = '/new', status = 301 } },\n\
         ]\n",
    );
    for (path, options, status) in [
        ("/kept", &["-X", "POST", "-d", "content"][..], 308),
        ("/kept", &["-X", "DELETE"], 308),
        ("/kept", &["-X", "BREW"], 308),
        ("/kept", &[], 308),
        ("/also", &["-X", "PUT", "-d", "content"], 307),
        ("/got", &["-X", "POST", "-d", "content"], 301),
        ("/got", &["-X", "BREW"], 301),
        ("/got", &[], 301),
        ("/none", &["-X", "POST", "-d", "content"], 405),
    ] {
        let answer = served.get(path, options);
        assert_eq!(answer.status, status, "{path} {options:?}");
        assert_eq!(answer.field("location"), (status < 400).then_some("/new"), "{path} {options:?}");
    }
}

#[test]
fn urls_may_omit_extensions_and_slashes() {
    const NAMES: [&str; 7] =
        ["index.html", "about.html", "both.html", "both/page.html", "docs/index.html", "empty/file.txt", "denied.html"];
    let options = "route = [{ path = '= /denied.html', access = { deny = ['127.0.0.0/8'] } }]\nlisting = true\n";
    for (slash, rows) in [
        ("add", &[("/docs/", 200, "docs/index.html"), ("/docs?a=b", 301, "/docs/?a=b"), ("/both/", 200, "")][..]),
        ("remove", &[("/docs", 200, "docs/index.html"), ("/docs/?a=b", 301, "/docs?a=b"), ("/both/", 200, "")]),
    ] {
        let keys = format!("extensions = ['html']\ntrailing_slash = '{slash}'\n{options}");
        let site = Site::new();
        NAMES.iter().for_each(|name| drop(site.add(name, name)));
        let served = Configured::serve(site, &keys);
        let always: &[(&str, u16, &str)] = &[
            ("/", 200, "index.html"),
            ("/about", 200, "about.html"),
            ("/about.html", 200, "about.html"),
            ("/about/?q", 301, "/about?q"),
            ("/both", 200, "both.html"),
            ("/both/page", 200, "both/page.html"),
            ("/empty", 301, "/empty/"),
            ("/empty/", 200, ""),
            ("/denied", 403, ""),
            ("/none", 404, ""),
            ("/none/", 404, ""),
        ];
        for (path, status, expected) in always.iter().chain(rows) {
            // A second time from the cache.
            for _ in 0..2 {
                let answer = served.get(path, &[]);
                assert_eq!(answer.status, *status, "{slash} {path}");
                match status {
                    200 if !expected.is_empty() => assert_eq!(body(&answer), *expected, "{slash} {path}"),
                    301 => assert_eq!(answer.field("location"), Some(*expected), "{slash} {path}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn a_site_under_maintenance_answers_every_request_alike() {
    let site = Site::new();
    site.add("index.html", "home");
    site.add("503.html", "back soon");
    site.add("secret/x", "secret");
    fs::write(site.outside().join("users"), users(&[("ada", "secret")])).expect("written");
    let rules = "route = [{ path = '/secret/', basic_auth = { users = 'USERS' } }, { path = '/inner/', access = { deny = ['0.0.0.0/0', '::/0'] } },\
           { path = '= /old', redirect = '/' }]\n"
        .replace("USERS", &site.outside().join("users").display().to_string());
    let served =
        Configured::serve(site, &format!("{rules}maintenance = {{ page = '/503.html', retry_after = '2m' }}\n"));
    for target in ["/", "/index.html", "/missing", "/secret/x", "/inner/", "/old", "/.hidden", "/%", "/503.html"] {
        for options in [&[][..], &["-X", "POST", "-d", "x"], &["-X", "OPTIONS"], &["--user", "ada:secret"]] {
            let response = served.get(target, options);
            assert_eq!((response.status, body(&response)), (503, "back soon"), "{target} {options:?}");
            assert_eq!(response.field("retry-after"), Some("120"), "{target}");
            assert_eq!(response.field("www-authenticate"), None, "{target}");
        }
    }
    // A reload ends it for some, then for all.
    let reload = |maintenance: &str| {
        served.site.config(&format!("{rules}{maintenance}")).write();
        served.server.signal(Signal::HUP);
    };
    reload("maintenance = { allow = ['127.0.0.0/8', '::1'] }\n");
    wait_until("maintenance is over for this client", || served.get("/", &[]).status == 200);
    assert_eq!(served.get("/secret/x", &[]).status, 401);
    assert_eq!(served.get("/inner/", &[]).status, 403);
    reload("maintenance = true\n");
    wait_until("maintenance begins", || served.get("/", &[]).status == 503);
    assert_eq!(served.get("/", &[]).field("retry-after"), Some("600"));
    reload("maintenance = false\n");
    wait_until("maintenance is over", || served.get("/", &[]).status == 200);
}

#[test]
fn images_are_sent_in_the_format_that_the_client_prefers() {
    let site = Site::new();
    let make_older = |older: &str, newer: &str| {
        let at = |name| fs::File::options().write(true).open(site.root().join(name)).expect("it exists");
        let time = std::time::SystemTime::now() - std::time::Duration::from_secs(100);
        at(older).set_modified(time).expect("set");
        at(newer).set_modified(time + std::time::Duration::from_secs(50)).expect("set");
    };
    for (name, content) in [
        ("photo.jpg", "the original"),
        ("photo.jpg.avif", "the avif"),
        ("photo.jpg.webp", "the webp file"),
        ("old.png", "a png"),
        ("old.png.avif", "made of an earlier one"),
        ("alone.gif", "a gif"),
        ("secret/x.jpg", "secret"),
        ("secret/x.jpg.avif", "secret too"),
        ("mixed/y.jpg", "open"),
        ("mixed/y.jpg.avif", "closed"),
    ] {
        site.add(name, content);
    }
    make_older("photo.jpg", "photo.jpg.avif");
    make_older("photo.jpg", "photo.jpg.webp");
    make_older("old.png.avif", "old.png");
    let served = Configured::serve(
        site,
        "image_formats = ['avif', 'webp']\n\
         route = [{ path = '~ ^/secret/.*\\.jpg$', access = { deny = ['127.0.0.0/8'] } }, { path = '= /mixed/y.jpg.avif', access = { deny = ['127.0.0.0/8'] } }]\n",
    );
    const BROWSER: &str = "Accept: image/avif,image/webp,image/apng,image/*,*/*;q=0.8";
    for (target, accept, content, kind) in [
        ("/photo.jpg", BROWSER, "the avif", "image/avif"),
        ("/photo.jpg", "Accept: image/webp,*/*", "the webp file", "image/webp"),
        ("/photo.jpg", "Accept: */*", "the original", "image/jpeg"),
        ("/photo.jpg.avif", "Accept: */*", "the avif", "image/avif"),
        ("/old.png", BROWSER, "a png", "image/png"),
        ("/alone.gif", BROWSER, "a gif", "image/gif"),
        ("/mixed/y.jpg", BROWSER, "open", "image/jpeg"),
    ] {
        // The second time from the cache.
        for _ in 0..2 {
            let response = served.get(target, &["-H", accept]);
            assert_eq!((response.status, body(&response)), (200, content), "{target} {accept}");
            assert_eq!(response.field("content-type"), Some(kind), "{target} {accept}");
            let varies = (!target.ends_with(".avif")).then_some("Accept");
            assert_eq!(response.field("vary"), varies, "{target} {accept}");
        }
    }
    for target in ["/secret/x.jpg", "/secret/x.jpg.avif", "/mixed/y.jpg.avif"] {
        assert_eq!(served.get(target, &["-H", BROWSER]).status, 403, "{target}");
    }
    // Validators and ranges belong to the bytes that are sent.
    let (avif, original) = (served.get("/photo.jpg", &["-H", BROWSER]), served.get("/photo.jpg", &[]));
    let tag = |response: &Response| response.field("etag").expect("a tag").to_owned();
    assert_ne!(tag(&avif), tag(&original));
    let matching = format!("If-None-Match: {}", tag(&avif));
    let unchanged = served.get("/photo.jpg", &["-H", BROWSER, "-H", &matching]);
    assert_eq!((unchanged.status, unchanged.field("vary")), (304, Some("Accept")));
    assert_eq!(served.get("/photo.jpg", &["-H", &matching]).status, 200);
    let range = |condition: &str| served.get("/photo.jpg", &["-H", BROWSER, "-H", "Range: bytes=4-", "-H", condition]);
    let part = range(&format!("If-Range: {}", tag(&avif)));
    assert_eq!((part.status, body(&part)), (206, "avif"));
    assert_eq!(range(&format!("If-Range: {}", tag(&original))).status, 200);
    let date = avif.field("last-modified").expect("a date");
    assert_eq!(range(&format!("If-Range: {date}")).status, 200, "another format may have the same date");
}

#[test]
fn browsers_get_a_page_for_an_error_and_programs_a_line() {
    let site = Site::new();
    site.add("secret/x", "x");
    let served = Configured::serve(site, "route = [{ path = '/secret/', access = { deny = ['127.0.0.0/8'] } }]\n");
    for (target, options, status, line) in [
        ("/none", &[][..], 404, "404 Not Found"),
        ("/secret/x", &[], 403, "403 Forbidden"),
        ("/", &["-X", "POST"], 405, "405 Method Not Allowed"),
    ] {
        let page = served.get(target, &[options, BROWSER].concat());
        assert_eq!((page.status, page.field("content-type")), (status, Some("text/html; charset=utf-8")), "{target}");
        assert!(body(&page).contains(&format!("<title>{line}</title>")), "{}", body(&page));
        assert!(page.field("content-security-policy").is_some_and(|policy| policy.starts_with("default-src 'none'")));
        let text = served.get(target, options);
        assert_eq!((text.status, body(&text)), (status, &*format!("{line}\n")), "{target}");
        assert_eq!((page.field("vary"), text.field("vary")), (Some("Accept"), Some("Accept")), "{target}");
    }
    let head = served.get("/none", &[&["--head"], BROWSER].concat());
    assert_eq!((head.status, head.body.len()), (404, 0));
}

#[test]
fn maintenance_goes_before_rules_that_forward() {
    // Nothing listens there: what is forwarded gets 502.
    let served = Configured::serve(
        Site::new(),
        "proxy = { to = 'http://127.0.0.1:9', cache = { purge_from = ['127.0.0.0/8'] } }\nmaintenance = true\n\
         [cache]\ndirectories = ['store']\n",
    );
    for method in ["GET", "POST", "PUT", "PURGE", "TRACE"] {
        let response = served.get("/x", &["-X", method]);
        assert_eq!((response.status, response.field("retry-after")), (503, Some("600")), "{method}");
    }
}
