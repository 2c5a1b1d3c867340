//! Several sites in one configuration: the certificate that a client sees, the client authentication, and which
//! sessions resume.

use std::sync::Arc;

use sealion_testkit::pki::{Authority, Pki};
use sealion_testkit::{Connector, Suite};
use sealion_tls::{
    Certificate, ClientAuth, ClientAuthMode, ConfigError, HandshakeError, HandshakeInfo, Limits, NameFinder, Part,
    ServerConfig, SiteCertificates, SiteTls, TicketKeys, TicketSecret, TlsOptions, TlsStream, Version,
};

use crate::support::{self, Server};

fn certificate(pki: &Pki) -> Certificate {
    Certificate::from_pem_files(&pki.certificate_file(), &pki.key_file()).unwrap()
}

fn site(names: &[&str], pkis: &[&Pki], client_auth: Option<ClientAuth>) -> SiteTls {
    let certificates = SiteCertificates::new(pkis.iter().map(|pki| certificate(pki)).collect());
    SiteTls {
        names: names.iter().map(ToString::to_string).collect(),
        certificates: Arc::new(certificates),
        client_auth,
        alpn: None,
    }
}

fn options() -> TlsOptions {
    TlsOptions::new(&[]).unwrap()
}

fn server(sites: &[SiteTls], options: &TlsOptions) -> Server {
    Server::from_config(ServerConfig::new(&sites[0], &sites[1..], options, support::limits()).unwrap())
}

/// A connection, and the information at each side. The client reads, so that it has its tickets.
fn connect(
    server: &Server,
    connector: &Connector,
) -> (Option<sealion_testkit::Info>, Result<HandshakeInfo, HandshakeError>) {
    let serving = server.serve_handshakes(1, async |mut accepted| {
        let mut stream: TlsStream = accepted.remove(0)?;
        // A client whose certificate was rejected learns it after its own handshake has ended (RFC 8446 §4.4.2.4).
        let _ = stream.respond(&[Part::Bytes(b"hello")]).await;
        let info = stream.info().unwrap().clone();
        let _ = stream.shutdown().await;
        Ok(info)
    });
    let seen = connector.try_connect(serving.address).and_then(|mut client| {
        client.read(5)?;
        let info = client.info().clone();
        client.read_to_end()?;
        Ok(info)
    });
    (seen.ok(), serving.finish())
}

fn refused(server: &Server, connector: &Connector) -> String {
    match connect(server, connector) {
        (None, Err(error)) => error.to_string(),
        (client, server) => panic!("the handshake is refused by both, not {client:?}, {server:?}"),
    }
}

#[test]
fn each_name_has_its_certificate() {
    let [a, wild, rest] = [&["a.test"], &["*.b.test"], &["else.test"]].map(|names| Pki::for_names(names));
    let server = server(
        &[site(&[], &[&rest], None), site(&["A.test"], &[&a], None), site(&["*.b.test"], &[&wild], None)],
        &options(),
    );
    for suite in [Suite::TLS13, Suite::TLS12] {
        for (name, pki) in [("a.test", &a), ("x.b.test", &wild), ("else.test", &rest)] {
            let (client, info) = connect(&server, &Connector::new(pki, suite).name(name));
            assert_eq!(client.unwrap().certificate.as_ref(), Some(pki.certificate()), "{name}");
            assert_eq!(info.unwrap().server_name.as_deref(), Some(name));
        }
    }
    // By address, which is not a name for SNI (RFC 6066 §3).
    let pki = Pki::ecdsa();
    let server = self::server(&[site(&[], &[&pki], None)], &options());
    let (client, info) = connect(&server, &Connector::new(&pki, Suite::TLS13).name("127.0.0.1"));
    assert!(client.is_some());
    assert_eq!(info.unwrap().server_name, None);
}

#[test]
fn a_finder_chooses_the_site_of_a_name() {
    let [rest, a] = [&["else.test"], &["a.test"]].map(|names| Pki::for_names(names));
    let ours = Authority::new("ours");
    let auth = ClientAuth::from_pem_file(&ours.pki().certificate_file(), ClientAuthMode::Require).unwrap();
    let names = NameFinder::new(|name| (name == "a.test").then_some(1));
    let options = TlsOptions { names: Some(names), ..options() };
    let server = server(&[site(&[], &[&rest], None), site(&[], &[&a], Some(auth))], &options);
    let alice = ours.issue_client("alice");
    for suite in [Suite::TLS13, Suite::TLS12] {
        let (client, _) = connect(&server, &Connector::new(&rest, suite).name("else.test"));
        assert_eq!(client.unwrap().certificate.as_ref(), Some(rest.certificate()));
        let own = Connector::trusting(&[&a], suite, Some(&alice), false).name("a.test");
        let (client, info) = connect(&server, &own);
        assert_eq!(client.unwrap().certificate.as_ref(), Some(a.certificate()));
        assert!(info.unwrap().client_auth.is_some());
    }
}

#[test]
fn a_site_without_certificate_refuses_its_names() {
    let (pki, other) = (Pki::for_names(&["a.test"]), Pki::for_names(&["b.test"]));
    let refusing = SiteTls { certificates: Arc::new(SiteCertificates::none()), ..site(&[], &[&other], None) };
    let server = server(&[refusing, site(&["a.test"], &[&pki], None)], &options());
    for suite in [Suite::TLS13, Suite::TLS12] {
        assert!(connect(&server, &Connector::new(&pki, suite).name("a.test")).0.is_some());
        let unknown = refused(&server, &Connector::new(&pki, suite).name("b.test"));
        assert_eq!(unknown, "refused: there is no certificate for b.test");
        let nameless = refused(&server, &Connector::new(&pki, suite).name("127.0.0.1"));
        assert_eq!(nameless, "refused: there is no certificate for clients without a name");
    }
}

#[test]
fn a_client_gets_the_certificate_that_it_can_check() {
    let names = ["a.test"];
    let (rsa, ecdsa) = (Pki::rsa_for_names(&names), Pki::for_names(&names));
    let other = Pki::for_names(&["b.test"]);
    let server = server(&[site(&[], &[&rsa, &other, &ecdsa], None)], &options());
    for suite in [Suite::TLS13, Suite::TLS12] {
        for (rsa_only, expected) in [(false, &ecdsa), (true, &rsa)] {
            let connector = Connector::trusting(&[&rsa, &ecdsa, &other], suite, None, rsa_only).name("a.test");
            let (client, _) = connect(&server, &connector);
            let seen = client.unwrap_or_else(|| panic!("no handshake: {suite}, RSA only: {rsa_only}")).certificate;
            assert!(seen.as_ref() == Some(expected.certificate()), "{suite}, RSA only: {rsa_only}");
        }
        let connector = Connector::trusting(&[&other], suite, None, false).name("b.test");
        assert!(connect(&server, &connector).0.is_some());
    }
}

#[test]
fn a_replaced_certificate_is_seen_by_the_next_connection() {
    let (old, new) = (Pki::ecdsa(), Pki::ecdsa());
    let site = site(&[], &[&old], None);
    let server = server(std::slice::from_ref(&site), &options());
    assert!(connect(&server, &Connector::new(&old, Suite::TLS13)).0.is_some());
    site.certificates.replace(0, certificate(&new));
    assert!(connect(&server, &Connector::new(&new, Suite::TLS13)).0.is_some());
    assert!(connect(&server, &Connector::new(&old, Suite::TLS13)).0.is_none());
}

fn auth(authority: &Authority, mode: ClientAuthMode) -> Option<ClientAuth> {
    Some(ClientAuth::from_pem_file(&authority.pki().certificate_file(), mode).unwrap())
}

/// An open site, a site that requires certificates of one authority, and a site that requests certificates of another.
#[test]
fn sites_ask_for_certificates_of_their_own() {
    let pki = Pki::for_names(&["open.test", "closed.test", "half.test"]);
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (closed, half) = (auth(&ours, ClientAuthMode::Require), auth(&theirs, ClientAuthMode::Request));
    let (closed_id, half_id) = (closed.as_ref().map(ClientAuth::id), half.as_ref().map(ClientAuth::id));
    let server = server(
        &[
            site(&["open.test"], &[&pki], None),
            site(&["closed.test"], &[&pki], closed),
            site(&["half.test"], &[&pki], half),
        ],
        &options(),
    );
    let (alice, eve) = (ours.issue_client("alice"), theirs.issue_client("eve"));
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = |own, name| Connector::trusting(&[&pki], suite, own, false).name(name);
        for own in [None, Some(&eve)] {
            let error = refused(&server, &connector(own, "closed.test"));
            assert!(error.contains("ertificate"), "{error}");
        }
        refused(&server, &connector(Some(&alice), "half.test"));

        let info = connect(&server, &connector(Some(&alice), "closed.test")).1.unwrap();
        assert_eq!(info.client_certificate.unwrap().subject, "CN=alice");
        assert_eq!(info.client_auth, closed_id);
        let info = connect(&server, &connector(Some(&eve), "half.test")).1.unwrap();
        assert_eq!(info.client_certificate.unwrap().subject, "CN=eve");
        let info = connect(&server, &connector(None, "half.test")).1.unwrap();
        assert_eq!((info.client_certificate, info.client_auth), (None, half_id));
        // A client that is not asked presents no certificate.
        let info = connect(&server, &connector(Some(&alice), "open.test")).1.unwrap();
        assert_eq!((info.client_certificate, info.client_auth), (None, None));
    }
}

#[test]
fn a_resumed_session_keeps_the_clients_certificate() {
    let (pki, ours) = (Pki::ecdsa(), Authority::new("ours"));
    let alice = ours.issue_client("alice");
    let server = server(&[site(&[], &[&pki], auth(&ours, ClientAuthMode::Require))], &options());
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = Connector::trusting(&[&pki], suite, Some(&alice), false);
        for resumed in [false, true] {
            let info = connect(&server, &connector).1.unwrap();
            assert_eq!(info.resumed, resumed, "{suite}");
            assert_eq!(info.client_certificate.unwrap().subject, "CN=alice");
        }
    }
}

/// The same name and ticket keys, but another policy, as after a reload that requires certificates.
#[test]
fn a_session_is_not_resumed_under_another_policy() {
    let (pki, ours) = (Pki::ecdsa(), Authority::new("ours"));
    let alice = ours.issue_client("alice");
    let options = options();
    let open = server(&[site(&[], &[&pki], None)], &options);
    let request = server(&[site(&[], &[&pki], auth(&ours, ClientAuthMode::Request))], &options);
    let require = server(&[site(&[], &[&pki], auth(&ours, ClientAuthMode::Require))], &options);
    for suite in [Suite::TLS13, Suite::TLS12] {
        for (first, then) in [(&open, &request), (&open, &require), (&request, &require), (&require, &open)] {
            let connector = Connector::trusting(&[&pki], suite, Some(&alice), false);
            assert!(!connect(first, &connector).1.unwrap().resumed);
            assert!(!connect(then, &connector).1.unwrap().resumed, "{suite}");
        }
        // The test needs a session that would otherwise resume.
        let again = server(&[site(&[], &[&pki], None)], &options);
        let connector = Connector::new(&pki, suite);
        assert!(!connect(&open, &connector).1.unwrap().resumed);
        assert!(connect(&again, &connector).1.unwrap().resumed, "{suite}");
    }
}

#[test]
fn processes_with_the_same_keys_resume_each_others_sessions() {
    let pki = Pki::ecdsa();
    let with = |keys: Option<TicketKeys>| {
        let options = TlsOptions { tickets: keys.map(Arc::new), ..options() };
        server(&[site(&[], &[&pki], None)], &options)
    };
    let secret = TicketSecret::generate().unwrap();
    let [one, two] = [(); 2].map(|()| with(Some(TicketKeys::shared(&secret, &[]))));
    let alone = with(Some(TicketKeys::rotating().unwrap()));
    let never = with(None);
    for suite in [Suite::TLS13, Suite::TLS12] {
        for (first, then, resumed) in [(&one, &two, true), (&one, &alone, false), (&never, &never, false)] {
            let connector = Connector::new(&pki, suite);
            assert!(!connect(first, &connector).1.unwrap().resumed);
            assert_eq!(connect(then, &connector).1.unwrap().resumed, resumed, "{suite}");
        }
    }
}

#[test]
fn versions_and_suites_are_what_was_chosen() {
    let pki = Pki::ecdsa();
    let sites = [site(&[], &[&pki], None)];
    let only_13 = server(&sites, &TlsOptions { min_version: Version::Tls13, ..options() });
    assert!(connect(&only_13, &Connector::new(&pki, Suite::TLS13)).0.is_some());
    let error = refused(&only_13, &Connector::new(&pki, Suite::TLS12));
    assert!(error.contains("Tls12NotOffered"), "{error}");

    let one = ["TLS_AES_256_GCM_SHA384".to_owned()];
    let one_suite = server(&sites, &TlsOptions { suites: one.to_vec(), ..options() });
    refused(&one_suite, &Connector::new(&pki, Suite::TLS13));
    let aes256 = Suite { aead: sealion_tls::record::Aead::Aes256Gcm, ..Suite::TLS13 };
    assert_eq!(connect(&one_suite, &Connector::new(&pki, aes256)).1.unwrap().suite, one[0]);

    let wrong = |suites: &[&str], min_version| {
        let suites = suites.iter().map(ToString::to_string).collect();
        let options = TlsOptions { suites, min_version, ..options() };
        match ServerConfig::new(&sites[0], &[], &options, Limits::default()) {
            Err(ConfigError::Policy(why)) => why,
            _ => panic!("this is no policy"),
        }
    };
    assert!(wrong(&["TLS_RSA_WITH_RC4_128_SHA"], Version::Tls12).contains("TLS_AES_128_GCM_SHA256"));
    assert!(wrong(&["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"], Version::Tls13).contains("1.3"));
}

/// A ClientHello in pieces is assembled before the policy is chosen.
#[test]
fn a_policy_is_chosen_by_a_client_hello_of_several_records() {
    use std::io::{Read, Write};
    let pki = Pki::ecdsa();
    let ours = Authority::new("ours");
    let sites = [site(&["a.test"], &[&pki], None), site(&["b.test"], &[&pki], auth(&ours, ClientAuthMode::Require))];
    let server = server(&sites, &options());
    // Bytes that cannot be a ClientHello fail as with one policy.
    for (bytes, word) in [
        (&b"\x00\x01\x02\x03\x04garbage garbage"[..], "handshake failed"),
        (b"\x16\x03\x01\x00\x06\x77\x00\x00\x02aa", "handshake failed"),
        (b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", "https://"),
    ] {
        let serving = server
            .serve_handshakes(1, async |mut accepted| accepted.remove(0).err().expect("no handshake can come of it"));
        let mut io = std::net::TcpStream::connect(serving.address).unwrap();
        io.write_all(bytes).unwrap();
        let mut answer = Vec::new();
        io.read_to_end(&mut answer).unwrap();
        let error = serving.finish().to_string();
        assert!(error.contains(word), "{error}");
    }
    // A relay that cuts the ClientHello into records of seven bytes.
    let serving = server.serve_handshakes(1, async |mut accepted| {
        accepted.remove(0).map(|stream| stream.info().unwrap().server_name.clone())
    });
    let relay = std::net::TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let relay_address = relay.local_addr().unwrap();
    let upstream = serving.address;
    let relaying = std::thread::spawn(move || {
        let (mut client, _) = relay.accept().unwrap();
        let mut server = std::net::TcpStream::connect(upstream).unwrap();
        let mut header = [0; 5];
        client.read_exact(&mut header).unwrap();
        let mut hello = vec![0; usize::from(u16::from_be_bytes([header[3], header[4]]))];
        client.read_exact(&mut hello).unwrap();
        for piece in hello.chunks(7) {
            server.write_all(&[22, 3, 1, 0, piece.len() as u8]).unwrap();
            server.write_all(piece).unwrap();
        }
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        let back = std::thread::spawn(move || std::io::copy(&mut from, &mut to));
        let _ = std::io::copy(&mut client, &mut server);
        drop(back);
    });
    let connector = Connector::trusting(&[&pki], Suite::TLS13, None, false).name("localhost");
    drop(connector.connect(relay_address));
    assert_eq!(serving.finish().unwrap().as_deref(), Some("localhost"));
    drop(relaying);
}

#[test]
fn a_chain_out_of_order_is_refused() {
    let (a, b) = (Pki::for_names(&["a.test"]), Authority::new("b"));
    let chain = a.directory().join("chain.pem");
    let pems = [a.certificate_file(), b.pki().certificate_file()].map(|file| std::fs::read_to_string(file).unwrap());
    std::fs::write(&chain, pems.concat()).unwrap();
    let error = Certificate::from_pem_files(&chain, &a.key_file()).unwrap_err();
    assert!(matches!(error, ConfigError::Disordered { at: 2, .. }), "{error}");
    assert!(error.to_string().contains("CN=b"), "{error}");
}

/// Also if sites differ in nothing else; a resumed session does not change it.
#[test]
fn a_site_has_protocols_of_its_own() {
    let (one, two) = (Pki::for_names(&["one.test", "else.test"]), Pki::for_names(&["two.test"]));
    let h2: &[&[u8]] = &[b"h2", b"http/1.1"];
    let owned = |protocols: &[&[u8]]| protocols.iter().map(|protocol| protocol.to_vec()).collect::<Vec<_>>();
    let sites = [
        site(&["one.test"], &[&one], None),
        SiteTls { alpn: Some(owned(&h2[1..])), ..site(&["two.test"], &[&two], None) },
    ];
    let server = server(&sites, &TlsOptions::new(h2).unwrap());
    for (name, pki, expected) in [("one.test", &one, h2[0]), ("two.test", &two, h2[1]), ("else.test", &one, h2[0])] {
        let connector = Connector::new(pki, Suite::TLS13).name(name).alpn(h2);
        for resumed in [false, true] {
            let info = connect(&server, &connector).1.unwrap();
            assert_eq!((info.alpn.as_deref(), info.resumed), (Some(expected), resumed), "{name}");
        }
    }
}
