//! Clients, files and operators act at the wrong moment, with the kernel sealing.
//!
//! These tests fail, and never skip, where kernel TLS is missing.

use sealion_testkit::ktls::{Counters, guest_series};
use sealion_testkit::server::{Server, Signal};
use sealion_testkit::{Client, Event, Suite, http};
use sealion_tls::AlertDescription;
use sealion_tls::record::ContentType;

use crate::support::{
    LARGE, SMALL_WINDOW, Site, access_line, access_lines, begin, changing_file, content, exchange, get, messages,
    parse_responses, read_until_cut, wait_for_message, wait_until,
};

const MOVED: (&str, &str) = ("kernel", "moved");
const MOVED_BEFORE: (&str, &str) = ("kernel", "moved-before");
/// Above what moves a connection, and soon sent.
const WORTH_IT: u64 = 200_001;

fn serve(options: &[&str]) -> (Site, Server) {
    let site = Site::new();
    site.add_large("f", WORTH_IT);
    site.add_large("large", LARGE);
    site.add("small", "content");
    let server = site.serve(options);
    (site, server)
}

#[track_caller]
fn ask_for_f(client: &mut Client) {
    let got = http::get(client, "/f").expect("an answer");
    content::assert_equal(&got.body, 0..WORTH_IT);
}

/// A connection that the kernel seals.
#[track_caller]
fn moved(site: &Site, server: &Server, suite: Suite) -> Client {
    let counters = Counters::now();
    let mut client = site.connector(suite).connect(server.address());
    ask_for_f(&mut client);
    assert_eq!(counters.tx_sw_since(), 1, "{suite}");
    client
}

/// Linux 6.14 and later change the sending key.
pub(crate) fn kernel_rekeys() -> bool {
    match guest_series().as_deref() {
        Some("6.1" | "6.12") => false,
        Some("7.2") => true,
        other => panic!("no word here on what kernel {other:?} promises"),
    }
}

#[test]
fn requests_and_half_a_record_are_buffered_at_the_move() {
    let (site, server) = serve(&[]);
    for (n, suite) in [Suite::TLS12, Suite::TLS13].into_iter().enumerate() {
        let counters = Counters::now();
        let mut client = site.connector(suite).connect(server.address());
        let three = get("/small") + &get("/f") + &get("/small") + "GET /sm";
        let mut bytes = client.seal(ContentType::ApplicationData, three.as_bytes());
        let rest = get("/small").replacen("GET /sm", "", 1) + &get("/f");
        let second = client.seal(ContentType::ApplicationData, rest.as_bytes());
        let (first_half, second_half) = second.split_at(second.len() / 2);
        bytes.extend(first_half);
        client.write(&bytes).expect("it leaves");
        let bodies = |client: &mut Client, count: usize| -> Vec<u64> {
            let read = || http::read_response(client, "GET").expect("an answer").body.len() as u64;
            std::iter::repeat_with(read).take(count).collect()
        };
        assert_eq!(bodies(&mut client, 3), [7, WORTH_IT, 7], "{suite}");
        let lines = access_lines(&server, n * 5 + 3);
        let ways: Vec<_> = lines[n * 5..].iter().map(|line| line.way()).collect();
        assert_eq!(ways, [("user", "small"), MOVED, MOVED_BEFORE], "{suite}");
        client.write(second_half).expect("it leaves");
        assert_eq!(http::read_response(&mut client, "GET").expect("an answer").body, b"content");
        let got = http::read_response(&mut client, "GET").expect("an answer");
        content::assert_equal(&got.body, 0..WORTH_IT);
        assert_eq!(counters.tx_sw_since(), 1);
        access_lines(&server, n * 5 + 5);
    }
}

/// The kernel takes no connection that the client has half closed (ENOTCONN): user space finishes it.
#[test]
fn a_client_that_half_closed_before_the_move_gets_everything() {
    let (site, server) = serve(&[]);
    let mut lines = 0;
    for suite in [Suite::TLS12, Suite::TLS13] {
        for with_close_notify in [true, false] {
            let counters = Counters::now();
            let mut client = site.connector(suite).connect(server.address());
            // Request and FIN are both there when the server looks.
            server.pause();
            client.send(get("/f").as_bytes()).expect("it leaves");
            if with_close_notify {
                client.close_notify().expect("it leaves");
            }
            client.fin().expect("it leaves");
            server.resume();
            let ending = client.read_to_end().expect("the server closes");
            content::assert_equal(&parse_responses(&ending.data)[0].body, 0..WORTH_IT);
            ending.assert_orderly();
            lines += 1;
            assert_eq!(access_line(&server, lines).way(), ("user", "refused"), "{suite} {with_close_notify}");
            assert_eq!(counters.tx_sw_since(), 0);
        }
    }
    // That was the client's doing: the kernel is not suspended for others.
    moved(&site, &server, Suite::TLS13);
    assert_eq!(access_line(&server, lines + 1).way(), MOVED);
}

#[test]
fn a_client_that_half_closes_during_the_response_gets_everything() {
    let (site, server) = serve(&[]);
    for (n, with_close_notify) in [true, false].into_iter().enumerate() {
        let mut client = site.connect_slow_reader(&server);
        begin(&mut client, "/large");
        if with_close_notify {
            client.close_notify().expect("it leaves");
        }
        client.fin().expect("it leaves");
        let ending = client.read_to_end().expect("the server closes");
        content::assert_equal(&ending.data, 0..LARGE);
        ending.assert_orderly();
        assert_eq!(access_line(&server, n + 1).way(), MOVED);
    }
}

#[test]
fn a_reader_that_stalls_is_cut() {
    let (site, server) = serve(&["--stall-timeout", "500ms"]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    let line = access_line(&server, 1);
    assert_eq!((line.get("aborted"), line.way()), ("the peer read nothing for 0.5 s", MOVED));
    assert!(line.get("bytes").parse::<u64>().expect("a number") < LARGE, "{}", line.text);
    if let Ok(ending) = read_until_cut(&mut client) {
        content::assert_starts(&ending.data, 0);
        assert!(!ending.events.contains(&Event::Alert(AlertDescription::CLOSE_NOTIFY)), "it is not complete");
    }
    moved(&site, &server, Suite::TLS13);
}

#[test]
fn a_truncated_file_ends_with_an_alert() {
    changing_file::truncated(&[], MOVED);
}

#[test]
fn a_grown_file_gives_what_was_announced() {
    changing_file::grown(&[], MOVED);
}

#[test]
fn a_replaced_file_is_sent_as_it_was() {
    changing_file::replaced(&[], MOVED);
}

#[test]
fn a_removed_file_is_sent_and_then_gone() {
    changing_file::removed(&[], MOVED);
}

#[test]
fn a_key_update_before_the_move_is_answered_from_user_space() {
    let (site, server) = serve(&[]);
    let counters = Counters::now();
    let mut client = site.connect(&server);
    let mut bytes = client.seal_key_update(true);
    bytes.extend(client.seal(ContentType::ApplicationData, get("/f").as_bytes()));
    client.write(&bytes).expect("it leaves");
    content::assert_equal(&http::read_response(&mut client, "GET").expect("an answer").body, 0..WORTH_IT);
    assert_eq!(client.key_updates(), 1);
    assert_eq!((counters.tx_sw_since(), counters.tx_rekeys_since()), (1, 0));
    ask_for_f(&mut client);
    assert_eq!(access_lines(&server, 2).iter().map(|line| line.way()).collect::<Vec<_>>(), [MOVED, MOVED_BEFORE]);
}

/// Asserts that the request behind key updates is answered, by new keys where the kernel can and by an orderly end
/// where it cannot.
#[track_caller]
fn assert_answered_or_closed(mut client: Client, request: Vec<u8>, counters: &Counters) {
    client.write(&request).expect("it leaves");
    if !kernel_rekeys() {
        // No data may come before the update (RFC 8446 §4.6.3), so none comes: the request has no answer.
        let ending = client.read_to_end().expect("the server closes");
        assert_eq!((ending.data.len(), client.key_updates()), (0, 0));
        ending.assert_orderly();
        return;
    }
    let got = http::read_response(&mut client, "GET").expect("an answer");
    content::assert_equal(&got.body, 0..WORTH_IT);
    assert_eq!((client.key_updates(), counters.tx_rekeys_since()), (1, 1));
    assert_eq!(got.field("connection"), None);
    ask_for_f(&mut client);
    assert_eq!(client.key_updates(), 1);
}

#[test]
fn a_key_update_after_the_move_is_answered_or_ends_the_connection_in_order() {
    let (site, server) = serve(&[]);
    for aead in sealion_tls::record::Aead::ALL {
        let mut client = moved(&site, &server, Suite { aead, ..Suite::TLS13 });
        let counters = Counters::now();
        let mut bytes = client.seal_key_update(true);
        bytes.extend(client.seal(ContentType::ApplicationData, get("/f").as_bytes()));
        assert_answered_or_closed(client, bytes, &counters);
    }
}

#[test]
fn key_updates_without_a_request_cost_nothing() {
    let (site, server) = serve(&[]);
    let mut client = moved(&site, &server, Suite::TLS13);
    let counters = Counters::now();
    for _ in 0..3 {
        client.key_update(false).expect("it leaves");
        ask_for_f(&mut client);
    }
    assert_eq!((client.key_updates(), counters.tx_rekeys_since()), (0, 0));
}

#[test]
fn a_key_update_during_the_response_does_not_cut_it() {
    let (site, server) = serve(&[]);
    let mut client = site.connect_slow_reader(&server);
    begin(&mut client, "/large");
    let counters = Counters::now();
    let mut bytes = client.seal_key_update(true);
    bytes.extend(client.seal(ContentType::ApplicationData, get("/f").as_bytes()));
    content::assert_equal(
        &{
            client.write(&bytes).expect("it leaves");
            client.read(LARGE as usize).expect("it goes on")
        },
        0..LARGE,
    );
    assert_answered_or_closed(client, Vec::new(), &counters);
}

#[test]
fn a_storm_of_key_updates_is_answered_once_and_a_longer_one_not_at_all() {
    let (site, server) = serve(&["--log", "debug"]);
    let mut client = moved(&site, &server, Suite::TLS13);
    let counters = Counters::now();
    let mut bytes: Vec<u8> = (0..32).flat_map(|_| client.seal_key_update(true)).collect();
    bytes.extend(client.seal(ContentType::ApplicationData, get("/f").as_bytes()));
    assert_answered_or_closed(client, bytes, &counters);

    let mut client = moved(&site, &server, Suite::TLS13);
    let bytes: Vec<u8> = (0..33).flat_map(|_| client.seal_key_update(true)).collect();
    client.write(&bytes).expect("it leaves");
    client.read_to_end().expect("the server closes").assert_alert(AlertDescription::UNEXPECTED_MESSAGE);
    wait_for_message(&server, "too many key updates in a row; answered with the alert unexpected_message");
}

/// A key that may seal few records: the kernel gets new ones in time where it can take them, and the connection
/// otherwise stays where keys can be changed.
#[test]
fn a_worn_key_is_changed_in_the_middle_of_a_response() {
    let (site, server) = serve(&["--max-records-per-key", "100"]);
    let counters = Counters::now();
    let mut client = site.connect(&server);
    for _ in 0..2 {
        let got = http::get(&mut client, "/large").expect("an answer");
        content::assert_equal(&got.body, 0..LARGE);
    }
    let changes = 2 * LARGE / 16_384 / 100;
    assert!(client.key_updates() as u64 >= changes, "{} changes", client.key_updates());
    let ways: Vec<_> = access_lines(&server, 2).iter().map(|line| line.get("why").to_owned()).collect();
    if kernel_rekeys() {
        assert_eq!(ways, ["moved", "moved-before"]);
        assert_eq!((counters.tx_sw_since(), counters.tx_rekeys_since()), (1, client.key_updates() as i64));
    } else {
        assert_eq!(ways, ["key-worn", "key-worn"]);
        assert_eq!(counters.tx_sw_since(), 0);
    }
}

#[test]
fn a_tampered_record_is_answered_with_an_alert_from_the_kernel() {
    let (site, server) = serve(&["--log", "debug"]);
    for (n, suite) in Suite::all().into_iter().enumerate() {
        let mut client = moved(&site, &server, suite);
        let mut record = client.seal(ContentType::ApplicationData, get("/f").as_bytes());
        *record.last_mut().expect("a record has bytes") ^= 1;
        client.write(&record).expect("it leaves");
        client.read_to_end().expect("the server closes").assert_alert(AlertDescription::BAD_RECORD_MAC);
        let told = || messages(&server, "answered with the alert bad_record_mac");
        wait_until("the message", || told() == n + 1);
    }
}

#[test]
fn close_notify_comes_before_fin_and_the_tail_is_never_lost() {
    let (site, server) = serve(&[]);
    let lengths = [65_537, 100_001, 131_072, 262_143, 524_309, 1_048_583];
    lengths.iter().for_each(|len| drop(site.add_large(&len.to_string(), *len)));
    let mut lines = 0;
    for suite in [Suite::TLS12, Suite::TLS13] {
        for len in lengths {
            let connector = site.connector(suite).receive_buffer(SMALL_WINDOW);
            let mut client = connector.connect(server.address());
            let request = http::head("GET", &format!("/{len}"), &[("Connection", "close")]);
            let ending = exchange(&mut client, request.as_bytes());
            let responses = parse_responses(&ending.data);
            content::assert_equal(&responses[0].body, 0..len);
            ending.assert_orderly();
            lines += 1;
            assert_eq!(access_line(&server, lines).way(), MOVED);
        }
    }
}

#[test]
fn a_response_under_way_is_finished_at_the_end() {
    let (site, mut server) = serve(&[]);
    let mut client = site.connect_slow_reader(&server);
    let mut idle = moved(&site, &server, Suite::TLS12);
    begin(&mut client, "/large");
    server.signal(Signal::TERM);
    idle.read_to_end().expect("the server closes").assert_orderly();
    drop(idle);
    let ending = client.read_to_end().expect("it goes on");
    content::assert_equal(&ending.data, 0..LARGE);
    ending.assert_orderly();
    drop(client);
    assert_eq!(server.wait().code(), Some(0));
}
