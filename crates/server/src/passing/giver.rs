//! The process that passes its connections on.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;
use std::{io, thread};

use rustix::net::{Shutdown, shutdown};
use sealion_tls::Frozen;
use tokio::sync::oneshot;

use super::words::{
    Answer, LONGEST_CONTENT, Received, Refused, Resting, describe, receive_answer, send_offer, set_patience,
};

/// How long the new process may take for one connection. It answers within microseconds, unless it hangs.
const PATIENCE: Duration = Duration::from_secs(1);

/// A connection, taken apart.
pub(crate) struct Offered {
    /// By [`Giver::describe`].
    pub(crate) head: Description,
    pub(crate) socket: OwnedFd,
    pub(crate) frozen: Frozen,
}

/// Offers connections to the process that has taken over.
#[derive(Debug)]
pub(crate) struct Giver(Sender<Errand>);

/// All of a connection but its TLS state and its socket, as bytes.
pub(crate) struct Description(Vec<u8>);

struct Errand {
    offered: Offered,
    /// `Some`: it was not taken.
    end: oneshot::Sender<Option<Offered>>,
}

impl Giver {
    /// Starts the thread that offers connections over `channel` to the process `pid`. It ends with the last connection.
    ///
    /// # Errors
    /// The thread or the socket.
    pub(crate) fn start(channel_end: OwnedFd, pid: u32) -> io::Result<Self> {
        set_patience(&channel_end, PATIENCE)?;
        let (errands, queue) = channel();
        let work = move || {
            let mut offers = Offers { channel: Some(channel_end), next: 0, passed: 0, refused: BTreeMap::new() };
            offers.work(&queue);
            offers.report(pid);
        };
        thread::Builder::new().name("passing".to_owned()).spawn(work)?;
        Ok(Self(errands))
    }

    /// What is said of a connection at rest.
    pub(crate) fn describe(&self, resting: &Resting) -> Description {
        Description(describe(resting))
    }

    /// Offers a connection. `Some`: it was not taken, and nothing has changed.
    pub(crate) async fn offer(&self, offered: Offered) -> Option<Offered> {
        let (end, ended) = oneshot::channel();
        if let Err(unsent) = self.0.send(Errand { offered, end }) {
            return Some(unsent.0.offered);
        }
        // The thread answers each errand. If it panicked, the connection is closed, for nobody knows who has it.
        ended.await.unwrap_or_default()
    }
}

/// The offers of the thread.
struct Offers {
    /// `None`: the other process does not answer any more.
    channel: Option<OwnedFd>,
    next: u64,
    passed: u64,
    refused: BTreeMap<Refused, u64>,
}

impl Offers {
    fn work(&mut self, queue: &Receiver<Errand>) {
        while let Ok(Errand { offered, end }) = queue.recv() {
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
    fn offer(&mut self, Offered { head: Description(head), socket, frozen }: &Offered) -> Result<(), Refused> {
        let Some(channel) = &self.channel else { return Err(Refused::Silence) };
        self.next += 1;
        let tls = frozen.to_bytes();
        if head.len() + tls.len() > LONGEST_CONTENT {
            return Err(Refused::Length);
        }
        let answer = match send_offer(channel.as_fd(), self.next, [head, &tls], socket.as_fd()) {
            Ok(()) => wait_for_answer(channel),
            Err(_) => None,
        };
        match answer {
            Some(Answer::Taken(id)) if id == self.next => Ok(()),
            Some(Answer::Refused(id, why)) if id == self.next => Err(why),
            // An offer that was not sent whole was not received.
            _ => {
                self.channel = None;
                Err(Refused::Silence)
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

/// `None`: there is none, and there will be none. The other process cannot send one any more.
fn wait_for_answer(channel: &OwnedFd) -> Option<Answer> {
    match receive_answer(channel.as_fd()) {
        Ok(Received::Message(answer)) => return Some(answer),
        Ok(Received::Closed) => return None,
        Ok(Received::Silence) | Err(_) => {}
    }
    // From here on its answers fail (EPIPE). One that was sent before waits in the queue.
    let _ = shutdown(channel, Shutdown::Read);
    match receive_answer(channel.as_fd()) {
        Ok(Received::Message(answer)) => Some(answer),
        _ => None,
    }
}
