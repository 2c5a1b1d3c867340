//! Values of requests in the directories of files, in tables and in expressions with look-around.

use super::{echo, request, text};
use crate::support::config::Config;
use crate::support::{Site, wait_for_message, wait_until};

/// A site whose root is named by a field of the request, with files in and beside the directories that it may name.
fn tenants() -> Site {
    let site = Site::new();
    for name in ["one/x.html", "one/index.html", "one/public/x.html", "two/x.html", ".hidden/x.html", "x.html"] {
        site.add(&format!("tenants/{name}"), name);
    }
    site.add("secret.html", "secret");
    // Links of a tenant lead nowhere but beneath its own directory. Those beside the directories are the operator's.
    site.link("tenants/one/own.html", "public/x.html");
    site.link("tenants/one/across.html", "../two/x.html");
    site.link("tenants/one/directory", "../two");
    site.link("tenants/linked", "two");
    site.add("tenants/four/x", "");
    site.link("tenants/four/index.html", "../one/index.html");
    site.link("tenants/four/.html", "../one/index.html");
    site
}

#[test]
fn a_request_names_the_directory_of_its_files_and_no_other() {
    let site = tenants();
    let root = site.root().join("tenants");
    let keys = format!(
        r#"
        [[site.route]]
        path = "/mapped/"
        alias = "{root}/{{map.tenant}}"

        [[site.route]]
        path = "/tried/"
        root = "{root}/{{header.x-site}}"
        try = ["/x.html", "=410"]

        [[site.route]]
        path = "/asked/"
        match = {{ exists = "/x.html" }}
        respond = {{ text = "there" }}
        "#,
        root = root.display()
    );
    let table = r#"
        [[map]]
        name = "tenant"
        from = "{header.x-site}"
        entries = { mapped = "one/public", up = "../", root = "/", dot = "." }
    "#;
    let config = Config::within(site.outside()).site(root.join("{header.x-site}"), &[&site.pki], &keys);
    let server = config.table(table).serve_from_user_space();
    let mut client = site.connect(&server);
    for (tenant, target, status, content) in [
        ("one", "/x.html", 200, "one/x.html"),
        ("two", "/x.html", 200, "two/x.html"),
        ("one", "/", 200, "one/index.html"),
        ("one", "/public/x.html", 200, "one/public/x.html"),
        ("two", "/none.html", 404, "404 Not Found\n"),
        ("three", "/x.html", 404, "404 Not Found\n"),
        ("one", "/own.html", 200, "one/public/x.html"),
        ("one", "/across.html", 404, "404 Not Found\n"),
        ("one", "/directory/x.html", 404, "404 Not Found\n"),
        ("four", "/", 404, "404 Not Found\n"),
        ("linked", "/x.html", 200, "two/x.html"),
        // None of these is the name of one directory beneath.
        ("", "/x.html", 404, "404 Not Found\n"),
        (".", "/x.html", 404, "404 Not Found\n"),
        ("..", "/secret.html", 404, "404 Not Found\n"),
        ("one/../..", "/secret.html", 404, "404 Not Found\n"),
        ("one/public", "/x.html", 404, "404 Not Found\n"),
        (".hidden", "/x.html", 404, "404 Not Found\n"),
        // A table is the operator's own.
        ("mapped", "/mapped/x.html", 200, "one/public/x.html"),
        ("up", "/mapped/secret.html", 404, "404 Not Found\n"),
        ("root", "/mapped/etc/passwd", 404, "404 Not Found\n"),
        ("dot", "/mapped/x.html", 404, "404 Not Found\n"),
        ("other", "/mapped/x.html", 404, "404 Not Found\n"),
        ("two", "/tried/y", 200, "two/x.html"),
        ("..", "/tried/y", 410, "410\n"),
        ("two", "/asked/y", 200, "there"),
        ("three", "/asked/y", 404, "404 Not Found\n"),
    ] {
        let response = request(&mut client, "GET", target, &[("X-Site", tenant)]);
        assert_eq!((response.status, text(&response).as_str()), (status, content), "{tenant} {target}");
    }
}

#[test]
fn a_root_with_a_placeholder_needs_a_directory_before_it() {
    let site = Site::new();
    for (root, words) in [
        ("{host}", "site.root: begins with a placeholder"),
        ("/{host}/www", "site.root: begins with a placeholder"),
        ("/srv/none-such/{host}", "cannot serve /srv/none-such/"),
        ("root/{hots}", "{hots} is not a placeholder"),
    ] {
        let errors = Config::within(site.outside()).site(root, &[&site.pki], "").problems();
        assert!(errors.contains(words), "{root}: {errors}");
    }
}

#[test]
fn an_expression_with_look_around_guards_its_paths_and_closes_where_it_takes_too_long() {
    let site = Site::new();
    for name in ["a.txt", "b.txt", "ab.txt"] {
        site.add(name, name);
    }
    let keys = r#"
        [[site.route]]
        path = "~~ ^/(?:(?=a)a|(?=a)a)*b$"
        deny = true

        [[site.route]]
        path = '~~ ^/a(?!b)'
        deny = true
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let long = format!("/{}", "a".repeat(100));
    for (target, status) in
        [("/ab.txt", 200), ("/b.txt", 200), ("/a.txt", 403), ("/aab", 403), (long.as_str(), 500), ("/ab.txt", 200)]
    {
        assert_eq!(request(&mut client, "GET", target, &[]).status, status, "{target}");
    }
}

#[test]
fn requests_are_counted_by_a_value() {
    let site = Site::new();
    site.add("f", "content");
    let keys = "[site.limits]\nrequests_per_second = 1\nburst = 3\nkey = \"{header.x-key}\"\n";
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    let mut statuses = |key: &str| -> Vec<u16> {
        (0..20).map(|_| request(&mut client, "GET", "/f", &[("X-Key", key)]).status).collect()
    };
    let first = statuses("a");
    assert_eq!(first[..3], [200; 3]);
    assert!(first.contains(&429), "{first:?}");
    assert_eq!(statuses("b")[..3], [200; 3], "another value has a bucket of its own");
    assert_eq!(statuses(""), [200; 20], "an empty value is not counted");
}

#[test]
fn a_line_of_the_log_is_the_operators_text_and_names_the_route() {
    let site = Site::new();
    let keys = r#"
        [site.log]
        to = "own.log"
        flush_after = "0s"
        text = '{route} {status} "{target}" {header.x-id} {cookie.lang}'

        [[site.route]]
        path = "/app/"
        name = "@app"
        respond = 204

        [[site.route]]
        path = "= /exact"
        respond = 204
    "#;
    let server = site.config(keys).serve_from_user_space();
    let mut client = site.connect(&server);
    for target in ["/app/x", "/exact", "/none"] {
        request(&mut client, "GET", target, &[("X-Id", "a\"b\tc"), ("Cookie", "a=1; lang=de")]);
    }
    let file = site.outside().join("own.log");
    let read = || std::fs::read_to_string(&file).unwrap_or_default();
    wait_until("three lines", || read().lines().count() == 3);
    let value = r"a\x22b\x09c de";
    let expected = format!("@app 204 \"/app/x\" {value}\n= /exact 204 \"/exact\" {value}\n- 404 \"/none\" {value}\n");
    assert_eq!(read(), expected);
}

#[test]
fn old_hashes_let_their_users_in_with_one_warning() {
    let site = Site::new();
    site.add("f", "content");
    // `openssl passwd -apr1 -salt lZL6Vxci secret`, and SHA-1 of the same word.
    let users = "ada:$apr1$lZL6Vxci$yAMrxbTXz9GgGyzVmW0Px0\nbob:{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=\n";
    std::fs::write(site.outside().join("users"), users).expect("a file");
    let keys = "basic_auth = { users = 'users' }\n[[site.route]]\npath = '/in/'\nbasic_auth = { realm = 'in', users = 'users' }\n";
    let server = site.config(keys).serve_from_user_space();
    let warning = wait_for_message(&server, "renew each line");
    assert!(warning.contains("the passwords of ada and bob are hashed by MD5 or SHA-1"), "{warning}");
    assert_eq!(crate::support::messages(&server, "renew each line"), 1);
    let mut client = site.connect(&server);
    // ada:secret, bob:secret, ada:wrong, eve:secret
    for (credentials, status) in
        [("YWRhOnNlY3JldA==", 200), ("Ym9iOnNlY3JldA==", 200), ("YWRhOndyb25n", 401), ("ZXZlOnNlY3JldA==", 401)]
    {
        let authorization = format!("Basic {credentials}");
        let response = request(&mut client, "GET", "/f", &[("Authorization", &authorization)]);
        assert_eq!(response.status, status, "{credentials}");
    }
}

#[test]
fn fields_of_responses_may_depend_on_their_type() {
    let site = Site::new();
    for name in ["a.css", "a.html"] {
        site.add(name, name);
    }
    let table = r#"
        [[map]]
        name = "lifetime"
        from = "{type}"
        entries = { "text/css" = "max-age=60" }
    "#;
    let keys = r#"
        cache_control = "{map.lifetime}"
        headers = { set = { X-Type = "{type}" } }
        [[site.route]]
        path = '~ \.(?:png|svg)$'
        respond = { text = "picture", type = "by-name" }
    "#;
    let server = site.config(keys).table(table).serve_from_user_space();
    let mut client = site.connect(&server);
    for (target, media_type, lifetime) in [
        ("/a.css", "text/css", Some("max-age=60")),
        ("/a.html", "text/html", None),
        ("/a.css", "text/css", Some("max-age=60")),
        ("/x.svg", "image/svg+xml", None),
        ("/x.png", "image/png", None),
    ] {
        let response = request(&mut client, "GET", target, &[]);
        assert_eq!(
            (response.field("x-type"), response.field("cache-control")),
            (Some(media_type), lifetime),
            "{target}"
        );
        assert!(response.field("content-type").is_some_and(|own| own.starts_with(media_type)), "{target}");
    }
}

#[test]
fn a_server_gets_the_fields_of_the_rule_alone() {
    let (site, upstream) = (Site::new(), echo());
    let keys = format!(
        "proxy = {{ to = '{}', pass_fields = false, request_headers = [{{ name = 'X-Only', value = 'this' }}] }}",
        upstream.url()
    );
    let server = site.config(&keys).serve_from_user_space();
    let mut client = site.connect(&server);
    assert_eq!(request(&mut client, "GET", "/x", &[("X-Secret", "s"), ("Cookie", "c=1")]).status, 200);
    let requests = upstream.requests();
    let got = |name: &str| requests[0].all(name).concat();
    assert_eq!([got("x-only"), got("x-secret"), got("cookie")], ["this", "", ""]);
    assert_eq!(got("x-forwarded-proto"), "https");
}

/// Each rendering of a value rendered all before it: 48 of them would take years.
#[test]
fn conditions_that_name_groups_of_others_are_rendered_once() {
    let site = Site::new();
    let others: String = (0..48).map(|n| format!(", \"{{query.q{n}}}{{x}}\" = \"~ ^(y{n})?\"")).collect();
    let keys = format!(
        r#"
        [[site.route]]
        path = "/e/"
        match.value = {{ "{{header.a}}" = "~ ^(?<x>z)?b"{others} }}
        respond = {{ text = "x{{x}}" }}
    "#
    );
    let server = site.config(&keys).serve();
    for (field, content) in [("b", "x"), ("zb", "xz")] {
        let response = request(&mut site.connect(&server), "GET", "/e/", &[("A", field)]);
        assert_eq!(text(&response), content);
    }
}
