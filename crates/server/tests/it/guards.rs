//! Access rules and passwords: no file is sent whose own name a rule refuses, whatever way a request takes to it.

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
         rewrites = [{ path = '/around/', to = '/private/' }, { path = '/to-a', to = '/private/a.html' }, { prefix = '/v1', to = '/v2/' }]\n\
         access = [\n\
           { regex = '^/private/.*\\.html$', deny = ['127.0.0.0/8'] },\n\
           { regex = '/home\\.', allow = ['192.0.2.1'] },\n\
           { regex = '^/app|/secret', deny = ['0.0.0.0/0', '::/0'] },\n\
           { regex = '^/listed/$', deny = ['127.0.0.1'] },\n\
           { regex = '^/.+\\.key$', deny = ['127.0.0.1'] },\n\
         ]\n\
         [site.listing]\nenabled = true\n",
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
fn an_expression_adds_a_password_and_takes_none_away() {
    let site = Site::new();
    for name in ["index.html", "a.pdf", "in/a.pdf", "in/a.txt"] {
        site.add(name, "secret");
    }
    add_users(&site, "readers", &["ada", "eve"]);
    add_users(&site, "insiders", &["bob", "eve"]);
    let served = Configured::serve(
        site,
        "basic_auth = [\n\
           { path = '/in/', realm = 'inside', users = 'insiders' },\n\
           { regex = '\\.pdf$|^/index', realm = 'papers', users = 'readers' },\n\
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
        // Both rules match: the password must be right for both.
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

#[test]
fn a_rule_names_its_paths_in_one_way() {
    let site = Site::new();
    for (rule, words) in [
        ("access = [{ path = '/a', regex = '^/a', deny = ['::/0'] }]", "site.access.regex: write path or regex"),
        ("access = [{ regex = '(', deny = ['::/0'] }]", "site.access.regex: is not a regular expression"),
        ("access = [{ regex = 'private/', deny = ['::/0'] }]", ""),
        ("basic_auth = [{ path = '/a', regex = 'a', users = 'u' }]", "site.basic_auth.regex: write path or regex"),
    ] {
        let said = site.config(rule).problems();
        assert!(said.contains(words) && said.contains("site.") != words.is_empty(), "{rule}: {said}");
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
        "basic_auth = [{ path = '/', users = 'all' }, { path = '/docs/', users = 'docs' }, { path = '/page', users = 'docs' }]\n\
         access = [{ path = '/docs/', deny = ['192.0.2.1'] }]\n",
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
        // The sibling has a rule of its own: only users whom both rules accept get it.
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
         fallback = '/app.html'\nrewrites = [{ path = '/x', to = '/s.txt' }]\n\
         access = [\n\
           { path = '/s.txt.gz', deny = ['127.0.0.1'] }, { path = '/s.txt.br', deny = ['127.0.0.1'] }, { path = '/s.txt.zst', deny = ['127.0.0.1'] },\n\
           { regex = '^/(sub|app|404).*\\.(gz|br|zst)$', deny = ['127.0.0.1'] },\n\
           { path = '/r.txt.gz', deny = ['127.0.0.1'] },\n\
         ]\n\
         basic_auth = [{ path = '/p.txt.gz', users = 'users' }]\n",
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
         basic_auth = [\n\
           { path = '/in/', users = 'insiders' }, { path = '/404.html', users = 'insiders' },\n\
           { path = '/x/', users = 'insiders' }, { regex = '^/x/.*\\.gz$', users = 'archivists' },\n\
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
