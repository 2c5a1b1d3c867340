//! The process has lost the privileges that it gives up: shown by /proc, and by the kernel refusing files that their permissions would give.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;

use landlock::{AccessNet, CompatLevel, Compatible, Ruleset, RulesetAttr};
use sealion_testkit::http;
use sealion_testkit::server::Signal;

use crate::support::config::Config;
use crate::support::port::free_port;
use crate::support::upstream::Upstream;
use crate::support::watch::Watched;
use crate::support::{
    LARGE, PROGRAM, Site, Successor, content, demand_root, messages, wait_for_cache, wait_for_message,
};

/// A field of /proc/PID/status.
fn status(pid: u32, name: &str) -> String {
    let text = fs::read_to_string(format!("/proc/{pid}/status")).expect("the process runs");
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).expect("the kernel tells");
    line.split_ascii_whitespace().next().expect("it has a value").to_owned()
}

#[test]
fn every_feature_works_with_the_listed_system_calls_alone() {
    let site = Site::new();
    site.add_large("large", LARGE);
    site.add("d/index.html", "index");
    let log = site.outside().join("log/access.log");
    std::fs::create_dir(site.outside().join("log")).expect("a directory");
    let confined = ["--landlock", "true", "--seccomp", "kill", "--grace", "5s", "--file-cache-age", "0s"];
    let watched = ["--metrics", "127.0.0.1:0", "--access-log", log.to_str().expect("text")];
    let server = site.serve(&[&confined[..], &watched].concat());
    assert_eq!((status(server.pid(), "Seccomp"), status(server.pid(), "NoNewPrivs")), ("2".to_owned(), "1".to_owned()));
    let mut client = site.connect(&server);
    content::assert_equal(&http::get(&mut client, "/large").expect("a large file").body, 0..LARGE);
    let range = [("Range", "bytes=5-9,100000-300000")];
    let parts = http::request(&mut client, "GET", "/large", &range).expect("ranges");
    assert_eq!(parts.status, 206);
    assert_eq!(http::get(&mut client, "/d/").expect("an index").body, b"index");
    assert_eq!(http::get(&mut client, "/d").expect("a redirect").status, 301);
    assert_eq!(http::get(&mut client, "/none").expect("no file").status, 404);
    server.signal(Signal::HUP);
    wait_for_message(&server, "configuration 1 is in use");
    std::fs::rename(&log, site.outside().join("log/old")).expect("it is moved");
    server.signal(Signal::USR1);
    wait_for_message(&server, "the access log was reopened");
    let watched = Watched::of(server);
    assert!(watched.get("/metrics").1.contains("sealion_build_info"));
    let successor = Successor::of(&watched.server);
    assert_eq!(status(successor.pid(), "Seccomp"), "2", "a successor is as confined");
    let mut client = site.connect(&watched.server);
    content::assert_equal(&http::get(&mut client, "/large").expect("of the new one").body, 0..LARGE);
    assert_eq!(watched.get("/ready").0, 200, "whoever watches finds the new one at the same place");
}

/// A successor has the restrictions of the process that started it.
#[test]
fn a_port_that_was_not_named_is_refused_by_the_kernel() {
    let rules = Ruleset::default().set_compatibility(CompatLevel::HardRequirement).handle_access(AccessNet::BindTcp);
    let kernel_restricts_ports = rules.and_then(Ruleset::create).is_ok();
    let site = Site::new();
    site.add("f", "content");
    let (named, other) = (free_port(), free_port());
    let config = |landlock: bool, port: u16| {
        let listen = format!("address = '127.0.0.1:{port}'");
        site.config("").table(&format!("[privileges]\nlandlock = {landlock}")).listen(&listen)
    };
    for landlock in [false, true] {
        let server = config(landlock, named).serve();
        let lacks_landlock = messages(&server, "privileges.landlock: this kernel has") > 0;
        config(landlock, other).write();
        if landlock && kernel_restricts_ports {
            server.signal(Signal::USR2);
            let failed = wait_for_message(&server, "the upgrade failed");
            assert!(failed.contains(&other.to_string()) && failed.contains("ermission denied"), "{failed}");
            assert_eq!(http::get(&mut site.connect(&server), "/f").expect("the old one serves").body, b"content");
        } else {
            assert_eq!(lacks_landlock, landlock, "the kernel has no such Landlock, and the server says so");
            let _successor = Successor::of(&server);
        }
    }
}

#[test]
fn a_confined_proxy_without_files_stores_responses_reloads_and_hands_over() {
    let site = Site::new();
    let upstream = Upstream::answering(|_| {
        b"HTTP/1.1 200 OK\r\nCache-Control: max-age=1000\r\nContent-Length: 1\r\n\r\nx".to_vec()
    });
    let cache = site.outside().join("cache");
    let pair = format!("{{ cert = {:?}, key = {:?} }}", site.pki.certificate_file(), site.pki.key_file());
    let text = format!(
        "[privileges]\nlandlock = true\nseccomp = 'kill'\n[cache]\ndirectories = [{cache:?}]\n\
         [[site]]\ncertificates = [{pair}]\nproxy = {{ to = '{}', cache = {{}} }}\n",
        upstream.url()
    );
    let server = Config::within(site.outside()).table(&text).serve_from_user_space();
    wait_for_cache(&server, &cache);
    let get = || http::get(&mut site.connect(&server), "/a").expect("a response").body;
    assert_eq!((get(), get()), (b"x".to_vec(), b"x".to_vec()));
    assert_eq!(upstream.requests().len(), 1);
    server.signal(Signal::HUP);
    wait_for_message(&server, "is in use");
    let _successor = Successor::of(&server);
    assert_eq!((get(), upstream.requests().len()), (b"x".to_vec(), 1));
}

#[test]
fn root_becomes_a_user_and_cannot_come_back() {
    demand_root("become another user");
    let site = Site::new();
    site.add("f", "content");
    for directory in [site.outside(), &site.root()] {
        set_mode(directory, 0o755);
    }
    set_mode(site.pki.directory(), 0o755);
    set_mode(&site.pki.key_file(), 0o600);
    let socket = site.outside().join("s.sock");
    let listen = format!("unix:{}", socket.display());
    let confined = ["--user", "65534", "--metrics", "127.0.0.1:0", "--listen", &listen];
    let server = site.serve(&confined);
    for name in ["Uid", "Gid"] {
        let line = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
        let line = line.lines().find(|line| line.starts_with(name)).expect("the kernel tells").to_owned();
        assert_eq!(line.split_ascii_whitespace().skip(1).collect::<Vec<_>>(), ["65534"; 4], "{line}");
    }
    assert_eq!(status(server.pid(), "CapEff"), "0000000000000000");
    assert_eq!(http::get(&mut site.connect(&server), "/f").expect("an answer").body, b"content");
    assert_eq!(
        fs::metadata(&socket).expect("it is there").uid(),
        65534,
        "the socket is the user's, and so is its group"
    );
    // The key is root's alone: it is told at the start, and a reload says no more.
    let told = wait_for_message(&server, "a reload or an upgrade will fail");
    assert!(told.contains(&site.pki.key_file().display().to_string()), "{told}");

    // Root bound the listener for metrics, and the user hands it on.
    set_mode(&site.pki.key_file(), 0o644);
    let watched = Watched::of(server);
    let _successor = Successor::of(&watched.server);
    assert_eq!(watched.get("/ready").0, 200);
}

/// The user could remove and replace all files in it.
#[test]
fn a_cache_that_holds_files_of_others_is_refused_and_stays_with_its_owner() {
    demand_root("give directories away");
    let site = Site::new();
    site.add("f", "content");
    let cache = site.outside().join("var");
    fs::create_dir(&cache).expect("a directory");
    let tables = format!(
        "[privileges]\nuser = '65534'\n[[upstream]]\nname = 'app'\nservers = [{{ url = 'http://127.0.0.1:9' }}]\n\
         [cache]\ndirectories = [{cache:?}]\n"
    );
    let config =
        site.config("default = true\nroute = [{ path = '/app/', proxy = { to = 'app', cache = {} } }]").table(&tables);
    let file = config.write();
    let owner = |path: &std::path::Path| fs::metadata(path).expect("it is there").uid();

    fs::write(cache.join("of-another"), "content").expect("a file");
    // A server that starts would run for ever.
    let mut command = Command::new("timeout");
    let output = command.args(["20", PROGRAM, "serve", "--config"]).arg(&file).output().expect("it runs and ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success(), "{said}");
    for part in [&*cache.display().to_string(), "of-another", "name a directory for the cache alone"] {
        assert!(said.contains(part), "{said}");
    }
    assert_eq!(owner(&cache), 0);
    assert_eq!(fs::read_dir(&cache).expect("it is ours").count(), 1, "nothing was made in it");

    // A disk that was formatted, and then a cache.
    fs::remove_file(cache.join("of-another")).expect("it is ours");
    fs::create_dir(cache.join("lost+found")).expect("it is ours");
    for directory in [site.outside(), &site.root(), site.pki.directory()] {
        set_mode(directory, 0o755);
    }
    for _ in 0..2 {
        let server = config.serve_from_user_space();
        wait_for_cache(&server, &cache);
        assert_eq!(owner(&cache), 65534);
        assert_eq!(owner(&cache.join("lost+found")), 0);
        drop(server);
    }
}

/// A service manager, or the predecessor, may have set the user alone.
#[test]
fn the_group_is_assumed_by_a_process_that_has_the_user_already() {
    demand_root("take another group");
    let site = Site::new();
    let server = site.serve(&["--user", "0", "--group", "65534"]);
    assert_eq!((status(server.pid(), "Uid"), status(server.pid(), "Gid")), ("0".to_owned(), "65534".to_owned()));
    let groups = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let groups = groups.lines().find_map(|line| line.strip_prefix("Groups:")).expect("the kernel tells").trim();
    assert_eq!(groups, "65534");
}

fn set_mode(path: &std::path::Path, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("it is ours");
}

#[test]
fn a_user_that_is_not_there_is_an_error() {
    let site = Site::new();
    let output = Command::new(PROGRAM).args(site.arguments(&["--user", "no-such-user"])).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("there is no user no-such-user"), "{said}");
}
