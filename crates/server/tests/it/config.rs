//! The configuration file: what is wrong with one is said with line, key and remedy; a changed one is taken over by SIGHUP, whole or not
//! at all; the reference says what the code reads.

use std::fs;
use std::process::Command;

use sealion_testkit::http;
use sealion_testkit::pki::Pki;
use sealion_testkit::server::{Server, Signal};

use crate::support::config::Config;
use crate::support::library::reference;
use crate::support::{PROGRAM, Site, curl, wait_for_message};

#[test]
fn check_says_what_is_wrong_with_file_line_key_and_remedy() {
    let site = Site::new();
    assert!(site.config("").check().status.success());
    for (rest, words) in [
        ("nonsense = 1\n", &["sealion.toml:6: site.nonsense: unknown field", "correct or remove"][..]),
        ("[limits]\ngrace = '5'\n", &["sealion.toml:7: limits.grace: ", "write for instance"]),
        (
            "[limits]\nrequest_timeout = '18446744073709551615s'\n",
            &["sealion.toml:7: limits.request_timeout: ", "87600h or less"],
        ),
        ("[limits]\nmax_body = 9223372036854775807\n", &["sealion.toml:7: limits.max_body: ", "1024TiB or less"]),
        ("[server]\nfile_cache_age = '1000000h'\n", &["sealion.toml:7: server.file_cache_age: ", "87600h or less"]),
        ("[site.hsts]\nmax_age = '100000000000d'\n", &["max_age: ", "or less"]),
        ("[[site]]\nnames = ['b']\nroot = '/no/such'\n", &["sealion.toml:8: site.root: ", "/no/such", "create it"]),
        ("[[site]]\nroot = 'root'\n", &["site.names: ", "no request can reach it"]),
        ("[server]\ncalibration = 'gone.json'\n", &["server.calibration: there is no ", "/gone.json: create it"]),
        ("[metrics]\nlisten = '127.0.0.1:0'\ntoken_file = 'gone'\n", &["metrics.token_file: ", "/gone cannot be read"]),
        ("[privileges]\nuser = 'no-such-user'\n", &["there is no user no-such-user", "useradd"]),
        ("[privileges]\ngroup = 'root'\n", &["privileges.group: ", "name privileges.user too"]),
        (
            "[metrics]\nlisten = '[::1]:1'\n[[listen]]\naddress = '[::1]:1'\n",
            &["listen.address: [::1]:1 is configured twice"],
        ),
    ] {
        let output = site.config(rest).check();
        assert_eq!(output.status.code(), Some(1), "{rest}");
        let text = String::from_utf8(output.stderr).expect("text");
        for word in words {
            assert!(text.contains(word), "{word:?} is not in: {text}");
        }
    }
    let missing = Command::new(PROGRAM).args(["check", "--config", "/no/such.toml"]).output().expect("it starts");
    assert!(String::from_utf8_lossy(&missing.stderr).contains("/no/such.toml: cannot be read"));
}

#[test]
fn all_that_is_wrong_is_said_at_once() {
    let text = Site::new()
        .config("")
        .site("/no/such", &[], "names = ['b', 'b']")
        .site("root", &[], "names = ['c d']")
        .problems();
    for word in ["/no/such", "not a host name"] {
        assert!(text.contains(word), "{word:?} is not in: {text}");
    }
}

#[test]
fn a_changed_file_is_taken_over_and_a_bad_one_is_not() {
    let site = Site::new();
    site.add("f", "one");
    let other = site.outside().join("other");
    fs::create_dir(&other).expect("a directory");
    fs::write(other.join("f"), "two").expect("a file");
    let server = site.config("").serve();
    let mut kept = site.connect(&server);
    let mut ask = |expected: &str| {
        assert_eq!(http::get(&mut kept, "/f").expect("the connection stays").body, expected.as_bytes());
        assert_eq!(curl::get(&site.pki, server.address(), "/f", &[]).body, expected.as_bytes());
    };
    ask("one");

    let with_root = |root: &str| Config::within(site.outside()).site(root, &[&site.pki], "");
    with_root("other").write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "site[0].root: \"root\" becomes \"other\"");
    wait_for_message(&server, "configuration 1 is in use");
    ask("two");

    for (bad, message) in [
        (with_root("gone"), "cannot serve"),
        (with_root("other").table("[limits]\nno_such_key = 1"), "limits.no_such_key: unknown field"),
        (
            with_root("other").table("[server]\nworkers = 7"),
            "server.workers: nothing becomes 7: this change needs a new process",
        ),
    ] {
        bad.write();
        server.signal(Signal::HUP);
        wait_for_message(&server, message);
        ask("two");
    }
    with_root("other").write();
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 2 is in use");
    ask("two");
}

/// Each is started as it is, but for its addresses: other processes have those.
#[test]
fn the_examples_are_checked_and_started() {
    let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/config");
    let address = regex::Regex::new(r#"(address|listen) = "[^"]*:[0-9]+""#).expect("it is one");
    let mut started = 0;
    for example in fs::read_dir(examples).expect("they are there") {
        let example = example.expect("it is there").path();
        let pki = Pki::ecdsa();
        let place = tempfile::tempdir().expect("a directory");
        let text = fs::read_to_string(&example).expect("text");
        fs::write(place.path().join("sealion.toml"), &*address.replace_all(&text, r#"$1 = "127.0.0.1:0""#))
            .expect("room");
        for directory in ["site/assets", "archive/internal", "ticket-keys"] {
            fs::create_dir_all(place.path().join(directory)).expect("a directory");
        }
        fs::write(place.path().join("site/index.html"), "<!doctype html><title>A site</title>").expect("a file");
        fs::write(place.path().join("site/404.html"), "<!doctype html><title>Not here</title>").expect("a file");
        // The bcrypt hash of a password that nobody has to know.
        let user = "ann:$2y$05$abcdefghijklmnopqrstuuGZyhvTpx7JuJIXbxeEDfpmRZHIVLGlq\n";
        fs::write(place.path().join("users.htpasswd"), user).expect("a file");
        fs::copy(pki.certificate_file(), place.path().join("certificate.pem")).expect("a copy");
        fs::copy(pki.key_file(), place.path().join("key.pem")).expect("a copy");
        let made =
            Command::new(PROGRAM).args(["ticket-key", "ticket-keys"]).current_dir(&place).output().expect("it starts");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));

        let file = place.path().join("sealion.toml");
        let checked = Command::new(PROGRAM).args(["check", "--config"]).arg(&file).output().expect("it starts");
        assert!(checked.status.success(), "{}: {}", example.display(), String::from_utf8_lossy(&checked.stderr));
        let mut server = Server::start(PROGRAM.as_ref(), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
        server.signal(Signal::TERM);
        assert!(server.wait().success(), "{}", example.display());
        started += 1;
    }
    assert_eq!(started, 3);
}

/// `SEALION_UPDATE=1 cargo test -p sealion --test it config::` writes the page.
#[test]
fn the_reference_is_what_the_code_reads() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/configuration.md");
    let made = reference::markdown();
    if std::env::var_os("SEALION_UPDATE").is_some() {
        fs::write(page, &made).expect("the page is written");
    }
    for line in made.lines().filter(|line| line.starts_with('|')) {
        assert!(line.ends_with('|') && !line.contains("[default:"), "broken by a line break: {line}");
    }
    let kept = fs::read_to_string(page).unwrap_or_default();
    assert!(kept == made, "docs/configuration.md is not what the code says: write it anew with SEALION_UPDATE=1");
}
