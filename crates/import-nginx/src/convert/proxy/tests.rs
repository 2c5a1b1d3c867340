use super::*;

mod grpc;
mod redirects;
mod scripts;

/// A converted `http` block, and what is named with place and all.
pub(super) fn import(http: &str) -> (toml::Table, Vec<String>) {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("nginx.conf");
    std::fs::write(&file, format!("http {{\n{http}\n}}\n")).unwrap();
    let conversion = crate::convert(&file, |name| name.eq_ignore_ascii_case("server")).unwrap();
    let shown = format!("{}/", directory.path().display());
    let text = conversion.text();
    let named = conversion.unconverted.iter().map(|one| one.to_string().replace(&shown, "")).collect();
    (text.replace(&shown, "").parse().unwrap_or_else(|e| panic!("{text}: {e}")), named)
}

/// The site of a server with this body, and what is named.
fn site(body: &str) -> (toml::Table, Vec<String>) {
    let (config, named) = import(&format!(
        "upstream app {{ server 127.0.0.1:3000; }}\nserver {{ listen 443 ssl; server_name a.example; ssl_certificate c; \
         ssl_certificate_key k; root /srv;\n{body}\n}}"
    ));
    (config["site"][0].as_table().unwrap().clone(), named)
}

pub(super) fn rules(site: &toml::Table) -> Vec<&toml::Table> {
    site.get("proxy").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_table).collect()
}

/// The upstream that each path goes to; `-`: it is closed; `.`: a file is sent.
fn destinations(site: &toml::Table, paths: &[&str]) -> Vec<String> {
    let matches = |rule: &toml::Table, path: &str| match (rule.get("regex"), rule.get("path")) {
        (Some(regex), _) => regex::bytes::RegexBuilder::new(regex.as_str().unwrap())
            .unicode(false)
            .dot_matches_new_line(true)
            .build()
            .unwrap()
            .is_match(path.as_bytes()),
        (_, Some(prefix)) => {
            let prefix = prefix.as_str().unwrap().trim_end_matches('/');
            path.strip_prefix(prefix).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        }
        _ => true,
    };
    let list = |key: &str| -> Vec<toml::Table> {
        let list = site.get(key).and_then(Value::as_array).into_iter().flatten();
        list.filter_map(Value::as_table).cloned().collect()
    };
    let (access, proxy, redirects) = (list("access"), list("proxy"), list("redirects"));
    let destination = |path: &&str| {
        if access.iter().any(|rule| rule["deny"].as_array().is_some() && matches(rule, path)) {
            return "-".to_owned();
        }
        if let Some(redirect) = redirects.iter().find(|rule| rule.get("path").and_then(Value::as_str) == Some(*path)) {
            return format!("> {}", redirect["to"].as_str().unwrap());
        }
        let rule = proxy.iter().find(|rule| matches(rule, path));
        rule.map_or(".".to_owned(), |rule| rule["upstream"].as_str().unwrap().trim_start_matches("http://").to_owned())
    };
    paths.iter().map(destination).collect()
}

pub(super) fn marked(named: &[String]) -> Vec<&str> {
    named.iter().map(String::as_str).filter(|line| line.contains("UNGUARDED")).collect()
}

#[test]
fn the_rule_that_wins_is_the_location_that_nginx_takes() {
    // A server, paths, and where each goes.
    for (body, paths) in [
        (
            "location / { proxy_pass http://a; } location /static/ { expires 1d; }",
            &[("/", "a"), ("/x", "a"), ("/static/x", "."), ("/static", "a"), ("/statics", "a"), ("/stat", "a")][..],
        ),
        (
            "location / { proxy_pass http://a; } location /api/ { proxy_pass http://b; } location /api/v1/ { proxy_pass http://c; }",
            &[("/x", "a"), ("/api/x", "b"), ("/api/v1/x", "c"), ("/api", "> /api/"), ("/apix", "a")],
        ),
        (
            "location /api { proxy_pass http://b; } location = /api/x { proxy_pass http://c; }",
            &[("/api", "b"), ("/apis", "b"), ("/api/x", "c"), ("/api/x/", "b"), ("/", ".")],
        ),
        (
            "location /api/ { proxy_pass http://b; } location = /api { proxy_pass http://c; } location = /api/f { }",
            &[("/api", "c"), ("/api/", "b"), ("/api/f", "."), ("/api/ff", "b"), ("/api/f/", "b")],
        ),
        ("location /api/ { proxy_pass http://b; } location = /api { }", &[("/api", "."), ("/api/", "b")]),
        // Expressions in their order, before prefixes but for those with ^~.
        (
            "location /api/ { proxy_pass http://b; } location ^~ /app/ { proxy_pass http://c; } \
             location ~ \\.json$ { proxy_pass http://d; } location ~ ^/api/x { proxy_pass http://e; }",
            &[("/api/y", "b"), ("/api/x", "e"), ("/api/x.json", "d"), ("/app/x.json", "c"), ("/x.JSON", ".")],
        ),
        // A longer prefix without ^~ gives expressions their turn again.
        (
            "location ^~ /a/ { proxy_pass http://b; } location /a/b/ { proxy_pass http://c; } location ~ \\.x$ { proxy_pass http://d; }",
            &[("/a/1.x", "b"), ("/a/b/1", "c"), ("/a/b/1.x", "d")],
        ),
        (
            "location / { proxy_pass http://a; } location ~* \\.(css|js)$ { expires 1d; } location ^~ /live/ { proxy_pass http://b; }",
            &[
                ("/x.css", "."),
                ("/x.CSS", "."),
                ("/d/x.js", "."),
                ("/x.cs", "a"),
                ("/js", "a"),
                ("/.js/x", "a"),
                ("/live/x.js", "b"),
            ],
        ),
        (
            "location / { proxy_pass http://a; } location ~* \\.(ico|js)$ { } location /static/ { } location = /favicon.ico { access_log off; }",
            &[
                ("/x.js", "."),
                ("/static/x", "."),
                ("/static/x.js", "."),
                ("/favicon.ico", "."),
                ("/x/y", "a"),
                ("/static", "a"),
            ],
        ),
        // What is refused is refused, whatever comes after.
        (
            "location / { proxy_pass http://a; } location ~ \\.php$ { deny all; } location /in/ { return 403; } location ~ /\\.ht { deny all; }",
            &[("/x", "a"), ("/x.php", "-"), ("/in/x", "-"), ("/.htaccess", "-"), ("/a/.ht", "-")],
        ),
        (
            "location / { proxy_pass http://a; } location ~ /\\.(?!well-known) { deny all; }",
            &[("/x", "a"), ("/.git/config", "-"), ("/.well-known/x", "a")],
        ),
        ("location ~ ^/api/ { proxy_pass http://b; }", &[("/api/x", "b"), ("/api", ".")]),
        ("location ~ ^/(a|b)/ { proxy_pass http://b; } location /c/ { }", &[("/a/x", "b"), ("/c/x", ".")]),
        ("location ~ ^/a.*z$ { proxy_pass http://b; }", &[("/az", "b"), ("/a\nz", "."), ("/axz\n", "b")]),
    ] {
        let (site, named) = site(body);
        let (paths, expected): (Vec<&str>, Vec<&str>) = paths.iter().copied().unzip();
        assert_eq!(destinations(&site, &paths), expected, "{body}: {paths:?} {named:#?} {site}");
        assert!(marked(&named).is_empty(), "{body}: {named:#?}");
    }
}

#[test]
fn where_no_rule_has_the_paths_of_a_location_it_is_closed() {
    for (body, why) in [
        ("location ~ ^/(a|b)/ { proxy_pass http://b; } location ^~ /a/files/ { }", "takes a part of its paths"),
        ("location ~ \\.css$ { } location ~ ^/(a|b)/ { proxy_pass http://b; }", "takes a part of its paths"),
        ("location ~ ^/a { proxy_pass http://b; } location = /a.html { }", "takes a part of its paths"),
        ("location /a/ { proxy_pass http://b; } location ~ /[0-9]+ { }", "takes a part of its paths"),
        ("location /a/ { proxy_pass http://b/; } location /a/files/ { }", "its prefix is left out"),
        ("location /a { proxy_pass http://b/; }", "would replace the location's path"),
        ("location /a/ { proxy_pass http://b/v1; }", "would replace the location's path"),
        ("location /a/ { proxy_pass http://b/../; }", "would replace the location's path"),
        ("location /a { proxy_pass http://b/v1/; }", "would replace the location's path"),
        ("location = /a { proxy_pass http://b/healthz; }", "would replace the location's path"),
        ("location ~ \"^/(?!a)\" { proxy_pass http://b; }", "expression is not supported"),
        ("location /a/ { proxy_pass http://$backend; }", "has variables"),
        ("location /a/ { proxy_pass $scheme://b; }", "has variables"),
        ("location /a/ { proxy_pass http://b$uri; }", "has variables"),
        ("location /a/ { proxy_pass http://b:x; }", "no host with a port"),
        ("location /a/ { proxy_pass https://unix:/run/x.sock; }", "without TLS"),
        ("location /a/ { proxy_pass http://b; rewrite ^/a/x /y break; }", "its rewrite"),
        ("location /a/ { rewrite ^/a/(.*)$ /$1 last; proxy_pass http://b; }", "its rewrite"),
        ("location /a/ { proxy_pass http://b; location ~ \\.css$ { } }", "beside it"),
        ("location /a/ { proxy_pass http://b; return 204; }", "a return goes before"),
        ("location /a/ { proxy_pass http://empty; } } upstream empty { server 127.0.0.1:1 down;", "no server"),
    ] {
        let (site, named) = site(body);
        assert!(rules(&site).is_empty(), "{body}: {site}");
        assert!(
            named.iter().any(|line| line.contains(" is not forwarded: ") && line.contains(why)),
            "{body}: {named:#?}"
        );
        let is_closed =
            destinations(&site, &["/a/x"]) == ["-"] || body.contains("location = /a {") || body.contains("(?!a)");
        assert!(is_closed || body.contains("location ~"), "{body}: {site}");
        let is_closable = !body.contains("(?!a)");
        assert_eq!(marked(&named).is_empty(), is_closable, "{body}: {named:#?}");
    }
    for (body, is_closed) in [
        ("location ~ \\.html$ { proxy_pass http://b; }", true),
        ("location = /a/index.html { proxy_pass http://b; }", true),
        ("location /a/ind { proxy_pass http://b; }", true),
        ("index start.htm; location ~ \\.html$ { proxy_pass http://b; }", false),
        ("index start.htm; location ~ ^/a/start { proxy_pass http://b; }", true),
        ("location ~ \\.html$ { proxy_pass http://b; } location / { proxy_pass http://c; }", false),
        ("location ~ ^/a/ { proxy_pass http://b; }", false),
    ] {
        let (site, named) = site(body);
        let is_named = named.iter().any(|line| line.contains("index of a directory"));
        assert_eq!((is_named, rules(&site).is_empty()), (is_closed, is_closed), "{body}: {named:#?}");
    }
    // The whole site is not closed for one location: its files are marked.
    let (_, named) = site("location / { proxy_pass http://$b; } location /x/ { }");
    assert_eq!(marked(&named).len(), 1, "{named:#?}");
}

#[test]
fn a_url_tells_upstream_and_path() {
    // `proxy_pass`, and the keys of the rule.
    for (pass, path, upstream, strips, host) in [
        ("http://app", "/api/", "app", false, Some("app")),
        ("http://app/", "/api/", "app", true, Some("app")),
        ("http://app/api/", "/api/", "app", false, Some("app")),
        ("http://app/", "/", "app", false, Some("app")),
        ("http://app$request_uri", "/api/", "app", false, Some("app")),
        ("http://127.0.0.1:3000", "/api/", "http://127.0.0.1:3000", false, Some("upstream")),
        ("http://127.0.0.1:3000/", "/api/", "http://127.0.0.1:3000", true, Some("upstream")),
        ("http://[::1]:3000", "/api/", "http://[::1]:3000", false, Some("upstream")),
        ("http://app.internal", "/api/", "http://app.internal", false, Some("upstream")),
        ("http://unix:/run/app.sock", "/api/", "unix:/run/app.sock", false, Some("upstream")),
        ("http://unix:/run/app.sock:/", "/api/", "unix:/run/app.sock", true, Some("upstream")),
        ("https://app.internal:8443", "/api/", "https://app.internal:8443", false, Some("upstream")),
    ] {
        let (site, named) = site(&format!("location {path} {{ proxy_pass {pass}; proxy_redirect off; }}"));
        let [rule] = rules(&site)[..] else { panic!("{pass}: {site} {named:#?}") };
        assert_eq!(rule["path"].as_str(), Some(path), "{pass}");
        assert_eq!(rule["upstream"].as_str(), Some(upstream), "{pass}");
        assert_eq!(rule.get("strip_prefix").is_some(), strips, "{pass}");
        assert_eq!(rule.get("host").and_then(Value::as_str), host, "{pass}");
        assert_eq!(rule["max_body"].as_str(), Some("1MiB"), "{pass}");
        assert_eq!(named.len(), usize::from(pass.starts_with("https")), "{pass}: {named:#?}");
    }
}

#[test]
fn a_url_with_another_path_puts_it_before_the_rest() {
    for (pass, path, strips) in [("http://app/v1/", "/api/", true), ("http://app/v1/", "/", false)] {
        let (site, named) = site(&format!("location {path} {{ proxy_pass {pass}; proxy_redirect off; }}"));
        let [rule] = rules(&site)[..] else { panic!("{pass}: {site} {named:#?}") };
        assert_eq!(rule["to_prefix"].as_str(), Some("/v1"), "{path}");
        assert_eq!(rule.get("strip_prefix").is_some(), strips, "{path}");
        assert!(named.is_empty(), "{path}: {named:#?}");
    }
}

#[test]
fn a_rewrite_that_leaves_the_prefix_out_is_strip_prefix() {
    for rewrite in ["^/api/(.*)$ /$1", "^/api/(.*) /$1", "/api/(.*) /$1", "^/api(/.*)$ $1"] {
        let (site, named) =
            site(&format!("location /api/ {{ rewrite {rewrite} break; proxy_pass http://app; proxy_redirect off; }}"));
        let [rule] = rules(&site)[..] else { panic!("{rewrite}: {site} {named:#?}") };
        assert_eq!(rule["strip_prefix"].as_bool(), Some(true), "{rewrite}");
        assert!(named.is_empty() && site.get("rewrites").is_none(), "{rewrite}: {named:#?}");
    }
}

#[test]
fn fields_of_requests() {
    // Directives, the rule's host, its fields, and the starts of what is named.
    type Case = (&'static str, Option<&'static str>, &'static [(&'static str, &'static str)], &'static [&'static str]);
    let cases: &[Case] = &[
        ("", Some("app"), &[], &[]),
        ("proxy_set_header Host $host;", None, &[], &[]),
        ("proxy_set_header Host $http_host;", None, &[], &[]),
        ("proxy_set_header host $proxy_host;", Some("app"), &[], &[]),
        ("proxy_set_header Host $server_name;", Some("a.example"), &[], &[]),
        ("proxy_set_header Host app.internal;", Some("app.internal"), &[], &[]),
        ("proxy_set_header Host $arg_host;", None, &[], &["proxy_set_header"]),
        ("proxy_set_header Host \"\";", None, &[], &["proxy_set_header"]),
        (
            "proxy_set_header X-Real-IP $remote_addr; proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; \
             proxy_set_header X-Forwarded-Proto $scheme; proxy_set_header X-Forwarded-Host $host; proxy_set_header Host $host;",
            None,
            &[],
            &[],
        ),
        (
            "proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection $connection_upgrade;",
            Some("app"),
            &[],
            &[],
        ),
        ("proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection \"upgrade\";", Some("app"), &[], &[]),
        ("proxy_set_header Connection \"\";", Some("app"), &[], &[]),
        ("proxy_set_header Content-Length \"\";", Some("app"), &[], &["proxy_set_header"]),
        (
            "proxy_set_header X-Fixed yes; proxy_set_header Accept-Encoding \"\"; proxy_set_header X-Forwarded-Port $server_port; \
             proxy_set_header X-Scheme ${scheme}; proxy_set_header Cookie $http_cookie;",
            Some("app"),
            &[("X-Fixed", "yes"), ("Accept-Encoding", ""), ("X-Forwarded-Port", "443"), ("X-Scheme", "https")],
            &[],
        ),
        // A field that a client must not set.
        (
            "proxy_set_header X-Client-Verify $ssl_client_verify; proxy_set_header X-User $remote_user;",
            Some("app"),
            &[("X-Client-Verify", ""), ("X-User", "")],
            &["proxy_set_header X-Client-Verify", "proxy_set_header X-User"],
        ),
        ("proxy_set_header X-Forwarded-For $realip;", Some("app"), &[], &["proxy_set_header"]),
        ("proxy_set_header X-Forwarded-For \"\";", Some("app"), &[("X-Forwarded-For", "")], &[]),
    ];
    for (directives, host, expected, starts) in cases {
        let (site, named) = site(&format!("location / {{ proxy_pass http://app; {directives} }}"));
        let [rule] = rules(&site)[..] else { panic!("{directives}: {site} {named:#?}") };
        assert_eq!(rule.get("host").and_then(Value::as_str), *host, "{directives}");
        let fields = rule.get("request_headers").and_then(Value::as_array).into_iter().flatten();
        let fields: Vec<_> =
            fields.map(|field| (field["name"].as_str().unwrap(), field["value"].as_str().unwrap())).collect();
        assert_eq!(fields, *expected, "{directives}");
        assert_eq!(named.len(), starts.len(), "{directives}: {named:#?}");
        for (line, start) in named.iter().zip(*starts) {
            assert!(line.contains(&format!(": {start}")), "{directives}: {line}");
        }
        // A server's are inherited, unless the location has its own.
        let (inherited, _) = self::site(&format!("{directives} location / {{ proxy_pass http://app; }}"));
        assert_eq!(rules(&inherited)[0].get("request_headers"), rule.get("request_headers"), "{directives}");
        let (own, _) =
            self::site(&format!("{directives} location / {{ proxy_pass http://app; proxy_set_header X-Own 1; }}"));
        assert_eq!(rules(&own)[0]["request_headers"].to_string(), r#"[{ name = "X-Own", value = "1" }]"#);
    }
}

#[test]
fn answers_and_their_size() {
    let (site, named) = site(
        "client_max_body_size 10m; error_page 500 /50x.html; location = /50x.html { internal; } proxy_intercept_errors on; proxy_buffering off; \
         location / { proxy_pass http://app; proxy_hide_header X-Powered-By; proxy_pass_header Server; proxy_http_version 1.1; \
         proxy_request_buffering off; proxy_redirect off; proxy_cache off; add_header X-Frame-Options DENY; } \
         location ~ ^/(a|b)/ { proxy_pass http://app; add_header X-Ab 1; client_max_body_size 0; }",
    );
    assert!(named.is_empty(), "{named:#?}");
    let [of_regex, rule] = rules(&site)[..] else { panic!("{site}") };
    assert_eq!(rule["response_headers"].to_string(), r#"[{ name = "X-Powered-By", value = "" }]"#);
    assert_eq!(rule["intercept_errors"].as_bool(), Some(true));
    assert_eq!(rule["max_body"].as_str(), Some("10MiB"));
    assert_eq!(site["headers"][0]["set"]["X-Frame-Options"].as_str(), Some("DENY"));
    assert_eq!(of_regex["response_headers"].to_string(), r#"[{ name = "X-Ab", value = "1" }]"#);
    assert!(of_regex.get("max_body").is_none(), "{of_regex}");
}

#[test]
fn blocks_of_servers() {
    let server = "server { listen 443 ssl; server_name a; ssl_certificate c; ssl_certificate_key k; location / { proxy_pass http://app; } }";
    // The block, what the upstream has, and how many directives are named.
    for (block, expected, count) in [
        ("server 127.0.0.1:3000;", "servers = [{ url = \"http://127.0.0.1:3000\" }]", 0),
        (
            "server a:1 weight=3; server b:2 backup; server c:3 down; server unix:/run/x.sock;",
            "servers = [{ url = \"http://a:1\", weight = 3 }, { backup = true, url = \"http://b:2\" }, { url = \"unix:/run/x.sock\" }]",
            0,
        ),
        ("least_conn; server a;", "balance = \"least-connections\"", 0),
        ("ip_hash; server a;", "balance = \"hash-address\"", 0),
        ("hash $request_uri consistent; server a;", "balance = \"hash-uri\"", 0),
        ("hash $binary_remote_addr; server a;", "balance = \"hash-address\"", 0),
        ("hash $cookie_user; server a;", "name = \"app\"", 1),
        ("random two least_conn; server a;", "balance = \"two-choices\"", 0),
        ("keepalive 32; keepalive_timeout 20s; keepalive_requests 100; zone app 64k; server a;", "max_idle = 32", 0),
        ("keepalive 32; keepalive_timeout 20s; server a;", "idle_timeout = \"20s\"", 0),
        ("server a max_fails=2 fail_timeout=30s; server b max_fails=2 fail_timeout=30s;", "max_fails = 2", 0),
        ("server a max_fails=2 fail_timeout=30s;", "fail_time = \"30s\"", 0),
        ("server a max_fails=2; server b;", "max_fails = 2", 1),
        ("server a max_fails=0;", "name = \"app\"", 1),
        ("server a max_conns=9;", "name = \"app\"", 1),
        ("sticky cookie srv; server a;", "name = \"app\"", 1),
    ] {
        let (config, named) = import(&format!("upstream app {{ {block} }} {server}"));
        let [upstream] = &config["upstream"].as_array().unwrap()[..] else { panic!("{block}: {config}") };
        let text = toml::to_string(upstream).unwrap();
        let expected: toml::Table = expected.parse().unwrap();
        for (key, value) in &expected {
            assert_eq!(upstream.get(key), Some(value), "{block}: {text}");
        }
        assert_eq!(named.len(), count, "{block}: {named:#?}");
        assert!(config["site"][0].get("root").is_none(), "{block}");
    }
}

#[test]
fn times_tries_and_tls_belong_to_the_upstream() {
    let (config, named) = import(
        "upstream app { server a.internal; }\nserver { listen 443 ssl; server_name a; ssl_certificate c; ssl_certificate_key k;\n\
         proxy_connect_timeout 2s;\n\
         location / { proxy_pass http://app; proxy_connect_timeout 3s; proxy_read_timeout 5m; proxy_send_timeout 9s; }\n\
         location /b/ { proxy_pass http://app; proxy_next_upstream off; }\n\
         location /c/ { proxy_pass http://app; proxy_next_upstream_tries 2; proxy_next_upstream error http_502; }\n\
         location /d/ { proxy_pass http://app; proxy_next_upstream off; }\n\
         location /e/ { proxy_pass https://app; proxy_ssl_verify on; proxy_ssl_trusted_certificate ca.pem; proxy_ssl_name x.internal;\n\
         proxy_ssl_certificate /c.pem; proxy_ssl_certificate_key /k.pem; proxy_ssl_server_name on; }\n\
         location /f/ { proxy_pass http://127.0.0.1:9; } }",
    );
    let upstreams: Vec<&toml::Table> =
        config["upstream"].as_array().unwrap().iter().filter_map(Value::as_table).collect();
    let names: Vec<_> = upstreams.iter().map(|upstream| upstream["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["app", "app-2", "app-3", "app-4", "127.0.0.1:9"]);
    assert_eq!(
        (upstreams[0]["connect_timeout"].as_str(), upstreams[0]["answer_timeout"].as_str()),
        (Some("3s"), Some("300s"))
    );
    assert_eq!(
        (upstreams[0]["stall_timeout"].as_str(), upstreams[0]["tunnel_timeout"].as_str()),
        (Some("300s"), Some("300s"))
    );
    assert_eq!((upstreams[1]["tries"].as_integer(), upstreams[1]["connect_timeout"].as_str()), (Some(1), Some("2s")));
    assert_eq!(upstreams[2]["tries"].as_integer(), Some(2));
    assert_eq!(
        upstreams[3]["tls"].to_string(),
        r#"{ roots = "ca.pem", server_name = "x.internal", cert = "/c.pem", key = "/k.pem" }"#
    );
    // nginx asks port 80 of a block, even with TLS.
    assert_eq!(upstreams[3]["servers"][0]["url"].as_str(), Some("https://a.internal:80"));
    let of = |path: &str| {
        let rules = config["site"][0]["proxy"].as_array().unwrap();
        rules.iter().find(|rule| rule["path"].as_str() == Some(path)).unwrap()["upstream"].as_str().unwrap()
    };
    assert_eq!(["/", "/b/", "/c/", "/d/", "/f/"].map(of), ["app", "app-2", "app-3", "app-2", "127.0.0.1:9"]);
    assert_eq!(named.len(), 1, "{named:#?}");
    assert!(named[0].contains("proxy_next_upstream error http_502"), "{named:#?}");
}

#[test]
fn files_go_before_a_named_location() {
    for (body, is_first, count) in [
        ("location / { try_files $uri @app; }", true, 0),
        ("location / { try_files $uri $uri/ @app; }", true, 0),
        ("location / { try_files $uri/index.html $uri @app; }", true, 0),
        ("try_files $uri @app;", true, 0),
        ("location / { try_files /nonexistent @app; }", false, 0),
        ("location / { try_files /maintenance.html $uri @app; }", true, 1),
        ("location / { try_files $uri $uri.html @app; }", true, 0),
        ("location / { try_files $uri.html @app; }", false, 1),
    ] {
        let (site, named) =
            site(&format!("{body} location @app {{ proxy_pass http://app; proxy_set_header Host $host; }}"));
        let [rule] = rules(&site)[..] else { panic!("{body}: {site} {named:#?}") };
        assert_eq!(rule.get("files_first").is_some(), is_first, "{body}");
        assert_eq!(rule["path"].as_str(), Some("/"), "{body}");
        assert!(rule.get("host").is_none(), "{body}: {rule}");
        assert_eq!(named.len(), count, "{body}: {named:#?}");
    }
    let body =
        "error_page 404 =200 /x.html; location / { try_files $uri @app; } location @app { proxy_pass http://app; }";
    assert!(rules(&site(body).0).is_empty());
}

#[test]
fn what_guards_a_forwarded_location_is_a_rule_or_marked() {
    // A location that forwards, the starts of what is marked, and where /x/y goes.
    for (guard, marks, goes_to) in [
        ("deny all;", &[][..], "-"),
        ("internal;", &[], "-"),
        ("allow 10.0.0.0/8; deny all;", &[], "app"),
        ("auth_basic x; auth_basic_user_file p;", &[], "app"),
        ("satisfy any; allow 10.0.0.0/8; deny all; auth_basic x; auth_basic_user_file p;", &[], "app"),
        ("auth_request /auth;", &["auth_request"], "app"),
        ("auth_request off;", &[], "app"),
        ("limit_except GET { deny all; }", &[], "app"),
        ("limit_except POST { deny all; }", &[], "app"),
        ("limit_except GET POST { allow 10.0.0.0/8; deny all; }", &["limit_except"], "app"),
        ("if ($request_method = POST) { return 405; }", &["if"], "app"),
        ("if ($cookie_user = \"\") { return 403; }", &["if"], "app"),
        ("access_by_lua_block { x }", &["access_by_lua_block"], "app"),
        ("valid_referers none;", &["valid_referers"], "app"),
        ("location /x/y { deny all; }", &[], "-"),
        ("location ~ y$ { deny all; }", &["location ~"], "app"),
    ] {
        let (converted, named) = site(&format!("location /x/ {{ proxy_pass http://app; {guard} }}"));
        let marked = marked(&named);
        assert_eq!(marked.len(), marks.len(), "{guard}: {named:#?}");
        for (line, start) in marked.iter().zip(marks) {
            assert!(line.contains(&format!(": {start}")), "{guard}: {line}");
        }
        // Rules for networks are compared by the key alone.
        let has = |key: &str| converted.get(key).is_some();
        assert_eq!(
            has("access"),
            guard.contains("deny all;") && !guard.contains("limit_except") && !guard.contains("~ y$")
                || guard == "internal;",
            "{guard}"
        );
        assert_eq!(has("basic_auth"), guard.contains("auth_basic"), "{guard}");
        assert_eq!(
            !rules(&converted).is_empty(),
            goes_to == "app" || guard.starts_with("location"),
            "{guard}: {converted}"
        );
    }
    let (limited, _) = site("location /x/ { proxy_pass http://app; limit_except GET POST { deny all; } }");
    assert_eq!(rules(&limited)[0]["methods"], vec!["GET", "POST"].into());
    // Those of the named location count as well.
    let named = "location /x/ { try_files $uri @app; } location @app { proxy_pass http://app; auth_basic x; auth_basic_user_file p; }";
    assert!(site(named).0.get("basic_auth").is_some());
}

#[test]
fn servers_that_are_asked_whether_a_request_may_pass_become_rules_or_are_marked() {
    const AUTH: &str = "location = /auth { internal; proxy_pass http://127.0.0.1:9091/verify; proxy_pass_request_body off; \
        proxy_set_header Content-Length ''; proxy_set_header X-Original-URI $request_uri; proxy_set_header X-Real-IP $remote_addr; }";
    let rule = |body: &str| {
        let (site, named) = site(&format!("{AUTH} {body}"));
        let rules: Vec<_> = site.get("forward_auth").and_then(Value::as_array).into_iter().flatten().cloned().collect();
        (rules, site, named)
    };
    let to = |rule: &Value| rule["to"].as_str().unwrap().to_owned();
    let path = |rule: &Value| rule.get("path").or(rule.get("regex")).unwrap().as_str().unwrap().to_owned();
    for (body, paths) in [
        ("location /x/ { auth_request /auth; }", &["/x/"][..]),
        ("location /x/ { auth_request /auth; proxy_pass http://app; }", &["/x/"]),
        ("location ~ \\.pdf$ { auth_request /auth; }", &["\\.pdf(?:\\n?$)"]),
        ("auth_request /auth; location / { proxy_pass http://app; }", &["/"]),
        (
            "location /x/ { try_files $uri @app; } location @app { auth_request /auth; proxy_pass http://app; }",
            &["/x/"],
        ),
    ] {
        let (rules, site, named) = rule(body);
        assert_eq!(rules.iter().map(path).collect::<Vec<_>>(), paths, "{body}: {site} {named:#?}");
        assert!(rules.iter().all(|rule| to(rule) == "http://127.0.0.1:9091/verify"), "{body}");
        assert!(marked(&named).is_empty(), "{body}: {named:#?}");
        // What is asked is closed to clients.
        assert_eq!(destinations(&site, &["/auth"]), ["-"]);
    }
    let (rules, site, ..) = rule(
        "auth_request /auth; auth_request_set $user $upstream_http_x_user; auth_request_set $mail $upstream_http_mail; \
         location / { proxy_pass http://app; proxy_set_header X-User $user; proxy_set_header X-Mail $mail; } \
         location /open/ { auth_request off; }",
    );
    assert_eq!((&rules[0]["copy"], &rules[0]["except"]), (&vec!["X-User"].into(), &vec!["/open/"].into()));
    // A field under another name is removed, so that no client sets it.
    let fields = rules_of(&site);
    assert_eq!(fields, ["X-Mail"]);
    let (site, _) = self::site("location = /auth { proxy_pass http://app; } location /x/ { auth_request /auth; }");
    let rule_of_block = &site["forward_auth"][0];
    assert_eq!((rule_of_block["upstream"].as_str(), rule_of_block["to"].as_str()), (Some("app"), Some("/auth")));
    let (site, _) =
        self::site("location = /auth { proxy_pass http://unix:/run/a.sock:/v; } location /x/ { auth_request /auth; }");
    assert_eq!(site["forward_auth"][0]["to"].as_str(), Some("unix:/run/a.sock:/v"));
    for auth in [
        "",
        "location = /auth { return 200; }",
        "location = /auth { fastcgi_pass 127.0.0.1:9000; }",
        "location = /auth { proxy_pass http://$auth; }",
        "location = /auth { proxy_pass http://a; proxy_set_header X-User $remote_user; }",
        "location = /auth { proxy_pass http://a; proxy_set_header Host $host; }",
        "location = /auth { proxy_pass http://a; proxy_method POST; }",
        "location ~ /auth { proxy_pass http://a; }",
    ] {
        let (site, named) = self::site(&format!("{auth} location /x/ {{ auth_request /auth; }}"));
        assert!(site.get("forward_auth").is_none(), "{auth}: {site}");
        assert!(marked(&named).iter().any(|line| line.contains("auth_request /auth")), "{auth}: {named:#?}");
    }
}

/// The names of the fields that the first rule removes from requests.
fn rules_of(site: &toml::Table) -> Vec<&str> {
    let fields = rules(site)[0].get("request_headers").and_then(Value::as_array).into_iter().flatten();
    fields.map(|field| field["name"].as_str().unwrap()).collect()
}

#[test]
fn what_has_no_counterpart_is_named() {
    for directive in [
        "proxy_redirect http://other/ /;",
        "proxy_redirect ~^http://[^/]+/(.*) /$1;",
        "proxy_cookie_path / /app/;",
        "proxy_cookie_flags ~ secure;",
        "proxy_cookie_domain a b;",
        "proxy_cache zone;",
        "proxy_method POST;",
        "proxy_bind 10.0.0.1;",
        "proxy_pass_request_headers off;",
        "proxy_next_upstream_timeout 3s;",
        "proxy_ssl_crl x;",
        "proxy_set_body x;",
    ] {
        let (site, named) = site(&format!("location / {{ proxy_pass http://app; {directive} }}"));
        assert_eq!((rules(&site).len(), named.len()), (1, 1), "{directive}: {named:#?}");
        assert!(named[0].contains(directive) && !named[0].contains("unknown"), "{directive}: {named:#?}");
    }
    let (_, named) = site("error_page 502 @down; location @down { proxy_pass http://app; }");
    assert!(named.iter().any(|line| line.contains("reached by try_files alone")), "{named:#?}");
    let http = "map $http_upgrade $connection_upgrade { default upgrade; '' close; } proxy_redirect off; proxy_cache_path /x keys_zone=a:1m;";
    let (_, named) = import(http);
    assert!(named.is_empty(), "{named:#?}");
}

#[test]
fn how_long_clients_keep_an_answer_is_set_where_that_is_right_for_errors_too() {
    let cases = [
        ("location / { proxy_pass http://app; expires -1; }", Some("no-cache"), 0),
        ("location / { proxy_pass http://app; expires epoch; }", Some("no-cache"), 0),
        ("location / { proxy_pass http://app; expires off; }", None, 0),
        ("location / { proxy_pass http://app; add_header Cache-Control no-store; }", Some("no-store"), 0),
        ("expires -1; location / { proxy_pass http://app; }", Some("no-cache"), 0),
        ("expires 1h; location / { proxy_pass http://app; expires off; }", None, 0),
        ("location ~ ^/(a|b)x { proxy_pass http://app; expires -1; }", Some("no-cache"), 0),
        (
            "location / { try_files $uri @app; expires 1h; } location @app { proxy_pass http://app; expires -1; }",
            Some("no-cache"),
            0,
        ),
        // 404 and 500 would be kept as long.
        ("location / { proxy_pass http://app; expires 1h; }", None, 1),
        ("expires 1h; location / { proxy_pass http://app; } location /a/ { proxy_pass http://app; }", None, 1),
        ("location / { proxy_pass http://app; add_header Cache-Control 'public, max-age=60'; }", None, 1),
        ("location / { proxy_pass http://app; add_header Cache-Control public; expires -1; }", None, 1),
        ("location / { proxy_pass http://app; expires $expires; }", None, 1),
        ("location ~ ^/(a|b)x { proxy_pass http://app; expires 1h; }", None, 1),
    ];
    for (body, expected, names) in cases {
        let (site, named) = site(body);
        let of_rule = rules(&site)[0].get("response_headers").and_then(Value::as_array).cloned().unwrap_or_default();
        let mut set = of_rule.iter().filter(|field| field["name"].as_str() == Some("Cache-Control"));
        assert_eq!(set.next().map(|field| field["value"].as_str().unwrap()), expected, "{body}");
        assert_eq!(named.len(), names, "{body}: {named:#?}");
        assert!(named.iter().all(|line| line.contains("response_headers")), "{body}: {named:#?}");
    }
    let (_, named) = site("location / { proxy_pass http://app; expires 1h; }");
    assert!(named[0].contains(r#"{ name = "Cache-Control", value = "max-age=3600" }"#), "{named:#?}");
    // Of files alone.
    let (site, _) = site("location / { proxy_pass http://app; expires 1h; } location /static/ { expires 1d; }");
    assert_eq!(site["cache_control"].as_array().map(Vec::len), Some(1), "{site}");
}

#[test]
fn failures_of_servers_are_logged_where_nginx_logs_them() {
    for (level, expected) in
        [("", "warn"), ("error", "warn"), ("warn", "warn"), ("notice", "warn"), ("info", "info"), ("crit", "error")]
    {
        let (config, named) = import(&format!("error_log /var/log/nginx/error.log {level};"));
        assert_eq!((config["server"]["log"].as_str(), named.len()), (Some(expected), 0), "{level}");
    }
}

#[test]
fn a_location_that_only_purges_takes_nothing_from_others() {
    let purge =
        "location ~ /purge(/.*) { allow 127.0.0.1; allow 10.0.0.0/8; deny all; proxy_cache_purge app $host$1; }";
    for before in [true, false] {
        let main = "location / { proxy_pass http://app; }";
        let (site, named) = match before {
            true => site(&format!("{purge} {main}")),
            false => site(&format!("{main} {purge}")),
        };
        assert_eq!(destinations(&site, &["/", "/a", "/purge/a"]), ["app"; 3]);
        assert_eq!((named.len(), marked(&named).len()), (1, 0), "{named:#?}");
        assert!(named[0].contains(r#"purge_from = ["127.0.0.1", "10.0.0.0/8"]"#), "{named:#?}");
    }
    // One that forwards too, or sends files, is no such location.
    let (site, named) = site(
        "location / { proxy_pass http://app; proxy_cache_purge PURGE from 127.0.0.1; } location /p/ { deny all; }",
    );
    assert_eq!(
        (destinations(&site, &["/", "/p/"]), named.len()),
        (vec!["app".to_owned(), "-".to_owned()], 1),
        "{named:#?}"
    );
}

#[test]
fn a_rewrite_may_lead_to_what_is_forwarded() {
    let (site, named) =
        site("rewrite ^/old/(.*)$ /new/$1 last; rewrite ^/p$ /index.php last; location / { proxy_pass http://app; }");
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(site["rewrites"].as_array().map(Vec::len), Some(2));
    let (site, _) =
        self::site("rewrite ^/old$ /in/x last; location / { proxy_pass http://app; } location /in/ { deny all; }");
    assert_eq!(site["rewrites"][0]["to"].as_str(), Some("/.refused"));
}
