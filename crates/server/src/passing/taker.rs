//! The process that has taken over, and takes connections too.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use rustix::io::Errno;
use sealion_tls::Frozen;
use tokio::sync::oneshot;

use super::words::{
    Answer, Content, LONGEST_MESSAGE, Offer, Offered, Received, Refused, Resting, receive_offer, send_answer,
};
use crate::values::Mutex;

/// A connection that has arrived. It must not be touched before [`Self::wait`] says so.
pub(crate) struct Arrival {
    pub(crate) socket: OwnedFd,
    pub(crate) frozen: Frozen,
    pub(crate) resting: Resting,
    is_ours: oneshot::Receiver<()>,
}

impl Arrival {
    /// Waits until the other process knows that the connection was taken. `None`: it keeps it.
    pub(crate) async fn wait(self) -> Option<(OwnedFd, Frozen, Resting)> {
        let Self { socket, frozen, resting, is_ours } = self;
        is_ours.await.ok().map(|()| (socket, frozen, resting))
    }
}

/// Takes connections of the processes before this one.
pub(crate) struct Taking {
    /// Gives a connection to a worker.
    place: Box<dyn Fn(Arrival) -> Result<(), Refused> + Send + Sync>,
    /// Gives the channel of a process, by its id, to the process that has taken over from this one.
    hand_over: Box<dyn Fn(u32, OwnedFd) + Send + Sync>,
    /// Readable when that process takes connections.
    has_heir: OwnedFd,
    /// One for each channel.
    threads: Mutex<Vec<JoinHandle<()>>>,
}

impl Taking {
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn new(
        place: impl Fn(Arrival) -> Result<(), Refused> + Send + Sync + 'static,
        hand_over: impl Fn(u32, OwnedFd) + Send + Sync + 'static,
    ) -> io::Result<Arc<Self>> {
        let has_heir = eventfd(0, EventfdFlags::CLOEXEC)?;
        let (place, hand_over) = (Box::new(place), Box::new(hand_over));
        Ok(Arc::new(Taking { place, hand_over, has_heir, threads: Mutex::default() }))
    }

    /// Starts the thread that takes connections from `channel` until the process `pid` closes it, or another one takes over from this one.
    ///
    /// # Errors
    /// The thread.
    pub(crate) fn start(self: &Arc<Self>, channel: OwnedFd, pid: u32) -> io::Result<()> {
        let taking = Arc::clone(self);
        let work = move || {
            let taken = taking.work(channel, pid);
            if taken > 0 {
                tracing::info!("took {taken} connections from process {pid}");
            }
        };
        let thread = thread::Builder::new().name("taking".to_owned()).spawn(work)?;
        self.threads.lock().push(thread);
        Ok(())
    }

    /// The process that has taken over takes the connections of all processes before it from now on.
    pub(crate) fn stop(&self) {
        let _ = rustix::io::write(&self.has_heir, &1_u64.to_ne_bytes());
    }

    /// Waits behind [`Self::stop`] until the channels are handed over.
    pub(crate) fn wait(&self) {
        let next = || self.threads.lock().pop();
        // A channel may have come over a channel. The hook reports a panic.
        while let Some(thread) = next() {
            let _ = thread.join();
        }
    }

    fn work(self: &Arc<Self>, channel: OwnedFd, pid: u32) -> u64 {
        let mut space = vec![0; LONGEST_MESSAGE];
        let mut taken = 0;
        // Without a time-out: the other process may have a connection that becomes idle after hours.
        while self.waits(&channel) {
            let Ok(Received::Message(offer)) = receive_offer(channel.as_fd(), &mut space) else { return taken };
            let id = offer.id;
            let (answer, go) = match self.accept(offer) {
                Ok(go) => (Answer::Taken(id), go),
                Err(why) => (Answer::Refused(id, why), None),
            };
            // If it was not sent, the other process goes on with the connection, and `go` is dropped.
            if send_answer(channel.as_fd(), answer).is_err() {
                return taken;
            }
            if let Some(go) = go {
                taken += 1;
                let _ = go.send(());
            }
        }
        (self.hand_over)(pid, channel);
        taken
    }

    /// Waits for an offer. `false`: another process takes them.
    fn waits(&self, channel: &OwnedFd) -> bool {
        loop {
            let mut ready = [PollFd::new(&self.has_heir, PollFlags::IN), PollFd::new(channel, PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) if !ready[0].revents().is_empty() => return false,
                Ok(_) if !ready[1].revents().is_empty() => return true,
                Ok(_) | Err(Errno::INTR) => {}
                // The next look at the channel says why.
                Err(_) => return true,
            }
        }
    }

    /// Accepts an offer. `None`: it is a channel, from which a thread takes connections now.
    fn accept(self: &Arc<Self>, offer: Offer) -> Result<Option<oneshot::Sender<()>>, Refused> {
        let Content { resting, tls, socket } = match offer.content? {
            Offered::Connection(content) => content,
            Offered::Channel(pid, channel) => {
                return self.start(channel, pid).map(|()| None).map_err(|_| Refused::Descriptors);
            }
        };
        let frozen = Frozen::from_bytes(&tls).map_err(|_| Refused::Format)?;
        let (go, is_ours) = oneshot::channel();
        (self.place)(Arrival { socket, frozen, resting, is_ours })?;
        Ok(Some(go))
    }
}
