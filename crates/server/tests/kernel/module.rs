//! The kernel loses its TLS layer while the server runs: an operator unloads the module, or an update does.
//!
//! These tests fail, and never skip, where kernel TLS is missing or cannot be unloaded.

use std::process::Command;

use sealion_testkit::http;
use sealion_testkit::ktls::Counters;

use crate::support::module::Unloaded;
use crate::support::{PROGRAM, Site, access_line, content, messages, wait_for_message};

const LEN: u64 = 200_001;

#[test]
fn responses_go_on_without_the_module_and_the_log_says_so_once() {
    let site = Site::new();
    site.add_large("f", LEN);
    site.add("small", "content");
    let server = site.serve(&[]);
    let ask = || {
        let got = http::get(&mut site.connect(&server), "/f").expect("an answer");
        content::assert_equal(&got.body, 0..LEN);
    };
    let counters = Counters::now();
    ask();
    assert_eq!(counters.tx_sw_since(), 1);
    assert_eq!(access_line(&server, 1).way(), ("kernel", "moved"));

    let unloaded = Unloaded::now();
    ask();
    assert_eq!(access_line(&server, 2).way(), ("user", "refused"));
    wait_for_message(&server, "It was there at the start. All responses are sealed in user space");
    for lines in 3..6 {
        ask();
        assert_eq!(access_line(&server, lines).way(), ("user", "suspended"));
    }
    http::get(&mut site.connect(&server), "/small").expect("an answer");
    assert_eq!(access_line(&server, 6).way(), ("user", "small"));
    assert_eq!(messages(&server, "It was there at the start"), 1);
    // A server that starts now knows from the start.
    let late = site.serve(&[]);
    late.wait_for("that there is none", |line| line.text.contains("kernel TLS is not available"));
    http::get(&mut site.connect(&late), "/f").expect("an answer");
    assert_eq!(access_line(&late, 1).way(), ("user", "no-ktls"));
    let refused = Command::new(PROGRAM).args(site.arguments(&["--ktls", "always"])).output();
    let refused = refused.expect("the program starts");
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!((refused.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(text.contains("--ktls always"), "{text}");

    drop(unloaded);
    let after = site.serve(&["--ktls", "always"]);
    let counters = Counters::now();
    http::get(&mut site.connect(&after), "/small").expect("an answer");
    assert_eq!((counters.tx_sw_since(), access_line(&after, 1).way()), (1, ("kernel", "moved")));
}
