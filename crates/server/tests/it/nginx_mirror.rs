//! A configuration with `mirror`, served by nginx and, converted, by this server: the requests that both servers get.

use std::collections::BTreeSet;

use sealion_testkit::{Connector, Suite};

use super::nginx_corpus::{Asker, Corpus, Request};
use crate::support::upstream::{Received, Upstream};
use crate::support::wait_until;

const CONFIGURATION: &str = r#"
upstream next { server @SHADOW@; }
server {
    listen @A@ ssl;
    server_name a.example;
    proxy_set_header Host $host;
    location / { mirror /mirror; proxy_pass http://@FIRST@; }
    location /fields/ { mirror /bare; proxy_pass http://@FIRST@; proxy_set_header X-First yes; proxy_set_header Host $host; }
    location /off/ { mirror off; proxy_pass http://@FIRST@; }
    location /closed/ { deny all; mirror /mirror; proxy_pass http://@FIRST@; }
    location = /mirror { internal; proxy_pass http://next$request_uri; }
    location = /bare {
        internal;
        proxy_pass http://@SHADOW@$request_uri;
        proxy_pass_request_body off;
        proxy_set_header Content-Length "";
        proxy_set_header X-Shadow $request_uri;
    }
}
"#;

/// The request line, Host and the fields of the configuration and the client.
fn read(request: &Received) -> BTreeSet<String> {
    let names = ["host", "x-first", "x-shadow", "x-client"];
    let line = request.head.split(' ').take(2).collect::<Vec<_>>().join(" ");
    let fields =
        names.iter().flat_map(|name| request.all(name).into_iter().map(move |value| format!("{name}: {value}")));
    fields.chain([line]).collect()
}

#[test]
fn both_servers_get_what_nginx_sends_them() {
    let corpus = Corpus::new();
    let (first, shadow) = (Upstream::echo(), Upstream::echo());
    let text = CONFIGURATION
        .replace("@FIRST@", &first.address().to_string())
        .replace("@SHADOW@", &shadow.address().to_string());
    let both = corpus.serve_both("mirror", &text, CONFIGURATION);
    let connector = Connector::new(&corpus.pki, Suite::TLS13);
    let mut found = Vec::new();
    for ports in [both.theirs, both.ours] {
        let mut asker = Asker { ports, connector: &connector, kept: None };
        let mut of_server = Vec::new();
        for (path, status, copies) in [
            ("/x?q=1", 200, 1),
            ("/a/%20b", 200, 1),
            ("/fields/x?y", 200, 1),
            ("/off/x", 200, 0),
            ("/closed/x", 403, 0),
            ("/last", 200, 1),
        ] {
            let before = (first.requests().len(), shadow.requests().len());
            let request = Request { address: "@A@", host: "a.example", path, field: Some(("X-Client", "1")) };
            assert_eq!(asker.response(&request).map(|response| response.status), Some(status), "{path}");
            wait_until("the shadow has the copy", || shadow.requests().len() == before.1 + copies);
            let new =
                |server: &Upstream, before: usize| server.requests()[before..].iter().map(read).collect::<Vec<_>>();
            of_server.push((path, new(&first, before.0), new(&shadow, before.1)));
        }
        found.push(of_server);
    }
    assert_eq!(found[0], found[1], "nginx, and here");
}
