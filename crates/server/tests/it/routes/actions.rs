//! The actions of routes: files, servers, responses of their own, redirects, other paths.

use sealion_testkit::http;

use super::{echo, fetched, request, statuses, text};
use crate::support::upstream::Upstream;
use crate::support::{Site, access_lines};

#[test]
fn each_path_is_answered_by_its_route() {
    let (site, upstream) = (Site::new(), echo());
    for (name, content) in [("index.html", "home"), ("a/x.txt", "a"), ("docs/y.txt", "hidden"), ("robots.txt", "all")] {
        site.add(name, content);
    }
    std::fs::create_dir_all(site.outside().join("manual/deep")).expect("a directory");
    std::fs::write(site.outside().join("manual/y.txt"), "manual").expect("a file");
    std::fs::write(site.outside().join("manual/deep/index.html"), "deep").expect("a file");
    std::fs::write(site.outside().join("teapot"), "short and stout").expect("a file");
    let keys = format!(
        r#"
        [[site.route]]
        path = "= /healthz"
        respond = {{ status = 200, text = '{{"path":"{{path}}"}}', type = "application/json" }}

        [[site.route]]
        path = "= /empty"
        respond = 204

        [[site.route]]
        path = "/gone/"
        respond = 410

        [[site.route]]
        path = "= /teapot"
        respond = {{ status = 418, file = "teapot" }}

        [[site.route]]
        path = "/docs/"
        alias = "manual"

        [[site.route]]
        path = "/api/"
        proxy = {{ to = "{url}", strip_prefix = true }}

        [[site.route.route]]
        path = "/api/internal/"
        deny = true

        [[site.route.route]]
        path = "= /api/version"
        respond = {{ text = "7" }}

        [[site.route]]
        path = '~ ^/user/(?<name>[^/]+)/(\d+)$'
        redirect = "/u/{{name}}?post={{2}}"

        [[site.route]]
        path = "= /elsewhere"
        redirect = {{ to = "https://other.example{{uri}}", status = 302 }}
        "#,
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, status, content) in [
        ("/", 200, "home"),
        ("/a/x.txt", 200, "a"),
        ("/robots.txt", 200, "all"),
        ("/healthz", 200, "{\"path\":\"/healthz\"}"),
        ("/healthz/", 404, "404 Not Found\n"),
        ("/empty", 204, ""),
        ("/gone/x", 410, "410\n"),
        ("/gone", 410, "410\n"),
        ("/teapot", 418, "short and stout"),
        ("/docs/y.txt", 200, "manual"),
        ("/docs/deep/", 200, "deep"),
        ("/docs/none", 404, "404 Not Found\n"),
        ("/api/x?y=1", 200, "GET /x?y=1"),
        ("/api/internal/x", 403, "403 Forbidden\n"),
        ("/api/version", 200, "7"),
    ] {
        assert_eq!(fetched(&site, &server, target), (status, content.to_owned()), "{target}");
    }
    let mut client = site.connect(&server);
    for (target, status, location) in
        [("/user/ada%20l/7", 308, "/u/ada%20l?post=7"), ("/elsewhere?a=b", 302, "https://other.example/elsewhere?a=b")]
    {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!((response.status, response.field("location")), (status, Some(location)), "{target}");
    }
    let response = http::get(&mut client, "/healthz").expect("a response");
    assert_eq!(response.field("content-type"), Some("application/json"));
    let posted = request(&mut client, "POST", "/gone/x", &[("Content-Length", "0")]);
    assert_eq!(posted.status, 410, "a response of the route answers any method");
    let posted = request(&mut client, "POST", "/a/x.txt", &[("Content-Length", "0")]);
    assert_eq!(posted.status, 405);
}

#[test]
fn a_route_inherits_what_it_does_not_set() {
    let site = Site::new();
    for name in ["index.html", "a/index.html", "a/b/index.html", "a/b/home.htm", "404.html"] {
        site.add(name, name);
    }
    let keys = r#"
        error_pages = { 404 = "/404.html" }
        headers = { set = { X-Site = "site" } }

        [[site.route]]
        path = "/a/"
        headers = { set = { X-Route = "a" } }
        cache_control = "max-age=60"

        [[site.route.route]]
        path = "/a/b/"
        index = ["home.htm"]
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, status, content, fields) in [
        ("/", 200, "index.html", [Some("site"), None, None]),
        ("/a/", 200, "a/index.html", [None, Some("a"), Some("max-age=60")]),
        ("/a/b/", 200, "a/b/home.htm", [None, Some("a"), Some("max-age=60")]),
        ("/a/b/none", 404, "404.html", [None, Some("a"), None]),
    ] {
        // The second response is of the cache.
        for _ in 0..2 {
            let response = http::get(&mut client, target).expect("a response");
            assert_eq!((response.status, text(&response)), (status, content.to_owned()), "{target}");
            let found = ["x-site", "x-route", "cache-control"].map(|name| response.field(name));
            assert_eq!(found, fields, "{target}");
        }
    }
}

#[test]
fn paths_are_tried_one_after_another() {
    let (site, upstream) = (Site::new(), echo());
    let files = [("x.txt", "file"), ("dir/index.html", "index"), ("app.html", "app"), ("page.html", "page")];
    for (name, content) in files.into_iter().chain([("bare/x.txt", "file"), ("listed/x.txt", "file")]) {
        site.add(name, content);
    }
    let keys = format!(
        r#"
        [[site.route]]
        path = "/"
        try = ["{{path}}", "{{path}}.html", "{{path}}/", "@app"]

        [[site.route.route]]
        path = "/listed/"
        listing = true

        [[site.route]]
        path = "/spa/"
        try = ["/none", "/app.html"]

        [[site.route]]
        path = "/strict/"
        try = ["/x.txt/none", "=404"]

        [[site.route]]
        name = "@app"
        proxy = {{ to = "{url}" }}
        "#,
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, status, content) in [
        ("/x.txt", 200, "file"),
        ("/page", 200, "page"),
        ("/dir/", 200, "index"),
        ("/none?q=1", 200, "GET /none?q=1"),
        ("/.hidden", 200, "GET /.hidden"),
        ("/a%2Fb", 200, "GET /a%2Fb"),
        ("/spa/users/1", 200, "app"),
        ("/strict/a", 404, "404 Not Found\n"),
    ] {
        assert_eq!(fetched(&site, &server, target), (status, content.to_owned()), "{target}");
    }
    for (target, status) in [("/x.txt", 405), ("/page", 405), ("/dir/", 405), ("/none", 200)] {
        let posted = request(&mut site.connect(&server), "POST", target, &[("Content-Length", "0")]);
        assert_eq!(posted.status, status, "files answer GET and HEAD alone: {target}");
    }
    for (target, to) in [("/dir?q=1", "/dir/?q=1"), ("/bare", "/bare/")] {
        let moved = request(&mut site.connect(&server), "GET", target, &[]);
        assert_eq!((moved.status, moved.field("location")), (301, Some(to)), "links of an index are relative");
    }
    for (method, target, status) in [
        ("GET", "/bare/", 403),
        ("HEAD", "/bare/", 403),
        ("POST", "/bare/", 403),
        ("PUT", "/bare/", 405),
        ("GET", "/listed/", 200),
    ] {
        let response = request(&mut site.connect(&server), method, target, &[("Content-Length", "0")]);
        assert_eq!(response.status, status, "a directory ends the search: {method} {target}");
    }
}

#[test]
fn a_rewritten_path_chooses_again() {
    let (site, upstream) = (Site::new(), echo());
    for (name, content) in [("new/x.txt", "new"), ("stay/x.txt", "stay"), ("secret.txt", "secret")] {
        site.add(name, content);
    }
    let keys = format!(
        r#"
        [[site.route]]
        path = '~ ^/old/(.*)$'
        rewrite = "/new/{{1}}"

        [[site.route]]
        path = "/new/app/"
        proxy = {{ to = "{url}" }}

        [[site.route]]
        path = '~ ^/kept/(.*)$'
        rewrite = {{ to = "/stay/{{1}}", stay = true }}

        [[site.route]]
        path = "/stay/"
        deny = true

        [[site.route]]
        path = "= /ask"
        rewrite = "/new/app/ask?id={{query.n}}"

        [[site.route]]
        path = "/circle/"
        rewrite = "/circle/x"

        [[site.route]]
        path = "= /inside"
        internal = true

        [[site.route]]
        path = "= /to-inside"
        rewrite = "/inside"
        "#,
        url = upstream.url()
    );
    site.add("inside", "inside");
    let server = site.config(&keys).serve_from_user_space();
    for (target, status, content) in [
        ("/old/x.txt", 200, "new"),
        ("/old/app/y?z=1", 200, "GET /new/app/y?z=1"),
        ("/ask?n=a%26b", 200, "GET /new/app/ask?id=a%26b"),
        ("/circle/", 500, "500 Internal Server Error\n"),
        ("/inside", 404, "404 Not Found\n"),
        ("/to-inside", 200, "inside"),
        // The route that withholds the file counts, whichever path led to it.
        ("/kept/x.txt", 403, "403 Forbidden\n"),
        ("/stay/x.txt", 403, "403 Forbidden\n"),
    ] {
        assert_eq!(fetched(&site, &server, target), (status, content.to_owned()), "{target}");
    }
    assert_eq!(statuses(&site, &server, "/old/%2e%2e/secret.txt"), [400, 400]);
}

#[test]
fn a_route_has_limits_of_its_own() {
    let site = Site::new();
    site.add("a/x", "x");
    site.add("y", "y");
    let keys = r#"
        [[site.route]]
        path = "/a/"
        limits = { requests_per_second = 1, burst = 2 }
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let mut get = |target: &str| http::get(&mut client, target).expect("a response").status;
    let limited: Vec<u16> = (0..4).map(|_| get("/a/x")).collect();
    assert_eq!((limited[0], limited[3]), (200, 429), "{limited:?}");
    assert!((0..4).all(|_| get("/y") == 200));
}

#[test]
fn mistakes_are_named_with_line_and_remedy() {
    let site = Site::new();
    for (keys, words) in [
        ("path = 'a'\nrespond = 204", "site.route.path: begins with a slash"),
        ("path = '/a'\ndeny = true\nrespond = 204", "has respond and deny: keep one of them"),
        ("deny = true", "site.route: has neither path, match nor name"),
        ("path = '/a'\nrespond = 99", "site.route.respond.status: 99 is not a status"),
        ("path = '/a'\nrespond = { stauts = 200 }", "did you mean `status`?"),
        ("path = '/a'\nredirect = '{hots}'", "{hots} is not a placeholder: the nearest is {host}"),
        ("path = '/a'\nredirect = '//x'", "begins with two slashes"),
        ("path = '/a'\ntry = ['{path}', '@none']", "@none is the name of no route"),
        ("path = '/a'\nproxy = { to = 'none' }", "site.route.proxy.to: "),
        ("path = '/a'\nproxy = { to = 'http://127.0.0.1:1', strip_prefix = true }", "ends in a slash"),
        ("path = '/a'\nalias = '.'", "site.route.alias: needs a path that ends in a slash"),
        ("path = '/a/'\n[[site.route.route]]\npath = '/b'\ndeny = true", "lies outside the route around it"),
        ("path = '~ ^/(a'\ndeny = true", "is not a regular expression"),
        (
            "name = 'app'\ndeny = true",
            "is an at sign, then letters, digits, hyphens and underscores: write for instance @app",
        ),
        ("path = '/a'\nmatch = { method = 'get' }\ndeny = true", "site.route.match.method: \"get\" is not a method"),
        ("path = '/a'\nmatch = { client = ['office'] }\ndeny = true", "is not a network"),
    ] {
        let said = site.config(&format!("[[site.route]]\n{keys}\n")).problems();
        assert!(said.contains(words), "{keys}: {said}");
    }
}

/// Servers that answer with their name and the fields that tests set.
fn named(name: &'static str) -> Upstream {
    Upstream::answering(move |request| {
        let field = |wanted: &str| request.all(wanted).join(", ");
        let body = format!("{name} {} {}", field("x-user"), field("x-path"));
        let head = format!("HTTP/1.1 200 OK\r\nX-From: {name}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        head.into_bytes()
    })
}

#[test]
fn values_of_the_request_choose_servers_and_fill_fields() {
    let site = Site::new();
    let (one, two) = (named("one"), named("two"));
    let keys = r#"
        [[site.route]]
        path = "/map/"
        proxy = { to = "{map.pool}", request_headers = [{ name = "X-Path", value = "{path}?{query.q}" }], response_headers = [{ name = "X-Seen", value = "{upstream.header.x-from}!" }] }
        headers = { set = { X-Method = "{method}" } }

        [[site.route]]
        path = '~ ^/name/(?<pool>\w+)/'
        proxy = { to = "{pool}", request_headers = [{ name = "X-User", value = "{header.x-name}" }] }
    "#;
    let tables = format!(
        "[[map]]\nname = 'pool'\nfrom = '{{header.x-pool}}'\ndefault = 'one'\nentries = {{ b = '{two}' }}\n\
         [[upstream]]\nname = 'one'\nservers = [{{ url = '{one}' }}]\n\
         [[upstream]]\nname = 'two'\nservers = [{{ url = '{two}' }}]\n",
        one = one.url(),
        two = two.url()
    );
    let server = site.config(keys).table(&tables).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, fields, expected) in [
        ("/map/x", &[][..], "one  /map/x?"),
        ("/map/x?q=a%20b", &[("X-Pool", "b")], "two  /map/x?a b"),
        ("/map/x", &[("X-Pool", "c")], "one  /map/x?"),
        ("/name/one/", &[("X-Name", "ada")], "one ada "),
        // A field that the client sends is removed where the value is empty.
        ("/name/two/", &[("X-User", "eve")], "two  "),
    ] {
        let response = request(&mut client, "GET", target, fields);
        assert_eq!((response.status, text(&response)), (200, expected.to_owned()), "{target} {fields:?}");
        if target.starts_with("/map") {
            assert_eq!(response.field("x-seen"), Some(if expected.starts_with("one") { "one!" } else { "two!" }));
            assert_eq!(response.field("x-method"), Some("GET"));
        }
    }
    let address = one.url().trim_start_matches("http://").replace(['.', ':'], "_");
    for target in ["/name/three/".to_owned(), format!("/name/{address}/")] {
        assert_eq!(request(&mut client, "GET", &target, &[]).status, 502, "{target}: no client names a server");
    }
}

#[test]
fn a_route_may_be_left_out_of_the_access_log() {
    let site = Site::new();
    for name in ["x", "quiet/x", "quiet/loud/x"] {
        site.add(name, "x");
    }
    let keys = r#"
        [[site.route]]
        path = "/quiet/"
        access_log = false

        [[site.route.route]]
        path = "/quiet/loud/"
        access_log = true
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    // The second response of each is of the cache.
    for target in ["/quiet/x", "/quiet/x", "/quiet/none", "/quiet/loud/x", "/quiet/loud/x", "/x"] {
        http::get(&mut client, target).expect("a response");
    }
    let targets: Vec<_> = access_lines(&server, 3).iter().map(|line| line.get("target").to_owned()).collect();
    assert_eq!(targets, ["/quiet/loud/x", "/quiet/loud/x", "/x"]);
}

#[test]
fn the_route_of_an_index_answers_for_its_directory() {
    let (site, upstream) = (Site::new(), echo());
    for name in ["index.html", "docs/index.php", "docs/index.html", "kept/index.html", "closed/index.php"] {
        site.add(name, "a file");
    }
    let keys = format!(
        r#"
        index = ["index.php", "index.html"]

        [[site.route]]
        path = '~ \.php$'
        proxy = {{ to = "{url}" }}

        [[site.route]]
        path = "/closed/"
        try = ["{{path}}", "{{path}}/", "=404"]

        [[site.route.route]]
        path = "= /closed/index.php"
        deny = true
        "#,
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, status, content) in [
        ("/", 200, "a file"),
        ("/docs/", 200, "GET /docs/index.php"),
        ("/docs/?x=1", 200, "GET /docs/index.php?x=1"),
        ("/kept/", 200, "a file"),
        ("/closed/", 403, "403 Forbidden\n"),
    ] {
        assert_eq!(fetched(&site, &server, target), (status, content.to_owned()), "{target}");
    }
    let mut client = site.connect(&server);
    for (target, status) in [("/docs/", 200), ("/kept/", 405), ("/closed/", 403)] {
        assert_eq!(request(&mut client, "POST", target, &[("Content-Length", "0")]).status, status, "{target}");
    }
}

#[test]
fn fields_of_a_route_are_on_its_own_responses_and_name_groups_of_the_requested_path() {
    let site = Site::new();
    site.add("docs/a.txt", "a");
    let keys = r#"
        cache_control = "no-store"

        [[site.route]]
        path = "= /up"
        respond = { text = "up" }

        [[site.route]]
        path = "= /moved"
        redirect = "/up"

        [[site.route]]
        path = "= /gone"
        respond = 410

        [[site.route]]
        path = '~ ^/dl/(.+)$'
        rewrite = { to = "/docs/{1}", stay = true }
        headers = { set = { X-File = "{1}" } }
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, status, caching, file) in [
        ("/up", 200, Some("no-store"), None),
        ("/moved", 308, Some("no-store"), None),
        ("/gone", 410, None, None),
        ("/dl/a.txt", 200, Some("no-store"), Some("a.txt")),
        ("/docs/a.txt", 200, Some("no-store"), None),
    ] {
        let response = http::get(&mut client, target).expect("a response");
        let found = (response.status, response.field("cache-control"), response.field("x-file"));
        assert_eq!(found, (status, caching, file), "{target}");
    }
}

#[test]
fn a_name_leads_to_the_route_within_that_the_path_has() {
    let site = Site::new();
    let keys = r#"
        [[site.route]]
        path = "/"
        try = ["{path}", "@wiki"]

        [[site.route]]
        name = "@wiki"
        respond = 410

        [[site.route.route]]
        path = '~ ^/media/(.*)$'
        redirect = { to = "/fetch/{1}", status = 302 }

        [[site.route.route]]
        path = "~ ^/"
        match = { value = { "{header.x-tenant}" = '~ ^(?<tenant>[a-z]+)-' } }
        respond = { text = "of {tenant}" }
        "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let moved = request(&mut client, "GET", "/media/a/b", &[]);
    assert_eq!((moved.status, moved.field("location")), (302, Some("/fetch/a/b")));
    assert_eq!(text(&request(&mut client, "GET", "/x", &[("X-Tenant", "acme-7")])), "of acme");
    assert_eq!(statuses(&site, &server, "/x"), [410, 410]);
}

#[test]
fn a_rewrite_applies_once_where_it_says_so() {
    let site = Site::new();
    site.add("a/x.txt", "x");
    let keys = r#"
        [[site.route]]
        path = '~ ^(/b)?(/a/.*)$'
        once = true
        rewrite = "{2}"
        "#;
    let server = site.config(keys).serve_from_user_space();
    for target in ["/b/a/x.txt", "/a/x.txt"] {
        assert_eq!(fetched(&site, &server, target), (200, "x".to_owned()), "{target}");
    }
    assert_eq!(statuses(&site, &server, "/a/none"), [404, 404]);
}

/// A rewrite passes over such a route, with its guards; an internal redirect does not.
#[test]
fn a_rewrite_is_not_led_to_where_a_route_says_so() {
    let site = Site::new();
    site.add("p/x", "x");
    let keys = r#"
        [[site.route]]
        path = "~ ^/p/"
        unless_rewritten = true
        deny = true

        [[site.route]]
        path = "= /rewritten"
        rewrite = "/p/x"

        [[site.route]]
        path = "= /tried"
        try = ["/none", "/p/x"]

        [[site.route]]
        path = "= /lost"
        respond = 404
        error_pages = { 404 = "/p/x?" }
        "#;
    let server = site.config(keys).serve_from_user_space();
    assert_eq!(fetched(&site, &server, "/rewritten"), (200, "x".to_owned()));
    for target in ["/p/x", "/tried", "/lost"] {
        assert_eq!(statuses(&site, &server, target), [403, 403], "{target}");
    }
}

/// A request is counted before the guards of the route that it goes on in, and once by the same limits.
#[test]
fn a_route_counts_requests_that_another_one_leads_to() {
    let site = Site::new();
    site.add("a", "a");
    std::fs::write(site.outside().join("users"), "ada:$apr1$abcdefgh$h9FWgUz3n9YxylKLlR5SQ/\n").expect("a file");
    let keys = |limits: &str| {
        format!(
            r#"
            {limits}
            [[site.route]]
            path = "/login"
            limits = {{ requests_per_minute = 1, burst = 2 }}
            basic_auth = {{ users = "users" }}

            [[site.route]]
            path = "/rewritten"
            rewrite = "/login"

            [[site.route]]
            path = "/tried"
            try = ["/none", "/login"]
            "#
        )
    };
    for (limits, target, expected) in [
        ("", "/login", [401, 401, 429]),
        ("", "/rewritten", [401, 401, 429]),
        ("", "/tried", [401, 401, 429]),
        // Counted by the site already; a rewrite comes before that.
        ("limits = { requests_per_minute = 100 }", "/tried", [401, 401, 401]),
        ("limits = { requests_per_minute = 100 }", "/rewritten", [401, 401, 429]),
    ] {
        let server = site.config(&keys(limits)).serve_from_user_space();
        let mut client = site.connect(&server);
        let statuses = expected.map(|_| request(&mut client, "GET", target, &[]).status);
        assert_eq!(statuses, expected, "{limits} {target}");
    }
}
