//! A disk that hangs, beneath the directory of contents that wait.

use std::fs;
use std::path::Path;
use std::thread;

use sealion_testkit::http;
use sealion_testkit::server::Server;

use super::fastcgi_contents::counting;
use super::post;
use crate::guards::add_users;
use crate::support::curl;
use crate::support::frozen::{Ext4, waits_for_disk};
use crate::support::upstream::{Upstream, ok};
use crate::support::{Site, get, messages, wait_for_message, wait_until};

/// Bytes that no socket's buffer takes.
const LONG: usize = 12 << 20;

/// Bytes that do not fit into the memory of a rule.
const LENGTH: usize = 300_000;

const HANGS: &str = "the disk has not answered for";

/// Bytes in the files without a name that the server has open in a directory.
fn spooled(server: &Server, directory: &Path) -> u64 {
    let open = fs::read_dir(format!("/proc/{}/fd", server.pid())).expect("the server runs");
    let open = open.map(|entry| entry.expect("an entry").path());
    let is_spool = |path: &Path| fs::read_link(path).is_ok_and(|file| file.starts_with(directory));
    open.filter(|path| is_spool(path)).filter_map(|path| fs::metadata(path).ok()).map(|file| file.len()).sum()
}

/// The password is not remembered: a thread of the worker checks it.
#[track_caller]
fn others_are_answered(site: &Site, server: &Server, n: usize) {
    for (password, status) in [(format!("wrong{n}"), 401), ("ada".to_owned(), 200)] {
        let user = format!("ada:{password}");
        assert_eq!(curl::get(&site.pki, server.address(), "/secret/x", &["-u", &user]).status, status, "{user}");
    }
    assert_eq!(curl::get(&site.pki, server.address(), "/a.txt", &[]).body, b"a file");
}

#[test]
fn a_disk_that_hangs_costs_the_contents_alone_that_need_it() {
    let site = Site::new();
    for name in ["a.txt", "secret/x", "php/x.php"] {
        site.add(name, "a file");
    }
    add_users(&site, "users", &["ada"]);
    let spool = site.outside().join("spool");
    let disk = Ext4::mount(&spool);
    let body = vec![7; LONG];
    let (echo, long) = (Upstream::echo(), Upstream::answering(move |_| ok(&body)));
    let (_scripts, php) = counting();
    let buffer = format!("{{ memory = '64KiB', disk = '1GiB', directory = '{}' }}", spool.display());
    let keys = format!(
        "route = [\n\
           {{ path = '/up/', proxy = {{ to = '{}', buffer_request = {buffer} }} }},\n\
           {{ path = '/down/', proxy = {{ to = '{}', buffer = {buffer} }} }},\n\
           {{ path = '/php/', proxy = {{ to = 'php', fastcgi = {{}}, buffer_request = {buffer} }} }},\n\
           {{ path = '/secret/', basic_auth = {{ users = 'users' }} }},\n\
         ]",
        echo.url(),
        long.url()
    );
    let server = site.config(&keys).table(&php).serve_from_user_space();
    let length = LENGTH.to_string();
    let fields = [("Content-Length", length.as_str())];
    let run_script = || post(&mut site.connect(&server), "/php/x.php", &fields, &[7; LENGTH]);
    assert_eq!(run_script().body, length.as_bytes());
    wait_until("its file is closed", || spooled(&server, &spool) == 0);
    // A part of this one is in a file.
    let mut begun = site.connect(&server);
    let head = http::head("POST", "/up/begun", &fields);
    begun.send(&[head.as_bytes(), &[7; LENGTH - 100_000][..]].concat()).expect("it leaves");
    wait_until("a part is in a file", || spooled(&server, &spool) > 100_000);
    let frozen = disk.freeze();
    begun.send(&[7; 100_000]).expect("it leaves");
    thread::scope(|scope| {
        for n in 0..24 {
            let (site, server, run_script) = (&site, &server, &run_script);
            scope.spawn(move || match n % 4 {
                0 => assert_eq!(run_script().status, 503),
                1 => others_are_answered(site, server, n),
                2 => {
                    let mut client = site.connect_slow_reader(server);
                    client.send(get("/down/x").as_bytes()).expect("it leaves");
                    let body = http::read_response(&mut client, "GET").expect("a response").body;
                    assert!(body.len() == LONG && body.iter().all(|octet| *octet == 7), "{} octets", body.len());
                }
                _ => {
                    let body = post(&mut site.connect(server), "/up/x", &fields, &[7; LENGTH]).body;
                    assert!(body == [7; LENGTH], "{} octets", body.len());
                }
            });
        }
    });
    assert_eq!(http::read_response(&mut begun, "POST").expect("a response").status, 503);
    wait_for_message(&server, HANGS);
    wait_until("only the disk's own threads wait for it", || waits_for_disk(&server).is_empty());
    others_are_answered(&site, &server, 24);
    assert_eq!(run_script().status, 503);
    drop(frozen);
    wait_until("the disk answers", || run_script().body == length.as_bytes());
    assert_eq!(post(&mut site.connect(&server), "/up/x", &fields, &[7; LENGTH]).body, [7; LENGTH]);
    wait_until("all files are closed", || spooled(&server, &spool) == 0);
    assert_eq!((messages(&server, HANGS), messages(&server, "the disk answers again")), (1, 1));
}
