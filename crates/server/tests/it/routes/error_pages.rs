//! Error pages that lead elsewhere: to paths, named routes and URLs.

use sealion_testkit::http;

use super::{echo, fetched, request, text};
use crate::support::Site;
use crate::support::upstream::{Upstream, ok};

#[test]
fn an_error_leads_to_a_path_a_named_route_or_a_url() {
    let (site, upstream) = (Site::new(), echo());
    for (name, content) in [("404.html", "own page"), ("shared.html", "shared"), ("dir/x", "x")] {
        site.add(name, content);
    }
    std::fs::create_dir_all(site.outside().join("errors")).expect("a directory");
    std::fs::write(site.outside().join("errors/50x.html"), "sorry").expect("a file");
    let keys = format!(
        r#"
        error_pages = {{ 404 = "/404.html", 410 = {{ to = "/shared.html", status = 200 }}, 500 = "/50x.html", 402 = "/pay?for={{path}}" }}

        [[site.route]]
        path = "= /50x.html"
        root = "errors"

        [[site.route]]
        path = "= /broken"
        respond = 500

        [[site.route]]
        path = "= /gone"
        respond = 410

        [[site.route]]
        path = "= /paid"
        respond = 402

        [[site.route]]
        path = "= /pay"
        respond = {{ text = "pay {{query.for}}" }}

        [[site.route]]
        path = "/app/"
        error_pages = {{ 404 = "@app", 405 = {{ to = "@app", status = "error" }} }}

        [[site.route]]
        path = "/tea/"
        respond = 418
        error_pages = {{ 418 = "@app" }}

        [[site.route]]
        path = "/away/"
        error_pages = {{ 404 = "https://other.example{{uri}}" }}

        [[site.route]]
        path = "/circle/"
        respond = 503
        error_pages = {{ 503 = "/circle/again" }}

        [[site.route]]
        name = "@app"
        proxy = {{ to = "{url}" }}
        "#,
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, status, content) in [
        ("/none", 404, "own page"),
        ("/gone", 200, "shared"),
        ("/broken", 500, "sorry"),
        ("/50x.html", 200, "sorry"),
        ("/paid", 402, "pay /paid"),
        ("/app/none?q=1", 200, "GET /app/none?q=1"),
        ("/tea/x", 200, "GET /tea/x"),
        ("/away/x", 302, "302 Found\n"),
        // The page of an error has no page of its own.
        ("/circle/x", 503, "503 Service Unavailable\n"),
    ] {
        assert_eq!(fetched(&site, &server, target), (status, content.to_owned()), "{target}");
    }
    let mut client = site.connect(&server);
    assert_eq!(
        http::get(&mut client, "/away/x?y").expect("a response").field("location"),
        Some("https://other.example/away/x?y")
    );
    // A missing file has the page of 404 for a POST, too.
    for (method, status) in [("POST", 200), ("PUT", 405)] {
        let answered = request(&mut client, method, "/app/none", &[("Content-Length", "0")]);
        assert_eq!((answered.status, text(&answered)), (status, format!("{method} /app/none")));
    }
    let ranged = request(&mut client, "GET", "/broken", &[("Range", "bytes=0-1")]);
    assert_eq!((ranged.status, text(&ranged)), (500, "sorry".to_owned()), "a range is of another content");
}

/// Servers that answer with this status.
fn failing(status: &'static str) -> Upstream {
    Upstream::answering(move |_| format!("HTTP/1.1 {status}\r\nContent-Length: 3\r\n\r\nraw").into_bytes())
}

#[test]
fn errors_of_servers_lead_elsewhere_where_they_are_intercepted() {
    let site = Site::new();
    let (broken, spare) =
        (failing("500 Internal Server Error"), Upstream::answering(|request| ok(request.line().as_bytes())));
    let keys = format!(
        r#"
        error_pages = {{ 500 = "@spare" }}

        [[site.route]]
        path = "/kept/"
        proxy = {{ to = "{broken}" }}

        [[site.route]]
        path = "/caught/"
        proxy = {{ to = "{broken}", intercept_errors = true }}

        [[site.route]]
        name = "@spare"
        proxy = {{ to = "{spare}" }}
        "#,
        broken = broken.url(),
        spare = spare.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, status, content) in [("/kept/x", 500, "raw"), ("/caught/x", 200, "GET /caught/x")] {
        assert_eq!(fetched(&site, &server, target), (status, content.to_owned()), "{target}");
    }
    // The first server has the content of the request, which no second one gets in part.
    let mut client = site.connect(&server);
    let head = http::head("POST", "/caught/x", &[("Content-Length", "2")]);
    client.send(format!("{head}ab").as_bytes()).expect("a connection");
    let posted = http::read_response(&mut client, "POST");
    assert_eq!(posted.expect("a response").status, 500);
}

/// An error page is no way around a guard.
#[test]
fn a_refused_request_gets_nothing_of_the_path() {
    let (site, upstream) = (Site::new(), echo());
    site.add("secret/x", "secret");
    site.add("private/x", "private");
    let keys = format!(
        r#"
        error_pages = {{ 401 = "@app", 403 = "@app", 404 = "@app", 405 = "@app" }}

        [[site.route]]
        path = "/secret/"
        access = {{ allow = ["192.0.2.1"] }}

        [[site.route]]
        path = "/denied/"
        deny = true

        [[site.route]]
        path = "= /hint"
        deny = true
        error_pages = {{ 403 = "@login" }}

        [[site.route]]
        path = "= /around"
        respond = 410
        error_pages = {{ 410 = "/secret/x?y" }}

        [[site.route]]
        path = "/gone/"
        respond = 404

        [[site.route]]
        name = "@login"
        redirect = {{ to = "/login?next={{path}}", status = 302 }}

        [[site.route]]
        name = "@app"
        proxy = {{ to = "{url}" }}
        "#,
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (method, target, status) in [
        ("GET", "/secret/x", 403),
        ("GET", "/secret/none", 403),
        ("POST", "/secret/x", 403),
        ("GET", "/denied/x", 403),
        ("TRACE", "/none", 405),
        ("GET", "/hint", 302),
        ("GET", "/gone/x", 403),
        ("GET", "/around", 403),
        ("GET", "/none", 200),
    ] {
        let response = request(&mut client, method, target, &[("Content-Length", "0")]);
        assert_eq!(response.status, status, "{method} {target}");
    }
    // An application could read it as the path of a guarded route.
    let response = request(&mut client, "GET", "/x/..;/secret/x", &[]);
    assert!(matches!(response.status, 400 | 403 | 404), "{}", response.status);
}

#[test]
fn an_error_page_that_leads_nowhere_is_refused() {
    let site = Site::new();
    for (keys, words) in [
        ("error_pages = { 404 = '@none' }", "site.error_pages.404: leads to a route, but the site has no routes"),
        ("error_pages = { 404 = '/none.html' }", "site.error_pages.404: no such file"),
        ("error_pages = { 404 = '@none' }\n[[site.route]]\npath = '/a'\ndeny = true", "@none is the name of no route"),
        (
            "error_pages = { 404 = '/none' }\n[[site.route]]\npath = '/a'\ndeny = true",
            "site.error_pages.404: no such file",
        ),
        ("error_pages = { 404 = { to = '/x', status = 'own' } }", "status"),
        ("error_pages = { 404 = '/{nane}' }", "{nane} is not a placeholder"),
    ] {
        let said = site.config(keys).problems();
        assert!(said.contains(words), "{keys}: {said}");
    }
}

#[test]
fn a_file_takes_no_post_where_the_page_of_404_leads_elsewhere() {
    let site = Site::new();
    site.add("a.txt", "static");
    let keys = r#"
        error_pages = { 404 = "@app" }

        [[site.route]]
        name = "@app"
        respond = { text = "app" }
    "#;
    let server = site.config(keys).serve();
    let mut client = site.connect(&server);
    let post = |client: &mut _, target| request(client, "POST", target, &[("Content-Length", "0")]).status;
    assert_eq!(post(&mut client, "/a.txt"), 405);
    assert_eq!(text(&request(&mut client, "GET", "/a.txt", &[])), "static");
    assert_eq!(post(&mut client, "/a.txt"), 405, "from the cache of files too");
    assert_eq!(post(&mut client, "/none.txt"), 200, "a missing one has the page");
}

#[test]
fn the_page_of_a_refusal_opens_nothing_however_the_request_came_to_the_guard() {
    let site = Site::new();
    for name in ["direct/f.txt", "named/f.txt", "denied/f.txt"] {
        site.add(name, "secret");
    }
    let keys = r#"
        [[site.route]]
        path = "/direct/"
        access = { allow = ["10.9.9.9"] }
        error_pages = { 403 = "@open" }

        [[site.route]]
        path = "/rewritten/"
        rewrite = "/direct/f.txt"

        [[site.route]]
        path = "/named/"
        try = ["/nothing", "@closed"]

        [[site.route]]
        path = "/denied/"
        try = ["/nothing", "@denied"]

        [[site.route]]
        name = "@closed"
        access = { allow = ["10.9.9.9"] }
        error_pages = { 403 = "@open" }

        [[site.route]]
        name = "@denied"
        deny = true
        error_pages = { 403 = "@open" }

        [[site.route]]
        name = "@open"
    "#;
    let server = site.config(keys).serve();
    for target in ["/direct/f.txt", "/rewritten/f.txt", "/named/f.txt", "/denied/f.txt"] {
        assert_eq!(fetched(&site, &server, target).0, 403, "{target}");
    }
}
