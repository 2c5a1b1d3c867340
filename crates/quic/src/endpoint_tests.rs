use std::time::Duration;

use bytes::BytesMut;
use quinn_proto::crypto::rustls::QuicClientConfig;
use quinn_proto::{ClientConfig, EndpointConfig};
use rustls::pki_types::PrivateKeyDer;

use super::*;

/// An endpoint, and a client's first datagram.
fn endpoint() -> (Endpoint, Vec<u8>) {
    let made = rcgen::generate_simple_self_signed(["a.example".to_owned()]).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let server = rustls::ServerConfig::builder_with_provider(provider.clone())
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![made.cert.der().clone()], key)
        .unwrap();
    let client = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let now = Instant::now();
    let config = EndpointConfig::new(Arc::new(aws_lc_rs::hmac::Key::new(aws_lc_rs::hmac::HMAC_SHA256, &[7; 32])));
    let mut of_client = quinn_proto::Endpoint::new(Arc::new(config), None, true, None);
    let client = ClientConfig::new(Arc::new(QuicClientConfig::try_from(client).unwrap()));
    let remote = "192.0.2.1:443".parse().unwrap();
    let (_, mut connection) = of_client.connect(now, client, remote, "a.example").unwrap();
    let mut first = Vec::new();
    let _ = connection.poll_transmit(now, 1, &mut first);
    let config = Config {
        tls: TlsConfig::try_from(Arc::new(server)).unwrap(),
        limits: Limits::default(),
        secrets: Secrets::random(),
        route: Route { worker: 0, workers: 1, share: 0 },
    };
    (Endpoint::new(config, now, SystemTime::UNIX_EPOCH), first)
}

#[test]
fn a_connection_that_fails_takes_no_other_with_it() {
    let (mut endpoint, first) = endpoint();
    let now = Instant::now();
    let mut keys = Vec::new();
    let mut other = first.clone();
    other[6] ^= 1; // Another connection ID, whose packet cannot be opened.
    for datagram in [&first, &other] {
        let remote = "198.51.100.1:5000".parse().unwrap();
        let data = BytesMut::from(&datagram[..]);
        endpoint.receive(now, Datagram { remote, local: None, ecn: None, data });
        let incoming = endpoint.next_incoming();
        keys.extend(incoming.and_then(|incoming| endpoint.accept(now, incoming, None)));
    }
    assert_eq!((keys.len(), endpoint.connections(), endpoint.unvalidated), (1, 1, 1));
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    endpoint.guard(keys[0].0, |_| panic!("a bug of the transport"));
    std::panic::set_hook(hook);
    assert_eq!(endpoint.next_event(), Some((keys[0], Event::Closed(Box::new(CloseReason::Failed)))));
    assert_eq!((endpoint.next_event(), endpoint.connections(), endpoint.unvalidated), (None, 0, 0));
    assert!(endpoint.connection(keys[0]).is_none());
    assert_eq!(endpoint.poll_transmit(now, 1, &mut Vec::new()), None);
    endpoint.handle_timeouts(now + Duration::from_secs(100));
    assert_eq!(endpoint.next_timeout(), None);
    assert_eq!(endpoint.inner.open_connections(), 0);
}
