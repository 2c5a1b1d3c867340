//! Guards of routes hold for the file that is sent, and for every reading of a path that is forwarded.

use sealion_testkit::http;

use super::{echo, fetched, request, statuses};
use crate::guards::add_users;
use crate::support::Site;
use crate::support::upstream::{Upstream, ok};

#[test]
fn the_file_that_is_sent_passes_the_guards_of_its_own_route() {
    let site = Site::new();
    for name in [
        "index.html",
        "in/index.html",
        "in/a.txt",
        "in/a.txt.br",
        "page.html",
        "photo.jpg",
        "photo.jpg.webp",
        "docs.gz",
        "docs/x",
    ] {
        site.add(name, "secret");
    }
    site.add("open/x.txt", "open");
    let keys = r#"
        precompressed = ["br"]
        extensions = ["html"]
        image_formats = ["webp"]
        fallback = "/page.html"

        [[site.route]]
        path = '~ \.html$'
        deny = true

        [[site.route]]
        path = "= /in/a.txt"
        access = { deny = ["127.0.0.1"] }

        [[site.route]]
        path = "/docs/"
        access = { deny = ["127.0.0.1"] }

        [[site.route]]
        path = "/tried/"
        try = ["/in/a.txt", "=404"]

        [[site.route]]
        path = "/app/"
        files = true
        fallback = "/in/a.txt"

        [[site.route]]
        path = "/moved/"
        rewrite = "/in/a.txt"

        [[site.route]]
        path = "= /photo.jpg.webp"
        deny = true
    "#;
    let served = site.config(keys).serve_from_user_space();
    for (target, status) in [
        ("/", 403),
        ("/in/", 403),
        ("/page", 403),
        ("/page.html", 403),
        ("/in/a.txt", 403),
        ("//in/%61.txt", 403),
        // A compressed form shows as much as the file.
        ("/in/a.txt.br", 403),
        ("/docs/x", 403),
        ("/docs.gz", 200),
        ("/tried/x", 403),
        ("/app/users", 403),
        ("/moved/x", 403),
        ("/open/x.txt", 200),
        ("/photo.jpg", 200),
        ("/photo.jpg.webp", 403),
    ] {
        assert_eq!(statuses(&site, &served, target), [status, status], "{target}");
    }
    let mut client = site.connect(&served);
    let fields = [("Accept", "image/webp"), ("Accept-Encoding", "br")];
    let photo = request(&mut client, "GET", "/photo.jpg", &fields);
    assert_eq!(photo.field("content-type"), Some("image/jpeg"), "the sibling is withheld");
}

/// Each spelling that an application may take for a path beneath `/admin`.
const SPELLINGS: [&str; 13] = [
    "/admin%2Fx",
    "/%2561dmin/x",
    "/x/..;/admin/x",
    "/app;a=b/../admin/x",
    "/%5Cadmin/x",
    "/admin;a=b/x",
    "/admin%3Ba/x",
    "/%EF%BD%81dmin/x",
    "/admin%20/x",
    "/admin./x",
    "/(S(x))/admin/x",
    "/admin%252Fx",
    "/ad%0Amin/x",
];

#[test]
fn a_path_with_readings_of_other_guards_is_refused() {
    let (site, upstream) = (Site::new(), echo());
    add_users(&site, "users", &["ada"]);
    let auth = Upstream::answering(|_| b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n".to_vec());
    let guards = [
        ("access = { deny = ['127.0.0.1'] }".to_owned(), 403),
        ("basic_auth = { users = 'users' }".to_owned(), 401),
        (format!("forward_auth = {{ to = '{}/' }}", auth.url()), 403),
        ("deny = true".to_owned(), 403),
        ("respond = 404".to_owned(), 404),
        ("internal = true".to_owned(), 404),
        ("redirect = 'https://other.example/'".to_owned(), 308),
    ];
    for (guard, status) in guards {
        for path in ["/admin/", "~* ^/admin(/|$)", "^~ /admin/", "/admin/*"] {
            let is_star = path.ends_with('*');
            let keys = format!(
                "[[site.route]]\npath = '/'\nproxy = {{ to = '{}' }}\n[[site.route]]\npath = '{path}'\n{guard}\n",
                upstream.url()
            );
            let server = site.config(&keys).serve_from_user_space();
            assert_eq!(statuses(&site, &server, "/admin/x"), [status, status], "{guard} {path}");
            // A redirect of a folder is no guard of its name.
            if !(is_star && guard.starts_with("redirect")) {
                let expected = if is_star { 400 } else { status };
                assert_eq!(statuses(&site, &server, "/admin"), [expected; 2], "{guard} {path}");
            }
            assert_eq!(statuses(&site, &server, "/public"), [200, 200], "{guard} {path}");
            for target in SPELLINGS {
                for found in statuses(&site, &server, target) {
                    // 404: no file has an encoded slash.
                    assert!([400, 404, status].contains(&found), "{guard} {path} {target}: {found}");
                }
            }
        }
    }
    let lines: Vec<_> = upstream.requests().iter().map(|request| request.line().to_owned()).collect();
    assert!(lines.iter().all(|line| line == "GET /public"), "{lines:?}");
}

/// Applications drop the last slash of a path, or add one.
#[test]
fn an_exact_guard_holds_with_and_without_the_last_slash() {
    let (site, upstream) = (Site::new(), echo());
    let keys = format!(
        "[[site.route]]\npath = '/'\nproxy = {{ to = '{url}' }}\n\
         [[site.route]]\npath = '= /admin'\ndeny = true\n\
         [[site.route]]\npath = '= /api'\nredirect = '/api/'\n",
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    assert_eq!(statuses(&site, &server, "/admin"), [403, 403]);
    assert_eq!(statuses(&site, &server, "/admin/"), [400, 400]);
    assert_eq!(statuses(&site, &server, "/api"), [308, 308]);
    assert_eq!(fetched(&site, &server, "/api/"), (200, "GET /api/".to_owned()));
}

/// `/api/*` leaves `/api` to the route around it.
#[test]
fn a_star_tells_a_folder_from_its_name() {
    let (site, app) = (Site::new(), echo());
    for name in ["shut/a.txt", "open/a.txt"] {
        site.add(name, "content");
    }
    let keys = format!(
        r#"
        [[site.route]]
        path = "/shut/*"
        deny = true

        [[site.route]]
        path = "/app/"
        proxy = {{ to = "{app}" }}

        [[site.route.route]]
        path = "/app/shut/*"
        deny = true

        [[site.route]]
        path = "/closed/"
        access = {{ deny = ["127.0.0.0/8"] }}

        [[site.route.route]]
        path = "/closed/pub/*"
        access = {{}}
        proxy = {{ to = "{app}" }}
        "#,
        app = app.url(),
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, expected) in [
        ("/shut", 301),
        ("/shut/", 403),
        ("/shut/a.txt", 403),
        ("/open", 301),
        // An application may read `/app/shut` as the closed folder.
        ("/app/shut", 400),
        ("/app/shut/", 403),
        ("/app/shut/x", 403),
        ("/app/shutx", 200),
        ("/closed/pub", 403),
        ("/closed/pub/", 200),
        ("/closed/pub/x", 200),
        ("/closed/pub/..%2f", 404),
        ("/closed/pub;x", 403),
        ("/closed/pub/;x", 200),
        ("/closed/pubs", 403),
    ] {
        assert_eq!(statuses(&site, &server, target), [expected; 2], "{target}");
    }
}

#[test]
fn a_guard_may_end_beneath_and_change() {
    let (site, upstream) = (Site::new(), Upstream::answering(|request| ok(request.line().as_bytes())));
    add_users(&site, "users", &["ada"]);
    add_users(&site, "admins", &["eve"]);
    site.add("index.html", "home");
    site.add("open/x", "open");
    let keys = format!(
        r#"
        basic_auth = {{ users = "users" }}

        [[site.route]]
        path = "/open/"
        basic_auth = false

        [[site.route]]
        path = "/api/"
        proxy = {{ to = "{}" }}

        [[site.route.route]]
        path = "/api/admin/"
        basic_auth = {{ users = "admins", realm = "admin" }}

        [[site.route.route]]
        path = "= /api/login"
        basic_auth = false

        [[site.route.route]]
        path = '~ ^/api/[a-z]+\.css$'
        basic_auth = false
        "#,
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    // ada:ada and eve:eve
    let credentials = [None, Some("Basic YWRhOmFkYQ=="), Some("Basic ZXZlOmV2ZQ==")];
    for (target, expected) in [
        ("/", [401, 200, 401]),
        ("/open/x", [200, 200, 200]),
        ("/api/x", [401, 200, 401]),
        ("/api/admin/x", [401, 401, 200]),
        ("/api/login", [200, 200, 200]),
        ("/api/login/", [401, 400, 401]),
        ("/api/login/x", [401, 200, 401]),
        ("/api/a.css", [200, 200, 200]),
        ("/api/a.css/", [401, 400, 401]),
        ("/api/admin;a/x", [401, 400, 401]),
        ("/api/x/..;/admin/x", [401, 400, 401]),
    ] {
        let found = credentials.map(|value| {
            let fields: Vec<_> = value.iter().map(|value| ("Authorization", *value)).collect();
            http::request(&mut client, "GET", target, &fields).expect("a response").status
        });
        assert_eq!(found, expected, "{target}");
    }
}

#[test]
fn routes_within_one_that_denies_are_closed_until_one_says_otherwise() {
    let (site, upstream) = (Site::new(), echo());
    for name in ["d/a.t", "d/open/x", "d/open/shut/x"] {
        site.add(name, "content");
    }
    let keys = format!(
        r#"
        [[site.route]]
        path = "/d/"
        deny = true

        [[site.route.route]]
        path = '~ \.t$'
        try = ["{{path}}", "=404"]

        [[site.route.route]]
        path = "/d/p/"
        proxy = {{ to = "{url}" }}

        [[site.route.route]]
        path = "/d/open/"
        deny = false

        [[site.route.route.route]]
        path = "/d/open/shut/"
        deny = true

        [[site.route.route]]
        path = "/d/open-p/"
        deny = false
        proxy = {{ to = "{url}" }}
        "#,
        url = upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    for (target, status) in [
        ("/d/x", 403),
        ("/d/a.t", 403),
        ("/d/p/x", 403),
        ("/d/open/x", 200),
        ("/d/open/shut/x", 403),
        ("/d/open-p/x", 200),
    ] {
        assert_eq!(statuses(&site, &server, target), [status; 2], "{target}");
    }
}

#[test]
fn a_network_may_stand_for_a_password() {
    let site = Site::new();
    add_users(&site, "users", &["ada"]);
    for name in ["near/x", "far/x", "far/x.br", "both/x"] {
        site.add(name, "content");
    }
    let route = |path: &str, keys: &str| {
        format!("[[site.route]]\npath = '{path}'\nbasic_auth = {{ users = 'users' }}\n{keys}\n")
    };
    let keys = [
        "precompressed = ['br']\n".to_owned(),
        route("/near/", "satisfy = 'any'\naccess = { allow = ['127.0.0.1'] }"),
        route("/far/", "satisfy = 'any'\naccess = { allow = ['192.0.2.1'] }"),
        route("/both/", "access = { allow = ['192.0.2.1'] }"),
    ];
    let server = site.config(&keys.concat()).serve_from_user_space();
    let mut client = site.connect(&server);
    let ada = [("Authorization", "Basic YWRhOmFkYQ=="), ("Accept-Encoding", "br")];
    for (target, without, with) in
        [("/near/x", 200, 200), ("/far/x", 401, 200), ("/far/x.br", 401, 200), ("/both/x", 403, 403)]
    {
        assert_eq!(request(&mut client, "GET", target, &[]).status, without, "{target}");
        assert_eq!(request(&mut client, "GET", target, &ada).status, with, "{target}");
    }
}

/// Its guards hold where its name leads, too.
#[test]
fn a_route_with_a_name_and_a_path_is_guarded_by_whatever_leads_to_it() {
    let site = Site::new();
    site.add("x", "content");
    add_users(&site, "users", &["ada"]);
    let keys = "
        [[site.route]]
        path = '/'
        try = ['/none', '@app']
        [[site.route]]
        path = '= /gone'
        respond = 404
        error_pages = { 404 = '@app' }
        [[site.route]]
        name = '@app'
        path = '/app/'
        basic_auth = { realm = 'r', users = 'users' }
        respond = { text = 'secret' }
    ";
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for target in ["/app/x", "/other", "/gone"] {
        let response = http::get(&mut client, target).expect("a response");
        assert_ne!(response.body, b"secret", "{target}");
    }
}
