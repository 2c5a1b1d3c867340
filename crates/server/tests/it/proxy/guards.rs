//! A guard holds for whatever spelling an application takes for its path.

use sealion_testkit::server::Server;
use sealion_testkit::{Suite, http};

use crate::guards::add_users;
use crate::support::Site;
use crate::support::http2::Http2;
use crate::support::upstream::{Upstream, ok};

/// The statuses of `target` over HTTP/1.1 and HTTP/2.
#[track_caller]
fn statuses(site: &Site, server: &Server, target: &str) -> [u16; 2] {
    let over_http1 = http::get(&mut site.connect(server), target).expect("a response").status;
    let (over_http2, _) = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]).fetch(target);
    [over_http1, over_http2]
}

/// A route for `path` with each kind of guard. A server at `auth` refuses all that it is asked about; there is a file `users`.
fn each_guard(path: &str, auth: &Upstream) -> [(&'static str, String, u16); 3] {
    let route = |guard: &str| format!("route = [{{ path = '{path}', {guard} }}]");
    [
        ("access", route("access = { deny = ['127.0.0.1'] }"), 403),
        ("basic_auth", route("basic_auth = { users = 'users' }"), 401),
        ("forward_auth", route(&format!("forward_auth = {{ to = '{}/' }}", auth.url())), 403),
    ]
}

/// Whether both statuses are `refusal`, or 400 for a path that an application may read otherwise.
fn are_refused(statuses: [u16; 2], refusal: u16) -> bool {
    statuses == [refusal; 2] || statuses == [400; 2]
}

fn refusing() -> Upstream {
    Upstream::answering(|_| b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec())
}

fn with_users() -> Site {
    let site = Site::new();
    add_users(&site, "users", &["ada"]);
    site
}

const PARAMETERS_WITH_SLASHES: [&str; 12] = [
    "/app;%2Fy/admin/x",
    "/app;%2fy/admin/x",
    "/app;%5Cy/admin/x",
    "/app;y\\z/admin/x",
    "/app;%252Fy/admin/x",
    "/app;%25252Fy/admin/x",
    "/app;%255Cy/admin/x",
    "/app;%C0%AFy/admin/x",
    "/app/;%2Fy/admin",
    "/;%2Fy/app/admin",
    "/app/x;a=b;c=%2F/y",
    "/app/public;%2F%3F/admin",
];

/// Servlet containers drop a parameter up to the next slash that is not encoded; others decode it first.
#[test]
fn a_parameter_that_hides_a_slash_is_refused_whatever_guards_the_site() {
    let site = with_users();
    site.add("app/x", "a file");
    let (upstream, auth) = (Upstream::answering(|request| ok(request.line().as_bytes())), refusing());
    let forwarding = format!("proxy = {{ to = '{}' }}\n", upstream.url());
    let methods = format!(
        "proxy = {{ to = '{url}' }}\nroute = [{{ path = '/app/admin/', proxy = {{ methods = ['POST'], to = '{url}' }} }}]",
        url = upstream.url()
    );
    let guards = each_guard("/app/admin/", &auth);
    let forwarded = guards.iter().map(|(kind, keys, _)| (*kind, format!("{forwarding}{keys}")));
    let files = guards.iter().map(|(kind, keys, _)| (*kind, keys.clone()));
    let others = [("nothing", forwarding.clone()), ("methods", methods)];
    for (kind, keys) in forwarded.chain(files).chain(others) {
        let server = site.config(&keys).serve_from_user_space();
        for target in PARAMETERS_WITH_SLASHES {
            assert_eq!(statuses(&site, &server, target), [400, 400], "{kind} {target}");
        }
        assert_eq!(statuses(&site, &server, "/app/x"), [200, 200], "{kind}");
    }
    assert_eq!(auth.requests().len(), 0);
    let lines: Vec<_> = upstream.requests().iter().map(|request| request.line().to_owned()).collect();
    assert!(lines.iter().all(|line| line == "GET /app/x"), "{lines:?}");
}

/// Spellings of a path that some application reads as /app/admin/x, even if the usual one does not.
const SPELLINGS_OF_ADMIN: [&str; 44] = [
    "/app/admin/x",
    "/app;a=b/admin/x",
    "/app%3By/admin/x",
    "/app%253By/admin/x",
    "/app%3B%2Fy/admin/x",
    "/app%3B%252Fy/admin/x",
    "/app%3By%2Fz/admin/x",
    "/app%3B%5Cy/admin/x",
    "/app;%3F/admin/x",
    "/app;%23/admin/x",
    "/;y/app/;z/admin/x",
    "/app/admin%3Fx",
    "/app/admin;y%3Fx",
    "/app/admin%3B%3Fx",
    "/app/admin%253Fx",
    "/app/admin%23x%3Fy",
    "/app/%2561dmin/x",
    "/app/%252561dmin/x",
    "/app/%25u0061dmin/x",
    "/app%255Cadmin%255Cx",
    "/app%C0%AFadmin/x",
    "/app%C1%9Cadmin/x",
    "/app%E0%80%AFadmin/x",
    "/app%25C0%25AFadmin/x",
    "/app/%C1%A1dmin/x",
    "/app%EF%BC%8Fadmin/x",
    "/app/admin%00",
    "/app/admin%2500",
    "/app/admin%20/x",
    "/app/%20admin/x",
    "/app/admin%0A",
    "/app/ad%0Amin/x",
    "/app/admin./x",
    "/app/admin::$INDEX_ALLOCATION/x",
    "/(S(x))/app/admin/x",
    "/app/ad/(S(x))min/x",
    "/app/(S(x))admin/x",
    "/app/ad%FFmin/x",
    "/app/%E3%80%80admin/x",
    "/app/admin%EF%BB%BF",
    "/app/admin%0Ax",
    "/x%0A/app/admin/x",
    "/x/..;/app/admin/x",
    "/x/%2e%2e%3B/app/admin/x",
];

#[test]
fn every_reading_of_an_application_is_guarded() {
    let site = with_users();
    let (upstream, auth) = (Upstream::answering(|request| ok(request.line().as_bytes())), refusing());
    let url = upstream.url();
    let guards = each_guard("/app/admin/", &auth)
        .map(|(kind, keys, status)| (kind, format!("proxy = {{ to = '{url}' }}\n{keys}"), status));
    let methods = format!(
        "proxy = {{ to = '{url}' }}\nroute = [{{ path = '/app/admin/', proxy = {{ methods = ['POST'], to = '{url}' }} }}]"
    );
    for (kind, keys, refusal) in guards.into_iter().chain([("methods", methods, 405)]) {
        let server = site.config(&keys).serve_from_user_space();
        for target in SPELLINGS_OF_ADMIN {
            let found = statuses(&site, &server, target);
            assert!(are_refused(found, refusal), "{kind} {target}: {found:?}");
        }
        assert_eq!(upstream.requests().len(), 0, "{kind}");
    }
}

/// An application that is mounted somewhere drops that path, and takes two slashes behind it for the beginning of a host: `app.use("/app", …)` of Express with
/// `new URL(request.url, …)`, a servlet with `new URI(…)` behind its context path. `strip_prefix` drops it before.
#[test]
fn a_host_behind_the_path_that_an_application_is_mounted_at_is_guarded() {
    let site = with_users();
    let (upstream, auth) = (Upstream::answering(|request| ok(request.line().as_bytes())), refusing());
    let url = upstream.url();
    let guards = each_guard("/app/admin/", &auth);
    let methods = format!("route = [{{ path = '/app/admin/', proxy = {{ methods = ['POST'], to = '{url}' }} }}]");
    let guards = guards.into_iter().chain([("methods", methods, 405)]);
    let guards: Vec<_> = guards.collect();
    for rule in ["", ", strip_prefix = true", ", strip_prefix = true, to_prefix = '/v1'"] {
        for (kind, inner, refusal) in &guards {
            let keys = format!("route = [{{ path = '/app/', proxy = {{ to = '{url}'{rule} }}, {inner} }}]");
            let server = site.config(&keys).serve_from_user_space();
            for target in [
                "/app//host/admin/x",
                "/app///host/admin",
                "/app/%5Chost/admin/x",
                "/app/\\host/admin/x",
                "/app/%2Fhost/admin/x",
                "/app/%255Chost/admin/x",
                "/app/;a//host;b/admin/x",
                "/app/%5C%5Ca//b/admin/x",
                "/app/%0A/admin/x",
            ] {
                let found = statuses(&site, &server, target);
                assert!(are_refused(found, *refusal), "{kind} {rule} {target}: {found:?}");
            }
            assert_eq!(upstream.requests().len(), 0, "{kind} {rule}");
        }
    }
    // The application reads what it gets: neither the parameter nor the encoded slash of the prefix.
    let keys = format!(
        "route = [\n\
           {{ path = '/a;b/', proxy = {{ strip_prefix = true, to = '{url}' }},\n\
             route = [{{ path = '/a;b/admin/', access = {{ deny = ['127.0.0.1'] }} }}] }},\n\
           {{ path = '/app/', proxy = {{ strip_prefix = true, to = '{url}' }},\n\
             route = [{{ path = '~ ^/app/[^/]*[.]key$', access = {{ deny = ['127.0.0.1'] }} }}] }},\n\
         ]"
    );
    let server = site.config(&keys).serve_from_user_space();
    for target in ["/a;b/admin;c/x", "/%2Fapp/x%2F.key"] {
        assert!(are_refused(statuses(&site, &server, target), 403), "{target}");
    }
    let keys = format!("proxy = {{ to = '{url}' }}\n{}", guards[0].1);
    let server = site.config(&keys).serve_from_user_space();
    for target in ["/app//host/x", "/app/https://example.org/admin/x", "/app//administrators", "/x//host/app/admin/x"] {
        assert_eq!(statuses(&site, &server, target), [200, 200], "{target}");
    }
}

/// Parameters, encoded slashes and the like in paths that are not guarded.
#[test]
fn ordinary_paths_pass_beside_a_guard() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = format!(
        "proxy = {{ to = '{}' }}\nroute = [{{ path = '/admin/', access = {{ deny = ['127.0.0.1'] }} }}, {{ path = '~ \\.key$', access = {{ deny = ['127.0.0.1'] }} }}]",
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut over_http2 = Http2::connect(site.connector(Suite::TLS13), server.address(), &[]);
    let mut over_http1 = site.connect(&server);
    for target in [
        "/app;jsessionid=1F2E.node0!-3/x",
        "/cart;v=1.2;w=a,b/x;y",
        "/a%2Fb",
        "/repos/group%2Fproject/files/a%2Fb.rb",
        "/a;b/c%2Fd",
        "/title%3B%20a%2Fb",
        "/c%2B%2B/a+b",
        "/caf%C3%A9/%E3%81%82",
        "/wiki/Apple_Inc.",
        "/wiki/Talk:C",
        "/compare/main...feature",
        "/f(x)/y(z)",
        "/what%3F",
        "/100%25",
        "/redirect/https%253A%252F%252Fexample.org",
        "/a%20b/c%20",
        "/dir/",
        "/a.keys/",
    ] {
        let line = format!("GET {target}").into_bytes();
        assert_eq!(over_http2.fetch(target), (200, line.clone()), "{target}");
        assert_eq!(http::get(&mut over_http1, target).expect("a response").body, line, "{target}");
    }
}

/// Applications drop a slash at the end, and `$` of several languages matches before a newline.
#[test]
fn an_expression_guards_its_paths_with_a_slash_at_their_end() {
    let site = with_users();
    let auth = refusing();
    let upstream =
        Upstream::answering(|_| b"HTTP/1.1 200 OK\r\nCache-Control: max-age=600\r\nContent-Length: 0\r\n\r\n".to_vec());
    for (kind, keys, refusal) in each_guard("~ \\.secret$", &auth) {
        let cache = site.outside().join(kind);
        std::fs::create_dir(&cache).expect("a directory");
        let keys = format!("proxy = {{ to = '{}', cache = {{}} }}\n{keys}", upstream.url());
        let table = format!("[cache]\ndirectories = ['{}']\n", cache.display());
        let server = site.config(&keys).table(&table).serve_from_user_space();
        for target in [
            "/x.secret",
            "/x.secret/",
            "/x.secret//",
            "/x.secret%2f",
            "/x.secret%2F/",
            "/x.secret;/",
            "/x.secret/;a=b",
            "/x.secret%5C",
            "/x.secret%252F",
            "/x.secret/%3Fy",
            "/x.secret%0A",
            "/x.secret./",
        ] {
            assert!(are_refused(statuses(&site, &server, target), refusal), "{kind} {target}");
        }
        // Stored responses are sent without another request.
        assert_eq!(statuses(&site, &server, "/x.secrets/"), [200, 200], "{kind}");
    }
    let lines: Vec<_> = upstream.requests().iter().map(|request| request.line().to_owned()).collect();
    assert_eq!(lines, ["GET /x.secrets/"; 3]);
}

#[test]
fn no_spelling_of_a_guarded_path_reaches_the_server() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| ok(request.line().as_bytes()));
    let keys = format!(
        "proxy = {{ to = '{}' }}\nroute = [{{ path = '/admin/', access = {{ deny = ['127.0.0.1'] }} }}, {{ path = '~ \\.key$', access = {{ deny = ['127.0.0.1'] }} }}]",
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for target in [
        "/admin",
        "/admin/",
        "/admin/x",
        "//admin/x",
        "/%61dmin/x",
        "/%2561dmin/x",
        "/admin%2Fx",
        "/%2Fadmin%2fx",
        "/admin%252Fx",
        "/admin;a=b/x",
        "/admin%3Ba/x",
        "/;a/admin/x",
        "\\admin\\x",
        "/%5Cadmin%5Cx",
        "/\\admin",
        "/x/..;/admin/x",
        "/x/%2e%2e;/admin",
        "/x/../admin",
        "/x/%2e%2e/admin",
        "/x%2F..%2Fadmin",
        "/x/..%5Cadmin",
        "/a.key",
        "/a.key;x",
        "/a%2Ekey",
        "/a.ke%2579",
        "/admin?x",
        "/admin%00",
        "/admin%3Fx",
        "/admin%23x/y",
        "/%61dmin%253Fx",
        "/a.key%3F.txt",
        "/x/..%3F",
        "/a.key;%3F/x",
        "/a.key;b%2523/x",
        "/admin;%3F",
    ] {
        let response = http::get(&mut client, target);
        let status = response.map(|response| {
            if response.field("connection") == Some("close") {
                client = site.connect(&server);
            }
            response.status
        });
        assert!(matches!(status, Ok(403 | 400 | 404)), "{target}: {status:?}");
    }
    for target in
        ["/administrator", "/a;b/c%2Fd", "/x//y", "/.well/.env", "/%25", "/a.keys", "/x\\y", "/what%3F", "/a%23/b%3F?c"]
    {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!(response.body, format!("GET {target}").into_bytes());
    }
    let forwarded = upstream.requests();
    assert!(forwarded.iter().all(|request| !request.line().contains("admin/") && !request.line().ends_with("admin")));
}

#[test]
fn files_are_not_reached_by_spellings_that_only_an_application_has() {
    let site = Site::new();
    site.add("dir/file", "a file");
    site.add(".hidden", "hidden");
    let upstream = Upstream::answering(|_| ok(b"of the server"));
    let keys = format!("proxy = {{ to = '{}', files_first = true }}", upstream.url());
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, body) in [
        ("/dir/file", "a file"),
        ("/dir%2Ffile", "of the server"),
        ("/.hidden", "of the server"),
        ("/none", "of the server"),
    ] {
        assert_eq!(http::get(&mut client, target).expect("a response").body, body.as_bytes(), "{target}");
    }
}

/// Some frameworks take the path from a field.
#[test]
fn no_field_of_a_client_replaces_the_path() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let keys = format!("proxy = {{ to = '{}' }}", upstream.url());
    let listener = |keys: &str| format!("address = '127.0.0.1:0'\n{keys}");
    let trusting = "client_address = 'x-forwarded-for'\ntrusted_proxies = ['127.0.0.1']";
    let listeners = [(listener(""), false), (listener(trusting), true)];
    for (listener, is_trusted) in listeners {
        let server = site.config(&keys).listen(&listener).serve_from_user_space();
        let fields = [
            ("X-Original-URL", "/admin"),
            ("X_Rewrite-Url", "/admin"),
            ("X-Script-Name", "/open"),
            ("X-Forwarded_Script-Name", "/open"),
            ("X-Traversal-Path", "/open"),
            ("X-Accel-Mapping", "/open"),
            ("X_Sendfile-Type", "/open"),
            ("X-Original", "1"),
        ];
        let response = http::request(&mut site.connect(&server), "GET", "/open", &fields).expect("a response");
        assert_eq!(response.status, 200);
        let passed = if is_trusted { &["/admin"][..] } else { &[] };
        assert_eq!(upstream.last().all("x-original-url"), passed);
        assert_eq!(upstream.last().all("x_rewrite-url"), passed);
        let passed = if is_trusted { &["/open"][..] } else { &[] };
        for name in
            ["x-script-name", "x-forwarded_script-name", "x-traversal-path", "x-accel-mapping", "x_sendfile-type"]
        {
            assert_eq!(upstream.last().all(name), passed, "{name}");
        }
        assert_eq!(upstream.last().field("x-original"), "1");
    }
}

/// An application or a file system that takes `/ADMIN` for `/admin`.
#[test]
fn a_guard_ignores_case_where_it_is_told_to() {
    let site = with_users();
    for name in ["admin/x", "ADMIN/x", "Admin/X.Secret"] {
        site.add(name, "a file");
    }
    let (upstream, auth) = (Upstream::answering(|request| ok(request.line().as_bytes())), refusing());
    let forwarding = format!("proxy = {{ to = '{}' }}\n", upstream.url());
    for (kind, keys, refusal) in
        each_guard("~* ^/Admin/", &auth).into_iter().chain(each_guard("~* ^/[^/]+/x\\.secret$", &auth))
    {
        let is_for_names = keys.contains("secret");
        for keys in [keys.clone(), format!("{forwarding}{keys}")] {
            let server = site.config(&keys).serve_from_user_space();
            for target in [
                "/admin/x.secret",
                "/ADMIN/X.SECRET",
                "/Admin/X.Secret",
                "/%41dmin/x.secre%54",
                "/adm%C4%B0n/x.%C5%BFecret",
                "/ADM%C4%B1N/X.SECRET.",
            ] {
                assert!(are_refused(statuses(&site, &server, target), refusal), "{kind} {keys} {target}");
            }
            let other = if is_for_names { "/ADMIN/x" } else { "/ADMINS/x" };
            let found = statuses(&site, &server, other);
            assert!(found == [200; 2] || found == [404; 2], "{kind} {keys} {other}: {found:?}");
        }
    }
    let lines: Vec<_> = upstream.requests().iter().map(|request| request.line().to_ascii_lowercase()).collect();
    assert!(lines.iter().all(|line| !line.contains("secret")), "{lines:?}");
    let server = site.config(&each_guard("/Admin/", &auth)[0].1).serve_from_user_space();
    assert_eq!(statuses(&site, &server, "/ADMIN/x"), [200; 2], "case counts otherwise");
}
