//! Certificates from an ACME server: Pebble, Let's Encrypt's own for tests, on this machine, with certificates of seconds.

use std::fs;
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sealion_testkit::pki::Pki;

use crate::support::config::Config;
use crate::support::port::free_port;
use crate::support::sites::Sites;
use crate::support::{built_program, messages, tool, wait_for_message, wait_until};

/// Seconds that a certificate is valid: renewed after two thirds.
const VALIDITY: u32 = 8;

/// An ACME server, which ends with this.
struct Pebble {
    process: Child,
    directory: String,
}

impl Pebble {
    /// It validates on these ports.
    fn start(sites: &Sites, pki: &Pki, tls_port: u16, http_port: u16) -> Self {
        let (port, management) = (free_port(), free_port());
        let config = sites.path("pebble.json");
        let text = format!(
            r#"{{"pebble": {{"listenAddress": "127.0.0.1:{port}", "managementListenAddress": "127.0.0.1:{management}",
            "certificate": {:?}, "privateKey": {:?}, "httpPort": {http_port}, "tlsPort": {tls_port},
            "ocspResponderURL": "", "externalAccountBindingRequired": false, "retryAfter": {{"authz": 1, "order": 1}},
            "certificateValidityPeriod": {VALIDITY},
            "profiles": {{"default": {{"description": "short", "validityPeriod": {VALIDITY}}}}}}}}}"#,
            pki.certificate_file(),
            pki.key_file()
        );
        fs::write(&config, text).expect("it is written");
        let log = fs::File::create(sites.path("pebble.log")).expect("a log");
        let mut command = Command::new(built_program("pebble"));
        command.arg("-config").arg(&config).env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a copy")).stderr(log);
        let process = command.spawn().expect("Pebble starts");
        let pebble = Self { process, directory: format!("https://127.0.0.1:{port}/dir") };
        wait_until("Pebble listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        pebble
    }
}

impl Drop for Pebble {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// With few system calls and files; and where root starts the server, which makes what its user cannot, as another user.
fn confined(sites: &Sites, pki: &Pki) -> String {
    let user = if rustix::process::geteuid().is_root() {
        for directory in [&sites.path(""), pki.directory()] {
            fs::set_permissions(directory, fs::Permissions::from_mode(0o755)).expect("it is ours");
        }
        "user = '65534'\n"
    } else {
        ""
    };
    format!("[privileges]\nlandlock = true\nseccomp = 'kill'\n{user}")
}

fn configuration(sites: &Sites, pebble: &Pebble, pki: &Pki, port: u16, challenge: &str) -> Config {
    let acme = format!(
        "[tls.acme]\ndirectory = '{}'\nagree_to_terms = true\nchallenge = '{challenge}'\nstate = 'acme'\nroot = {:?}\n\
         contact = ['mailto:admin@example.org']",
        pebble.directory,
        pki.certificate_file()
    );
    let config = sites.config().listen(&format!("address = '127.0.0.1:{port}'"));
    config.site("root", &[], "names = ['localhost']\nacme = true").table(&confined(sites, pki)).table(&acme)
}

/// The subject of who issued what is shown on this port, and the end of its validity.
fn shown(port: u16) -> String {
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername localhost </dev/null 2>/dev/null | openssl x509 -noout -issuer -serial"
    );
    tool("sh", ["-c", &script])
}

fn kept(state: &Path) -> PathBuf {
    let authority = fs::read_dir(state).expect("it is there").next().expect("an authority").expect("an entry");
    authority.path()
}

#[test]
fn a_certificate_is_got_and_renewed_while_serving() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let port = free_port();
    let pebble = Pebble::start(&sites, &pki, port, free_port());
    let server = configuration(&sites, &pebble, &pki, port, "tls-alpn-01").serve_from_user_space();
    wait_for_message(&server, "a self-signed certificate is used");
    wait_for_message(&server, "ACME: account created");
    wait_for_message(&server, "ACME: certificate obtained for localhost, valid until");
    wait_for_message(&server, "certificate replaced, valid until");
    let first = shown(port);
    assert!(first.contains("Pebble Intermediate CA"), "{first}");
    let state = kept(&sites.path("acme"));
    for name in ["account.json", "localhost.pem"] {
        let mode = fs::metadata(state.join(name)).expect("it is kept").permissions().mode();
        assert_eq!(mode & 0o777, 0o600, "{name}");
    }

    server.wait_for_lines(2, "a renewal", |line| line.text.contains("certificate replaced, valid until"));
    let second = shown(port);
    assert!(second.contains("Pebble Intermediate CA") && second != first, "{second}");
    assert_eq!(messages(&server, "no certificate for"), 0);
    drop(server);

    // What is kept is used by the next process, with the same account.
    let server = configuration(&sites, &pebble, &pki, port, "tls-alpn-01").serve_from_user_space();
    assert!(shown(port).contains("Pebble Intermediate CA"));
    assert_eq!(messages(&server, "a self-signed certificate is used"), 0);
    wait_for_message(&server, "ACME: certificate obtained for localhost");
    assert_eq!(messages(&server, "account created"), 0);
}

#[test]
fn a_listener_without_tls_answers_validations() {
    validate_by_http("");
}

#[test]
fn a_listener_that_serves_without_tls_answers_validations() {
    validate_by_http("plain = 'serve'");
}

/// `keys`: those of the listener without TLS.
#[track_caller]
fn validate_by_http(keys: &str) {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let (port, plain) = (free_port(), free_port());
    let pebble = Pebble::start(&sites, &pki, free_port(), plain);
    let config = configuration(&sites, &pebble, &pki, port, "http-01");
    let server = config.listen(&format!("address = '127.0.0.1:{plain}'\ntls = false\n{keys}")).serve_from_user_space();
    wait_for_message(&server, "ACME: certificate obtained for localhost, valid until");
    wait_for_message(&server, "certificate replaced, valid until");
    assert!(shown(port).contains("Pebble Intermediate CA"));
}

#[test]
fn a_failure_is_told_and_not_tried_again_at_once() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let port = free_port();
    // It validates where nobody listens.
    let pebble = Pebble::start(&sites, &pki, free_port(), free_port());
    let config = configuration(&sites, &pebble, &pki, port, "tls-alpn-01");
    let server = config.serve_from_user_space();
    let line = wait_for_message(&server, "ACME: no certificate for localhost");
    assert!(
        line.contains("Failed to connect") && line.contains("Next try at") && line.contains("self-signed one is used"),
        "{line}"
    );
    drop(server);
    // Nor by a process that is started again.
    let before = fs::read(kept(&sites.path("acme")).join("localhost.failed.json")).expect("it is kept");
    let server = config.serve_from_user_space();
    assert!(!shown(port).is_empty());
    let after = fs::read(kept(&sites.path("acme")).join("localhost.failed.json")).expect("it is kept");
    assert_eq!((after, messages(&server, "no certificate for")), (before, 0));
}
