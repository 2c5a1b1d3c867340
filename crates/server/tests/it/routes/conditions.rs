//! Routes with conditions: a route whose conditions fail is passed over.

use super::{request, text};
use crate::support::Site;

const ROUTES: &str = r#"
    [[site.route]]
    path = "/a"
    match = { method = "POST" }
    respond = { text = "posted" }

    [[site.route]]
    path = "/a"
    match = { header = { X-Beta = ["yes", "~ ^on"] } }
    respond = { text = "beta" }

    [[site.route]]
    path = "/a"
    match = { query = { v = "2" }, cookie = { plan = true } }
    respond = { text = "second" }

    [[site.route]]
    path = "/a"
    match = { any = [{ referer = ["none", "*.example"] }, { scheme = "http" }], not = { header = { X-No = true } }, value = { "{map.kind}" = "robot" } }
    respond = { text = "robot" }

    [[site.route]]
    path = "/a"
    match = { host = '~ ^(?<user>\w+)\.users\.example$' }
    respond = { text = "of {user}" }

    [[site.route]]
    path = "/a"
    match = { client = ["192.0.2.0/24"] }
    respond = { text = "near" }

    [[site.route]]
    path = "/a"
    respond = { text = "other" }
"#;

const MAP: &str = r#"
    [[map]]
    name = "kind"
    from = "{header.user-agent}"
    entries = { "~* bot" = "robot" }
"#;

#[test]
fn the_first_route_whose_conditions_hold_answers() {
    let site = Site::new();
    let server = site.config(&format!("default = true\n{ROUTES}")).table(MAP).serve_from_user_space();
    let mut client = site.connect(&server);
    for (method, target, fields, expected) in [
        ("GET", "/a", &[][..], "other"),
        ("POST", "/a", &[("Content-Length", "0")], "posted"),
        ("GET", "/a", &[("X-Beta", "yes")], "beta"),
        ("GET", "/a", &[("x-beta", "on-1")], "beta"),
        ("GET", "/a", &[("X-Beta", "no")], "other"),
        ("GET", "/a?v=2", &[("Cookie", "a=b; plan=")], "second"),
        ("GET", "/a?%76=2", &[("Cookie", "plan=1")], "second"),
        ("GET", "/a?v=2", &[], "other"),
        ("GET", "/a?v=3", &[("Cookie", "plan=1")], "other"),
        ("GET", "/a", &[("User-Agent", "SomeBot/1")], "robot"),
        ("GET", "/a", &[("User-Agent", "SomeBot/1"), ("Referer", "https://x.example/y")], "robot"),
        ("GET", "/a", &[("User-Agent", "SomeBot/1"), ("Referer", "https://x.test/y")], "other"),
        ("GET", "/a", &[("User-Agent", "SomeBot/1"), ("X-No", "")], "other"),
    ] {
        let response = request(&mut client, method, target, fields);
        assert_eq!(text(&response), expected, "{method} {target} {fields:?}");
    }
}

/// Where a condition decides about guards, an application could take the other of two values.
#[test]
fn a_request_that_meets_a_guards_condition_in_part_is_refused() {
    let site = Site::new();
    site.add("a/x", "x");
    let keys = r#"
        [[site.route]]
        path = "/a/"
        match = { query = { user = "admin" } }
        access = { allow = ["192.0.2.1"] }

        [[site.route]]
        path = "/b/"
        match = { method = "GET" }
        deny = true
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (method, target, status) in [
        ("GET", "/a/x", 200),
        ("GET", "/a/x?user=ada", 200),
        ("GET", "/a/x?user=admin", 403),
        ("GET", "/a/x?user=%61dmin", 403),
        ("GET", "/a/x?user=ada&user=admin", 400),
        ("GET", "/a/x?user=admin&user=ada", 400),
        ("GET", "/a/x?user=admin&user=admin", 403),
        // HEAD shows what GET does.
        ("HEAD", "/b/x", 403),
        ("POST", "/b/x", 405),
    ] {
        let response = request(&mut client, method, target, &[("Content-Length", "0")]);
        assert_eq!(response.status, status, "{method} {target}");
    }
}

#[test]
fn the_way_of_a_request_is_explained() {
    let site = Site::new();
    let keys = r#"
        [[site.route]]
        path = "/old/"
        rewrite = "/new/x"

        [[site.route]]
        path = "/new/"
        match = { header = { X-Beta = true } }
        access = { allow = ["10.0.0.0/8"] }
        proxy = { to = "http://127.0.0.1:9" }

        [[site.route.route]]
        path = "/new/x"
    "#;
    let file = site.config(keys).write();
    let explain = |request: &str, more: &[&str]| {
        let mut check = std::process::Command::new(crate::support::PROGRAM);
        let output =
            check.args(["check", "--config"]).arg(&file).args(["--explain", request]).args(more).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = explain("GET https://example.org/old/y", &["-H", "X-Beta: 1"]);
    for words in [
        "/old/y: route /old/\n",
        "goes on with /new/x\n",
        "/new/x: route /new/x\n",
        "conditions of /new/: hold\n",
        "networks, of route /new/\n",
        "action, of route /new/\n",
        "forwards to http://127.0.0.1:9\n",
    ] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    let shown = explain("GET https://example.org/new/x", &[]);
    assert!(shown.contains("conditions of /new/: fail\n") && shown.contains("sends a file\n"), "{shown}");
}

#[test]
fn a_route_asks_whether_a_file_or_a_directory_exists() {
    let site = Site::new();
    for (name, content) in
        [("x.txt", "x"), ("dir/y", "y"), ("app.php", "script"), (".hidden", "h"), ("maintenance.on", "")]
    {
        site.add(name, content);
    }
    std::fs::write(site.outside().join("z"), "outside").expect("a file");
    std::os::unix::fs::symlink("../z", site.root().join("link")).expect("a link");
    let keys = r#"
        [[site.route]]
        path = "/"
        match = { exists = { file = "{path}" } }
        respond = { text = "file" }

        [[site.route]]
        path = "/"
        match = { exists = { directory = "{path}" }, not = { exists = "{path}/none" } }
        respond = { text = "directory" }

        [[site.route]]
        path = "~ ^/of/(.+)$"
        match = { exists = "/{1}" }
        respond = { text = "captured" }

        [[site.route]]
        path = "/"
        match = { not = { exists = "/maintenance.on" } }
        respond = 503

        [[site.route]]
        path = "/"
        respond = { text = "neither" }
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, expected) in [
        ("/x.txt", "file"),
        ("/app.php", "file"),
        ("/x.txt/", "neither"),
        ("/dir", "directory"),
        ("/dir/", "directory"),
        ("/dir/y?q", "file"),
        ("/dir/none", "neither"),
        ("/.hidden", "neither"),
        ("/link", "neither"),
        ("/of/dir/y", "captured"),
        ("/of/none", "neither"),
        ("/a%2Fb", "neither"),
    ] {
        assert_eq!(text(&request(&mut client, "GET", target, &[])), expected, "{target}");
    }
    let said = site.config("[[site.route]]\npath = '/'\nmatch = { exists = 'x' }\ndeny = true\n").problems();
    assert!(said.contains("site.route.match.exists: write an encoded path"), "{said}");
}
