//! Guards of scripts: they hold for each path that runs one, and for each path that a script may take for its own.

use sealion_testkit::Client;

use super::fastcgi::{FILES_FIRST, answering, body, serve, url};
use super::post;
use crate::support::Site;
use crate::support::fastcgi::{end, stdout};

/// Whether a path is refused, or answered 400 because an application may read it as one that is.
#[track_caller]
fn is_refused(client: &mut Client, target: &str) -> bool {
    matches!(body(client, target).0, 403 | 400)
}

#[test]
fn guards_of_the_script_hold_for_each_path_that_runs_it() {
    let site = Site::new();
    for name in ["index.php", "admin.php", "a/index.php"] {
        site.add(name, "");
    }
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let guard = "route = [{ path = '/admin.php', access = { deny = ['127.0.0.0/8'] } }, { path = '/a/index.php', access = { deny = ['127.0.0.0/8'] } }]";
    let server = serve(&site, &url(&upstream), &format!("{FILES_FIRST}\n{guard}"), "");
    let mut client = site.connect(&server);
    for target in ["/admin.php", "/admin.php/x", "/%61dmin.php/x", "//admin.php", "/admin.php/", "/a/", "/a/index.php"]
    {
        assert_eq!(body(&mut client, target).0, 403, "{target}");
    }
    assert!(asked.lock().expect("no panic").is_empty());
    assert_eq!(body(&mut client, "/b"), (200, "ran".to_owned()));
}

#[test]
fn guards_hold_for_what_a_script_is_named_by_and_for_what_it_may_take_its_path_from() {
    let site = Site::new();
    for name in ["index.php", "upload/x.php", "blog/index.php"] {
        site.add(name, "");
    }
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let guard = "route = [\n\
        { path = '~ ^/old/', rewrite = '/index.php' },\n\
        { path = '~ ^/upload/.*\\.php$', access = { deny = ['127.0.0.0/8'] } },\n\
        { path = '/admin/', access = { deny = ['127.0.0.0/8'] } },\n\
        { path = '^~ /old/admin/', access = { deny = ['127.0.0.0/8'] } },\n\
        { path = '/blog/private/', access = { deny = ['127.0.0.0/8'] } },\n\
        { path = '~ ^/$', access = { deny = ['127.0.0.0/8'] } },\n\
      ]";
    let server = serve(&site, &url(&upstream), &format!("{FILES_FIRST}\n{guard}"), "");
    let mut client = site.connect(&server);
    let targets = [
        "/upload/x.php",
        "/upload/x.php/",
        "/upload/x.php//",
        "/upload/x.php%2f",
        "/upload/x.php/a/",
        "/admin/users",
        "/index.php/admin/users",
        "/index.php/admin",
        "/index.php//admin/",
        "/index.php/%61dmin/users",
        // As an application reads them that decodes once more.
        "/index.php/%2561dmin/users",
        "/index.php/admin;v=1/users",
        "/old/%2561dmin/users",
        "/old/index.php/admin/users",
        "/blog/index.php/private",
        "/blog/index.php/%2570rivate/x",
        // `//host` is a host behind the script's name too.
        "/index.php//host/admin",
        "/index.php/%5Chost/admin/users",
        "/blog/index.php/%5Chost/private",
        "/old/index.php//host/admin",
        // CodeIgniter drops the name of the script without a slash behind it.
        "/index.phpadmin/users",
        "/index.php%2561dmin",
    ];
    for target in targets {
        assert!(is_refused(&mut client, target), "{target}");
    }
    assert!(asked.lock().expect("no panic").is_empty());
    for target in ["/index.php/administrators", "/index.php", "/other", "/blog/index.php/public", "/old/x", "//host/x"]
    {
        assert_eq!(body(&mut client, target), (200, "ran".to_owned()), "{target}");
    }
    // Applications may take the first of two slashes for the beginning of a host.
    assert_eq!(
        asked.lock().expect("no panic").last().map(|asked| asked.param("REQUEST_URI").to_owned()).as_deref(),
        Some("/host/x")
    );
}

/// CodeIgniter drops the directory of the script from REQUEST_URI, with or without a slash behind it.
#[test]
fn guards_hold_for_what_stands_behind_the_directory_of_a_front_script() {
    let site = Site::new();
    for name in ["app/index.php", "index.php"] {
        site.add(name, "");
    }
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let guard = "{ path = '^~ /app/admin/', access = { deny = ['127.0.0.0/8'] } }";
    let front = "proxy = { to = 'php', fastcgi = { front = '/app/index.php' } }\nroute = [".to_owned();
    // The script that runs is known by the rewrite alone.
    let rewritten = "proxy = { to = 'php', fastcgi = {} }\n\
        route = [{ path = '= /app/index.php' }, { path = '^~ /app/index.php/' }, { path = '~ ^', rewrite = '/app/index.php' }, ";
    for rules in [front, rewritten.to_owned()] {
        let server = serve(&site, &url(&upstream), &format!("{rules}{guard}]"), "");
        let mut client = site.connect(&server);
        for target in [
            "/app/admin/x",
            "/appadmin/x",
            "/app%2561dmin",
            "/app/index.phpadmin/x",
            "/app/index.php/admin",
            "/app/%5Chost/admin/x",
            "/app//host/admin",
        ] {
            assert!(is_refused(&mut client, target), "{rules} {target}");
        }
        assert!(asked.lock().expect("no panic").is_empty());
    }
    let server = serve(&site, &url(&upstream), &format!("{rewritten}{guard}]"), "");
    assert_eq!(body(&mut site.connect(&server), "/application"), (200, "ran".to_owned()));
}

#[test]
fn the_methods_of_a_rule_hold_for_path_info_and_for_an_index() {
    let site = Site::new();
    for name in ["index.php", "a/index.php"] {
        site.add(name, "");
    }
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let scripts = "to = 'php', fastcgi = { front = '/index.php' }";
    let rules = format!(
        "proxy = {{ {scripts} }}\n\
         route = [\n\
           {{ path = '/api/', proxy = {{ methods = ['GET'], {scripts} }} }},\n\
           {{ path = '~ ^/a/index[.]php$', proxy = {{ methods = ['GET'], {scripts} }} }},\n\
         ]"
    );
    let server = serve(&site, &url(&upstream), &rules, "");
    let mut client = site.connect(&server);
    for target in ["/api/x", "/index.php/api/x", "/index.php/%2561pi/x", "/a/index.php", "/a/"] {
        assert_eq!(post(&mut client, target, &[("Content-Length", "0")], b"").status, 405, "{target}");
    }
    assert!(asked.lock().expect("no panic").is_empty());
    assert_eq!(body(&mut client, "/index.php/api/x"), (200, "ran".to_owned()));
}

/// As of a package whose directory lies beside others: `/app/index.php` is no reading of `/index.php`.
#[test]
fn scripts_of_an_open_directory_run_beneath_a_closed_root() {
    let site = Site::new();
    for name in ["index.php", "app/index.php", "app/closed/x.php", "other/index.php"] {
        site.add(name, "");
    }
    let (upstream, asked) = answering(|accepted, _| accepted.write(&[stdout("X-A: 1\r\n\r\nran"), end()].concat()));
    let rules = "deny = true\nindex = ['index.php']\nroute = [\n\
        { path = '/app/', deny = false, proxy = { to = 'php', files_first = true, fastcgi = {} } },\n\
        { path = '/app/closed/', deny = true },\n\
      ]";
    let server = serve(&site, &url(&upstream), rules, "");
    let mut client = site.connect(&server);
    for target in ["/app/", "/app/index.php", "/app/index.php?route=/"] {
        assert_eq!(body(&mut client, target), (200, "ran".to_owned()), "{target}");
    }
    let asked_before = asked.lock().expect("no panic").len();
    for target in
        ["/index.php", "/", "/other/index.php", "/app/closed/x.php", "/app/index.php/closed/x", "/app/index.php/b"]
    {
        assert!(is_refused(&mut client, target), "{target}");
    }
    assert_eq!(asked.lock().expect("no panic").len(), asked_before);
}
