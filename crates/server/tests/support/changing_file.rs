//! A file that changes while it is sent, by either sealing path.

use std::fs::{self, File};
use std::io::Write;

use sealion_testkit::http;
use sealion_tls::AlertDescription;

use super::process::wait_until_it_rests;
use super::{LARGE, Site, access_line, begin, content, get, wait_for_message};

/// Truncated: what was sent is right, an alert ends it, and the log says why.
pub(crate) fn truncated(options: &[&str], way: (&str, &str)) {
    let site = Site::new();
    let path = site.add_large("f", LARGE);
    let server = site.serve(options);
    let mut client = site.connect_slow_reader(&server);
    let head = begin(&mut client, "/f");
    assert!(head.contains(&format!("Content-Length: {LARGE}\r\n")), "{head}");
    // Of a page that it reads while it is truncated, it would see zeros.
    wait_until_it_rests(&server);
    File::options().write(true).open(&path).expect("it opens").set_len(1000).expect("it is truncated");
    let ending = client.read_to_end().expect("what was sent opens");
    assert!((ending.data.len() as u64) < LARGE);
    content::assert_starts(&ending.data, 0);
    ending.assert_alert(AlertDescription::INTERNAL_ERROR);
    drop(client);
    let line = access_line(&server, 1);
    let aborted = line.get("aborted");
    assert!(aborted.contains(&format!("while bytes up to {LARGE} were promised")), "{aborted}");
    assert_eq!((line.get("bytes"), line.way()), (ending.data.len().to_string().as_str(), way));
    wait_for_message(&server, "answered with the alert internal_error");
    // The next response is the file as it is.
    let got = http::get(&mut site.connect(&server), "/f").expect("an answer");
    content::assert_equal(&got.body, 0..1000);
}

/// Grown: exactly what was announced.
pub(crate) fn grown(options: &[&str], way: (&str, &str)) {
    let site = Site::new();
    let path = site.add_large("f", LARGE);
    let server = site.serve(options);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/f");
    File::options().append(true).open(&path).and_then(|mut file| file.write_all(&[0xee; 99_999])).expect("it grows");
    client.send(get("/f").as_bytes()).expect("it leaves");
    content::assert_equal(&client.read(LARGE as usize).expect("it goes on"), 0..LARGE);
    assert_eq!(access_line(&server, 1).way(), way);
    // The connection is in step, and the next response has all of it.
    let got = http::read_response(&mut client, "GET").expect("an answer");
    assert_eq!(got.body.len() as u64, LARGE + 99_999);
    content::assert_equal(&got.body[..LARGE as usize], 0..LARGE);
    assert!(got.body[LARGE as usize..].iter().all(|&byte| byte == 0xee));
}

/// Replaced by another of the same name and length: the old content, whole.
pub(crate) fn replaced(options: &[&str], way: (&str, &str)) {
    let site = Site::new();
    let path = site.add_large("f", LARGE);
    let server = site.serve(options);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/f");
    let other = site.add("other", vec![0xee; LARGE as usize]);
    fs::rename(other, &path).expect("it is replaced");
    client.send(get("/f").as_bytes()).expect("it leaves");
    content::assert_equal(&client.read(LARGE as usize).expect("it goes on"), 0..LARGE);
    assert_eq!(access_line(&server, 1).way(), way);
    let got = http::read_response(&mut client, "GET").expect("an answer");
    assert!(got.body.len() as u64 == LARGE && got.body.iter().all(|&byte| byte == 0xee), "the new file, all of it");
}

/// Removed: sent whole, and then gone.
pub(crate) fn removed(options: &[&str], way: (&str, &str)) {
    let site = Site::new();
    let path = site.add_large("f", LARGE);
    let server = site.serve(options);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/f");
    fs::remove_file(path).expect("it is removed");
    content::assert_equal(&client.read(LARGE as usize).expect("it goes on"), 0..LARGE);
    assert_eq!(access_line(&server, 1).way(), way);
    assert_eq!(http::get(&mut client, "/f").expect("an answer").status, 404);
}
