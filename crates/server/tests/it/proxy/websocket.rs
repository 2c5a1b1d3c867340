//! WebSocket as another implementation speaks it, on both sides of the proxy: messages, fragments, control frames and the codes of its end.

use sealion_testkit::server::Server;

use super::serve_to;
use crate::support::Site;
use crate::support::program::{Program, node_with_ws};

/// Cases of the program: over HTTP/1.1 one more, since it negotiates compression there alone.
const CASES: usize = 11;

fn run(server: &Server, site: &Site, protocol: &str) -> Vec<String> {
    let mut client = node_with_ws("websocket.mjs");
    client.args(["client", &server.address().port().to_string(), protocol]);
    let output = client.env("NODE_EXTRA_CA_CERTS", site.pki.certificate_file()).output().expect("node is needed");
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{protocol}: {said}\n{}", String::from_utf8_lossy(&output.stderr));
    said.lines().filter_map(|line| Some(line.strip_prefix("ok ")?.to_owned())).collect()
}

#[test]
fn messages_pass_as_they_are_over_both_protocols() {
    let site = Site::new();
    let mut upstream = node_with_ws("websocket.mjs");
    upstream.arg("server");
    let upstream = Program::start(upstream);
    let server = serve_to(&site, &[&upstream.url()], "");
    for (protocol, cases) in [("h1", CASES + 1), ("h2", CASES)] {
        let passed = run(&server, &site, protocol);
        assert_eq!(passed.len(), cases, "{protocol}: {passed:?}");
    }
}
