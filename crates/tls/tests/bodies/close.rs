//! The end of a connection, from either side.

use std::time::Duration;

use sealion_testkit::{Connector, Event, Suite, pattern};
use sealion_tls::record::ContentType;
use sealion_tls::{AlertDescription, Error, Part, SealedBy};

use crate::SENDER;
use crate::support::{self, FILE, FILE_LEN, PKI};

/// The kernel accepts a send although TCP took only a part. Closing then must not cut off the rest.
#[test]
fn no_byte_is_lost_when_the_server_closes_behind_a_large_send() {
    for round in 0..24u64 {
        let suite = Suite::all()[round as usize % 6];
        let len = (FILE_LEN / 16) * (1 + round % 4) - 4_099 * round;
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            if round % 2 == 0 {
                socket2::SockRef::from(stream.socket()).set_send_buffer_size(small_buffer()).unwrap();
            }
            stream.respond(&[Part::File { file: &FILE, range: 3..3 + len }]).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let window = [4_096, 8_192, 65_536][round as usize % 3];
        let connector = Connector::new(&PKI, suite).receive_buffer(window);
        let mut client = support::connect_with(&connector, &serving);
        // Lets the server fill the window first.
        std::thread::sleep(Duration::from_millis(30));
        let ending = client.read_to_end().unwrap();
        pattern::assert_equal(&ending.data, 3..3 + len);
        ending.assert_orderly();
        drop(client);
        serving.finish();
    }
}

/// TCP then takes part of a record, and the kernel keeps the rest. Not on Linux 6.1: there sendfile(2) hangs for ever
/// if a record is longer than the buffer, because it leaves the record corked in TCP.
fn small_buffer() -> usize {
    let old_kernel = sealion_testkit::ktls::guest_series().as_deref() == Some("6.1");
    if SENDER == SealedBy::Kernel && old_kernel { 16_384 } else { 4_096 }
}

#[test]
fn closing_needs_no_data_before_it() {
    for suite in Suite::all() {
        let serving =
            support::Server::new(support::limits()).serve(async |mut stream| stream.shutdown().await.unwrap());
        let mut client = support::connect(&serving, suite);
        client.read_to_end().unwrap().assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn shutting_down_twice_is_harmless_and_sending_afterwards_is_not() {
    let serving = support::Server::new(support::limits()).serve(async |mut stream| {
        stream.shutdown().await.unwrap();
        stream.shutdown().await.unwrap();
        stream.respond(&[Part::Bytes(b"late")]).await.unwrap_err()
    });
    let mut client = support::connect(&serving, Suite::TLS13);
    client.read_to_end().unwrap().assert_orderly();
    drop(client);
    assert!(matches!(serving.finish(), Error::Unfinished));
}

#[test]
fn fin_without_close_notify_is_a_truncation() {
    for suite in Suite::all() {
        for half_a_record in [false, true] {
            let serving = support::Server::new(support::limits())
                .serve(async |mut stream| support::read_to_end(&mut stream).await);
            let mut client = support::connect(&serving, suite);
            client.send(b"GET").unwrap();
            if half_a_record {
                let record = client.seal(ContentType::ApplicationData, b" / HTTP/1.1");
                client.write(&record[..record.len() / 2]).unwrap();
            }
            client.fin().unwrap();
            let (data, result) = serving.finish();
            assert_eq!(data, b"GET");
            assert!(matches!(result, Err(Error::Truncated)), "{suite}: {result:?}");
        }
    }
}

#[test]
fn a_client_that_has_closed_its_half_still_gets_its_answer() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            let (request, result) = support::read_to_end(&mut stream).await;
            result.unwrap();
            assert_eq!(request, b"last request");
            // The result stays the same.
            assert_eq!(stream.read_more().await.unwrap(), 0);
            stream.respond(&[Part::File { file: &FILE, range: 0..200_000 }]).await.unwrap();
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        let mut bytes = client.seal(ContentType::ApplicationData, b"last request");
        bytes.extend(client.seal(ContentType::Alert, &AlertDescription::CLOSE_NOTIFY.to_wire()));
        // RFC 8446 §6.1: data after close_notify is ignored.
        bytes.extend(client.seal(ContentType::ApplicationData, b"ignored"));
        bytes.extend(*b"not even a record");
        client.write(&bytes).unwrap();
        client.fin().unwrap();
        let ending = client.read_to_end().unwrap();
        pattern::assert_equal(&ending.data, 0..200_000);
        ending.assert_orderly();
        drop(client);
        serving.finish();
    }
}

#[test]
fn a_reset_that_was_read_is_an_error_and_nothing_is_sent_after_it() {
    for suite in [Suite::TLS13, Suite::TLS12] {
        let (reset, when_reset) = tokio::sync::oneshot::channel();
        let serving = support::Server::new(support::limits()).serve(async move |mut stream| {
            stream.respond(&[Part::Bytes(b"hello")]).await.unwrap();
            when_reset.await.unwrap();
            let read = stream.read_more().await;
            assert!(matches!(read, Err(Error::Io(_))), "{read:?}");
            let again = stream.read_more().await;
            assert!(matches!(again, Err(Error::Io(_))), "{again:?}");
            let file = Part::File { file: &FILE, range: 0..FILE_LEN };
            let sent = stream.respond(&[file]).await;
            assert!(matches!(sent, Err(Error::Io(_))), "{sent:?}");
            assert_eq!(stream.payload_sent(), 5, "nothing is sealed for nobody");
            stream.abort(AlertDescription::INTERNAL_ERROR).await;
        });
        let mut client = support::connect(&serving, suite);
        assert_eq!(client.read(5).unwrap(), b"hello");
        client.reset().unwrap();
        reset.send(()).unwrap();
        serving.finish();
    }
}

#[test]
fn a_reset_in_the_middle_of_a_response_is_an_error() {
    for suite in Suite::all() {
        let serving = support::Server::new(support::limits()).serve(async |mut stream| {
            let file = Part::File { file: &FILE, range: 0..FILE_LEN };
            let parts: [Part<'_>; 8] = std::array::from_fn(|_| file.clone());
            let sent = stream.respond(&parts).await;
            let alert = sent.as_ref().err().and_then(Error::alert);
            assert_eq!(alert, None, "there is nobody to tell: {sent:?}");
            sent
        });
        let connector = Connector::new(&PKI, suite).receive_buffer(8_192);
        let mut client = support::connect_with(&connector, &serving);
        client.read(50_000).unwrap();
        client.reset().unwrap();
        let sent = serving.finish();
        assert!(matches!(sent, Err(Error::Io(_) | Error::Kernel(_))), "{suite}: {sent:?}");
    }
}

#[test]
fn the_server_waits_for_the_clients_fin_only_so_long() {
    let limits = sealion_tls::Limits { linger: Duration::from_millis(50), ..support::limits() };
    let serving = support::Server::new(limits).serve(async |mut stream| {
        stream.respond(&[Part::Bytes(b"bye")]).await.unwrap();
        stream.shutdown().await.unwrap();
    });
    let mut client = support::connect(&serving, Suite::TLS13);
    assert_eq!(client.next_event().unwrap(), Event::Ticket);
    assert_eq!(client.next_event().unwrap(), Event::Ticket);
    assert_eq!(client.next_event().unwrap(), Event::Data(b"bye".to_vec()));
    // The client neither closes nor sends.
    serving.finish();
    client.read_to_end().unwrap().assert_orderly();
}

/// After its `close_notify` a client sends nothing that could cause a reset.
#[test]
fn a_client_that_has_closed_is_not_waited_for() {
    for suite in Suite::all() {
        let limits = sealion_tls::Limits { linger: Duration::MAX, ..support::limits() };
        let serving = support::Server::new(limits).serve(async |mut stream| {
            assert_eq!(stream.read_more().await.unwrap(), 0);
            stream.shutdown().await.unwrap();
        });
        let mut client = support::connect(&serving, suite);
        client.close_notify().unwrap();
        // Returns although no FIN was sent.
        serving.finish();
        client.read_to_end().unwrap().assert_orderly();
    }
}
