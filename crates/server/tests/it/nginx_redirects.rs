//! Configurations with `proxy_redirect` and `proxy_cookie_…`, served by nginx and, converted, by this server: Location and cookies of answers.

use sealion_testkit::{Connector, Suite};

use super::nginx_corpus::{Asker, Corpus, Request};
use crate::support::upstream::Upstream;

const CONFIGURATION: &str = "
upstream app { server @U@; }
server {
    listen @A@ ssl;
    server_name a.example;
    location /default/ { proxy_pass http://app; }
    location /address/ { proxy_pass http://@U@; }
    location /off/ { proxy_pass http://app; proxy_redirect off; }
    location /host/ { proxy_pass http://app; proxy_set_header Host $host; }
    location /https/ { proxy_pass http://app; proxy_set_header Host $host; proxy_redirect http://$host/ https://$host/; }
    location /named/ { proxy_pass http://app; proxy_set_header Host $host; proxy_redirect http://@U@/ /; }
    location /prefix/ { proxy_pass http://app/; proxy_redirect / /prefix/; proxy_cookie_path / /prefix/; }
    location /other/ { proxy_pass http://app/v1/; proxy_redirect /v1/ /other/; proxy_cookie_path /v1/ /other/; }
    location /cookie/ { proxy_pass http://app; proxy_set_header Host app.internal; proxy_cookie_domain app.internal $host; }
}
";

/// A location, what the application says, and what clients get: Location, and Set-Cookie.
const ROWS: [(&str, &str, &str); 21] = [
    ("/default/", "Location: http://app/x?y", "/x?y"),
    ("/default/", "Location: /x", "/x"),
    ("/default/", "Location: http://elsewhere.example/x", "http://elsewhere.example/x"),
    ("/default/", "Location: //elsewhere.example/x", "//elsewhere.example/x"),
    ("/default/", "Set-Cookie: a=b; Path=/; HttpOnly", "a=b; Path=/; HttpOnly"),
    ("/address/", "Location: http://@U@/x", "/x"),
    ("/address/", "Location: x", "x"),
    ("/off/", "Location: http://app/x", "http://app/x"),
    ("/host/", "Location: https://a.example/x", "/x"),
    ("/https/", "Location: http://a.example/x", "/x"),
    ("/https/", "Location: http://elsewhere.example/x", "http://elsewhere.example/x"),
    ("/named/", "Location: http://@U@/x", "/x"),
    ("/prefix/", "Location: /x", "/prefix/x"),
    ("/prefix/", "Location: http://elsewhere.example/x", "http://elsewhere.example/x"),
    ("/prefix/", "Set-Cookie: a=b; path=/x; Secure", "a=b; path=/prefix/x; secure"),
    ("/prefix/", "Set-Cookie: a=b", "a=b"),
    ("/other/", "Location: /v1/x", "/other/x"),
    ("/other/", "Location: /x", "/x"),
    ("/other/", "Set-Cookie: a=b; path=/v1/x", "a=b; path=/other/x"),
    ("/cookie/", "Set-Cookie: a=b; Domain=elsewhere.example", "a=b; Domain=elsewhere.example"),
    ("/cookie/", "Set-Cookie: a=b; Domain=app.internal; HttpOnly", "a=b; HttpOnly"),
];

/// A client's reading of a Location from `host`, and of a cookie whose domain is the host itself.
fn as_read(field: &str, value: &str, host: &str) -> String {
    if field == "Set-Cookie" {
        return value.replace(&format!("; domain={host}"), "").replace(&format!("; Domain={host}"), "").to_lowercase();
    }
    let path = value.strip_prefix("https://").and_then(|rest| rest.strip_prefix(host));
    let path = path.map(|rest| rest.trim_start_matches([':', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']));
    path.filter(|path| path.starts_with('/')).unwrap_or(value).to_owned()
}

#[test]
fn redirects_and_cookies_are_those_that_nginx_sends() {
    let corpus = Corpus::new();
    let address = std::sync::Arc::new(std::sync::OnceLock::new());
    let own = std::sync::Arc::clone(&address);
    let application = Upstream::answering(move |request| {
        let row = request.head.split(' ').nth(1).and_then(|path| path.rsplit_once("row-")?.1.parse().ok());
        let (_, field, _) = ROWS[row.unwrap_or(0usize)];
        let field = field.replace("@U@", own.get().map_or("", String::as_str));
        format!("HTTP/1.1 302 Found\r\n{field}\r\nContent-Length: 0\r\n\r\n").into_bytes()
    });
    address.set(application.address().to_string()).expect("it is set once");
    let text = CONFIGURATION.replace("@U@", &application.address().to_string());
    let both = corpus.serve_both("redirects", &text, CONFIGURATION);
    let connector = Connector::new(&corpus.pki, Suite::TLS13);
    let asker = |ports| Asker { ports, connector: &connector, kept: None };
    let (mut theirs, mut ours) = (asker(both.theirs), asker(both.ours));
    let mut wrong = Vec::new();
    for (row, (location, said, expected)) in ROWS.into_iter().enumerate() {
        let name = said.split(':').next().unwrap_or_default();
        let path = format!("{location}row-{row}");
        let request = Request { address: "@A@", host: "a.example", path: &path, field: None };
        let read = |asker: &mut Asker<'_>| {
            let response = asker.response(&request).expect("a response");
            response.field(name).map(|value| as_read(name, value, "a.example"))
        };
        let found = (read(&mut theirs), read(&mut ours));
        let expected = Some(as_read(name, expected, "a.example"));
        if found != (expected.clone(), expected.clone()) {
            wrong.push(format!("{location}: {said}: nginx {:?}, here {:?}, expected {expected:?}", found.0, found.1));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// One server answers everything by a redirect, and needs no files. The error page of the other is matched by no expression.
const RETURNS: &str = r"
server {
    listen @A@ ssl;
    server_name away.example;
    return 301 https://a.example$request_uri;
}
server {
    listen @A@ ssl;
    server_name a.example;
    root @ROOT@;
    error_page 404 /errors/404.html;
    location ~ ~$ { return 404; }
    location = /plain { return 301 /new; }
    location = /args { return 301 /new$is_args$args; }
    location = /own { return 302 /new?o=1; }
    rewrite ^/post/(\d+)/?$ /news?id=$1 permanent;
    rewrite ^/bare/(\d+)$ /news?id=$1? permanent;
    rewrite ^/moved/(.*)$ /to/$1 redirect;
}
";

#[test]
fn returns_and_rewrites_lead_to_the_query_to_which_nginx_leads() {
    let corpus = Corpus::new();
    let root = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(root.path().join("errors")).expect("a directory");
    std::fs::write(root.path().join("errors/404.html"), "the page").expect("a file");
    let text = RETURNS.replace("@ROOT@", &root.path().display().to_string());
    let both = corpus.serve_both("returns", &text, RETURNS);
    let connector = Connector::new(&corpus.pki, Suite::TLS13);
    let asker = |ports| Asker { ports, connector: &connector, kept: None };
    let (mut theirs, mut ours) = (asker(both.theirs), asker(both.ours));
    for (host, path, status, expected) in [
        ("away.example", "/x?q=2", 301, "/x?q=2"),
        ("a.example", "/plain?q=2", 301, "/new"),
        ("a.example", "/args?q=2", 301, "/new?q=2"),
        ("a.example", "/args", 301, "/new"),
        ("a.example", "/own?q=2", 302, "/new?o=1"),
        ("a.example", "/post/12?q=2", 301, "/news?id=12&q=2"),
        ("a.example", "/post/12", 301, "/news?id=12"),
        ("a.example", "/bare/12?q=2", 301, "/news?id=12"),
        ("a.example", "/moved/x?q=2", 302, "/to/x?q=2"),
        ("a.example", "/none", 404, "the page"),
    ] {
        let request = Request { address: "@A@", host, path, field: None };
        for (who, asker) in [("nginx", &mut theirs), ("here", &mut ours)] {
            let response = asker.response(&request).expect("a response");
            let found = match response.field("location") {
                Some(location) => as_read("Location", location, "a.example"),
                None => String::from_utf8_lossy(&response.body).into_owned(),
            };
            assert_eq!((response.status, found.as_str()), (status, expected), "{who}: {host}{path}");
        }
    }
}
