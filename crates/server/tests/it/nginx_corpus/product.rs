//! Each guard of a location beside each action, under each sign: no action loses a guard.

use std::fmt::Write;

use super::idioms::{Places, is_opened};

/// Each refuses a request with `X-Stop: 1`, a referer of another site and the query `?stop`; `limit_except` the method DELETE.
const GUARDS: [&str; 12] = [
    "if ($http_x_stop = 1) { return 403; }",
    "if ($http_x_stop = 1) { return 444; }",
    "limit_except GET { deny all; }",
    "limit_except GET { auth_basic x; auth_basic_user_file @DIR@/htpasswd; }",
    "deny all;",
    "auth_basic x; auth_basic_user_file @DIR@/htpasswd;",
    "auth_request /status-401;",
    "internal;",
    r"location ~ \.sec$ { deny all; }",
    "valid_referers none a.test; if ($invalid_referer) { return 403; }",
    "set $stop 0; if ($http_x_stop = 1) { set $stop 1; } if ($stop) { return 403; }",
    "if ($request_uri ~ stop) { return 403; }",
];

const ACTIONS: [&str; 21] = [
    "",
    "try_files $uri @app;",
    "try_files $uri $uri/index.html @app;",
    "try_files $uri $uri/ /x.php;",
    "proxy_pass http://@ORIGIN@/;",
    "proxy_pass http://@ORIGIN@/b;",
    "proxy_pass http://@ORIGIN@;",
    "rewrite ^/[^/]+(.*)$ /q$1 break; proxy_pass http://@ORIGIN@;",
    "rewrite ^/[^/]+(.*)$ /public$1 last;",
    "rewrite ^/[^/]+(.*)$ /docs$1 break;",
    "alias @DIR@/www/docs/;",
    "alias @DIR@/www/docs;",
    "alias @DIR@/www/docs/; try_files $uri @app;",
    "alias @DIR@/www/docs; try_files $uri @app;",
    "autoindex on; alias @DIR@/www/docs/;",
    "index index.php;",
    "error_page 404 = @app;",
    "error_page 404 =200 /about.html;",
    "root @DIR@/hosts/$host;",
    "proxy_pass http://@ORIGIN@$request_uri;",
    "include @DIR@/fastcgi_params; fastcgi_param SCRIPT_FILENAME $document_root/index.php; fastcgi_pass @PHP@;",
];

/// Those that are written behind the action, too.
const WRITTEN_LAST: [usize; 3] = [0, 2, 5];

/// The signs of locations around a name.
const SIGNS: [&str; 5] = ["/NAME/", "/NAME", "^~ /NAME/", "~ ^/NAME/", "= /NAME/"];

const FIELDS: &str = "-H 'X-Stop: 1' -H 'Referer: http://b.test/'";

/// A server with a location for each pair under a sign, and the requests that a guard of each refuses.
fn server(sign: &str, is_guard_last: bool) -> String {
    let (mut locations, mut requests) = (String::new(), String::new());
    let is_exact = sign.starts_with('=');
    let guards = GUARDS.iter().enumerate().filter(|(place, _)| !is_guard_last || WRITTEN_LAST.contains(place));
    let pairs = guards.flat_map(|(_, guard)| ACTIONS.iter().map(move |action| (*guard, *action)));
    for (number, (guard, action)) in pairs.enumerate() {
        // nginx refuses these: a location within an exact one, a URL with a path or a directory behind an expression.
        let is_invalid = is_exact && guard.starts_with("location")
            || sign.starts_with('~') && (action.contains("alias") || action.contains("@ORIGIN@/"));
        if is_invalid {
            continue;
        }
        let name = format!("n{number}n");
        let [first, second] = if is_guard_last { [action, guard] } else { [guard, action] };
        writeln!(locations, "location {} {{ {first} {second} }}", sign.replace("NAME", &name)).expect("memory");
        let method = if guard.starts_with("limit_except") { "DELETE" } else { "GET" };
        let rests: &[&str] = if is_exact { &[""] } else { &["", "a.txt", "sub/", "x.sec", "none"] };
        for rest in rests {
            writeln!(requests, "# {method} http://a.test/{name}/{rest}?stop {FIELDS}").expect("memory");
        }
    }
    format!(
        "# {sign}\n{requests}server {{\nlisten 80;\nserver_name a.test;\nroot @DIR@/www;\n\
         location ~ \\.php$ {{ include @DIR@/fastcgi_params; fastcgi_pass @PHP@; }}\n{locations}\
         location @app {{ proxy_pass http://@ORIGIN@; }}\nlocation /public {{ return 200 public; }}\n\
         location = /status-401 {{ internal; proxy_pass http://@ORIGIN@; }}\n}}\n"
    )
}

#[test]
fn no_action_loses_a_guard() {
    let places = Places::new();
    for (number, sign) in SIGNS.iter().enumerate() {
        for is_guard_last in [false, true] {
            let name = format!("product-{number}-{is_guard_last}");
            let lines = places.compare_text(&name, &server(sign, is_guard_last));
            let is_compared = lines.last().is_none_or(|line| line.contains(" requests: "));
            // `internal` refuses with 404.
            let is_found = |line: &str| line.contains("status: nginx 404, sealion 2");
            let opened: Vec<&String> = lines.iter().filter(|line| is_opened(line) || is_found(line)).collect();
            assert!(is_compared && opened.is_empty(), "{sign}: {}", lines.join("\n"));
        }
    }
}
