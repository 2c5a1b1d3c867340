//! Routes with conditions: a route whose conditions fail is passed over.

use sealion_testkit::server::Server;

use super::{request, text};
use crate::support::Site;
use crate::support::config::Config;

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

        # Both have the same guards, so that the first one is taken.
        [[site.route]]
        path = "/c/"
        match = { query = { beta = "yes" } }
        headers = { set = { X-Beta = "1" } }

        # What they lead to may have others.
        [[site.route]]
        path = "/d/"
        match = { query = { beta = "yes" } }
        rewrite = "/a/x"
    "#;
    site.add("c/x", "x");
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
        ("GET", "/c/x?beta=no&beta=yes", 200),
        ("GET", "/d/x?beta=yes", 200),
        ("GET", "/d/x?beta=no&beta=yes", 400),
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
        "networks, of route /new/: the client's address decides: add --client ADDRESS\n",
        "action, of route /new/\n",
        "forwards to http://127.0.0.1:9\n",
        "  answer: the response of http://127.0.0.1:9, if the networks let the client pass\n",
    ] {
        assert!(shown.contains(words), "{words} is not in {shown}");
    }
    let shown = explain("GET https://example.org/new/x", &[]);
    assert!(shown.contains("conditions of /new/: fail: header.X-Beta = true\n"), "{shown}");
    assert!(shown.contains(&format!("answer: 404: there is no {}/new/x\n", site.root().display())), "{shown}");
    let beta = ["-H", "X-Beta: 1", "--client"];
    let shown = explain("GET https://example.org/new/x", &[&beta[..], &["192.0.2.1"]].concat());
    assert!(shown.contains("answer: 403: networks of route /new/ refuse 192.0.2.1\n"), "{shown}");
    let shown = explain("GET https://example.org/new/x", &[&beta[..], &["10.1.2.3"]].concat());
    assert!(shown.contains("route /new/: 10.1.2.3 may pass\n") && shown.contains("answer: the response of"), "{shown}");
}

#[test]
fn the_end_of_a_request_is_explained_as_it_is_answered() {
    let site = Site::new();
    for (name, content) in
        [("index.html", "home"), ("app.html", "app"), ("docs/a.txt", "a"), ("page.html", "page"), ("404.html", "none")]
    {
        site.add(name, content);
    }
    let keys = r#"
        fallback = "/app.html"
        extensions = ["html"]

        [[site.route]]
        path = "/docs/"
        fallback = "/app.html"
        error_pages = { 404 = "/404.html" }

        [[site.route]]
        path = "/tried/"
        try = ["{path}.html", "/docs/", "=410"]

        [[site.route]]
        path = "/office/"
        match = { client = ["10.0.0.0/8"] }
        respond = 204

        [[site.route]]
        path = "/inner/"
        internal = true

        [[site.route]]
        path = "/away/"
        redirect = "https://other.example{uri}"
    "#;
    std::os::unix::fs::symlink("/etc/passwd", site.root().join("docs/link.txt")).expect("a link");
    let config = site.config(keys);
    let file = config.write();
    let root = site.root().display().to_string();
    let server = config.serve_from_user_space();
    let html = "Accept: text/html";
    for (request, field, client, expected) in [
        ("GET https://example.org/", "", "", format!("200: the index {root}/index.html")),
        ("GET https://example.org/page", "", "", format!("200: the file {root}/page.html")),
        ("GET https://example.org/docs/a.txt", "", "", format!("200: the file {root}/docs/a.txt")),
        ("GET https://example.org/docs", "", "", "301: a directory: redirected to /docs/".to_owned()),
        ("POST https://example.org/docs/a.txt", "", "", "405: files answer GET and HEAD alone".to_owned()),
        (
            "GET https://example.org/users/1.x",
            html,
            "",
            format!("200: the fallback /app.html: there is no {root}/users/1.x, {root}/users/1.x.html"),
        ),
        (
            "GET https://example.org/docs/b.txt",
            "Accept: image/png",
            "",
            format!(
                "404: there is no {root}/docs/b.txt, {root}/docs/b.txt.html; the fallback /app.html is for clients whose Accept has HTML, with the error page /404.html"
            ),
        ),
        (
            "GET https://example.org/docs/link.txt",
            "Accept: image/png",
            "",
            format!(
                "404: {root}/docs/link.txt: symbolic link leads out of the root, or is absolute: make it relative (ln -sr), or copy the file; the fallback /app.html is for clients whose Accept has HTML, with the error page /404.html"
            ),
        ),
        ("GET https://example.org/tried/x", "", "", "403: the directory has no index and no listing".to_owned()),
        ("GET https://example.org/office/x", html, "10.0.0.1", "204: a response of its own".to_owned()),
        (
            "GET https://example.org/office/x",
            html,
            "192.0.2.1",
            format!("200: the fallback /app.html: there is no {root}/office/x, {root}/office/x.html"),
        ),
        (
            "GET https://example.org/inner/x",
            "",
            "",
            "404: the route is internal: only other routes lead there".to_owned(),
        ),
        (
            "GET https://example.org/away/x?y=1",
            "",
            "",
            "308: a redirect to https://other.example/away/x?y=1".to_owned(),
        ),
    ] {
        let mut check = std::process::Command::new(crate::support::PROGRAM);
        check.args(["check", "--config"]).arg(&file).args(["--explain", request]);
        if !field.is_empty() {
            check.args(["-H", field]);
        }
        if !client.is_empty() {
            check.args(["--client", client]);
        }
        let output = check.output().expect("the program starts");
        let shown = String::from_utf8(output.stdout).expect("text");
        assert_eq!(shown.lines().last(), Some(&*format!("  answer: {expected}")), "{request}: {shown}");
        // The server answers so, but for conditions about the client.
        let (method, url) = request.split_once(' ').expect("a method");
        let target = url.strip_prefix("https://example.org").expect("the host");
        let fields =
            field.split_once(": ").map_or(vec![("Content-Length", "0")], |field| vec![field, ("Content-Length", "0")]);
        if client.is_empty() {
            let response = request_to(&site, &server, (method, target), &fields);
            assert!(expected.starts_with(&format!("{response}: ")), "{request}: {response}");
        }
    }
}

fn request_to(site: &Site, server: &Server, (method, target): (&str, &str), fields: &[(&str, &str)]) -> u16 {
    super::request(&mut site.connect(server), method, target, fields).status
}

#[test]
fn a_host_without_a_site_is_explained() {
    let site = Site::new();
    site.add("index.html", "home");
    let listen = "address = '127.0.0.1:0'\n";
    let one = |default: &str| format!("names = ['a.example']\n{default}");
    for (default, expected) in [
        (
            "default = true\n",
            "unknown host c.example: no site has this name on the listener, and the default site answers\nsite a.example\n",
        ),
        (
            "",
            "unknown host c.example: no site has this name on the listener, and no site is the default there\n  answer: 421\n",
        ),
    ] {
        let config = Config::within(site.outside()).listen(listen).site(site.root(), &[&site.pki], &one(default));
        let file = config.site(site.root(), &[&site.pki], "names = ['b.example']\n").write();
        let mut check = std::process::Command::new(crate::support::PROGRAM);
        check.args(["check", "--config"]).arg(file).args(["--explain", "GET https://c.example/"]);
        let output = check.output().expect("the program starts");
        let shown = String::from_utf8(output.stdout).expect("text");
        assert!(shown.starts_with("listener 127.0.0.1:0\n") && shown.contains(expected), "{shown}");
    }
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
