//! The end of a connection: `close_notify` before FIN, and no byte lost.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::Shutdown;
use rustix::net::sockopt::set_socket_linger;
use sealion_ktls::Kind;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::{MOVING, Outgoing, Sender, Sending, TlsStream};
use crate::AlertDescription;
use crate::error::Error;
use crate::record::ContentType;

/// The first pause before asking TCP again for its unsent bytes; each further pause is twice as long. The kernel's
/// worker pushes the rest as soon as TCP has room, so few connections ever wait.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The maximum pause.
const MAX_PAUSE: Duration = Duration::from_millis(100);

/// A wait until TCP has every sealed byte.
pub(super) struct Delivery {
    pause: Duration,
    timer: Pin<Box<Sleep>>,
}

impl Delivery {
    /// Waits until nothing is `unsent`, or the peer times out. `this`: the wait, which begins when bytes are unsent.
    fn poll(
        this: &mut Option<Box<Self>>,
        cx: &mut Context<'_>,
        mut unsent: impl FnMut() -> Result<u64, Error>,
        mut given_up: impl FnMut(&mut Context<'_>) -> Poll<Error>,
    ) -> Poll<Result<(), Error>> {
        if unsent()? == 0 {
            return Poll::Ready(Ok(()));
        }
        if let Poll::Ready(given_up) = given_up(cx) {
            return Poll::Ready(Err(given_up));
        }
        let delivery =
            this.get_or_insert_with(|| Box::new(Self { pause: FIRST_PAUSE, timer: Box::pin(sleep(FIRST_PAUSE)) }));
        // The check above belongs to the end of a pause.
        while delivery.timer.as_mut().poll(cx).is_ready() {
            delivery.pause = (2 * delivery.pause).min(MAX_PAUSE);
            delivery.timer.as_mut().reset(Instant::now() + delivery.pause);
        }
        Poll::Pending
    }
}

impl TlsStream {
    /// Ends the connection in order: sends pending data, `close_notify` and FIN, then waits a bounded time for the
    /// peer's FIN, so that no reset overtakes the last bytes.
    ///
    /// # Errors
    /// [`Error::Unfinished`] if a response is not finished, because `close_notify` would mark it as complete; use
    /// [`Self::abort`]. Otherwise the transport's error.
    pub async fn shutdown(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_close(cx)).await?;
        self.linger().await;
        Ok(())
    }

    /// Ends the connection because of an error: the alert, FIN, and the same bounded wait. The peer notices that the
    /// data is incomplete. Without TLS there is no alert: during a response, the connection is reset on drop.
    pub async fn abort(&mut self, alert: AlertDescription) {
        if poll_fn(|cx| self.poll_end_with(cx, alert)).await.is_ok() {
            self.linger().await;
        }
    }

    /// [`Self::shutdown`] without the final wait.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if self.is_unfinished() {
            return Poll::Ready(Err(Error::Unfinished));
        }
        self.poll_end_with(cx, AlertDescription::CLOSE_NOTIFY)
    }

    fn poll_end_with(&mut self, cx: &mut Context<'_>, alert: AlertDescription) -> Poll<Result<(), Error>> {
        loop {
            match self.sending {
                Sending::Open | Sending::Responding | Sending::Midway | Sending::Unfinished => {
                    if self.is_cut() {
                        // FIN would mean that nothing is missing.
                        self.reset_on_close();
                        self.sending = Sending::Closed;
                        return Poll::Ready(Err(Error::Unfinished));
                    }
                    ready!(self.poll_drain(cx))?;
                    let payload = alert.to_wire();
                    match &mut self.sender {
                        Sender::Plain(_) => {
                            self.sending = Sending::Notified;
                            continue;
                        }
                        Sender::User { sealer, .. } => {
                            let sealed = Outgoing::control(sealer, ContentType::Alert, &payload)?;
                            self.outgoing = Some(sealed);
                        }
                        Sender::Kernel(_) => {
                            let record_type = ContentType::Alert.into();
                            ready!(self.poll_kernel(cx, |tx| tx.send_record(record_type, &payload)))?;
                        }
                        Sender::Moving => unreachable!("{MOVING}"),
                    }
                    self.sending = Sending::Notified;
                    self.counts.alert_sent = Some(alert);
                }
                Sending::Notified => {
                    ready!(self.poll_drain(cx))?;
                    ready!(self.poll_delivered_to_tcp(cx))?;
                    // The peer may have reset the connection: then there is nothing left to end.
                    let _ = rustix::net::shutdown(self.socket(), Shutdown::Write);
                    self.sending = Sending::Closed;
                }
                Sending::Closed => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Waits until TCP has every sealed byte, or the peer times out. The kernel accepts a send although TCP took only a
    /// part, and FIN or close would cut off the rest.
    fn poll_delivered_to_tcp(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if let Sender::Kernel(kernel) = &self.sender {
            let unsent = || match kernel.tx.unsent() {
                Err(e) if e.kind() == Kind::Peer => Err(Error::Io(e.into())),
                unsent => unsent.map_err(Error::Kernel),
            };
            let (patience, limits) = (&mut self.patience, &self.limits);
            let (socket, written) = (self.sender.socket(), self.written);
            let given_up = |cx: &mut Context<'_>| patience.poll(cx, limits, || socket.taken(written));
            ready!(Delivery::poll(&mut self.delivery, cx, unsent, given_up))?;
        }
        self.patience.rewarded();
        Poll::Ready(Ok(()))
    }

    /// Whether a response has begun and not ended.
    fn is_unfinished(&self) -> bool {
        matches!(self.sending, Sending::Responding | Sending::Midway | Sending::Unfinished)
    }

    /// Whether FIN alone would end a response that is incomplete.
    fn is_cut(&self) -> bool {
        matches!(self.sender, Sender::Plain(_)) && self.is_unfinished()
    }

    /// Makes close(2) reset the connection (socket(7), SO_LINGER). A Unix socket has no reset: only the protocol's
    /// framing shows that something is missing.
    pub(super) fn reset_on_close(&self) {
        let _ = set_socket_linger(self.socket(), Some(Duration::ZERO));
    }

    /// A peer that has sent `close_notify` sends nothing more that could cause a reset, so this does not wait for its
    /// FIN.
    async fn linger(&mut self) {
        let notified = self.counts.alert_received == Some(AlertDescription::CLOSE_NOTIFY);
        if !self.receiver.finished() && !notified {
            let _ = timeout(self.limits.linger, self.discard_until_fin()).await;
        }
    }
}

/// A response that is dropped halfway, with its task, must not look complete either.
impl Drop for TlsStream {
    fn drop(&mut self) {
        if self.is_cut() {
            self.reset_on_close();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::super::patience::Patience;
    use super::*;
    use crate::handshake::config::Limits;

    /// Waits for a peer that has taken everything at the `last` check. `takes`: the bytes that it takes between two
    /// checks. Also returns the number of checks.
    fn wait(takes: u64, last: u64, stall: Duration) -> (Result<(), Error>, u64) {
        let (asked, taken) = (Cell::new(0), Cell::new(0));
        let limits = Limits { stall, least_rate: None, ..Limits::default() };
        let (mut delivery, mut patience) = (None, Patience::default());
        let unsent = || {
            asked.set(asked.get() + 1);
            taken.set(taken.get() + takes);
            Ok(u64::from(asked.get() < last))
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let waited = runtime.block_on(poll_fn(|cx| {
            Delivery::poll(&mut delivery, cx, unsent, |cx| patience.poll(cx, &limits, || taken.get()))
        }));
        (waited, asked.get())
    }

    /// Eight pauses of at least 2 ms exceed `stall`.
    #[test]
    fn a_peer_that_goes_on_taking_gets_the_tail_however_long_it_takes() {
        let (waited, asked) = wait(1, 9, Duration::from_millis(10));
        assert!(waited.is_ok(), "{waited:?}");
        assert_eq!(asked, 9);
    }

    /// Pauses of 2, 4, 8, 16, 32 and 64 ms end before `stall`, but two more of 100 ms do not.
    #[test]
    fn a_peer_that_takes_nothing_is_given_up_after_few_questions() {
        let (waited, asked) = wait(0, u64::MAX, Duration::from_millis(200));
        assert!(matches!(waited, Err(Error::Stalled(_))), "{waited:?}");
        assert!(asked <= 9, "{asked}");
    }

    #[test]
    fn a_connection_that_is_closed_is_not_waited_for() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let waited = runtime.block_on(poll_fn(|cx| {
            let reset = || Err(Error::Io(rustix::io::Errno::CONNRESET.into()));
            Delivery::poll(&mut None, cx, reset, |_| panic!("nothing is waited for"))
        }));
        assert!(matches!(waited, Err(Error::Io(_))), "{waited:?}");
    }
}
