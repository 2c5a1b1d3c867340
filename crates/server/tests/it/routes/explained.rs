//! `sealion check --explain` ends with the status of the server.

use std::path::Path;
use std::process::Command;

use super::{echo, request, text};
use crate::guards::add_users;
use crate::support::{PROGRAM, Site};

/// The explanation of a request for a site at `example.org`.
#[track_caller]
fn explain(file: &Path, request: &str, more: &[&str]) -> String {
    let mut check = Command::new(PROGRAM);
    check.args(["check", "--config"]).arg(file).args(["--explain", request]).args(more);
    let output = check.output().expect("the program starts");
    assert!(output.status.success(), "{request}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn answer_of(shown: &str) -> &str {
    shown.lines().last().and_then(|line| line.strip_prefix("  answer: ")).unwrap_or_default()
}

/// Guards of other readings, of the path that `try` leads to, and of a script refuse these requests.
#[test]
fn a_guard_of_another_reading_is_explained_as_it_answers() {
    let (site, app) = (Site::new(), echo());
    add_users(&site, "users", &["ada"]);
    for name in
        ["index.html", "private/secret.txt", "lib/l.php", "admin/panel.php", "wp-config.php", "index.php", "office/x"]
    {
        site.add(name, "content");
    }
    let keys = format!(
        r#"
        [[site.route]]
        path = "/private/"
        deny = true

        [[site.route]]
        path = '~ ^/v[0-9.]+/(.*)$'
        try = ["/{{1}}", "=404"]

        [[site.route]]
        path = "/admin/"
        basic_auth = {{ users = "users" }}

        [[site.route]]
        path = "/api/"
        proxy = {{ to = "{app}" }}

        [[site.route]]
        path = "/api/admin/"
        basic_auth = {{ users = "users" }}

        [[site.route]]
        path = '~ \.php/|^/[a-z-]+\.php$'
        proxy = {{ to = "{php}", fastcgi = {{}} }}

        [[site.route]]
        path = "= /wp-config.php"
        deny = true

        [[site.route]]
        path = "/lib/"
        deny = true

        [[site.route]]
        path = "/office/"
        access = {{ allow = ["10.0.0.0/8"] }}

        [[site.route]]
        path = "/lost/"
        error_pages = {{ 404 = "@app" }}

        [[site.route]]
        name = "@app"
        proxy = {{ to = "{app}" }}
        "#,
        app = app.url(),
        php = app.url().replace("http://", "fastcgi://"),
    );
    let config = site.config(&keys);
    let file = config.write();
    let server = config.serve_from_user_space();
    for (target, expected) in [
        ("/v1.2/private/secret.txt", 403),
        ("/v1.2/index.html", 200),
        ("/admin/panel.php/x", 401),
        ("//api//x/admin/y", 400),
        ("//api//x", 200),
        ("/api/x", 200),
        ("/wp-config.php/", 400),
        ("/index.php/lib/l.php", 403),
        ("/none.php", 404),
        ("/api/admin;x/users", 400),
        ("/api/..%252fsecret", 400),
        ("/api/x;%2Fy", 400),
        ("/lost/x", 200),
        ("/index.html;x", 404),
    ] {
        let status = request(&mut site.connect(&server), "GET", target, &[]).status;
        let shown = explain(&file, &format!("GET https://example.org{target}"), &["--client", "127.0.0.1"]);
        assert_eq!(status, expected, "{target}: {shown}");
        let answer = answer_of(&shown);
        let explained = answer.split([':', ',']).next().and_then(|status| status.parse().ok());
        let explained = explained.or(answer.starts_with("the response of http").then_some(200));
        assert_eq!(explained, Some(status), "{target}: {shown}");
    }
    let answer = |target: &str| {
        let shown = explain(&file, &format!("GET https://example.org{target}"), &[]);
        answer_of(&shown).to_owned()
    };
    let shown = explain(&file, "GET https://example.org/v1.2/office/x", &["--client", "192.0.2.1"]);
    assert_eq!(answer_of(&shown), "403: /office/x is of route /office/, whose networks refuse 192.0.2.1", "{shown}");
    assert_eq!(answer("/v1.2/private/secret.txt"), "403: /private/secret.txt is of route /private/, which is closed");
    assert!(
        answer("/lost/x").starts_with(&format!("the response of {}, in place of 404: there is no ", app.url())),
        "{}",
        answer("/lost/x")
    );
}

#[test]
fn passwords_consents_and_conditions_are_explained() {
    let site = Site::new();
    add_users(&site, "users", &["ada"]);
    let keys = r#"
        [[site.route]]
        path = "/asked/"
        forward_auth = { to = "http://127.0.0.1:9/verify?token=secret" }
        respond = 204

        [[site.route]]
        path = "/either/"
        satisfy = "any"
        access = { allow = ["10.0.0.0/8"] }
        basic_auth = { users = "users" }
        respond = 204

        [[site.route]]
        path = "~ ^/x"
        match = { header = { X-A = ["a", "a-long-token-of-a-client"] } }
        respond = 410

        [[site.route]]
        path = "~ ^/x"
        match = { method = "GET", host = "*.example.net" }
        respond = 411

        [[site.route]]
        path = "~ ^/x"
        match = { any = [{ value = { "{path}" = "~ ^/y" } }, { exists = "/none" }] }
        respond = 412
    "#;
    let file = site.config(keys).write();
    let shown = explain(&file, "GET https://example.org/asked/x", &[]);
    assert_eq!(answer_of(&shown), "204: a response of its own, if http://127.0.0.1:9/verify consents", "{shown}");
    let either = "GET https://example.org/either/x";
    for (client, expected) in [
        ("10.0.0.1", "204: a response of its own"),
        ("192.0.2.1", "401: route /either/ asks for a password: add -H 'Authorization: …' to go on"),
    ] {
        let shown = explain(&file, either, &["--client", client]);
        assert_eq!(answer_of(&shown), expected, "{shown}");
        assert!(shown.contains("satisfy, of route /either/: any: "), "{shown}");
    }
    let wrong = ["--client", "192.0.2.1", "-H", "Authorization: Basic YWRhOndyb25n"];
    let shown = explain(&file, either, &wrong);
    assert_eq!(answer_of(&shown), "401: route /either/ asks for another password", "{shown}");
    let shown = explain(&file, either, &[]);
    let expected = "204: a response of its own, if the networks let the client pass or it authenticates";
    assert_eq!(answer_of(&shown), expected, "{shown}");
    let shown = explain(&file, "GET https://example.org/x", &[]);
    for line in [
        "    conditions of ~ ^/x: fail: header.X-A = [\"a\", \"a-lo…\"]\n",
        "    conditions of ~ ^/x: fail: host = \"*.example.net\"\n",
        "    conditions of ~ ^/x: fail: any = [{ value.\"{path}\" = \"~ ^/y\" }, { exists.any = \"/none\" }]\n",
    ] {
        assert!(shown.contains(line), "{line} is not in {shown}");
    }
}

#[test]
fn the_client_that_a_proxy_names_is_explained() {
    let site = Site::new();
    let keys = "[[site.route]]\npath = '/office/'\naccess = { allow = ['10.0.0.0/8'] }\nrespond = 204\n";
    let listen = "address = '127.0.0.1:0'\ntrusted_proxies = ['127.0.0.0/8']\nclient_address = 'x-forwarded-for'";
    let config = site.config(keys).listen(listen);
    let file = config.write();
    let server = config.serve_from_user_space();
    let url = "GET https://example.org/office/x";
    for (named, expected) in [("10.1.2.3", 204), ("192.0.2.1", 403)] {
        let shown = explain(&file, url, &["--client", "127.0.0.1", "-H", &format!("X-Forwarded-For: {named}")]);
        let line = format!("client {named}: the trusted proxy 127.0.0.1 names it in x-forwarded-for\n");
        assert!(shown.contains(&line) && answer_of(&shown).starts_with(&format!("{expected}: ")), "{shown}");
        let response = request(&mut site.connect(&server), "GET", "/office/x", &[("X-Forwarded-For", named)]);
        assert_eq!(response.status, expected, "{}", text(&response));
    }
    for (client, expected) in [
        (&["--client", "192.0.2.9"][..], "x-forwarded-for is not believed: 192.0.2.9 is not in trusted_proxies\n"),
        (&[], "x-forwarded-for is not believed: add --client with the address of a trusted proxy\n"),
    ] {
        let shown = explain(&file, url, &[client, &["-H", "X-Forwarded-For: 10.1.2.3"]].concat());
        assert!(shown.contains(expected), "{expected} is not in {shown}");
    }
}
