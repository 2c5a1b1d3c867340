//! The memory of idle connections.

use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;

use super::client::{Options, config, request};
use crate::faults::resident;
use crate::support::Site;

/// MEASURED: see docs/http3.md. This bound includes the memory that the allocator keeps of handshakes.
const MOST_PER_IDLE_CONNECTION: u64 = 18 << 10;

/// Looks at the memory, 20 ms apart, before the test fails.
const PATIENCE: usize = 1000;

#[test]
fn idle_connections_take_little_memory() {
    let connections: u64 = std::env::var("SEALION_TEST_IDLE").map_or(300, |text| text.parse().expect("a number"));
    let site = Site::new();
    site.add("f", "content");
    let server = config(&site, "").serve();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tls = QuicClientConfig::try_from(Options::new(&site.pki, "localhost").tls()).expect("a suite");
    let client = quinn::ClientConfig::new(Arc::new(tls));
    let endpoint = runtime.block_on(async { quinn::Endpoint::client("127.0.0.1:0".parse().unwrap()).unwrap() });
    let served = async || {
        let connecting = endpoint.connect_with(client.clone(), server.address(), "localhost").expect("a name");
        let connection = h3_quinn::Connection::new(connecting.await.expect("a connection"));
        let (mut driver, mut sender) = h3::client::new(connection).await.expect("HTTP/3");
        tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
        let mut stream = sender.send_request(request("GET", "/f", &[])).await.expect("a stream");
        stream.finish().await.expect("the request leaves");
        stream.recv_response().await.expect("a response");
        while stream.recv_data().await.expect("content").is_some() {}
        sender
    };
    let mut senders = Vec::new();
    // The first ones pay for what all share.
    runtime.block_on(async {
        for _ in 0..100 {
            senders.push(served().await);
        }
    });
    let before = resident(&server);
    runtime.block_on(async {
        for _ in 0..connections {
            senders.push(served().await);
        }
    });
    let each = || resident(&server).saturating_sub(before) / connections;
    // The client acknowledges the last responses meanwhile.
    let is_little = runtime.block_on(async {
        for _ in 0..PATIENCE {
            if each() <= MOST_PER_IDLE_CONNECTION {
                return true;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        false
    });
    assert!(is_little, "{} bytes for each of {connections} idle connections", each());
    assert!(senders.len() as u64 > connections);
}
