use sealion_http::path::SitePath;
use serde::Deserialize;

use crate::site::redirect::{RedirectConfig, Redirects};
use crate::site::rewrite::{RewriteConfig, Rewrites};
use crate::values::Problems;

#[derive(Default, Deserialize)]
#[serde(default)]
struct File {
    redirects: Vec<RedirectConfig>,
    rewrites: Vec<RewriteConfig>,
}

fn build(text: &str) -> (Option<Redirects>, Option<Rewrites>, Problems) {
    let file: File = toml::from_str(text).unwrap();
    let mut problems = Problems::of_file("f".as_ref(), text);
    let redirects = Redirects::build(&file.redirects, "site.redirects", &mut problems);
    (redirects, Rewrites::build(&file.rewrites, "site.rewrites", &mut problems), problems)
}

const RULES: &str = r#"[
    { path = "/old.html", to = "/new.html" },
    { path = "/tmp", to = "/now?x=1", status = 302 },
    { prefix = "/blog/", to = "/journal/", status = 301 },
    { prefix = "/shop", to = "https://shop.example.org/", status = 307 },
    { regex = "^/u/(\\d+)/(?<name>[^/]*)$", to = "/users/${name}-$1", status = 303 },
    { regex = "^/go(/.*)$", to = "$1" },
    { regex = "^/out/(.*)$", to = "https://other.example/$1" },
    { path = "/part", to = "/whole#part" },
    { prefix = "/parts", to = "/whole?a#part" },
]"#;

#[test]
fn the_query_of_a_redirect_is_kept_appended_or_dropped() {
    let rules = r#"redirects = [
        { path = "/k", to = "/x" }, { path = "/ko", to = "/x?o=1" },
        { path = "/a", to = "/x", query = "append" }, { path = "/ao", to = "/x?o=1", query = "append" },
        { path = "/d", to = "/x", query = "drop" }, { path = "/do", to = "/x?o=1#f", query = "drop" },
        { path = "/self", to = "/self?o=1", query = "append" }, { path = "/bare", to = "/bare#f", query = "drop" },
    ]"#;
    let (redirects, _, problems) = build(rules);
    assert!(problems.is_empty(), "{problems}");
    let redirects = redirects.unwrap();
    for (target, query, expected) in [
        ("/k", None, Some("/x")),
        ("/k", Some("q=2"), Some("/x?q=2")),
        ("/ko", Some("q=2"), Some("/x?o=1")),
        ("/a", None, Some("/x")),
        ("/a", Some("q=2"), Some("/x?q=2")),
        ("/ao", None, Some("/x?o=1")),
        ("/ao", Some("q=2"), Some("/x?o=1&q=2")),
        ("/ao", Some(""), Some("/x?o=1")),
        ("/d", Some("q=2"), Some("/x")),
        ("/do", Some("q=2"), Some("/x?o=1#f")),
        // Each time it would be longer.
        ("/self", Some("q=2"), None),
        ("/bare", Some("q=2"), Some("/bare#f")),
        ("/bare", None, None),
    ] {
        let path = SitePath::parse(target, true).unwrap();
        let answer = redirects.answer(&path, query, Some(("https://", "here")));
        assert_eq!(answer.and_then(|answer| answer.fields.location).as_deref(), expected, "{target} {query:?}");
    }
}

#[test]
fn redirect_targets() {
    let (_, _, problems) = build(&format!("redirects = {RULES}"));
    assert!(problems.to_string().contains("site.redirects.to: write a path"), "{problems}");
    let (redirects, _, problems) = build(&format!("redirects = {}", RULES.replace("\"$1\"", "\"/$1\"")));
    assert!(problems.is_empty(), "{problems}");
    let redirects = redirects.unwrap();
    for (target, query, expected) in [
        ("/old.html", None, Some((308, "/new.html"))),
        ("/old.html", Some("a=b"), Some((308, "/new.html?a=b"))),
        ("/%6fld.html", None, Some((308, "/new.html"))),
        ("//old.html", None, Some((308, "/new.html"))),
        ("/old.html/", None, None),
        ("/tmp", Some("y=2"), Some((302, "/now?x=1"))),
        ("/blog", None, Some((301, "/journal/"))),
        ("/blog/", None, Some((301, "/journal/"))),
        ("/blog/2024/a%20b/", None, Some((301, "/journal/2024/a%20b/"))),
        ("/blogs", None, None),
        ("/shop/x%22", Some("q"), Some((307, "https://shop.example.org/x%22?q"))),
        ("/u/12/Ada", None, Some((303, "/users/Ada-12"))),
        ("/u/12/%0d%0aX:%20y", None, Some((303, "/users/%0D%0AX:%20y-12"))),
        // Slashes, backslashes and schemes in the path do not lead to another host.
        ("/go/evil.example", None, Some((308, "/evil.example"))),
        ("/go//evil.example", None, Some((308, "/evil.example"))),
        ("/go/%5cevil.example", None, Some((308, "/%5Cevil.example"))),
        ("/out/.evil.example", None, Some((308, "https://other.example/.evil.example"))),
        ("/out/@evil.example", None, Some((308, "https://other.example/@evil.example"))),
        // The query and the rest of the path come before a fragment.
        ("/part", Some("q"), Some((308, "/whole?q#part"))),
        ("/parts/x", Some("q"), Some((308, "/whole/x?a#part"))),
        ("/", None, None),
    ] {
        let path = SitePath::parse(target, true).unwrap();
        let answer = redirects.answer(&path, query, Some(("https://", "here")));
        let got = answer.as_ref().map(|answer| (answer.status.code(), answer.fields.location.as_deref().unwrap()));
        assert_eq!(got, expected, "{target}");
    }
}

#[test]
fn a_redirect_to_the_request_itself_is_skipped() {
    let (redirects, ..) =
        build("redirects = [{ prefix = '/', to = 'https://example.org/' }, { regex = '^/(.*)$', to = '/$1' }]");
    let redirects = redirects.unwrap();
    let path = SitePath::parse("/a/b", false).unwrap();
    assert!(redirects.answer(&path, None, Some(("https://", "example.org"))).is_none());
    let to_https = redirects.answer(&path, None, Some(("http://", "example.org"))).unwrap();
    assert_eq!(to_https.status.code(), 308);
    let elsewhere = redirects.answer(&path, None, Some(("https://", "www.example.org"))).unwrap();
    assert_eq!(elsewhere.fields.location.as_deref(), Some("https://example.org/a/b"));
    let (redirects, ..) = build(
        "redirects = [{ path = '/a', to = '/a?v=2' }, { path = '/b', to = '/b#part' }, { path = '/c', to = '/c' }]",
    );
    let redirects = redirects.unwrap();
    for (target, query, leads) in [
        ("/a", None, true),
        ("/a", Some("v=1"), true),
        ("/a", Some("v=2"), false),
        ("/b", None, false),
        ("/b", Some("x"), false),
        ("/c", Some("x"), false),
    ] {
        let path = SitePath::parse(target, false).unwrap();
        assert_eq!(redirects.answer(&path, query, None).is_some(), leads, "{target} {query:?}");
    }
}

#[test]
fn rewrites() {
    let (_, rewrites, problems) = build(
        "rewrites = [{ path = '/', to = '/start.html' }, { prefix = '/v1', to = '/current/' },\n\
         { regex = '\\.(jpg|png)$', to = '/pictures$0' }]",
    );
    assert!(problems.is_empty(), "{problems}");
    let rewrites = rewrites.unwrap();
    for (target, expected) in [
        ("/", Some("/start.html")),
        ("/v1/a/", Some("/current/a/")),
        ("/v1", Some("/current/")),
        ("/x.png", Some("/pictures.png")),
        ("/x.gif", None),
    ] {
        assert_eq!(rewrites.apply(&SitePath::parse(target, false).unwrap()).as_deref(), expected, "{target}");
    }
}

#[test]
fn configuration_errors() {
    for (text, expected) in [
        ("redirects = [{ to = '/a' }]", "f:1: site.redirects: write one of"),
        ("redirects = [{ path = '/a', prefix = '/b', to = '/c' }]", "f:1: site.redirects: write one of"),
        ("redirects = [{ path = 'a', to = '/c' }]", "f:1: site.redirects.path: write a decoded path"),
        ("redirects = [{ path = '/a', to = '//evil' }]", "f:1: site.redirects.to: begins with two slashes"),
        ("redirects = [{ path = '/a', to = 'evil' }]", "f:1: site.redirects.to: write a path"),
        ("redirects = [{ path = '/a', to = 'javascript:x' }]", "f:1: site.redirects.to: write a path"),
        ("redirects = [{ path = '/a', to = '/$1' }]", "f:1: site.redirects.to: only a regex"),
        ("redirects = [{ path = '/a', to = '/ä' }]", "f:1: site.redirects.to: percent-encode"),
        ("redirects = [{ regex = '(.*)', to = 'https://$1/' }]", "f:1: site.redirects.to: the host must"),
        ("redirects = [{ regex = '(.*)', to = 'https://a$1' }]", "f:1: site.redirects.to: the host must"),
        ("redirects = [{ regex = '(', to = '/' }]", "f:1: site.redirects.regex: is not a regular expression"),
        ("redirects = [{ regex = '^in/', to = '/' }]", "f:1: site.redirects.regex: never matches"),
        ("rewrites = [{ regex = '^(?:in)+/', to = '/' }]", "f:1: site.rewrites.regex: never matches"),
        ("redirects = [{ path = '/a', to = '/b', status = 200 }]", "f:1: site.redirects.status: write 301"),
        (
            "redirects = [\n{ path = '/a', to = '/b' },\n{ path = '/b', to = '/a' }]",
            "f:2: site.redirects.to: is a redirect loop",
        ),
        (
            "redirects = [\n{ path = '/a', to = '/b?x' },\n{ path = '/b', to = '/a#y' }]",
            "f:2: site.redirects.to: is a redirect loop",
        ),
        ("redirects = [{ prefix = '/a', to = '/a/b' }]", "f:1: site.redirects.to: is a redirect loop"),
        ("rewrites = [{ path = '/a', to = 'https://b/' }]", "f:1: site.rewrites.to: write a path"),
        ("rewrites = [{ path = '/a', to = '/b?c' }]", "f:1: site.rewrites.to: is a path"),
    ] {
        let (_, _, problems) = build(text);
        assert!(problems.to_string().starts_with(expected), "{text}: {problems}");
    }
    assert!(build("").0.is_none() && build("").1.is_none());
}

#[test]
fn the_first_of_all_rules_applies_whatever_their_kinds() {
    let (redirects, _, problems) = build(
        r#"redirects = [
            { path = "/a/1", to = "/one" }, { prefix = "/a", to = "/two" }, { path = "/b/2", to = "/three" },
            { regex = "^/b/", to = "/four" }, { path = "/c", to = "/five" }, { regex = "^/[cd]$", to = "/six" },
        ]"#,
    );
    assert!(problems.is_empty(), "{problems}");
    let redirects = redirects.unwrap();
    for (path, expected) in [
        ("/a/1", Some("/one")),
        ("/a/2", Some("/two/2")),
        ("/b/2", Some("/three")),
        ("/b/3", Some("/four")),
        ("/c", Some("/five")),
        ("/d", Some("/six")),
        ("/e", None),
    ] {
        let response = redirects.answer(&SitePath::parse(path, true).unwrap(), None, None);
        assert_eq!(response.and_then(|response| response.fields.location).as_deref(), expected, "{path}");
    }
    // A pattern that stands before an exact path goes before it, where it matches.
    let (redirects, _, _) = build(r#"redirects = [{ regex = "^/x$", to = "/one" }, { path = "/x", to = "/two" }]"#);
    let response = redirects.unwrap().answer(&SitePath::parse("/x", true).unwrap(), None, None);
    assert_eq!(response.and_then(|response| response.fields.location).as_deref(), Some("/one"));
}

#[test]
fn a_group_in_a_query_begins_no_further_parameter() {
    let (redirects, _, problems) = build(
        r#"redirects = [{ regex = "^/r/(.*)$", to = "/x/$1?p=$1&q=1" }, { regex = "^/s/(.*)$", to = "https://b.test/?$1" }]"#,
    );
    assert!(problems.is_empty(), "{problems}");
    let redirects = redirects.unwrap();
    for (path, expected) in [
        ("/r/a%26admin=1", "/x/a&admin=1?p=a%26admin%3D1&q=1"),
        ("/r/a+b%3Bc%23d%3Fe/f", "/x/a+b;c%23d%3Fe/f?p=a%2Bb%3Bc%23d%3Fe/f&q=1"),
        ("/s/a=1&b=2", "https://b.test/?a%3D1%26b%3D2"),
    ] {
        let response = redirects.answer(&SitePath::parse(path, true).unwrap(), None, None);
        assert_eq!(response.and_then(|response| response.fields.location).as_deref(), Some(expected), "{path}");
    }
}
