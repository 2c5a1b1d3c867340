//! A configuration with `proxy_cache`, served by nginx and, converted, by this server: which requests reach the origin.

use std::path::Path;

use sealion_testkit::server::Server;
use sealion_testkit::{Connector, Suite};

use super::nginx_corpus::{Asker, Corpus, Ports, Request};
use crate::support::upstream::Upstream;
use crate::support::{PROGRAM, wait_for_cache};

const CONFIGURATION: &str = "
proxy_cache_path @DIR@/app levels=1:2 keys_zone=app:1m max_size=100m inactive=1h use_temp_path=off;
server {
    listen @A@ ssl;
    server_name a.example;
    proxy_cache app;
    proxy_cache_key $scheme$host$request_uri;
    proxy_cache_bypass $cookie_session $http_authorization;
    proxy_no_cache $cookie_session $http_authorization;
    proxy_cache_lock on;
    proxy_http_version 1.1;
    proxy_set_header Connection '';
    location / { proxy_pass http://@U@; }
    location /valid/ { proxy_pass http://@U@; proxy_cache_valid 200 404 1m; }
    location /ignore/ { proxy_pass http://@U@; proxy_cache_valid 200 1m; proxy_ignore_headers Cache-Control Expires Vary; }
    location /twice/ { proxy_pass http://@U@; proxy_cache_valid any 1m; proxy_cache_min_uses 2; }
}
";

type Field = Option<(&'static str, &'static str)>;

const NONE: [Field; 2] = [None, None];

/// A path, status and fields of the origin, fields of two requests, and how many of both reach the origin.
const ROWS: [(&str, u16, &str, [Field; 2], usize); 39] = [
    // Lifetimes of the origin.
    ("/max-age", 200, "Cache-Control: max-age=100\r\n", NONE, 1),
    ("/s-maxage", 200, "Cache-Control: s-maxage=100, max-age=0\r\n", NONE, 1),
    ("/expires", 200, "Expires: Thu, 31 Dec 2099 23:59:59 GMT\r\n", NONE, 1),
    ("/past", 200, "Expires: Thu, 01 Jan 1970 00:00:00 GMT\r\n", NONE, 2),
    ("/zero", 200, "Cache-Control: max-age=0\r\n", NONE, 2),
    ("/no-store", 200, "Cache-Control: no-store, max-age=100\r\n", NONE, 2),
    ("/no-cache", 200, "Cache-Control: no-cache, max-age=100\r\nETag: \"a\"\r\n", NONE, 2),
    ("/private", 200, "Cache-Control: private, max-age=100\r\n", NONE, 2),
    ("/cookie", 200, "Cache-Control: max-age=100\r\nSet-Cookie: a=b\r\n", NONE, 2),
    ("/404", 404, "Cache-Control: max-age=100\r\n", NONE, 1),
    ("/500", 500, "Cache-Control: max-age=100\r\n", NONE, 1),
    // Nobody gives one.
    ("/none", 200, "", NONE, 2),
    ("/last-modified", 200, "Last-Modified: Thu, 01 Jan 2015 00:00:00 GMT\r\n", NONE, 2),
    ("/redirect", 302, "Location: /\r\n", NONE, 2),
    // Of the configuration.
    ("/valid/a", 200, "", NONE, 1),
    ("/valid/404", 404, "", NONE, 1),
    ("/valid/500", 500, "", NONE, 2),
    ("/valid/zero", 200, "Cache-Control: max-age=0\r\n", NONE, 2),
    ("/valid/private", 200, "Cache-Control: private\r\n", NONE, 2),
    ("/ignore/a", 200, "Cache-Control: private\r\nExpires: 0\r\n", NONE, 1),
    ("/ignore/vary", 200, "Vary: X-A\r\n", [Some(("X-A", "1")), Some(("X-A", "2"))], 1),
    ("/twice/a", 200, "", NONE, 2),
    ("/twice/500", 500, "", NONE, 2),
    // Directives of the application for the cache alone.
    ("/accel", 200, "X-Accel-Expires: 100\r\n", NONE, 1),
    ("/accel-0", 200, "X-Accel-Expires: 0\r\nCache-Control: max-age=100\r\n", NONE, 2),
    ("/accel-none", 200, "X-Accel-Expires: off\r\nCache-Control: max-age=100\r\n", NONE, 1),
    ("/accel-until", 200, "X-Accel-Expires: @4102444799\r\n", NONE, 1),
    ("/valid/accel", 200, "X-Accel-Expires: 0\r\n", NONE, 2),
    ("/ignore/accel", 200, "X-Accel-Expires: 0\r\n", NONE, 2),
    // Variants.
    ("/vary", 200, "Cache-Control: max-age=100\r\nVary: X-A\r\n", [Some(("X-A", "1")), Some(("X-A", "1"))], 1),
    ("/vary-other", 200, "Cache-Control: max-age=100\r\nVary: X-A\r\n", [Some(("X-A", "1")), Some(("X-A", "2"))], 2),
    ("/vary-any", 200, "Cache-Control: max-age=100\r\nVary: *\r\n", NONE, 2),
    // Directives of requests.
    ("/reload", 200, "Cache-Control: max-age=100\r\n", [None, Some(("Cache-Control", "no-cache"))], 1),
    ("/pragma", 200, "Cache-Control: max-age=100\r\n", [None, Some(("Pragma", "no-cache"))], 1),
    ("/valid/other", 200, "", [Some(("Cookie", "other=1")), Some(("Cookie", "other=2"))], 1),
    ("/valid/session", 200, "", [None, Some(("Cookie", "a=b; session=1"))], 2),
    ("/valid/by-session", 200, "", [Some(("Cookie", "session=1")), None], 2),
    ("/valid/user", 200, "", [None, Some(("Authorization", "Basic YTpi"))], 2),
    ("/valid/by-user", 200, "", [Some(("Authorization", "Basic YTpi")), Some(("Authorization", "Basic YTpi"))], 2),
];

/// Answers as the row of the path says.
fn origin() -> Upstream {
    Upstream::answering(|request| {
        let path = request.head.split(' ').nth(1).unwrap_or_default();
        let (_, status, fields, ..) = ROWS.iter().find(|(own, ..)| *own == path).expect("a path of the table");
        format!("HTTP/1.1 {status} S\r\n{fields}Content-Length: 4\r\n\r\nbody").into_bytes()
    })
}

#[test]
fn the_same_requests_reach_the_origin() {
    let corpus = Corpus::new();
    let (to_nginx, to_us) = (origin(), origin());
    let (theirs, ours) = (Ports::free(), Ports::free());
    let directory = corpus.directory.path().join("cache");
    std::fs::create_dir(&directory).expect("a directory");
    let certificate = format!(
        "ssl_certificate {};\nssl_certificate_key {};\n",
        corpus.pki.certificate_file().display(),
        corpus.pki.key_file().display()
    );
    let text = |origin: &Upstream, ports: Ports| {
        let text = CONFIGURATION.replace("@DIR@", &directory.display().to_string());
        certificate.clone() + &ports.write(&text.replace("@U@", &origin.address().to_string()))
    };
    let (unguarded, converted) = corpus.convert(&directory, &text(&to_us, ours));
    assert!(unguarded.is_empty(), "{unguarded:#?}");
    // The service may write there, who tests may not.
    let of_service = format!("{}/app", directory.display()).trim_matches('/').replace('/', "-");
    let of_service = format!("/var/cache/sealion/{of_service}");
    let own = directory.join("app-sealion");
    let text_of_ours = std::fs::read_to_string(&converted).expect("a configuration");
    assert!(text_of_ours.contains(&of_service), "{text_of_ours}");
    std::fs::write(&converted, text_of_ours.replace(&of_service, &own.display().to_string())).expect("it is written");
    let _nginx = corpus.start_nginx(&directory, &text(&to_nginx, theirs), CONFIGURATION, theirs);
    let server =
        Server::start(Path::new(PROGRAM), ["serve", "--ktls", "never", "--config", converted.to_str().expect("UTF-8")]);
    wait_for_cache(&server, &own);
    let connector = Connector::new(&corpus.pki, Suite::TLS13);
    let asker = |ports| Asker { ports, connector: &connector, kept: None };
    let (mut theirs, mut ours) = (asker(theirs), asker(ours));
    let mut wrong = Vec::new();
    for (path, status, _, fields, expected) in ROWS {
        for field in fields {
            let request = Request { address: "@A@", host: "a.example", path, field };
            for (name, asker) in [("nginx", &mut theirs), ("here", &mut ours)] {
                assert_eq!(asker.ask(&request), Some((status, b"body".to_vec())), "{name}: {path}");
            }
        }
        let fetches = |origin: &Upstream| {
            origin.requests().iter().filter(|request| request.head.split(' ').nth(1) == Some(path)).count()
        };
        let (their, our) = (fetches(&to_nginx), fetches(&to_us));
        if (their, our) != (expected, expected) {
            wrong.push(format!("{path}: {their} with nginx, {our} here, and {expected} are expected"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
