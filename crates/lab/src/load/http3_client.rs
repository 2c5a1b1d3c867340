//! A client of HTTP/3: one connection after another, several requests at a time on each.

use std::cell::Cell;
use std::rc::Rc;
use std::time::Instant;

use tokio::task::JoinSet;

use super::failure::{Failure, Kind};
use super::quic::Quic;
use super::worker::{AFTER_REFUSAL, Patience, Shared};

/// Keeps `streams` requests open at a time on one connection, and opens another when it ends.
pub(super) async fn work(shared: Rc<Shared>, streams: usize) -> std::io::Result<()> {
    let mut patience = Patience::new(shared.timeout);
    while let Some(first) = shared.starts.next().await? {
        let started = Instant::now();
        let opened = patience.within(started, Quic::open(&shared.common)).await;
        let late = || Failure::new(Kind::Timeout, format!("no whole connection within {:?}", shared.timeout));
        let (connection, opening) = match opened.unwrap_or_else(|| Err(late())) {
            Ok(opened) => opened,
            Err(failure) => {
                shared.failed(started, failure);
                tokio::time::sleep(AFTER_REFUSAL).await;
                continue;
            }
        };
        shared.tally.borrow_mut().opened(opening);
        let connection = Rc::new(connection);
        let calls = Rc::new(Cell::new(1));
        let mut loops = JoinSet::new();
        for number in 0..streams {
            let first = Some(first).filter(|_| number == 0);
            loops.spawn_local(requests(shared.clone(), connection.clone(), calls.clone(), first));
        }
        while let Some(ended) = loops.join_next().await {
            ended.expect("a client panicked")?;
        }
        connection.close().await;
    }
    Ok(())
}

/// Makes one request after another until the load or the connection ends. `calls`: requests on this connection so far.
/// `due`: the intended start of the first, if it is already claimed and counted.
async fn requests(
    shared: Rc<Shared>,
    connection: Rc<Quic>,
    calls: Rc<Cell<u64>>,
    mut due: Option<Instant>,
) -> std::io::Result<()> {
    let mut patience = Patience::new(shared.timeout);
    while due.is_some() || (!connection.ended() && shared.permits(calls.get())) {
        if due.is_none() {
            calls.set(calls.get() + 1);
        }
        let start = match due.take() {
            Some(due) => due,
            None => match shared.starts.next().await? {
                Some(due) => due,
                None => break,
            },
        };
        let started = Instant::now();
        match patience.within(started, connection.request(&shared.common)).await {
            Some(Ok(answer)) => shared.answered(start, answer.sent, &answer),
            Some(Err(failure)) => shared.failed(started, failure),
            None => {
                // The connection's other requests fail with it.
                connection.abandon();
                let words = format!("no complete response within {:?}", shared.timeout);
                shared.failed(started, Failure::new(Kind::Timeout, words));
            }
        }
    }
    Ok(())
}
