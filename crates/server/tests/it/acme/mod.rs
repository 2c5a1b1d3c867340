//! Certificates from an ACME server: Pebble, Let's Encrypt's own for tests, on this machine, with certificates of seconds.

mod on_demand;

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::write_program;

use crate::support::config::Config;
use crate::support::port::free_port;
use crate::support::sites::Sites;
use crate::support::{PROGRAM, built_program, demand_full_run, messages, tool, wait_for_message, wait_until};

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
        Self::start_with(sites, pki, [tls_port, http_port], &[], "")
    }

    /// `profiles`: beside the default one. Of several, Pebble takes any where an order names none.
    fn start_with(sites: &Sites, pki: &Pki, ports: [u16; 2], options: &[&str], profiles: &str) -> Self {
        let [tls_port, http_port] = ports;
        let (port, management) = (free_port(), free_port());
        let config = sites.path(&format!("pebble-{port}.json"));
        let text = format!(
            r#"{{"pebble": {{"listenAddress": "127.0.0.1:{port}", "managementListenAddress": "127.0.0.1:{management}",
            "certificate": {:?}, "privateKey": {:?}, "httpPort": {http_port}, "tlsPort": {tls_port},
            "ocspResponderURL": "", "externalAccountBindingRequired": false, "retryAfter": {{"authz": 1, "order": 1}},
            "certificateValidityPeriod": {VALIDITY},
            "profiles": {{"default": {{"description": "short", "validityPeriod": {VALIDITY}}}{profiles}}}}}}}"#,
            pki.certificate_file(),
            pki.key_file()
        );
        fs::write(&config, text).expect("it is written");
        let log = fs::File::create(sites.path(&format!("pebble-{port}.log"))).expect("a log");
        let mut command = Command::new(built_program("pebble"));
        // Percent of the nonces that it refuses, which the library tries three times. By default it is 5: one run of all tests in fifty failed.
        command.env("PEBBLE_WFE_NONCEREJECT", "1");
        command.arg("-config").arg(&config).args(options).env("PEBBLE_VA_NOSLEEP", "1").env("PEBBLE_AUTHZREUSE", "0");
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

    // The next process uses the kept files, with the same account.
    let server = configuration(&sites, &pebble, &pki, port, "tls-alpn-01").serve_from_user_space();
    assert!(shown(port).contains("Pebble Intermediate CA"));
    assert_eq!(messages(&server, "a self-signed certificate is used"), 0);
    wait_for_message(&server, "ACME: certificate obtained for localhost");
    assert_eq!(messages(&server, "account created"), 0);
}

/// An address is validated over TLS by its name in the DNS, or over HTTP. The profile is the authority's second: the configuration names it, or it is
/// Let's Encrypt's for addresses.
#[test]
fn an_address_gets_a_certificate_of_the_profile_that_was_chosen() {
    for (challenge, profile, key) in [("tls-alpn-01", "long", "profile = 'long'"), ("http-01", "shortlived", "")] {
        let (pki, sites) = (Pki::ecdsa(), Sites::new());
        let (port, plain) = (free_port(), free_port());
        let second = format!(r#", "{profile}": {{"description": "an hour", "validityPeriod": 3600}}"#);
        let pebble = Pebble::start_with(&sites, &pki, [port, plain], &[], &second);
        let acme = format!(
            "[tls.acme]\ndirectory = '{}'\nagree_to_terms = true\nchallenge = '{challenge}'\nstate = 'acme'\nroot = {:?}\n{key}",
            pebble.directory,
            pki.certificate_file()
        );
        let config = sites.config().listen(&format!("address = '127.0.0.1:{port}'"));
        let config = config.listen(&format!("address = '127.0.0.1:{plain}'\ntls = false"));
        let server =
            config.site("root", &[], "names = ['127.0.0.1']\nacme = true").table(&acme).serve_from_user_space();
        wait_for_message(&server, "ACME: certificate obtained for 127.0.0.1, valid until");
        wait_for_message(&server, "certificate replaced, valid until");
        let script = format!(
            "openssl s_client -connect 127.0.0.1:{port} </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName -checkend 1800"
        );
        let text = tool("sh", ["-c", &script]);
        assert!(text.contains("IP Address:127.0.0.1") && text.contains("will not expire"), "{challenge}: {text}");
    }
}

#[test]
fn a_name_on_the_command_line_gets_a_certificate() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let port = free_port();
    let pebble = Pebble::start(&sites, &pki, port, free_port());
    let (root, state) = (sites.path("root"), sites.path("state"));
    fs::create_dir_all(&root).expect("a root");
    let mut command = Command::new(PROGRAM);
    command.arg("serve").arg(&root).args(["--domain", "localhost", "--email", "admin@example.org", "--ktls", "never"]);
    command.args(["--listen", &format!("127.0.0.1:{port}"), "--acme-directory", &pebble.directory]);
    command.arg("--acme-root").arg(pki.certificate_file()).arg("--acme-state").arg(&state);
    let server = Server::spawn(command);
    wait_for_message(&server, "ACME: certificate obtained for localhost, valid until");
    wait_for_message(&server, "certificate replaced, valid until");
    assert!(shown(port).contains("Pebble Intermediate CA"));
    assert!(kept(&state).join("account.json").exists());
}

#[test]
fn a_listener_without_tls_answers_validations() {
    validate_by_http("");
}

#[test]
fn a_listener_that_serves_without_tls_answers_validations() {
    validate_by_http("plain = 'serve'");
}

/// `keys`: keys of the listener without TLS.
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
    // It validates at a port without a listener.
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

/// Accepts connections and says nothing.
fn silent_authority() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        let mut open = Vec::new();
        for client in listener.incoming() {
            open.push(client);
        }
    });
    port
}

/// Three sites at three authorities. One of them does not answer, which costs the others nothing: an order takes six minutes until it is given up.
#[test]
fn each_site_orders_by_its_own_account() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let port = free_port();
    let dns = format!("127.0.0.1:{}", serve_zone(sites.path("zone")));
    let pebbles = [(); 2].map(|()| Pebble::start_with(&sites, &pki, [port, free_port()], &["-dnsserver", &dns], ""));
    let account = |directory: &str| {
        format!(
            "directory = '{directory}'\nagree_to_terms = true\nstate = 'acme'\nroot = {:?}\n",
            pki.certificate_file()
        )
    };
    let tables = [
        "[tls.acme]\n".to_owned() + &account(&format!("https://127.0.0.1:{}/dir", silent_authority())),
        "[[tls.acme_accounts]]\nname = 'one'\n".to_owned() + &account(&pebbles[0].directory),
        // The same authority as another account's.
        "[[tls.acme_accounts]]\nname = 'two'\n".to_owned() + &account(&pebbles[1].directory),
        "[[tls.acme_accounts]]\nname = 'again'\n".to_owned() + &account(&pebbles[1].directory),
    ];
    let mut config = sites.config().listen(&format!("address = '127.0.0.1:{port}'"));
    for (name, acme) in [("silent.test", "true"), ("localhost", "'one'"), ("b.test", "'two'"), ("c.test", "'again'")] {
        config = config.site("root", &[], &format!("names = ['{name}']\nacme = {acme}"));
    }
    let config = config.table(&confined(&sites, &pki)).table(&tables.concat());
    let server = config.serve_from_user_space();
    for name in ["localhost", "b.test", "c.test"] {
        wait_for_message(&server, &format!("ACME: certificate obtained for {name}, valid until"));
    }
    assert_eq!(messages(&server, "ACME: account created"), 3);
    assert_eq!(messages(&server, "no certificate for"), 0);
    let entries = fs::read_dir(sites.path("acme")).expect("it is there");
    let mut kept: Vec<_> =
        entries.map(|entry| entry.expect("an entry").file_name().into_string().expect("text")).collect();
    kept.sort_by_key(|name| name.rsplit_once('~').map(|(_, account)| account.to_owned()));
    let accounts: Vec<_> = kept.iter().map(|name| name.split_once('~').map(|(_, account)| account)).collect();
    assert_eq!(accounts, [None, Some("again"), Some("one"), Some("two")], "{kept:?}");
    wait_until("it is shown", || shown(port).contains("Pebble Intermediate CA"));
}

#[test]
fn an_account_that_a_reload_adds_needs_a_state_that_the_server_can_write() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let config = || sites.config().site("root", &[&pki], "default = true").table(&confined(&sites, &pki));
    let server = config().serve_from_user_space();
    let account = "[[tls.acme_accounts]]\nname = 'one'\nagree_to_terms = true\nstate = 'none'\n";
    config().site("root", &[], "names = ['a.example']\nacme = 'one'").table(account).write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "cannot be created: Permission denied");
    wait_for_message(&server, "the configuration was not reloaded");
}

#[test]
fn accounts_that_cannot_be_told_apart_are_refused() {
    let sites = Sites::new();
    for (acme, tables, words) in [
        (
            "'two'",
            "[[tls.acme_accounts]]\nname = 'one'",
            "there is no [[tls.acme_accounts]] with the name \"two\": add it",
        ),
        (
            "'one'",
            "[[tls.acme_accounts]]\nname = 'one'",
            "tls.acme_accounts.agree_to_terms: no certificate is ordered before you agree: read",
        ),
        ("true", "[[tls.acme_accounts]]\nagree_to_terms = true", "tls.acme_accounts.name: is missing"),
        ("true", "[[tls.acme_accounts]]\nname = 'a/b'", "tls.acme_accounts.name: write letters, digits"),
        ("true", "[tls.acme]\nname = 'one'", "tls.acme.name: sites choose this account by acme = true"),
        (
            "'one'",
            "[[tls.acme_accounts]]\nname = 'one'\n[[tls.acme_accounts]]\nname = 'one'",
            "tls.acme_accounts.name: is the name of two accounts",
        ),
        (
            "'one'",
            "[[tls.acme_accounts]]\nname = 'one'\nagree_to_terms = true\nchallenge = 'http-01'",
            "tls.acme_accounts.challenge: HTTP-01 needs a listener for plain HTTP",
        ),
        ("1", "", "expected true, false, or the name of an account"),
    ] {
        let config = sites.config().site("root", &[], &format!("names = ['a.example']\nacme = {acme}"));
        let problems = config.table(&format!("{tables}\n")).problems();
        assert!(problems.contains(words), "{acme} {tables}: {problems}");
    }
}

/// A zone: a directory for each name that has records, with a file for each text. Pebble asks over TCP.
fn serve_zone(directory: PathBuf) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            let directory = directory.clone();
            std::thread::spawn(move || {
                let mut len = [0; 2];
                while client.read_exact(&mut len).is_ok() {
                    let mut query = vec![0; usize::from(u16::from_be_bytes(len))];
                    client.read_exact(&mut query).expect("the whole query comes");
                    let answer = look_up(&directory, &query);
                    let len = u16::try_from(answer.len()).expect("it is short").to_be_bytes();
                    client.write_all(&[&len, &answer[..]].concat()).expect("Pebble reads");
                }
            });
        }
    });
    port
}

/// The address 127.0.0.1 for the name that was asked for.
const LOCAL: [u8; 16] = [0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 0, 0, 4, 127, 0, 0, 1];

/// An authoritative answer without error (RFC 1035 §4.1.1). Every name is this machine's.
fn look_up(zone: &Path, query: &[u8]) -> Vec<u8> {
    let (mut name, mut at) = (String::new(), 12);
    while query[at] != 0 {
        let label = &query[at + 1..][..usize::from(query[at])];
        name.push_str(&String::from_utf8_lossy(label).to_lowercase());
        name.push('.');
        at += 1 + label.len();
    }
    let question = &query[12..at + 5];
    let kind = question[question.len() - 3];
    if kind == 1 {
        return [&query[..2], &[0x84, 0, 0, 1, 0, 1, 0, 0, 0, 0], question, &LOCAL].concat();
    }
    let is_text = kind == 16;
    let texts = fs::read_dir(zone.join(name)).into_iter().flatten().filter(|_| is_text);
    let texts: Vec<_> = texts.map(|entry| entry.expect("an entry").file_name()).collect();
    let mut answer = [&query[..2], &[0x84, 0, 0, 1, 0, texts.len() as u8, 0, 0, 0, 0], question].concat();
    for text in texts {
        let (text, len) = (text.as_encoded_bytes(), text.len() as u8);
        answer.extend([0xc0, 12, 0, 16, 0, 1, 0, 0, 0, 0, 0, len + 1, len]);
        answer.extend(text);
    }
    answer
}

/// A hook that keeps its records as files, and counts its calls.
fn hook(sites: &Sites, more: &str) {
    let zone = sites.path("zone");
    fs::create_dir(&zone).expect("a directory");
    let text = format!(
        "#!/bin/sh\nset -e\ncd '{}'\necho \"$@\" >>../calls\n{more}\n\
         case $1 in present) mkdir -p \"$2\"; : >\"$2/$3\";; cleanup) rm \"$2/$3\";; esac\n",
        zone.display()
    );
    write_program(&sites.path("hook"), &text);
}

fn by_dns(sites: &Sites, pebble: &Pebble, pki: &Pki, port: u16) -> Config {
    let acme = format!(
        "[tls.acme]\ndirectory = '{}'\nagree_to_terms = true\nchallenge = 'dns-01'\ndns_hook = 'hook'\ndns_wait = '0s'\n\
         state = 'acme'\nroot = {:?}\n",
        pebble.directory,
        pki.certificate_file()
    );
    let config = sites.config().listen(&format!("address = '127.0.0.1:{port}'"));
    config.site("root", &[], "names = ['*.zone.test', 'zone.test']\nacme = true").table(&acme)
}

#[test]
fn a_wildcard_is_validated_by_records_that_a_program_sets_and_removes() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let port = free_port();
    hook(&sites, "");
    let dns = format!("127.0.0.1:{}", serve_zone(sites.path("zone")));
    let pebble = Pebble::start_with(&sites, &pki, [free_port(), free_port()], &["-dnsserver", &dns], "");
    let server = by_dns(&sites, &pebble, &pki, port).serve_from_user_space();
    wait_for_message(&server, "ACME: certificate obtained for *.zone.test, zone.test, valid until");
    wait_for_message(&server, "certificate replaced, valid until");
    let script = format!(
        "openssl s_client -connect 127.0.0.1:{port} -servername any.zone.test </dev/null 2>/dev/null | openssl x509 -noout -ext subjectAltName"
    );
    let names = tool("sh", ["-c", &script]);
    assert!(names.contains("DNS:*.zone.test") && names.contains("DNS:zone.test"), "{names}");
    // Both names have the same record, with two texts, which are gone.
    let calls = fs::read_to_string(sites.path("calls")).expect("it was called");
    let calls: Vec<Vec<&str>> = calls.lines().take(4).map(|call| call.split(' ').collect()).collect();
    let words: Vec<&str> = calls.iter().map(|call| call[0]).collect();
    assert_eq!(words, ["present", "present", "cleanup", "cleanup"]);
    assert!(calls.iter().all(|call| call[1] == "_acme-challenge.zone.test."), "{calls:?}");
    assert_eq!([calls[0][2], calls[1][2]], [calls[2][2], calls[3][2]]);
    assert_ne!(calls[0][2], calls[1][2]);
    assert!(kept(&sites.path("acme")).join("_.zone.test.pem").exists());
}

#[test]
fn a_program_that_fails_to_set_a_record_is_named_and_called_to_clean_up() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    hook(&sites, "test $1 != present || exit 7");
    let dns = format!("127.0.0.1:{}", serve_zone(sites.path("zone")));
    let pebble = Pebble::start_with(&sites, &pki, [free_port(), free_port()], &["-dnsserver", &dns], "");
    let server = by_dns(&sites, &pebble, &pki, free_port()).serve_from_user_space();
    wait_for_message(&server, "present _acme-challenge.zone.test. …` failed: exit status: 7. Next try at");
    wait_for_message(&server, "a record stays in the DNS: ");
    let calls = fs::read_to_string(sites.path("calls")).expect("it was called");
    assert_eq!(
        calls.lines().map(|call| call.split(' ').next().expect("a word")).collect::<Vec<_>>(),
        ["present", "cleanup"]
    );
}

#[test]
fn a_program_that_cannot_work_is_refused() {
    let sites = Sites::new();
    hook(&sites, "");
    fs::write(sites.path("plain"), "").expect("it is written");
    for (acme, more, words) in [
        ("challenge = 'dns-01'", "", "name a program in `dns_hook`"),
        ("dns_hook = 'hook'", "", "unused without `challenge = \"dns-01\"`"),
        ("challenge = 'dns-01'\ndns_hook = 'plain'", "", "plain: cannot be started: Permission denied"),
        (
            "challenge = 'dns-01'\ndns_hook = 'hook'",
            "[privileges]\nlandlock = true",
            "would be confined as the server is",
        ),
        (
            "challenge = 'tls-alpn-01'",
            "",
            "*.zone.test: ACME cannot validate this name; wildcards need `challenge = \"dns-01\"`",
        ),
    ] {
        let config = sites.config().site("root", &[], "names = ['*.zone.test']\nacme = true");
        let table = format!("[tls.acme]\nagree_to_terms = true\nstate = 'acme'\n{acme}\n{more}\n");
        let problems = config.table(&table).problems();
        assert!(problems.contains(words), "{acme}: {problems}");
    }
}

/// A DNS server with the zone `zone.test`, which a key may change; it ends with this.
struct Named {
    process: Child,
    port: u16,
}

const SECRET: &str = "c2VhbGlvbiBzZWFsaW9uIHNlYWxpb24gc2VhbGlvbiE=";

impl Named {
    fn start(sites: &Sites) -> Self {
        let port = free_port();
        let directory = sites.path("named");
        fs::create_dir(&directory).expect("a directory");
        let zone = "$TTL 60\n@ SOA ns hostmaster 1 60 60 60 60\n@ NS ns\nns A 127.0.0.1\n";
        fs::write(directory.join("zone"), zone).expect("it is written");
        let shown = directory.display();
        let text = format!(
            "options {{ directory \"{shown}\"; pid-file none; session-keyfile \"{shown}/session.key\"; recursion no;\n\
             listen-on port {port} {{ 127.0.0.1; }}; listen-on-v6 {{ none; }}; }};\ncontrols {{ }};\n\
             key \"acme.key\" {{ algorithm hmac-sha256; secret \"{SECRET}\"; }};\n\
             zone \"zone.test\" {{ type primary; file \"zone\";\n\
             update-policy {{ grant acme.key name _acme-challenge.zone.test. TXT; }}; }};\n"
        );
        fs::write(directory.join("named.conf"), text).expect("it is written");
        let log = fs::File::create(directory.join("log")).expect("a log");
        let mut command = Command::new(find_named());
        command.arg("-g").arg("-c").arg(directory.join("named.conf")).args(["-n", "1"]);
        let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn().expect("it starts");
        let named = Named { process, port };
        wait_until("named listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
        named
    }

    /// The texts of the record of validations.
    fn texts(&self) -> String {
        let port = self.port.to_string();
        tool("dig", ["+short", "+tcp", "-p", &port, "@127.0.0.1", "_acme-challenge.zone.test", "TXT"])
    }
}

impl Drop for Named {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// A user's PATH may lack root's directories.
fn find_named() -> PathBuf {
    demand_full_run("bind9");
    let directories = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].map(|directory| Path::new(directory).join("named"));
    directories
        .into_iter()
        .find(|program| program.is_file())
        .expect("bind9 is installed: cargo xtask test --only native")
}

fn by_update(sites: &Sites, pebble: &Pebble, pki: &Pki, port: u16, update: &str) -> Config {
    let acme = format!(
        "[tls.acme]\ndirectory = '{}'\nagree_to_terms = true\nchallenge = 'dns-01'\ndns_wait = '0s'\nstate = 'acme'\nroot = {:?}\n\
         [tls.acme.dns_update]\nkey_name = 'acme.key'\nsecret = 'secret'\n{update}\n",
        pebble.directory,
        pki.certificate_file()
    );
    let config = sites.config().listen(&format!("address = '127.0.0.1:{port}'"));
    let config = config.site("root", &[], "names = ['*.zone.test', 'zone.test']\nacme = true");
    config.table(&confined(sites, pki)).table(&acme)
}

#[test]
fn a_wildcard_is_validated_by_dynamic_updates_of_the_zone() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let named = Named::start(&sites);
    fs::write(sites.path("secret"), format!("{SECRET}\n")).expect("it is written");
    let dns = format!("127.0.0.1:{}", named.port);
    let pebble = Pebble::start_with(&sites, &pki, [free_port(), free_port()], &["-dnsserver", &dns], "");
    // The server names the zone, or the configuration does.
    for zone in ["", "zone = 'zone.test'"] {
        let port = free_port();
        let update = format!("server = '{dns}'\n{zone}");
        let server = by_update(&sites, &pebble, &pki, port, &update).serve_from_user_space();
        wait_for_message(&server, "ACME: certificate obtained for *.zone.test, zone.test, valid until");
        assert_eq!(messages(&server, "stays in the DNS"), 0);
        drop(server);
        wait_until("the records are removed", || named.texts().trim().is_empty());
        fs::remove_dir_all(sites.path("acme")).expect("it is ours");
    }
    let log = fs::read_to_string(sites.path("named/log")).expect("a log");
    assert!(log.contains("adding an RR at '_acme-challenge.zone.test' TXT"), "{log}");
}

#[test]
fn an_update_that_the_server_refuses_says_why() {
    let (pki, sites) = (Pki::ecdsa(), Sites::new());
    let named = Named::start(&sites);
    let dns = format!("127.0.0.1:{}", named.port);
    let pebble = Pebble::start_with(&sites, &pki, [free_port(), free_port()], &["-dnsserver", &dns], "");
    for (secret, zone, words) in [
        ("b3RoZXI=", "", "is invalid: "),
        (SECRET, "zone = 'other.test'", "the server returns NOTAUTH for the zone other.test"),
    ] {
        fs::write(sites.path("secret"), secret).expect("it is written");
        let update = format!("server = '{dns}'\n{zone}");
        let server = by_update(&sites, &pebble, &pki, free_port(), &update).serve_from_user_space();
        let line = wait_for_message(&server, "ACME: no certificate for *.zone.test");
        assert!(line.contains("_acme-challenge.zone.test. is not changed") && line.contains(words), "{line}");
        drop(server);
        fs::remove_dir_all(sites.path("acme")).expect("it is ours");
    }
}

#[test]
fn an_update_that_cannot_work_is_refused() {
    let sites = Sites::new();
    fs::write(sites.path("secret"), SECRET).expect("it is written");
    fs::write(sites.path("empty"), "no base64").expect("it is written");
    hook(&sites, "");
    for (challenge, update, words) in [
        ("dns-01", "server = 'ns1:'\nkey_name = 'a'\nsecret = 'secret'", "is not a server"),
        ("dns-01", "server = 'ns1'\nkey_name = 'a..b'\nsecret = 'secret'", "is not a valid name of a key"),
        ("dns-01", "server = 'ns1'\nkey_name = 'a'\nsecret = 'empty'", "must hold the key's secret"),
        ("dns-01", "server = 'ns1'\nkey_name = 'a'\nsecret = 'missing'", "missing: No such file"),
        ("dns-01", "server = 'ns1'\nkey_name = 'a'\nsecret = 'secret'\nzone = 'a..b'", "is not a valid name of a zone"),
        ("dns-01'\ndns_hook = 'hook", "server = 'ns1'\nkey_name = 'a'\nsecret = 'secret'", "remove one of the two"),
        ("http-01", "server = 'ns1'\nkey_name = 'a'\nsecret = 'secret'", "unused without `challenge"),
    ] {
        let config = sites.config().site("root", &[], "names = ['a.test']\nacme = true");
        let table = format!(
            "[tls.acme]\nagree_to_terms = true\nstate = 'acme'\nchallenge = '{challenge}'\n[tls.acme.dns_update]\n{update}\n"
        );
        let problems = config.table(&table).problems();
        assert!(problems.contains(words), "{challenge} {update}: {problems}");
    }
}
