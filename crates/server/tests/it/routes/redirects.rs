//! Targets of redirects: their query, what a request puts into them, and to which host they lead.

use sealion_testkit::http;

use crate::support::Site;

/// The status and the location of each target, by routes of pairs of path and `redirect`.
fn check(routes: &[(&str, &str)], expected: &[(&str, Option<(u16, &str)>)]) {
    let site = Site::new();
    let route = |(path, redirect): &(&str, &str)| format!("[[site.route]]\npath = '{path}'\nredirect = {redirect}\n");
    let server = site.config(&routes.iter().map(route).collect::<String>()).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, expected) in expected {
        let response = http::get(&mut client, target).expect("a response");
        let found = response.field("location").map(|location| (response.status, location));
        assert_eq!(found, *expected, "{target}");
    }
}

#[test]
fn the_query_of_a_redirect_is_kept_appended_or_dropped() {
    check(
        &[
            ("= /k", "'/x'"),
            ("= /ko", "'/x?o=1'"),
            ("= /a", "{ to = '/x', query = 'append' }"),
            ("= /ao", "{ to = '/x?o=1', query = 'append' }"),
            ("= /d", "{ to = '/x', query = 'drop' }"),
            ("= /do", "{ to = '/x?o=1#f', query = 'drop' }"),
            ("= /part", "'/whole#part'"),
        ],
        &[
            ("/k", Some((308, "/x"))),
            ("/k?q=2", Some((308, "/x?q=2"))),
            ("/ko?q=2", Some((308, "/x?o=1"))),
            ("/a", Some((308, "/x"))),
            ("/a?q=2", Some((308, "/x?q=2"))),
            ("/ao", Some((308, "/x?o=1"))),
            ("/ao?q=2", Some((308, "/x?o=1&q=2"))),
            ("/ao?", Some((308, "/x?o=1"))),
            ("/d?q=2", Some((308, "/x"))),
            ("/do?q=2", Some((308, "/x?o=1#f"))),
            ("/part?q", Some((308, "/whole?q#part"))),
        ],
    );
}

#[test]
fn no_request_chooses_the_host_of_a_redirect() {
    check(
        &[
            ("= /old.html", "'/new.html'"),
            ("~ ^/blog(?:/(.*))?$", "{ to = '/journal/{1}', status = 301 }"),
            ("~ ^/go/(.*)$", "'/{1}'"),
            ("~ ^/out/(.*)$", "'https://other.example/{1}'"),
            ("~ ^/u/([0-9]+)/(?<name>.*)$", "{ to = '/users/{name}-{1}', status = 303 }"),
        ],
        &[
            ("/%6fld.html", Some((308, "/new.html"))),
            ("//old.html", Some((308, "/new.html"))),
            ("/old.html/", None),
            ("/blog", Some((301, "/journal/"))),
            ("/blog/2024/a%20b/", Some((301, "/journal/2024/a%20b/"))),
            ("/blogs", None),
            ("/u/12/Ada", Some((303, "/users/Ada-12"))),
            ("/go/evil.example", Some((308, "/evil.example"))),
            ("/go//evil.example", Some((308, "/evil.example"))),
            ("/go/%5cevil.example", Some((308, "/%5Cevil.example"))),
            ("/out/.evil.example", Some((308, "https://other.example/.evil.example"))),
            ("/out/@evil.example", Some((308, "https://other.example/@evil.example"))),
        ],
    );
}

/// A table of which a value begins with a part of the request leads to paths alone.
#[test]
fn no_request_chooses_the_host_of_a_redirect_by_a_table() {
    let site = Site::new();
    let maps = "[[map]]\nname = 'plain'\nfrom = '{query.u}'\nentries = { home = 'https://a.example/', '~ ^x(.+)$' = 'https://b.example/{1}' }\n\
                [[map]]\nname = 'open'\nfrom = '{query.u}'\nentries = { '~ ^x(.+)$' = '{1}' }\n\
                [[map]]\nname = 'over'\nfrom = '{query.u}'\ndefault = '{map.open}'\n";
    let routes: String = ["plain", "open", "over"]
        .map(|name| format!("[[site.route]]\npath = '= /{name}'\nredirect = '{{map.{name}}}'\n"))
        .concat();
    let server = site.config(&routes).table(maps).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, expected) in [
        ("/plain?u=home", (308, Some("https://a.example/"))),
        ("/plain?u=xy", (308, Some("https://b.example/y"))),
        ("/open?u=xhttps://evil.example/", (400, None)),
        ("/over?u=xhttps://evil.example/", (400, None)),
    ] {
        let response = http::get(&mut client, target).expect("a response");
        assert_eq!((response.status, response.field("location")), expected, "{target}");
    }
}

#[test]
fn a_group_in_a_query_begins_no_further_parameter() {
    check(
        &[("~ ^/r/(.*)$", "'/x/{1}?p={1}&q=1'"), ("~ ^/s/(.*)$", "'https://b.test/?{1}'")],
        &[
            ("/r/a%26admin=1", Some((308, "/x/a&admin=1?p=a%26admin%3D1&q=1"))),
            ("/r/a+b%3Bc%23d%3Fe/f", Some((308, "/x/a+b;c%23d%3Fe/f?p=a%2Bb%3Bc%23d%3Fe/f&q=1"))),
            ("/s/a=1&b=2", Some((308, "https://b.test/?a%3D1%26b%3D2"))),
        ],
    );
}
