//! Sessions that other processes resume: with keys from a directory, each in a network namespace of its own, and not without.

use crate::support;

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::service::Service;
use sealion_testkit::{Connector, Suite, http};
use support::namespace::Namespace;
use support::sites::{Sites, certificates};
use support::{PROGRAM, tool, wait_for_message};

fn make_key(directory: &Path, more: &[&str]) {
    tool(PROGRAM, ["ticket-key".as_ref(), directory.as_os_str()].into_iter().chain(more.iter().map(AsRef::as_ref)));
}

fn with_keys(pki: &Pki, keys: Option<&Path>) -> String {
    let tickets = keys.map(|keys| format!("[tls.session_tickets]\nkeys = {keys:?}\n")).unwrap_or_default();
    format!("{tickets}[[site]]\nroot = 'root'\n{}", certificates(&[pki]))
}

/// A connection that receives its tickets; whether it resumed a session.
#[track_caller]
fn resumes(connector: &Connector, server: &Server) -> bool {
    let mut client = connector.connect(server.address());
    let resumed = client.info().resumed;
    assert_eq!(http::get(&mut client, "/name").expect("a response").status, 200);
    resumed
}

#[test]
fn keys_in_a_directory_are_shared_and_change_under_the_server() {
    let pki = Pki::ecdsa();
    let (one, two, alone) = (Sites::new(), Sites::new(), Sites::new());
    let keys = one.path("keys");
    make_key(&keys, &[]);
    let text = with_keys(&pki, Some(&keys));
    let (one, two) = (one.serve(&text), two.serve(&text));
    let alone = alone.serve(&with_keys(&pki, None));
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = Connector::new(&pki, suite);
        assert!(!resumes(&connector, &one));
        assert!(resumes(&connector, &two), "{suite}");
        assert!(!resumes(&connector, &alone), "{suite}");
        // A whole reload keeps sessions, of keys of its own too.
        let connector = Connector::new(&pki, suite);
        assert!(!resumes(&connector, &alone));
        assert!(resumes(&connector, &alone));
    }
    let connector = Connector::new(&pki, Suite::TLS13);
    assert!(!resumes(&connector, &alone));
    alone.signal(Signal::HUP);
    wait_for_message(&alone, "configuration 1 is in use");
    assert!(resumes(&connector, &alone));

    // A key that is not to seal yet comes, and the one that did goes on.
    let connector = Connector::new(&pki, Suite::TLS13);
    assert!(!resumes(&connector, &one));
    make_key(&keys, &["--after", "1h"]);
    wait_for_message(&two, "opened with 2 keys");
    assert!(resumes(&connector, &two));
    // A key that is not there any more opens nothing.
    for entry in fs::read_dir(&keys).expect("it is there") {
        fs::remove_file(entry.expect("an entry").path()).expect("it goes");
    }
    wait_for_message(&two, "The previous keys stay in use");
    make_key(&keys, &[]);
    wait_for_message(&two, "opened with 1 keys");
    assert!(!resumes(&connector, &two));
}

/// An upgrade costs no full handshakes: the keys pass to the next process, and to the one after it.
#[test]
fn sessions_are_resumed_by_the_process_that_takes_over() {
    let pki = Pki::ecdsa();
    let sites = Sites::new();
    let service = Service { first: sites.serve(&with_keys(&pki, None)) };
    for suite in [Suite::TLS13, Suite::TLS12] {
        let connector = Connector::new(&pki, suite);
        assert!(!resumes(&connector, &service.first));
        for _ in 0..2 {
            service.upgrade();
            wait_for_message(&service.first, "no new connections");
            assert!(resumes(&connector, &service.first), "{suite}");
        }
    }
}

/// Machines of a fleet have one address to the client, and do not see each other. OpenSSL is the client.
#[test]
fn machines_of_a_fleet_resume_each_others_sessions() {
    let pki = Pki::ecdsa();
    let sites = Sites::new();
    let keys = sites.path("keys");
    make_key(&keys, &[]);
    let shared = sites.write(&with_keys(&pki, Some(&keys)));
    let shared = fs::read_to_string(shared).expect("it is there").replace("127.0.0.1:0", "127.0.0.1:8443");
    let alone = shared.replace(&format!("keys = {keys:?}\n"), "");
    for (name, text, expected) in [("shared", &shared, "Reused"), ("alone", &alone, "New")] {
        let file = sites.path(&format!("{name}.toml"));
        fs::write(&file, text).expect("it is written");
        let machines = [1, 2].map(|n| Namespace::new(&format!("{name}{n}")));
        let servers = machines.each_ref().map(|machine| {
            let mut command = machine.command(PROGRAM);
            command.args(["serve", "--ktls=never", "--config"]).arg(&file);
            Server::spawn(command)
        });
        let session = sites.path(&format!("{name}.session"));
        for (machine, option, expected) in [(&machines[0], "-sess_out", "New"), (&machines[1], "-sess_in", expected)] {
            let mut client = machine.command("openssl");
            client
                .args(["s_client", "-connect", "127.0.0.1:8443", "-servername", "localhost", "-tls1_2", option])
                .arg(&session);
            let output = client.stdin(Stdio::null()).output().expect("openssl is needed");
            let text = String::from_utf8_lossy(&output.stdout).into_owned();
            assert!(text.contains(&format!("{expected}, TLSv1.2")), "{name} {option}: {text}");
        }
        drop(servers);
    }
}

/// A session kept by the server would resume for as long as it has room, long after the keys of tickets have changed. OpenSSL is the client.
#[test]
fn without_a_ticket_no_session_is_resumed() {
    let pki = Pki::ecdsa();
    let sites = Sites::new();
    let server = sites.serve(&with_keys(&pki, None));
    let address = server.address().to_string();
    for tickets in [false, true] {
        let mut client = Command::new("openssl");
        client.args(["s_client", "-connect", &address, "-servername", "localhost", "-tls1_2", "-reconnect"]);
        client.args((!tickets).then_some("-no_ticket"));
        let output = client.stdin(Stdio::null()).output().expect("openssl is needed");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(text.contains("New, TLSv1.2"), "tickets: {tickets}: {text}");
        // With tickets it resumes, or the test would prove nothing.
        assert_eq!(text.contains("Reused, TLSv1.2"), tickets, "{text}");
    }
}
