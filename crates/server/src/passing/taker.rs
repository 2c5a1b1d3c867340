//! The process that has taken over, and takes connections too.

use std::os::fd::{AsFd, OwnedFd};
use std::{io, thread};

use sealion_tls::Frozen;
use tokio::sync::oneshot;

use super::words::{Answer, Content, LONGEST_MESSAGE, Offer, Received, Refused, Resting, receive_offer, send_answer};

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

/// Starts the thread that takes connections from `channel` until the other process, `pid`, closes it. `place` gives a connection to a worker.
///
/// # Errors
/// The thread.
pub(crate) fn take_from(
    channel: OwnedFd,
    pid: u32,
    place: impl Fn(Arrival) -> Result<(), Refused> + Send + 'static,
) -> io::Result<()> {
    let work = move || {
        let mut space = vec![0; LONGEST_MESSAGE];
        let mut taken = 0_u64;
        // Without a time-out: the other process may have a connection that becomes idle after hours.
        while let Ok(Received::Message(offer)) = receive_offer(channel.as_fd(), &mut space) {
            let id = offer.id;
            let (answer, go) = match accept(offer, &place) {
                Ok(go) => (Answer::Taken(id), Some(go)),
                Err(why) => (Answer::Refused(id, why), None),
            };
            // If it was not sent, the other process goes on with the connection, and `go` is dropped.
            if send_answer(channel.as_fd(), answer).is_err() {
                break;
            }
            if let Some(go) = go {
                taken += 1;
                let _ = go.send(());
            }
        }
        if taken > 0 {
            tracing::info!("took {taken} connections from process {pid}");
        }
    };
    thread::Builder::new().name("taking".to_owned()).spawn(work).map(drop)
}

fn accept(offer: Offer, place: impl Fn(Arrival) -> Result<(), Refused>) -> Result<oneshot::Sender<()>, Refused> {
    let Content { resting, tls, socket } = offer.content?;
    let frozen = Frozen::from_bytes(&tls).map_err(|_| Refused::Format)?;
    let (go, is_ours) = oneshot::channel();
    place(Arrival { socket, frozen, resting, is_ours })?;
    Ok(go)
}
