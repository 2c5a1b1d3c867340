//! Handshakes: their results, resumption, and how bad handshakes fail. The kernel is not involved.

use std::io::{Read, Write};
use std::net::TcpStream;

use sealion_testkit::{Connector, PATIENCE, Suite};
use sealion_tls::record::{Aead, ContentType};
use sealion_tls::{
    AlertDescription, ConfigError, Error, HandshakeError, HandshakeInfo, Limits, Part, ServerConfig, TlsStream, Version,
};

use crate::support::{self, PKI, Server};

/// Serves one connection: echoes four bytes and closes.
fn serve_info(server: &Server) -> support::Serving<HandshakeInfo> {
    server.serve(async |mut stream: TlsStream| {
        support::take(&mut stream, 4).await.unwrap();
        stream.respond(&[Part::Bytes(b"pong")]).await.unwrap();
        stream.shutdown().await.unwrap();
        stream.info().unwrap().clone()
    })
}

#[test]
fn what_both_sides_agreed_on_is_told() {
    let expected = [
        (Version::Tls12, Aead::Aes128Gcm, "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"),
        (Version::Tls12, Aead::Aes256Gcm, "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384"),
        (Version::Tls12, Aead::Chacha20Poly1305, "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"),
        (Version::Tls13, Aead::Aes128Gcm, "TLS_AES_128_GCM_SHA256"),
        (Version::Tls13, Aead::Aes256Gcm, "TLS_AES_256_GCM_SHA384"),
        (Version::Tls13, Aead::Chacha20Poly1305, "TLS_CHACHA20_POLY1305_SHA256"),
    ];
    let server = Server::with_alpn(support::limits(), &[b"h2", b"http/1.1"]);
    for (version, aead, suite) in expected {
        let serving = serve_info(&server);
        let connector = Connector::new(&PKI, Suite { version, aead });
        let mut client = connector.alpn(&[b"http/1.1", b"h2"]).connect(serving.address);
        client.send(b"ping").unwrap();
        assert_eq!(client.read(4).unwrap(), b"pong");
        drop(client);
        let alpn = Some(b"h2".to_vec());
        let info = serving.finish();
        assert_eq!(info.server_name.as_deref(), Some("localhost"));
        assert_ne!(info.group.map_or("unknown", sealion_tls::Group::as_str), "unknown");
        let HandshakeInfo { server_name, group, .. } = info.clone();
        assert_eq!(info, HandshakeInfo { alpn, server_name, group, ..HandshakeInfo::new(version, suite) });
    }
}

#[test]
fn the_second_connection_resumes() {
    for suite in Suite::all() {
        let server = Server::new(support::limits());
        let connector = Connector::new(&PKI, suite);
        for round in 0..4 {
            let serving = serve_info(&server);
            let mut client = connector.connect(serving.address);
            assert_eq!(client.info().resumed, round > 0, "{suite}, connection {round}");
            client.send(b"ping").unwrap();
            assert_eq!(client.read(4).unwrap(), b"pong");
            client.read_to_end().unwrap().assert_orderly();
            if suite.version == Version::Tls13 {
                assert_eq!(client.tickets(), if round == 0 { 2 } else { 1 }, "{suite}, connection {round}");
            }
            drop(client);
            assert_eq!(serving.finish().resumed, round > 0, "{suite}, connection {round}");
        }
    }
}

/// A session kept by the server would outlive its ticket keys and never expire.
#[test]
fn no_session_is_resumed_by_its_id() {
    use rustls::client::{Resumption, Tls12Resumption};
    let mut roots = rustls::RootCertStore::empty();
    roots.add(PKI.certificate().clone()).unwrap();
    let mut config = rustls::ClientConfig::builder_with_protocol_versions(&[&rustls::version::TLS12])
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.resumption = Resumption::in_memory_sessions(8).tls12_resumption(Tls12Resumption::SessionIdOnly);
    let config = std::sync::Arc::new(config);
    let server = Server::new(support::limits());
    for round in 0..2 {
        let serving =
            server.serve_handshakes(1, async |mut accepted| accepted.remove(0).unwrap().info().unwrap().resumed);
        let name = "localhost".try_into().unwrap();
        let mut client = rustls::ClientConnection::new(config.clone(), name).unwrap();
        let mut io = TcpStream::connect(serving.address).unwrap();
        io.set_read_timeout(Some(PATIENCE)).unwrap();
        while client.is_handshaking() {
            client.complete_io(&mut io).unwrap();
        }
        assert!(!serving.finish(), "connection {round}");
    }
}

/// The request may follow Finished in one segment: whole, in several records, or cut off.
#[test]
fn what_comes_with_finished_is_not_lost() {
    for suite in Suite::all() {
        let server = Server::new(support::limits());
        let connector = Connector::new(&PKI, suite);
        if suite.version == Version::Tls12 {
            // Only a resumption ends with the client's Finished.
            let serving = serve_info(&server);
            let mut client = connector.connect(serving.address);
            client.send(b"ping").unwrap();
            client.read_to_end().unwrap().assert_orderly();
            drop(client);
            serving.finish();
        }
        for (large, cut) in [(0, 0), (0, 1), (0, 6), (50_000, 0), (50_000, 700)] {
            let serving = server.serve(async move |mut stream| {
                let received = support::take(&mut stream, 6 + large).await.unwrap();
                stream.respond(&[Part::Bytes(&received[..6])]).await.unwrap();
                stream.shutdown().await.unwrap();
            });
            let holding = connector.clone().hold_last_flight();
            let mut client = holding.connect(serving.address);
            let mut bytes = client.seal(ContentType::ApplicationData, b"one");
            bytes.extend(client.seal(ContentType::ApplicationData, b"two"));
            for piece in vec![b'.'; large].chunks(16_384) {
                bytes.extend(client.seal(ContentType::ApplicationData, piece));
            }
            let (first, second) = bytes.split_at(bytes.len() - cut);
            client.write(first).unwrap();
            std::thread::sleep(std::time::Duration::from_millis(20));
            client.write(second).unwrap();
            let answer = client.read(6).unwrap_or_else(|e| panic!("{suite} {large} {cut}: {e}"));
            assert_eq!(answer, b"onetwo");
            client.read_to_end().unwrap().assert_orderly();
            drop(client);
            serving.finish();
        }
    }
}

/// Sends `bytes` instead of a handshake, and half-closes if `fin`. Returns the server's error and its response.
fn handshake_with(bytes: &[u8], fin: bool) -> (HandshakeError, Vec<u8>) {
    let serving = Server::new(support::limits())
        .serve_handshakes(1, async |mut accepted| accepted.remove(0).err().expect("no handshake can come of it"));
    let mut io = TcpStream::connect(serving.address).unwrap();
    io.set_read_timeout(Some(PATIENCE)).unwrap();
    io.write_all(bytes).unwrap();
    if fin {
        io.shutdown(std::net::Shutdown::Write).unwrap();
    }
    let mut answer = Vec::new();
    io.read_to_end(&mut answer).unwrap();
    // The server waits for the client's end.
    drop(io);
    (serving.finish(), answer)
}

#[test]
fn plain_http_is_recognised() {
    for request in
        ["GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET http://a/ HTTP/1.1\r\n\r\n", "HEAD /x HTTP/1.0\r\n\r\n"]
    {
        let (error, answer) = handshake_with(request.as_bytes(), false);
        assert!(matches!(error, HandshakeError::PlainHttp), "{error:?}");
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 Bad Request\r\n"), "{answer}");
        assert_eq!(answer.contains("write https://"), request.starts_with("GET"), "{answer}");
        assert!(error.to_string().contains("https://"), "{error}");
    }
}

#[test]
fn garbage_is_refused_at_once() {
    let (error, answer) = handshake_with(b"\x00\x01\x02\x03\x04garbage garbage", false);
    assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
    assert_eq!(answer[..3], [21, 3, 3], "an alert: {answer:02x?}");
    // A well-formed record with an invalid handshake message.
    let (error, answer) = handshake_with(b"\x16\x03\x01\x00\x06\x77\x00\x00\x02aa", false);
    assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
    assert_eq!(answer[..3], [21, 3, 3], "an alert: {answer:02x?}");
    // A header that announces more bytes than a record may have.
    let (error, _) = handshake_with(b"\x16\x03\x01\xff\xff", false);
    assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
}

#[test]
fn a_peer_that_leaves_is_told_apart() {
    let (error, answer) = handshake_with(b"", true);
    assert!(matches!(error, HandshakeError::ClosedByPeer), "{error:?}");
    assert!(answer.is_empty());
    for cut in [1, 4, 5, 20] {
        let (error, _) = handshake_with(&b"\x16\x03\x01\x01\x00\x01\x00\x00\xfc\x03\x03aaaaaaaaa"[..cut], true);
        assert!(matches!(error, HandshakeError::Truncated), "{cut}: {error:?}");
    }
    let (error, _) = handshake_with(&[21, 3, 1, 0, 2, 2, 40], false);
    assert!(matches!(error, HandshakeError::PeerAlert(AlertDescription::HANDSHAKE_FAILURE)), "{error:?}");
}

#[test]
fn an_endless_handshake_is_cut_off() {
    // Fragments of a ClientHello that never ends.
    let mut bytes = Vec::new();
    let mut first = vec![0x16, 3, 1, 0x40, 0, 1, 0, 0xff, 0xff];
    first.resize(5 + 0x4000, 0);
    bytes.extend(&first);
    for _ in 0..12 {
        bytes.extend([0x16, 3, 1, 0x40, 0]);
        bytes.extend([0; 0x4000]);
    }
    let serving = Server::new(support::limits())
        .serve_handshakes(1, async |mut accepted| accepted.remove(0).err().expect("no handshake can come of it"));
    let mut io = TcpStream::connect(serving.address).unwrap();
    // The server closes while the client still writes.
    let _ = io.write_all(&bytes);
    let error = serving.finish();
    // An unauthenticated client occupies little memory.
    assert!(matches!(error, HandshakeError::TooLong(..=20_000)), "{error:?}");
}

/// The ClientHello of a correct client, as records.
fn client_hello(version: &'static rustls::SupportedProtocolVersion) -> Vec<u8> {
    let roots = rustls::RootCertStore::empty();
    let config = rustls::ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots);
    let name = "localhost".try_into().unwrap();
    let mut client = rustls::ClientConnection::new(config.with_no_client_auth().into(), name).unwrap();
    let mut hello = Vec::new();
    client.write_tls(&mut hello).unwrap();
    hello
}

/// The last alert among records in plain text and, in TLS 1.3, its position among the sealed records. A sealed alert is
/// recognised by its length.
fn ends_with_an_alert(mut records: &[u8]) -> bool {
    let mut last = None;
    while let Some((&[outer, _, _, hi, lo], _)) = records.split_first_chunk() {
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        last = Some((outer, len));
        records = &records[5 + len..];
    }
    matches!(last, Some((21, 2) | (23, 19)))
}

#[test]
fn whatever_ends_a_handshake_is_answered_with_an_alert() {
    for version in [&rustls::version::TLS13, &rustls::version::TLS12] {
        let hello = client_hello(version);
        for (name, wrong) in [
            ("application data", &[23, 3, 3, 0, 3, 1, 2, 3][..]),
            ("application data as long as a sealed record", &[&[23, 3, 3, 0, 40][..], &[1; 40]].concat()),
            ("an empty record of application data", &[23, 3, 3, 0, 0]),
            ("an empty record of the handshake", &[22, 3, 3, 0, 0]),
            ("an empty alert", &[21, 3, 3, 0, 0]),
            ("an empty change_cipher_spec", &[20, 3, 3, 0, 0]),
            ("another ClientHello", &hello),
            ("a record of no type", &[99, 3, 3, 0, 1, 1]),
            ("a record that is too long", &[22, 3, 3, 255, 255]),
        ] {
            let (error, answer) = handshake_with(&[&hello, wrong].concat(), false);
            assert!(matches!(error, HandshakeError::Tls(_)), "{version:?}, {name}: {error:?}");
            assert!(ends_with_an_alert(&answer), "{version:?}, {name}: {answer:02x?}");
            // In the middle of a message.
            let message = &hello[5..];
            let part = |part: &[u8]| [&[22, 3, 1, 0, part.len() as u8][..], part].concat();
            let [first, second] = [part(&message[..100]), part(&message[100..])];
            let (error, answer) = handshake_with(&[&first, wrong, &second].concat(), false);
            assert!(ends_with_an_alert(&answer), "{version:?}, {name} inside: {error}, {answer:02x?}");
            // Before anything was negotiated.
            if name != "another ClientHello" {
                let (error, answer) = handshake_with(&[wrong, &hello].concat(), false);
                assert!(ends_with_an_alert(&answer), "{version:?}, {name} first: {error}, {answer:02x?}");
            }
        }
    }
}

/// The group of a handshake with a client that supports these, the preferred first.
fn group(groups: &[&'static dyn rustls::crypto::SupportedKxGroup]) -> sealion_tls::Group {
    let mut provider = rustls::crypto::aws_lc_rs::default_provider();
    provider.kx_groups = groups.to_vec();
    let mut roots = rustls::RootCertStore::empty();
    roots.add(PKI.certificate().clone()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(provider.into()).with_safe_default_protocol_versions();
    let config = config.unwrap().with_root_certificates(roots).with_no_client_auth();
    let serving = Server::new(support::limits())
        .serve_handshakes(1, async |mut accepted| accepted.remove(0).unwrap().info().unwrap().group.unwrap());
    let mut client = rustls::ClientConnection::new(config.into(), "localhost".try_into().unwrap()).unwrap();
    let mut io = TcpStream::connect(serving.address).unwrap();
    io.set_read_timeout(Some(PATIENCE)).unwrap();
    while client.is_handshaking() {
        client.complete_io(&mut io).unwrap();
    }
    serving.finish()
}

/// Browsers have supported it since 2024. It keeps recorded traffic secret from future quantum computers.
#[test]
fn keys_are_exchanged_with_ml_kem_where_the_client_prefers_it() {
    use rustls::crypto::aws_lc_rs::kx_group::{SECP256R1, X25519, X25519MLKEM768};
    assert_eq!(group(&[X25519MLKEM768, X25519, SECP256R1]).as_str(), "X25519MLKEM768");
    assert_eq!(group(&[X25519MLKEM768]).as_str(), "X25519MLKEM768");
    assert_eq!(group(&[X25519, SECP256R1]).as_str(), "x25519");
    assert_eq!(group(&[SECP256R1]).as_str(), "secp256r1");
}

/// A ClientHello of TLS 1.2 without the extended master secret, as OpenSSL 1.0.2 sends it.
fn hello_without_ems() -> Vec<u8> {
    let extensions = [0, 13, 0, 4, 0, 2, 4, 3, 0, 10, 0, 4, 0, 2, 0, 23, 0, 11, 0, 2, 1, 0];
    // No session, one suite (TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256), no compression.
    let rest = [0, 0, 2, 0xc0, 0x2b, 1, 0, 0, extensions.len() as u8];
    let message = [&[3, 3][..], &[7; 32], &rest, &extensions].concat();
    let len = message.len() as u8;
    [&[22, 3, 1, 0, 4 + len, 1, 0, 0, len][..], &message].concat()
}

#[test]
fn the_extended_master_secret_is_asked_for_as_configured() {
    use sealion_tls::{Certificate, ClientAuth, ClientAuthMode, RequireEms, SiteCertificates, SiteTls, TlsOptions};
    let authority = sealion_testkit::pki::Authority::new("clients");
    for (extended_master_secret, asks, is_refused) in [
        (RequireEms::Always, false, true),
        (RequireEms::WithClientAuth, false, false),
        (RequireEms::WithClientAuth, true, true),
        (RequireEms::Never, true, false),
    ] {
        let certificate = Certificate::from_pem_files(&PKI.certificate_file(), &PKI.key_file()).unwrap();
        let client_auth = asks
            .then(|| ClientAuth::from_pem_file(&authority.pki().certificate_file(), ClientAuthMode::Request).unwrap());
        let certificates = SiteCertificates::new(vec![certificate]).into();
        let site = SiteTls { names: Vec::new(), certificates, client_auth, alpn: None };
        let options = TlsOptions { extended_master_secret, ..TlsOptions::new(&[]).unwrap() };
        let config = ServerConfig::new(&site, &[], &options, support::limits()).unwrap();
        let serving = Server::from_config(config).serve_handshakes(1, async |mut accepted| drop(accepted.remove(0)));
        let mut io = TcpStream::connect(serving.address).unwrap();
        io.set_read_timeout(Some(PATIENCE)).unwrap();
        io.write_all(&hello_without_ems()).unwrap();
        let mut answer = [0; 7];
        io.read_exact(&mut answer).unwrap();
        let expected = [21, 3, 3, 0, 2, 2, AlertDescription::HANDSHAKE_FAILURE.0];
        assert_eq!(answer == expected, is_refused, "{extended_master_secret:?} {asks}: {answer:?}");
        assert!(is_refused || answer[0] == 22, "a ServerHello: {answer:?}");
        drop(io);
        serving.finish();
    }
}

/// An ECDSA certificate, and a client that only supports RSA.
#[test]
fn without_a_common_suite_the_client_is_told() {
    let serving = Server::new(support::limits())
        .serve_handshakes(1, async |mut accepted| accepted.remove(0).err().expect("no handshake can come of it"));
    let mut hello = vec![3, 3];
    hello.extend([7; 32]);
    // No session, one suite (TLS_RSA_WITH_AES_128_CBC_SHA), no compression, signature_algorithms
    // and supported_groups.
    hello.extend([0, 0, 2, 0, 0x2f, 1, 0]);
    let extensions = [0, 13, 0, 4, 0, 2, 4, 1, 0, 10, 0, 4, 0, 2, 0, 23];
    hello.extend([0, extensions.len() as u8]);
    hello.extend(extensions);
    let mut bytes = vec![0x16, 3, 1, 0, 4 + hello.len() as u8, 1, 0, 0, hello.len() as u8];
    bytes.extend(hello);
    let mut io = TcpStream::connect(serving.address).unwrap();
    io.set_read_timeout(Some(PATIENCE)).unwrap();
    io.write_all(&bytes).unwrap();
    let mut answer = Vec::new();
    io.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, [21, 3, 3, 0, 2, 2, AlertDescription::HANDSHAKE_FAILURE.0]);
    let error = serving.finish();
    assert!(matches!(error, HandshakeError::Tls(_)), "{error:?}");
}

#[test]
fn without_a_common_protocol_the_client_is_told() {
    let server = Server::with_alpn(support::limits(), &[b"h2", b"http/1.1"]);
    let serving =
        server.serve_handshakes(1, async |mut accepted| accepted.remove(0).err().expect("no handshake can come of it"));
    let connector = Connector::new(&PKI, Suite::TLS13).alpn(&[b"gopher"]);
    let error = connector.try_connect(serving.address).err().unwrap();
    assert!(error.to_string().contains("NoApplicationProtocol"), "{error}");
    serving.finish();
}

#[test]
fn a_client_that_distrusts_the_certificate_says_so() {
    let other = sealion_testkit::pki::Pki::ecdsa();
    for suite in [Suite::TLS13, Suite::TLS12] {
        let serving =
            Server::new(support::limits()).serve_handshakes(1, async |mut accepted| match accepted.remove(0) {
                Err(error) => error,
                Ok(_) => panic!("the client cannot have agreed"),
            });
        Connector::new(&other, suite).try_connect(serving.address).err().unwrap();
        let error = serving.finish();
        assert!(
            matches!(error, HandshakeError::PeerAlert(_) | HandshakeError::ClosedByPeer | HandshakeError::Io(_)),
            "{error:?}"
        );
    }
}

#[test]
fn an_rsa_certificate_serves_too() {
    let pki = sealion_testkit::pki::Pki::rsa();
    for suite in Suite::all() {
        let config = ServerConfig::from_pem_files(&pki.certificate_file(), &pki.key_file(), &[], Limits::default());
        let server = Server::from_config(config.unwrap());
        let serving = serve_info(&server);
        let mut client = Connector::new(&pki, suite).connect(serving.address);
        client.send(b"ping").unwrap();
        assert_eq!(client.read(4).unwrap(), b"pong");
        drop(client);
        let info = serving.finish();
        if suite.version == Version::Tls12 {
            assert!(info.suite.starts_with("TLS_ECDHE_RSA_WITH_"), "{}", info.suite);
        }
    }
}

#[test]
fn unusable_files_are_named() {
    let other = sealion_testkit::pki::Pki::ecdsa();
    let load = |certificate: &std::path::Path, key: &std::path::Path| {
        ServerConfig::from_pem_files(certificate, key, &[], Limits::default()).err().unwrap()
    };
    let (certificate, key) = (PKI.certificate_file(), PKI.key_file());
    let error = load(&certificate, &other.key_file());
    assert!(matches!(error, ConfigError::Mismatch { .. }), "{error}");
    for (error, file) in [
        (load(&PKI.directory().join("absent"), &key), "absent"),
        (load(&key, &key), "key.pem"),
        (load(&certificate, &certificate), "certificate.pem"),
    ] {
        assert!(matches!(error, ConfigError::Unreadable { .. }), "{error}");
        assert!(error.to_string().contains(file), "{error}");
    }
}

#[test]
fn an_encrypted_key_is_named_with_the_remedy() {
    let path = PKI.directory().join("encrypted.pem");
    for pem in [
        "-----BEGIN ENCRYPTED PRIVATE KEY-----\nMIGjMF8GCSqGSIb3DQEFDTBS\n-----END ENCRYPTED PRIVATE KEY-----\n",
        "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES-128-CBC,00\n\nAAAA\n-----END EC PRIVATE KEY-----\n",
    ] {
        std::fs::write(&path, pem).unwrap();
        let error = sealion_tls::Certificate::from_pem_files(&PKI.certificate_file(), &path).unwrap_err().to_string();
        assert!(error.contains("the key is encrypted") && error.contains("openssl pkey -in"), "{error}");
    }
}

#[test]
fn a_certificate_of_version_1_is_named_with_its_own_file() {
    let directory = sealion_testkit::pki::Pki::ecdsa();
    let path = |name: &str| directory.directory().join(name).to_str().unwrap().to_owned();
    let openssl = |arguments: &[&str]| {
        let output = std::process::Command::new("openssl").args(arguments).output().expect("openssl is needed");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    };
    let (key, request, old) = (path("key.pem"), path("request.pem"), path("old.pem"));
    openssl(&["req", "-new", "-newkey", "rsa:2048", "-nodes", "-subj", "/CN=a", "-keyout", &key, "-out", &request]);
    // Version 1 is what OpenSSL before 3.2 makes of a request without extensions.
    openssl(&["x509", "-req", "-in", &request, "-signkey", &key, "-out", &old]);
    let Err(error) = sealion_tls::Certificate::from_pem_files(old.as_ref(), key.as_ref()) else {
        return; // A newer OpenSSL made version 3.
    };
    let error = error.to_string();
    assert!(error.starts_with(&old) && error.contains("of version 1"), "{error}");
}

#[test]
fn an_established_connection_without_data_is_closed_as_such() {
    let serving = Server::new(support::limits()).serve(async |mut stream: TlsStream| {
        let end = stream.read_more().await;
        assert!(matches!(end, Ok(0) | Err(Error::Truncated)), "{end:?}");
        end.is_ok()
    });
    let mut client = support::connect(&serving, Suite::TLS13);
    client.close_notify().unwrap();
    assert!(serving.finish());
}
