//! Networks and passwords: no file is sent that the route of its own name refuses, whatever way a request takes to it.

use std::fs;

use sealion_testkit::http::Response;

use crate::support::Site;
use crate::support::configured::Configured;

const BROWSER: &[&str] = &["-H", "Accept: text/html,application/xhtml+xml,*/*;q=0.8"];

fn body(response: &Response) -> &str {
    std::str::from_utf8(&response.body).expect("text")
}

/// A file of users; each password is the user's name.
pub(crate) fn add_users(site: &Site, file: &str, users: &[&str]) {
    let line = |user: &&str| {
        let hash = bcrypt::hash_with_result(user, 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
        format!("{user}:{hash}\n")
    };
    fs::write(site.outside().join(file), users.iter().map(line).collect::<String>()).expect("written");
}

#[test]
fn an_expression_guards_the_file_that_is_sent() {
    let site = Site::new();
    for name in [
        "private/index.html",
        "private/a.html",
        "private/a.html.br",
        "second/home.htm",
        "app.html",
        "v2/secret.html",
        "caf\u{e9}.key",
    ] {
        site.add(name, "secret");
    }
    site.add("private/a.txt", "open");
    site.add("open/index.html", "open");
    let served = Configured::serve(
        site,
        "index = ['index.html', 'home.htm']\nprecompressed = ['br']\nfallback = '/app.html'\n\
         listing = true\n\
         route = [\n\
           { path = '= /around/', rewrite = '/private/' },\n\
           { path = '= /to-a', rewrite = '/private/a.html' },\n\
           { path = '~ ^/v1/(.*)$', rewrite = '/v2/{1}' },\n\
           { path = '~ ^/private/.*\\.html$', access = { deny = ['127.0.0.0/8'] } },\n\
           { path = '~ /home\\.', access = { allow = ['192.0.2.1'] } },\n\
           { path = '~ ^/app|/secret', access = { deny = ['0.0.0.0/0', '::/0'] } },\n\
           { path = '~ ^/listed/$', access = { deny = ['127.0.0.1'] } },\n\
           { path = '~ ^/.+\\.key$', access = { deny = ['127.0.0.1'] } },\n\
         ]\n",
    );
    served.site.add("listed/x", "open");
    for (target, status) in [
        ("/private/a.html", 403),
        ("/private/", 403),
        ("//private//", 403),
        ("/%70rivate/", 403),
        ("/private/%61.html", 403),
        ("/private/a.html.br", 403),
        ("/private/none.html", 403),
        ("/around/", 403),
        ("/to-a", 403),
        ("/second/", 403),
        ("/v1/secret.html", 403),
        ("/some/page", 403),
        ("/listed/", 403),
        ("/listed/x", 200),
        ("/private/a.txt", 200),
        ("/open/", 200),
        ("/caf%C3%A9.key", 403),
        ("/caf%E9.key", 403),
    ] {
        let response = served.get(target, BROWSER);
        assert_eq!(response.status, status, "{target}");
        assert!(!body(&response).contains("secret"), "{target}");
        assert_eq!(served.get(target, &["--head", "-H", "Accept: text/html"]).status, status, "{target}");
    }
}

#[test]
fn the_route_of_a_file_says_whose_password_is_right() {
    let site = Site::new();
    for name in ["index.html", "a.pdf", "in/a.pdf", "in/a.txt"] {
        site.add(name, "secret");
    }
    add_users(&site, "readers", &["ada", "eve"]);
    add_users(&site, "insiders", &["bob", "eve"]);
    add_users(&site, "both", &["eve"]);
    let served = Configured::serve(
        site,
        "route = [\n\
           { path = '/in/', basic_auth = { realm = 'inside', users = 'insiders' },\n\
             route = [{ path = '~ \\.pdf$', basic_auth = { users = 'both' } }] },\n\
           { path = '~ \\.pdf$|^/index', basic_auth = { realm = 'papers', users = 'readers' } },\n\
         ]\n",
    );
    for (target, user, status) in [
        ("/", None, 401),
        ("/", Some("ada"), 200),
        ("/", Some("bob"), 401),
        ("/a.pdf", Some("ada"), 200),
        ("/a.pdf", Some("bob"), 401),
        ("/in/a.txt", Some("bob"), 200),
        ("/in/a.txt", Some("ada"), 401),
        // A route within another goes before those beside that.
        ("/in/a.pdf", None, 401),
        ("/in/a.pdf", Some("ada"), 401),
        ("/in/a.pdf", Some("bob"), 401),
        ("/in/a.pdf", Some("eve"), 200),
    ] {
        // The second time the credentials are known.
        for _ in 0..2 {
            let credentials = user.map(|user| format!("{user}:{user}"));
            let options: Vec<&str> = credentials.iter().flat_map(|credentials| ["-u", credentials]).collect();
            let response = served.get(target, &options);
            assert_eq!(response.status, status, "{target} {user:?}");
            assert_eq!(body(&response) == "secret", status == 200, "{target} {user:?}");
        }
    }
}

/// `/docs.gz` is an archive beside the directory `/docs/`, and no compressed form of it.
#[test]
fn a_directory_has_no_compressed_sibling() {
    let site = Site::new();
    for name in ["docs/a.html", "docs/a.html.gz", "docs.gz", "docs.br", "page", "page.gz"] {
        site.add(name, "secret");
    }
    add_users(&site, "all", &["ada", "eve"]);
    add_users(&site, "docs", &["bob", "eve"]);
    let served = Configured::serve(
        site,
        "basic_auth = { users = 'all' }\n\
         route = [\n\
           { path = '/docs/', basic_auth = { users = 'docs' }, access = { deny = ['192.0.2.1'] } },\n\
           { path = '= /page', basic_auth = { users = 'docs' } },\n\
         ]\n",
    );
    for (target, user, status) in [
        ("/docs.gz", "ada", 200),
        ("/docs.gz", "bob", 401),
        ("/docs.br", "ada", 200),
        ("/docs.br", "bob", 401),
        ("/docs/a.html", "bob", 200),
        ("/docs/a.html.gz", "bob", 200),
        ("/docs/a.html.gz", "ada", 401),
        ("/page", "bob", 200),
        // The sibling has a route of its own: only users whom both routes accept get it.
        ("/page.gz", "ada", 401),
        ("/page.gz", "bob", 401),
        ("/page.gz", "eve", 200),
    ] {
        let response = served.get(target, &["-u", &format!("{user}:{user}")]);
        assert_eq!(response.status, status, "{target} {user}");
    }
}

#[test]
fn a_compressed_sibling_is_sent_to_those_who_may_have_it() {
    let site = Site::new();
    for name in ["s.txt", "sub/index.html", "sub2/home.htm", "app.html", "404.html", "t.txt", "r.txt", "p.txt"] {
        site.add(name, "original");
        for suffix in ["gz", "br", "zst"] {
            site.add(&format!("{name}.{suffix}"), "compressed");
        }
    }
    add_users(&site, "users", &["ada"]);
    let served = Configured::serve(
        site,
        "index = ['index.html', 'home.htm']\nprecompressed = ['gzip', 'br', 'zstd']\nerror_pages = { 404 = '/404.html' }\n\
         fallback = '/app.html'\n\
         route = [\n\
           { path = '= /x', rewrite = '/s.txt' },\n\
           { path = '~ ^/s\\.txt\\.(gz|br|zst)$', access = { deny = ['127.0.0.1'] } },\n\
           { path = '~ ^/(sub|app|404).*\\.(gz|br|zst)$', access = { deny = ['127.0.0.1'] } },\n\
           { path = '= /r.txt.gz', access = { deny = ['127.0.0.1'] } },\n\
           { path = '= /p.txt.gz', basic_auth = { users = 'users' } },\n\
         ]\n",
    );
    for (coding, suffix) in [("gzip", "gz"), ("br", "br"), ("zstd", "zst")] {
        let accept = format!("Accept-Encoding: {coding}");
        let get = |target: &str, more: &[&str]| {
            served.get(target, &[&["-H", &accept, "-H", "Accept: text/html,*/*"], more].concat())
        };
        for (target, status) in [("/s.txt", 200), ("/x", 200), ("/sub/", 200), ("/sub2/", 200), ("/some/page", 200)] {
            let response = get(target, &[]);
            assert_eq!((response.status, body(&response)), (status, "original"), "{target} {coding}");
            assert_eq!(response.field("content-encoding"), None, "{target} {coding}");
        }
        let missing = served.get("/none.png", &["-H", &accept]);
        assert_eq!((missing.status, body(&missing)), (404, "original"), "{coding}");
        let range = get("/s.txt", &["-H", "Range: bytes=0-3"]);
        assert_eq!((range.status, body(&range), range.field("content-encoding")), (206, "orig", None), "{coding}");
        let head = get("/s.txt", &["--head"]);
        assert_eq!(
            (head.field("content-length"), head.field("vary")),
            (Some("8"), Some("Accept-Encoding")),
            "{coding}"
        );
        assert_eq!(served.get(&format!("/s.txt.{suffix}"), &[]).status, 403, "{suffix}");
        assert_eq!(body(&get("/t.txt", &[])), "compressed", "{coding}");
    }
    assert_eq!(body(&served.get("/p.txt", &["-H", "Accept-Encoding: gzip"])), "original");
    // The file needs no password, so none is verified for it: which response comes would tell whether it is right.
    for password in ["ada:ada", "ada:wrong"] {
        let response = served.get("/p.txt", &["-H", "Accept-Encoding: gzip", "-u", password]);
        assert_eq!(body(&response), "original", "{password}");
    }
    assert_eq!(served.get("/p.txt.gz", &["-u", "ada:ada"]).status, 200);
    // The password is known now, and a guess would tell whether it is.
    assert_eq!(body(&served.get("/p.txt", &["-H", "Accept-Encoding: gzip", "-u", "ada:ada"])), "original");
    assert_eq!(body(&served.get("/r.txt", &["-H", "Accept-Encoding: gzip"])), "original");
    assert_eq!(body(&served.get("/r.txt", &["-H", "Accept-Encoding: br"])), "compressed");
}

/// The sibling needs no other password than the file in whose place it is sent.
#[test]
fn a_user_gets_the_compressed_sibling_of_a_file_with_the_same_password() {
    let site = Site::new();
    for name in ["in/a.txt", "in/index.html", "x/both.txt", "404.html"] {
        site.add(name, "original");
        site.add(&format!("{name}.gz"), "compressed");
    }
    add_users(&site, "insiders", &["bob", "eve"]);
    add_users(&site, "archivists", &["ada", "eve"]);
    let served = Configured::serve(
        site,
        "precompressed = ['gzip']\nerror_pages = { 404 = '/404.html' }\n\
         route = [\n\
           { path = '/in/', basic_auth = { users = 'insiders' } },\n\
           { path = '= /404.html', basic_auth = { users = 'insiders' } },\n\
           { path = '/x/', basic_auth = { users = 'insiders' },\n\
             route = [{ path = '~ \\.gz$', basic_auth = { users = 'archivists' } }] },\n\
         ]\n",
    );
    let get = |target: &str, user: &str| {
        let response = served.get(target, &["-H", "Accept-Encoding: gzip", "-u", &format!("{user}:{user}")]);
        (response.status, body(&response).to_owned())
    };
    let answer = |status, content: &str| (status, content.to_owned());
    // The second time the credentials are known.
    for _ in 0..2 {
        assert_eq!(get("/in/a.txt", "bob"), answer(200, "compressed"));
        assert_eq!(get("/in/", "bob"), answer(200, "compressed"));
        assert_eq!(get("/in/a.txt", "ada").0, 401);
        // The sibling needs a password more, which is not asked for.
        for user in ["bob", "eve"] {
            assert_eq!(get("/x/both.txt", user), answer(200, "original"), "{user}");
        }
        assert_eq!(get("/x/both.txt.gz", "eve"), answer(200, "compressed"));
        assert_eq!(get("/x/both.txt.gz", "bob").0, 401);
        // No password is checked for an error page, so whether one is known does not show.
        for user in ["bob", "ada"] {
            assert_eq!(get("/none.png", user), answer(404, "original"), "{user}");
        }
    }
}
