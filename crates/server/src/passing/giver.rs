//! The process that passes its connections on.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SendError, Sender, channel};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;
use std::{io, thread};

use rustix::io::Errno;
use rustix::net::{Shutdown, shutdown};
use sealion_tls::Frozen;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use super::words::{
    Answer, LONGEST_CONTENT, Received, Refused, receive_answer, send_channel, send_offer, set_patience,
};

/// How long the new process may take for one connection. It answers within microseconds, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(5);

/// Connections that are taken apart at a time: the others answer requests meanwhile.
const MOST_AT_A_TIME: usize = 16;

/// A connection, taken apart.
pub(crate) struct Offered {
    /// By [`super::Resting::to_bytes`].
    pub(crate) head: Vec<u8>,
    /// By [`super::Resting::files`].
    pub(crate) files: Vec<Arc<File>>,
    pub(crate) socket: OwnedFd,
    pub(crate) frozen: Frozen,
}

/// Offers connections to the process that has taken over.
#[derive(Debug)]
pub(crate) struct Giver {
    errands: Sender<Errand>,
    turns: Arc<Semaphore>,
}

/// The turn of a connection to pass.
#[derive(Debug)]
pub(crate) struct Turn(#[expect(dead_code, reason = "held until it is dropped")] OwnedSemaphorePermit);

/// A connection's wait for its turn, once it has begun.
#[derive(Default)]
pub(crate) struct TurnWait<'g>(Option<Pin<Box<dyn Future<Output = Option<Turn>> + Send + 'g>>>);

impl<'g> TurnWait<'g> {
    /// Begins the wait, or goes on with it. A wait that is not polled any more must be dropped, or its turn is lost.
    pub(crate) fn poll(&mut self, giver: &'g Giver, cx: &mut Context<'_>) -> Poll<Turn> {
        let turn = self.0.get_or_insert_with(|| Box::pin(giver.turn()));
        match turn.as_mut().poll(cx) {
            Poll::Ready(Some(turn)) => Poll::Ready(turn),
            // Turns do not end.
            Poll::Ready(None) | Poll::Pending => Poll::Pending,
        }
    }
}

enum Errand {
    /// `end` gets a connection that was not taken.
    Offer { offered: Box<Offered>, end: oneshot::Sender<Option<Box<Offered>>> },
    /// The channel over which an older process offers connections.
    Channel(u32, OwnedFd),
    /// A connection does not pass.
    Stays(Refused),
    /// No connection is left.
    End,
}

impl Giver {
    /// Starts the thread that offers connections over `channel` to the process `pid`. It ends with the last connection.
    ///
    /// # Errors
    /// The thread or the socket.
    pub(crate) fn start(channel_end: OwnedFd, pid: u32) -> io::Result<(Self, JoinHandle<()>)> {
        set_patience(&channel_end, PATIENCE)?;
        let (errands, queue) = channel();
        let work = move || {
            let mut offers = Offers {
                channel: Some(channel_end),
                given_up: Refused::Silence,
                next: 0,
                passed: 0,
                refused: BTreeMap::new(),
            };
            offers.work(&queue);
            offers.report(pid);
        };
        let thread = thread::Builder::new().name("passing".to_owned()).spawn(work)?;
        Ok((Self { errands, turns: Arc::new(Semaphore::new(MOST_AT_A_TIME)) }, thread))
    }

    /// Waits for the turn of a connection. It must be held until [`Self::offer`] has returned.
    pub(crate) async fn turn(&self) -> Option<Turn> {
        Arc::clone(&self.turns).acquire_owned().await.ok().map(Turn)
    }

    /// A connection does not pass.
    pub(crate) fn stays(&self, why: Refused) {
        let _ = self.errands.send(Errand::Stays(why));
    }

    /// Gives the channel over which the older process `pid` offers connections.
    pub(crate) fn hand_over(&self, pid: u32, channel: OwnedFd) {
        let _ = self.errands.send(Errand::Channel(pid, channel));
    }

    /// No connection is left: the thread says how many went on, and ends.
    pub(crate) fn end(&self) {
        let _ = self.errands.send(Errand::End);
    }

    /// Offers a connection. `Some`: it was not taken, and nothing has changed.
    pub(crate) async fn offer(&self, offered: Offered) -> Option<Offered> {
        let (end, ended) = oneshot::channel();
        match self.errands.send(Errand::Offer { offered: Box::new(offered), end }) {
            // The thread answers each errand. If it panicked, the connection is closed: either process may have it.
            Ok(()) => ended.await.unwrap_or_default().map(|offered| *offered),
            Err(SendError(Errand::Offer { offered, .. })) => Some(*offered),
            Err(_) => None,
        }
    }
}

/// The offers of the thread.
struct Offers {
    /// `None`: the other process does not answer any more.
    channel: Option<OwnedFd>,
    /// Why not.
    given_up: Refused,
    next: u64,
    passed: u64,
    refused: BTreeMap<Refused, u64>,
}

impl Offers {
    fn work(&mut self, queue: &Receiver<Errand>) {
        while let Ok(errand) = queue.recv() {
            let (offered, end) = match errand {
                Errand::Offer { offered, end } => (offered, end),
                Errand::Channel(pid, channel) => {
                    if let Err(why) = self.offer_channel(pid, &channel) {
                        tracing::warn!("connections of process {pid} end there: {why}");
                    }
                    continue;
                }
                Errand::Stays(why) => {
                    *self.refused.entry(why).or_default() += 1;
                    continue;
                }
                Errand::End => return,
            };
            let back = match self.offer(&offered) {
                Ok(()) => {
                    self.passed += 1;
                    None
                }
                Err(why) => {
                    *self.refused.entry(why).or_default() += 1;
                    Some(offered)
                }
            };
            // A task that has ended meanwhile was cut: its connection is closed either way.
            let _ = end.send(back);
        }
    }

    /// Offers one connection and waits for the answer.
    ///
    /// # Errors
    /// It was not taken, and will not be.
    fn offer(&mut self, Offered { head, files, socket, frozen }: &Offered) -> Result<(), Refused> {
        let Some(channel) = &self.channel else { return Err(self.given_up) };
        self.next += 1;
        let tls = frozen.to_bytes();
        if (head.len() + tls.len()) as u64 > LONGEST_CONTENT {
            return Err(Refused::Length);
        }
        let sent = send_offer(channel.as_fd(), self.next, [head, &tls], socket.as_fd(), files);
        self.answer(sent)
    }

    /// Offers the channel of an older process.
    ///
    /// # Errors
    /// It was not taken.
    fn offer_channel(&mut self, pid: u32, older: &OwnedFd) -> Result<(), Refused> {
        let Some(channel) = &self.channel else { return Err(self.given_up) };
        self.next += 1;
        let sent = send_channel(channel.as_fd(), self.next, pid, older.as_fd());
        self.answer(sent)
    }

    /// Waits for the answer to an offer.
    ///
    /// # Errors
    /// It was not taken, and will not be.
    fn answer(&mut self, sent: Result<(), Errno>) -> Result<(), Refused> {
        let Some(channel) = &self.channel else { return Err(self.given_up) };
        let answer = match sent {
            Ok(()) => wait_for_answer(channel),
            // An offer that was not sent whole was not received.
            Err(Errno::PIPE | Errno::CONNRESET) => Err(Refused::Ended),
            // Here, before anything was sent: the next connection may need fewer.
            Err(Errno::MFILE | Errno::NFILE | Errno::TOOBIG | Errno::TOOMANYREFS) => {
                return Err(Refused::OwnDescriptors);
            }
            Err(_) => Err(Refused::Silence),
        };
        match answer {
            Ok(Answer::Taken(id)) if id == self.next => Ok(()),
            Ok(Answer::Refused(id, why)) if id == self.next => Err(why),
            answer => {
                (self.channel, self.given_up) = (None, answer.err().unwrap_or(Refused::Silence));
                Err(self.given_up)
            }
        }
    }

    fn report(&self, pid: u32) {
        if self.passed > 0 {
            tracing::info!("{} connections went on in process {pid}", self.passed);
        }
        for (why, count) in &self.refused {
            tracing::warn!("{count} connections did not pass to process {pid}: {why}. They ended here");
        }
    }
}

/// The answer to an offer.
///
/// # Errors
/// The other process has not answered, and cannot answer any more.
fn wait_for_answer(channel: &OwnedFd) -> Result<Answer, Refused> {
    match receive_answer(channel.as_fd()) {
        Ok(Received::Message(answer)) => return Ok(answer),
        Ok(Received::Closed) => return Err(Refused::Ended),
        Ok(Received::Silence) | Err(_) => {}
    }
    // From here on its answers fail (EPIPE). An answer that was sent before waits in the queue.
    let _ = shutdown(channel, Shutdown::Read);
    match receive_answer(channel.as_fd()) {
        Ok(Received::Message(answer)) => Ok(answer),
        _ => Err(Refused::Silence),
    }
}
