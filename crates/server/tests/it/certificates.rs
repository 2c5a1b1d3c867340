//! Certificates of several sites: which one a client sees, what is worth a warning, and files that change under a running server.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::time::{Duration, SystemTime};

use sealion_testkit::pki::{Authority, Pki};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Client, Connector, Suite, http};

use crate::support::sites::Sites;
use crate::support::{messages, wait_for_message, wait_until};

/// The status and body of `/name` for this host.
fn get(client: &mut Client, host: &str) -> (u16, String) {
    client.send(http::head("GET", "/name", &[("Host", host)]).as_bytes()).expect("the request leaves");
    let response = http::read_response(client, "GET").expect("a response");
    (response.status, String::from_utf8(response.body).expect("text"))
}

/// The certificate that a client sees who trusts all of these.
#[track_caller]
fn seen<'p>(server: &Server, name: &str, pkis: &[&'p Pki]) -> &'p Pki {
    let connector = Connector::trusting(pkis, Suite::TLS13, None, false).name(name);
    let certificate = connector.connect(server.address()).info().certificate.clone();
    pkis.iter()
        .find(|pki| certificate.as_ref() == Some(pki.certificate()))
        .expect("it is one of those that are trusted")
}

#[test]
fn each_site_shows_its_certificate_in_the_kind_that_a_client_can_check() {
    let (a, a_rsa, b) =
        (Pki::for_names(&["a.test"]), Pki::rsa_for_names(&["a.test"]), Pki::for_names(&["*.b.test", "c.test"]));
    let sites = Sites::new();
    sites.add_root("b");
    let server = sites
        .config()
        .site("root", &[&a_rsa, &a], "names = ['a.test']")
        .site("b", &[&b], "names = ['*.b.test']")
        .site("b", &[&b], "names = ['c.test']")
        .serve_from_user_space();
    for suite in [Suite::TLS13, Suite::TLS12] {
        for (name, pki, rsa_only, body) in
            [("a.test", &a, false, "root"), ("a.test", &a_rsa, true, "root"), ("x.b.test", &b, false, "b")]
        {
            let connector = Connector::trusting(&[&a, &a_rsa, &b], suite, None, rsa_only).name(name);
            let mut client = connector.connect(server.address());
            assert!(client.info().certificate.as_ref() == Some(pki.certificate()), "{name}, RSA only: {rsa_only}");
            assert_eq!(get(&mut client, name), (200, body.to_owned()));
        }
    }
}

#[test]
fn what_is_worth_a_look_is_said_and_what_is_wrong_is_refused() {
    let now = SystemTime::now();
    let day = Duration::from_secs(24 * 3600);
    let expired = Pki::valid(&["a.test"], now - 10 * day, now - day);
    let future = Pki::valid(&["a.test"], now + day, now + 10 * day);
    let elsewhere = Pki::for_names(&["else.test"]);
    fs::set_permissions(elsewhere.key_file(), fs::Permissions::from_mode(0o644)).expect("it is ours");
    let sites = Sites::new();
    for (pki, words) in [
        (&future, &["is not valid before"][..]),
        (&elsewhere, &["covers else.test, but not a.test", "private key is readable by every user"]),
    ] {
        let output = sites.config().site("root", &[pki], "names = ['a.test']").check();
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(words.iter().all(|word| text.contains(word)) && text.contains("valid until"), "{text}");
    }
    let output = sites.config().site("root", &[&expired], "names = ['a.test']").check();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(!output.status.success() && text.ends_with("not OK, 1 error, 1 warning\n"), "{text}");
    assert!(text.contains("\nerror: ") && text.contains(", so that clients refuse it: renew it"), "{text}");
    assert_eq!(text.matches("expired at").count(), 1, "{text}");
    let mixed =
        format!("certificates = [{{ cert = {:?}, key = {:?} }}]\n", expired.certificate_file(), future.key_file());
    for (rest, words) in [
        (mixed.as_str(), "site.certificates.cert: "),
        (
            "certificates = [{ cert = 'gone.pem', key = 'gone.pem' }]\n",
            "gone.pem: cannot be used as the certificate: No such file or directory (os error 2): put the file there",
        ),
        ("client_auth = { roots = 'gone.pem' }\n", "site.client_auth.roots: "),
        ("acme = true\n", "tls.acme.agree_to_terms: no certificate is ordered before you agree"),
        (
            "acme = true\n[tls.acme]\nagree_to_terms = true\nchallenge = 'http-01'\nstate = 'acme'\n",
            "tls.acme.challenge: HTTP-01 needs a listener for plain HTTP, and no [[listen]] has `tls = false`",
        ),
        ("[tls]\nsuites = ['TLS_NULL']\n", "tls.suites: TLS_NULL is not a suite known here"),
        ("[tls]\nmin_version = '1.1'\n", "tls.min_version: "),
        ("[tls.session_tickets]\nkeys = 'gone'\n", "tls.session_tickets.keys: "),
        (
            "[tls]\nacme = { agree_to_terms = true }\n[[site]]\nnames = ['*.b.test']\nroot = 'root'\nacme = true\n",
            "wildcards need `challenge = \"dns-01\"`",
        ),
    ] {
        let output = sites.config().site("root", &[], &format!("names = ['a.example']\n{rest}")).check();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && text.contains(words), "{words:?} is not in {text:?}");
    }
}

/// Copies a pair over another's files, one after the other.
fn put(from: &Pki, to: &Pki, certificate_first: bool, between: impl FnOnce()) {
    let certificate = || fs::copy(from.certificate_file(), to.certificate_file()).expect("it is copied");
    let key = || fs::copy(from.key_file(), to.key_file()).expect("it is copied");
    if certificate_first {
        certificate();
        between();
        key();
    } else {
        key();
        between();
        certificate();
    }
}

#[test]
fn changed_files_are_taken_over_once_they_are_a_pair() {
    let [used, old, new, newer] = [(); 4].map(|()| Pki::for_names(&["a.test"]));
    put(&old, &used, true, || ());
    let sites = Sites::new();
    let server = sites.config().site("root", &[&used], "names = ['a.test']").serve_from_user_space();
    let all = [&old, &new, &newer];
    let mut kept = Connector::new(&old, Suite::TLS13).name("a.test").connect(server.address());
    assert_eq!(get(&mut kept, "a.test").0, 200);

    // Half a pair is not taken: the old one is served until the other half is there.
    put(&new, &used, true, || {
        wait_for_message(&server, "is not the private key of");
        assert!(std::ptr::eq(seen(&server, "a.test", &all), &old));
    });
    wait_for_message(&server, "certificate replaced, valid until");
    assert!(std::ptr::eq(seen(&server, "a.test", &all), &new));

    // Neither is what is no certificate, also when the configuration is read again.
    fs::write(used.certificate_file(), "nonsense").expect("it is written");
    wait_for_message(&server, "no CERTIFICATE section");
    server.signal(Signal::HUP);
    wait_for_message(&server, "the configuration was not reloaded");
    assert!(std::ptr::eq(seen(&server, "a.test", &all), &new));

    // One message each way.
    put(&newer, &used, false, || ());
    server.wait_for_lines(2, "certificate replaced", |line| line.text.contains("certificate replaced"));
    assert!(std::ptr::eq(seen(&server, "a.test", &all), &newer));
    assert_eq!(messages(&server, "The previous certificate stays in use"), 2);
    assert_eq!(get(&mut kept, "a.test").0, 200, "connections are not touched");
}

/// As certbot and Kubernetes do it: the files are reached through a link above them.
#[test]
fn a_link_that_is_moved_is_a_change() {
    let [old, new] = [(); 2].map(|()| Pki::for_names(&["a.test"]));
    let sites = Sites::new();
    symlink(old.directory(), sites.path("live")).expect("a link");
    let live = "names = ['a.test']\ncertificates = [{ cert = 'live/certificate.pem', key = 'live/key.pem' }]";
    let server = sites.config().site("root", &[], live).serve_from_user_space();
    assert!(std::ptr::eq(seen(&server, "a.test", &[&old, &new]), &old));
    symlink(new.directory(), sites.path("next")).expect("a link");
    fs::rename(sites.path("next"), sites.path("live")).expect("the link is moved");
    wait_for_message(&server, "certificate replaced");
    assert!(std::ptr::eq(seen(&server, "a.test", &[&old, &new]), &new));
}

#[test]
fn a_site_lets_in_clients_with_certificates_of_its_roots() {
    let pki = Pki::for_names(&["open.test", "closed.test", "other.test"]);
    let (ours, theirs) = (Authority::new("ours"), Authority::new("theirs"));
    let (alice, eve) = (ours.issue_client("alice"), theirs.issue_client("eve"));
    let sites = Sites::new();
    sites.add_root("closed");
    let auth = |authority: &Authority, mode| {
        format!("client_auth = {{ roots = {:?}, mode = '{mode}' }}", authority.pki().certificate_file())
    };
    let server = sites
        .config()
        .site("root", &[&pki], "names = ['open.test']\ndefault = true")
        .site(
            "closed",
            &[],
            &format!(
                "names = ['closed.test']\nheaders = {{ set = {{ X-Closed = 'yes' }} }}\n{}",
                auth(&ours, "require")
            ),
        )
        .site("closed", &[], &format!("names = ['other.test']\n{}", auth(&theirs, "request")))
        .serve_from_user_space();
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = |own, name| Connector::trusting(&[&pki], suite, own, false).name(name);
        let closed = (200, "closed".to_owned());
        let mut client = connector(Some(&alice), "closed.test").connect(server.address());
        assert_eq!(get(&mut client, "closed.test"), closed);
        // A client that one site let in is not let in to a site that asks for more, or for something else.
        assert_eq!(get(&mut client, "other.test").0, 421);
        assert_eq!(get(&mut client, "open.test").0, 200);
        let mut client = connector(Some(&alice), "open.test").connect(server.address());
        assert_eq!(get(&mut client, "closed.test").0, 421);
        assert_eq!(get(&mut client, "open.test").0, 200);
        // Nor does it show anything of itself where the content of a request cannot be read.
        let mut client = connector(Some(&alice), "open.test").connect(server.address());
        let broken = b"POST / HTTP/1.1\r\nHost: closed.test\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n";
        client.send(broken).expect("the server takes it");
        let ending = client.read_to_end().expect("the server closes");
        let received = String::from_utf8_lossy(&ending.data).into_owned();
        assert!(received.starts_with("HTTP/1.1 400 ") && !received.contains("X-Closed"), "{received}");
        for own in [None, Some(&eve)] {
            let mut client = connector(own, "other.test").connect(server.address());
            assert_eq!(get(&mut client, "other.test"), closed);
        }
        for (own, name) in [(None, "closed.test"), (Some(&eve), "closed.test"), (Some(&alice), "other.test")] {
            // In TLS 1.3 the client's own handshake has ended when the server refuses it (RFC 8446 §4.4.2.4).
            let refused = match connector(own, name).try_connect(server.address()) {
                Err(_) => true,
                Ok(mut client) => client.send(b"GET /name HTTP/1.1\r\n\r\n").is_err() || client.read(1).is_err(),
            };
            assert!(refused, "{suite}, {name}");
        }
    }
    // The connection has no response, and hence no line: the message tells why. One a second has a line.
    let connector = |own| Connector::trusting(&[&pki], Suite::TLS13, own, false).name("closed.test");
    for (own, why) in [(None, "peer sent no certificates"), (Some(&eve), "invalid peer certificate: UnknownIssuer")] {
        let words = format!("client certificate refused: {why}");
        wait_until(why, || {
            assert!(!is_let_in(&server, &connector(own)));
            messages(&server, &words) > 0
        });
        let line = wait_for_message(&server, &words);
        assert!(line.contains("INFO") && line.contains("127.0.0.1:"), "{line}");
    }
    for _ in 0..50 {
        assert!(!is_let_in(&server, &connector(None)));
    }
    wait_until("those without a line are counted", || {
        assert!(!is_let_in(&server, &connector(None)));
        messages(&server, " more were rejected since the last such line") > 0
    });
}

/// Whether a client gets an answer.
fn is_let_in(server: &Server, connector: &Connector) -> bool {
    match connector.try_connect(server.address()) {
        Err(_) => false,
        // In TLS 1.3 the client's own handshake has ended when the server refuses it (RFC 8446 §4.4.2.4).
        Ok(mut client) => {
            let head = http::head("GET", "/name", &[("Host", "localhost")]);
            client.send(head.as_bytes()).is_ok() && http::read_response(&mut client, "GET").is_ok()
        }
    }
}

#[test]
fn a_client_on_a_revocation_list_is_refused_as_soon_as_the_file_says_so() {
    let (pki, ours) = (Pki::ecdsa(), Authority::new("ours"));
    let clients = ["alice", "bob"].map(|name| ours.issue_client(name));
    let sites = Sites::new();
    let (list, soon) = (sites.path("clients.crl"), SystemTime::now() + Duration::from_secs(24 * 3600));
    fs::write(&list, ours.revocation_list(&[], soon)).expect("it is written");
    let auth = format!("client_auth = {{ roots = {:?}, crls = ['clients.crl'] }}", ours.pki().certificate_file());
    let server = sites.config().site("root", &[&pki], &auth).serve_from_user_space();
    let suites = [Suite::TLS13, Suite::TLS12];
    // They resume sessions, as clients do.
    let all = suites.map(|suite| clients.each_ref().map(|own| Connector::trusting(&[&pki], suite, Some(own), false)));
    let let_in = || all.each_ref().map(|of_suite| of_suite.each_ref().map(|connector| is_let_in(&server, connector)));
    assert_eq!(let_in(), [[true, true]; 2]);
    let mut open = all[0][1].connect(server.address());

    fs::write(&list, ours.revocation_list(&["bob"], soon)).expect("it is written");
    wait_for_message(&server, "clients.crl: revocation list read: 1 certificates, valid until");
    assert_eq!(let_in(), [[true, false]; 2]);
    // An open connection goes on.
    assert_eq!(get(&mut open, "localhost").0, 200);

    fs::write(&list, "no list").expect("it is written");
    wait_for_message(&server, "The revocation lists before stay in use");
    assert_eq!(let_in(), [[true, false]; 2]);
}

#[test]
fn expired_and_missing_revocation_lists_refuse_clients_unless_that_is_chosen() {
    let (pki, ours, theirs) = (Pki::ecdsa(), Authority::new("ours"), Authority::new("theirs"));
    let (alice, eve) = (ours.issue_client("alice"), theirs.issue_client("eve"));
    let sites = Sites::new();
    let day = Duration::from_secs(24 * 3600);
    let roots = [&ours, &theirs].map(|authority| fs::read_to_string(authority.pki().certificate_file()).expect("text"));
    fs::write(sites.path("roots.pem"), roots.concat()).expect("it is written");
    for (until, more, expected, words) in [
        (
            SystemTime::now() - day,
            "",
            [false, false],
            "clients of that issuer are refused until the file has a newer one",
        ),
        (
            SystemTime::now() - day,
            ", expired_crls = 'accept'",
            [true, false],
            "clients that were revoked since of that issuer are accepted: put a newer one there",
        ),
        (SystemTime::now() + day, "", [true, false], "have no list of \"CN=theirs\""),
    ] {
        fs::write(sites.path("clients.crl"), ours.revocation_list(&[], until)).expect("it is written");
        let auth = format!("client_auth = {{ roots = 'roots.pem', crls = ['clients.crl']{more} }}");
        let server = sites.config().site("root", &[&pki], &auth).serve_from_user_space();
        wait_for_message(&server, words);
        let let_in =
            [&alice, &eve].map(|own| is_let_in(&server, &Connector::trusting(&[&pki], Suite::TLS13, Some(own), false)));
        assert_eq!(let_in, expected, "{until:?}{more}");
    }
}

#[test]
fn the_least_version_and_the_suites_hold() {
    let pki = Pki::ecdsa();
    let sites = Sites::new();
    let tls =
        "[tls]\nmin_version = '1.3'\nsuites = ['TLS_AES_128_GCM_SHA256', 'TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256']";
    let server = sites.config().site("root", &[&pki], "").table(tls).serve_from_user_space();
    for suite in Suite::all() {
        let connected = Connector::new(&pki, suite).try_connect(server.address()).is_ok();
        assert_eq!(connected, suite == Suite::TLS13, "{suite}");
    }
}
