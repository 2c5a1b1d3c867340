//! The fate of a connection when the other process does not do its part.

use std::net::{TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sealion_tls::TlsStream;

use super::words::{Answer, LONGEST_MESSAGE, Received, receive_offer, send_answer, set_patience};
use super::{Arrival, Driver, Giver, Offered, Refused, Resting, Taking};
use crate::limits::Moment;
use crate::values::Mutex;

fn channel() -> (OwnedFd, OwnedFd) {
    socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap()
}

fn resting() -> Resting {
    Resting {
        listener: "127.0.0.1:443".into(),
        peer: "192.0.2.1:40000".parse().unwrap(),
        idle_since: Moment::now(),
        requests: 7,
        forgone: 1,
        moved_at: None,
        paced: Some(1000),
        driver: Driver::Http1(None),
    }
}

/// A connection without TLS, taken apart, and the client's end.
fn connection() -> (Offered, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    server.set_nonblocking(true).unwrap();
    let stream = tokio::net::TcpStream::from_std(server).unwrap();
    let (socket, frozen) = TlsStream::plain(stream, &Arc::default()).freeze().unwrap();
    (Offered { head: resting().to_bytes(), files: Vec::new(), socket, frozen }, client)
}

/// The other process, which replies to each offer as `answer` says.
fn other(far: OwnedFd, answer: impl Fn(u64) -> Option<Answer> + Send + 'static) -> std::thread::JoinHandle<()> {
    std::thread::spawn(move || {
        let mut space = vec![0; LONGEST_MESSAGE];
        while let Ok(Received::Message(offer)) = receive_offer(far.as_fd(), &mut space) {
            let Some(answer) = answer(offer.id) else { return };
            let _ = send_answer(far.as_fd(), answer);
        }
    })
}

#[tokio::test]
async fn a_connection_that_is_refused_or_of_which_nothing_is_heard_comes_back() {
    type Says = fn(u64) -> Option<Answer>;
    let all: [(Says, bool); 5] = [
        (|id| Some(Answer::Taken(id)), true),
        (|id| Some(Answer::Refused(id, Refused::Places)), false),
        // It ends with the offer unanswered.
        (|_| None, false),
        // The answer to something else.
        (|id| Some(Answer::Taken(id + 1)), false),
        // Too late: the answer is not read any more.
        (
            |id| {
                std::thread::sleep(Duration::from_millis(5500));
                Some(Answer::Taken(id))
            },
            false,
        ),
    ];
    for (n, (says, is_taken)) in all.into_iter().enumerate() {
        let (near, far) = channel();
        let other = other(far, says);
        let (giver, _thread) = Giver::start(near, 1).unwrap();
        let (offered, _client) = connection();
        assert_eq!(giver.offer(offered).await.is_none(), is_taken, "{n}");
        drop(giver);
        other.join().unwrap();
    }
}

#[tokio::test]
async fn an_answer_that_is_late_fails_so_that_the_other_process_does_not_touch_the_connection() {
    let (near, far) = channel();
    let (giver, _thread) = Giver::start(near, 1).unwrap();
    let (offered, _client) = connection();
    // No answer comes for some seconds.
    assert!(giver.offer(offered).await.is_some());
    let mut space = vec![0; LONGEST_MESSAGE];
    set_patience(&far, Duration::from_secs(30)).unwrap();
    let Ok(Received::Message(offer)) = receive_offer(far.as_fd(), &mut space) else { panic!("the offer was sent") };
    assert!(send_answer(far.as_fd(), Answer::Taken(offer.id)).is_err());
    // Nor is another connection offered any more.
    let (offered, _client) = connection();
    assert!(giver.offer(offered).await.is_some());
}

#[tokio::test]
async fn a_connection_arrives_as_it_left_and_only_after_the_other_process_knows() {
    let (near, far) = channel();
    let arrived = Arc::new(Mutex::new(Vec::<Arrival>::new()));
    let place = {
        let arrived = Arc::clone(&arrived);
        move |arrival| {
            let mut arrived = arrived.lock();
            match arrived.len() {
                0 => arrived.push(arrival),
                _ => return Err(Refused::Places),
            }
            Ok(())
        }
    };
    Taking::new(place, |_, _| {}).unwrap().start(far, 1).unwrap();
    let (giver, _thread) = Giver::start(near, 1).unwrap();
    let (offered, _client) = connection();
    assert!(giver.offer(offered).await.is_none());
    let (refused, _client) = connection();
    assert!(giver.offer(refused).await.is_some());
    let arrival = arrived.lock().pop().unwrap();
    let (_socket, frozen, resting) = arrival.wait().await.unwrap();
    assert!(!frozen.has_tls());
    assert_eq!((resting.requests, resting.paced, &*resting.listener), (7, Some(1000), "127.0.0.1:443"));
    assert!(matches!(resting.driver, Driver::Http1(None)));
}

#[tokio::test]
async fn an_offer_of_another_format_is_refused_and_harms_no_other() {
    let (near, far) = channel();
    Taking::new(|_| Ok(()), |_, _| {}).unwrap().start(far, 1).unwrap();
    let (giver, thread) = Giver::start(near.try_clone().unwrap(), 1).unwrap();
    // As a later version may write it: heading, then anything.
    let heading = postcard::to_allocvec(&(99_u16, 99_u64)).unwrap();
    rustix::net::send(&near, &[&heading[..], &[0xff; 100]].concat(), rustix::net::SendFlags::empty()).unwrap();
    assert!(matches!(
        super::words::receive_answer(near.as_fd()),
        Ok(Received::Message(Answer::Refused(99, Refused::Format)))
    ));
    let (offered, _client) = connection();
    assert!(giver.offer(offered).await.is_none());
    giver.end();
    thread.join().unwrap();
}

/// The channel goes on to the newest process: the connection of the oldest one arrives there.
#[tokio::test]
async fn a_channel_goes_to_the_process_that_takes_over_next() {
    let (oldest, middle) = channel();
    let (near, newest) = channel();
    let (arrived, arrivals) = std::sync::mpsc::channel();
    let place = move |arrival: Arrival| {
        let _ = arrived.send(arrival);
        Ok(())
    };
    Taking::new(place, |_, _| {}).unwrap().start(newest, 2).unwrap();
    let (heir, _thread) = Giver::start(near, 3).unwrap();
    let heir = Arc::new(heir);
    let hand_over = {
        let heir = Arc::clone(&heir);
        move |pid, channel| heir.hand_over(pid, channel)
    };
    let taking = Taking::new(|_| Err(Refused::Ending), hand_over).unwrap();
    taking.start(middle, 1).unwrap();
    taking.stop();
    // The process between has no connection left: it ends when the channel is handed over.
    taking.wait();
    heir.end();
    let (giver, _thread) = Giver::start(oldest, 2).unwrap();
    let (offered, _client) = connection();
    assert!(giver.offer(offered).await.is_none());
    assert_eq!(arrivals.recv().unwrap().resting.requests, 7);
}
