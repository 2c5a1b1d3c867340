//! Guards keep their requests, however a configuration leads around them.

use super::tests::{converted, is, routes};

/// The keys of the guards of a location without loss.
#[track_caller]
fn access(location: &str) -> String {
    let all = routes("", &format!("auth_basic_user_file /h; location / {{ {location} }}"));
    all[0].get("access").map(ToString::to_string).unwrap_or_default()
}

#[test]
fn clients_that_no_rule_matches_are_asked_by_the_other_guards() {
    let everyone = r#"["0.0.0.0/0", "::/0"]"#;
    for (rules, expected) in [
        ("allow 10.0.0.0/8;", r#"{ allow = ["10.0.0.0/8"] }"#.to_owned()),
        ("allow 10.0.0.0/8; deny all;", r#"{ allow = ["10.0.0.0/8"] }"#.to_owned()),
        ("deny 203.0.113.9;", format!("{{ deny = {everyone} }}")),
        ("deny 203.0.113.9; allow all;", r#"{ deny = ["203.0.113.9"] }"#.to_owned()),
        (
            "deny 203.0.113.9; allow 203.0.113.0/24;",
            r#"{ allow = ["203.0.113.0/24"], deny = ["203.0.113.9"] }"#.to_owned(),
        ),
        ("allow all;", format!("{{ allow = {everyone} }}")),
    ] {
        assert_eq!(access(&format!("satisfy any; {rules} auth_basic x;")), expected, "{rules}");
    }
    // Without another guard, they pass.
    assert_eq!(access("satisfy any; allow 10.0.0.0/8;"), format!("{{ allow = {everyone} }}"));
    assert_eq!(access("satisfy any; allow 10.0.0.0/8; auth_basic off;"), format!("{{ allow = {everyone} }}"));
    assert_eq!(access("satisfy all; deny 203.0.113.9; auth_basic x;"), r#"{ deny = ["203.0.113.9"] }"#);
}

#[test]
fn rules_around_a_location_mean_what_its_other_guards_make_of_them() {
    let server =
        "satisfy any; allow 10.0.0.0/8; auth_basic_user_file /h; location /a/ { auth_basic x; } location /b/ { }";
    let (site, _, named) = converted("", server);
    assert!(named.is_empty(), "{named:#?}");
    assert_eq!(site["access"].to_string(), r#"{ allow = ["0.0.0.0/0", "::/0"] }"#);
    assert_eq!(site["route"][0]["access"].to_string(), r#"{ allow = ["10.0.0.0/8"] }"#);
    assert!(site["route"][1].get("access").is_none());
    let server = "satisfy any; allow 10.0.0.0/8; auth_basic x; auth_basic_user_file /h; location / { satisfy all; }";
    let (site, ..) = converted("", server);
    assert_eq!(site["access"].to_string(), r#"{ allow = ["10.0.0.0/8"] }"#);
    assert_eq!(site["route"][0]["access"].to_string(), r#"{ allow = ["0.0.0.0/0", "::/0"] }"#);
}

#[test]
fn a_return_behind_rewrites_takes_no_guard_away() {
    let guard = |rest: &str| {
        routes(
            "",
            &format!(
                "auth_basic x; auth_basic_user_file /h; location / {{ allow 10.0.0.1; deny all; {rest} return 404; }}"
            ),
        )
    };
    for rewrite in [
        "rewrite ^/a/(.*)$ /b/$1 break;",
        "rewrite ^/a/(.*)$ /b/$1 last;",
        "if ($arg_x) { rewrite ^/a/(.*)$ /b/$1 break; }",
    ] {
        let all = guard(rewrite);
        assert!(all[0].get("basic_auth").is_none(), "{rewrite}");
        assert_eq!(all[0]["access"].to_string(), r#"{ allow = ["10.0.0.1"] }"#, "{rewrite}");
    }
    for rewrite in ["", "rewrite ^/a/(.*)$ /b/$1 permanent;", "if ($arg_x) { return 410; }"] {
        assert_eq!(guard(rewrite)[0]["basic_auth"].as_bool(), Some(false), "{rewrite}");
    }
}

#[test]
fn a_refusal_is_not_for_the_routes_within() {
    let all = routes("", "location /a/ { rewrite ^/a/(.*)$ /b/$1 last; return 403; }");
    assert_eq!(all[0]["respond"].as_integer(), Some(403));
    assert!(all[0].get("deny").is_none());
    let all = routes("", "location /a/ { return 403; location /a/b/ { return 204; } }");
    assert!(all[0].get("deny").is_none());
    let all = routes("", "location /a/ { if ($arg_x) { return 403; } return 204; }");
    assert_eq!(all[0]["route"][0]["deny"].as_bool(), Some(true));
}

#[test]
fn a_rewrite_of_a_server_leads_past_its_return() {
    let server = "auth_basic x; auth_basic_user_file /h; rewrite ^/keep/(.*)$ /private/$1 last; return 301 https://b.example$request_uri; \
                  location /private/ { return 204; }";
    let (site, _, named) = converted("", server);
    assert!(named.is_empty(), "{named:#?}");
    assert!(site.get("basic_auth").is_some());
    is(&site["route"][0], "path = '~ ^/keep/(.*)$'\nrewrite = '/private/{1}'\nunless_rewritten = true");
    is(
        &site["route"][1],
        "path = '~ /'\nredirect = { to = 'https://b.example{uri}', status = 301 }\nunless_rewritten = true\nbasic_auth = false",
    );
    assert_eq!(site["route"][2]["route"][0]["path"].as_str(), Some("/private/*"));
}

#[test]
fn a_condition_of_a_certificate_closes_its_part() {
    let (site, _, named) =
        converted("", "if ($ssl_client_verify != SUCCESS) { return 403; } location / { return 204; }");
    assert!(named.len() == 1 && named[0].contains("client_auth"), "{named:#?}");
    is(&site["route"][0], "path = '~ ^/'\ndeny = true");
    assert_eq!(site["route"].as_array().map(Vec::len), Some(1));
    let (site, ..) = converted("", "location / { if ($ssl_client_s_dn !~ CN=a) { return 302 /login; } return 204; }");
    is(&site["route"][0]["route"][0], "path = '~ ^/'\ndeny = true");
}

#[test]
fn the_user_of_a_password_is_a_placeholder_where_the_password_is_checked() {
    let field = |guards: &str| {
        let server = format!(
            "auth_basic_user_file /h; location / {{ {guards} proxy_pass http://a; proxy_set_header X-User $remote_user; }}"
        );
        let (site, _, named) = converted("", &server);
        let value = site["route"][0]["proxy"]["request_headers"][0]["value"].as_str().unwrap().to_owned();
        (value, named.len())
    };
    assert_eq!(field("auth_basic x;"), ("{user}".to_owned(), 0));
    // nginx takes the name from the request, and no password was checked.
    for guards in ["", "auth_basic off;", "auth_basic x; satisfy any; allow 10.0.0.0/8; deny all;"] {
        assert_eq!(field(guards), (String::new(), 1), "{guards}");
    }
}

#[test]
fn variables_that_the_server_makes_are_named_where_they_differ() {
    let lost = |param: &str| {
        let server =
            format!("root /srv; location ~ \\.php$ {{ fastcgi_pass unix:/run/php.sock; fastcgi_param {param}; }}");
        converted("", &server).2.len()
    };
    for param in [
        "SERVER_NAME $http_x_name",
        "REMOTE_USER ada",
        "REMOTE_ADDR $http_x_real_ip",
        "SERVER_PORT 443",
        "HTTPS $http_x_https",
    ] {
        assert_eq!(lost(param), 1, "{param}");
    }
    for param in [
        "SERVER_NAME $server_name",
        "REMOTE_USER $remote_user",
        "REMOTE_ADDR $remote_addr",
        "HTTPS on",
        "HTTPS $https if_not_empty",
    ] {
        assert_eq!(lost(param), 0, "{param}");
    }
}

#[test]
fn the_second_page_of_a_chain_is_named() {
    let server = "recursive_error_pages on; error_page 404 @a; location @a { error_page 502 @b; proxy_pass http://10.0.0.1; } location @b { return 204; }";
    let (.., named) = converted("", server);
    assert!(named.iter().any(|line| line.contains("name the last page")), "{named:#?}");
    let (.., named) = converted("", &server.replace("recursive_error_pages on;", ""));
    assert!(named.is_empty(), "{named:#?}");
}

/// A refused client gets only what a location returns by itself.
#[test]
fn a_page_that_an_application_makes_is_named_where_a_guard_refuses() {
    let pages = "location @made { proxy_pass http://10.0.0.1; } location @said { return 302 /; }";
    for (block, is_named) in [
        ("location /a/ { deny all; error_page 403 @made; }", true),
        ("location /a/ { deny all; error_page 403 = @said; }", false),
        ("location /a/ { deny all; error_page 404 @made; }", false),
        ("location /a/ { deny all; error_page 401 @made; }", false),
        ("location /a/ { auth_basic x; auth_basic_user_file /h; error_page 401 403 @made; }", true),
        ("location /a/ { auth_basic off; error_page 401 403 @made; }", false),
        ("error_page 403 @made; location /a/ { deny all; }", true),
        ("error_page 403 @made; location /a/ { deny all; error_page 403 @said; }", false),
    ] {
        let (.., named) = converted("", &format!("{pages} {block}"));
        assert_eq!(named.iter().any(|line| line.contains("without @made")), is_named, "{block}: {named:#?}");
    }
}

#[test]
fn the_port_is_of_the_listener() {
    let condition = |listens: &str| {
        let server = format!("{listens} if ($server_port = 81) {{ return 403; }} location / {{ return 204; }}");
        let (site, _, named) = converted("", &server);
        let first = site["route"][0].get("match").map(ToString::to_string).unwrap_or_default();
        (first, named.iter().any(|line| line.contains("UNGUARDED")))
    };
    assert_eq!(condition("listen 80; listen 81;"), (String::new(), true), "it is not known");
    let by_scheme = r#"{ scheme = "http" }"#.to_owned();
    assert_eq!(condition("listen 81;"), (by_scheme, false));
}

#[test]
fn differences_without_a_counterpart_are_told() {
    for (http, server, words) in [
        ("merge_slashes off;", "location / { return 204; }", "slashes behind one another"),
        ("underscores_in_headers on;", "location / { return 204; }", "UNGUARDED: $http_x_y"),
        (
            "",
            "location / { if ($arg_x) { set $y 1; } try_files $uri =404; proxy_pass http://127.0.0.1:1; }",
            "nginx leaves try_files out",
        ),
        (
            "limit_conn_zone $server_name zone=all:1m;",
            "location / { try_files $uri @app; } location @app { limit_conn all 3; proxy_pass http://127.0.0.1:1; }",
            "requests in progress are counted where the client asks",
        ),
        ("", "location / { if ($arg_x) { break; } return 403; rewrite ^ /x last; }", "it applies behind break too"),
    ] {
        let (.., named) = converted(http, server);
        assert!(named.iter().any(|line| line.contains(words)), "{server}: {named:#?}");
    }
}

/// How a server with these directives is marked: `closed`, `UNGUARDED`, `named`, or `equal`.
fn mark(http: &str, server: &str) -> &'static str {
    let (.., named) = converted(http, server);
    let has = |mark: &str| named.iter().any(|line| line.contains(mark));
    match (has("closed: "), has("UNGUARDED: "), named.is_empty()) {
        (true, ..) => "closed",
        (_, true, _) => "UNGUARDED",
        (_, _, true) => "equal",
        _ => "named",
    }
}

#[test]
fn a_variable_that_a_rewrite_would_change_asks_nothing() {
    let asks = "location /b/ { if ($x) { return 403; } proxy_pass http://10.0.0.1; }";
    let (last, with_query) =
        ("location /a/ { rewrite ^/a/(.*)$ /b/$1 last; }", "location /a/ { rewrite ^ /b/?y=1 last; }");
    for (server, rewrite, expected) in [
        ("set $x 0; if ($uri ~ ^/a/) { set $x 1; }", last, "closed"),
        ("set $x 0; if (!-f $request_filename) { set $x 1; }", last, "closed"),
        ("set $x $uri;", last, "closed"),
        ("set $x $of_path;", last, "closed"),
        ("set $x $uri;", "rewrite ^/a/(.*)$ /b/$1;", "closed"),
        ("set $x $arg_k;", with_query, "closed"),
        // A rewrite without a query keeps the query.
        ("set $x $arg_k;", last, "equal"),
        ("set $x 0; if ($request_uri ~ ^/a/) { set $x 1; }", last, "equal"),
        ("set $x $http_x_k;", with_query, "equal"),
        ("set $x $uri;", "location /a/ { rewrite ^ /b/ redirect; }", "equal"),
    ] {
        let server = format!("root /srv; {server} {rewrite} {asks}");
        assert_eq!(mark("map $uri $of_path { ~^/a/ 1; }", &server), expected, "{server}");
    }
    let server = format!("root /srv; set $x $uri; {last} location /b/ {{ set $x 1; if ($x) {{ return 403; }} }}");
    assert_eq!(mark("", &server), "equal");
}

#[test]
fn a_table_of_the_path_or_the_query_asks_nothing_where_another_one_is_known() {
    let http = "map $args $of_query { ~v 1; } map $uri $of_path { ~^/b/ 1; }";
    for (location, expected) in [
        ("set $args v=2; if ($of_query) { return 403; }", "closed"),
        ("if ($http_x_k) { set $args v=2; } if ($of_query) { return 403; }", "closed"),
        ("if ($http_x_k) { set $args v=2; } if ($arg_v) { return 403; }", "closed"),
        ("if ($of_query) { return 403; } set $args v=2;", "equal"),
        ("rewrite ^/a/(.*)$ /b/$1; if ($of_path) { return 403; }", "closed"),
        ("if ($of_path) { return 403; } rewrite ^/a/(.*)$ /b/$1;", "equal"),
    ] {
        let server = format!("location /a/ {{ {location} proxy_pass http://10.0.0.1; }}");
        assert_eq!(mark(http, &server), expected, "{location}");
    }
}

#[test]
fn forms_that_nginx_refuses_and_a_route_does_not_are_named() {
    for (server, expected) in [
        // The condition has no files to try.
        ("if ($arg_z) { add_header X 1; } rewrite ^/a/(.*)$ /b/$1?; break; try_files /x$uri /y/x;", "closed"),
        ("rewrite ^/a/(.*)$ /b/$1?; break; try_files /x$uri /y/x;", "equal"),
        ("error_page 403 =200 /b; if ($arg_z) { error_page 500 /50x; } deny all;", "UNGUARDED"),
        ("error_page 403 = @b; if ($arg_z) { return 403; } proxy_pass http://10.0.0.1;", "named"),
        ("try_files /f$arg_f/ =403;", "named"),
        // The query of a condition.
        ("set $args z=1; fastcgi_pass 127.0.0.1:9000;", "named"),
        ("if ($arg_k) { set $args z=1; } return 302 /x$is_args$args;", "closed"),
        ("if ($arg_k) { set $args z=1; } rewrite ^ /b last;", "closed"),
        ("if ($arg_k) { set $args z=1; } rewrite ^ /b? last;", "equal"),
        ("add_header Set-Cookie z=1; proxy_pass http://10.0.0.1;", "named"),
    ] {
        let whole = format!("root /srv; location /a/ {{ {server} }} location @b {{ proxy_pass http://10.0.0.2; }}");
        assert_eq!(mark("", &whole), expected, "{server}");
    }
    assert_eq!(mark("", "location ~ ^/b/(.*)$ { alias /srv/; }"), "closed");
    assert_eq!(mark("", "location ~ ^/b/(.*)$ { alias /srv/$1; }"), "equal");
}

#[test]
fn a_rule_of_ipv6_alone_refuses_no_client_of_ipv4() {
    for (rules, expected) in [
        ("allow ::1; deny ::/0;", "UNGUARDED"),
        ("deny ::ffff:10.0.0.0/104;", "UNGUARDED"),
        ("deny 2001:db8::/32;", "equal"),
        ("allow 10.0.0.0/8; deny ::/0;", "equal"),
        ("allow ::1; deny all;", "equal"),
    ] {
        assert_eq!(mark("", &format!("location / {{ {rules} }}")), expected, "{rules}");
    }
}

#[test]
fn the_scheme_that_an_application_is_told_is_the_scheme_of_the_client() {
    let http = "server { listen 80; server_name b.example; location / { proxy_set_header X-Forwarded-Proto https; proxy_pass http://10.0.0.1; } }";
    let (root, _) = super::tests::import(http);
    let fields = root["site"][0]["route"][0]["proxy"]["request_headers"].to_string();
    assert_eq!(fields, r#"[{ name = "X-Forwarded-Proto", value = "https" }]"#);
    let all = routes("", "location / { proxy_set_header X-Forwarded-Proto https; proxy_pass http://10.0.0.1; }");
    assert!(all[0]["proxy"].get("request_headers").is_none());
}
