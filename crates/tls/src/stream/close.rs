//! The end of a connection: `close_notify` before FIN, and nothing lost behind it.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use rustix::net::Shutdown;
use sealion_ktls::Kind;
use tokio::time::{Instant, Sleep, sleep, timeout};

use super::{MOVING, Outgoing, Sender, Sending, TlsStream};
use crate::AlertDescription;
use crate::error::Error;
use crate::record::ContentType;

/// The first pause between two questions how much TCP has not taken of what the kernel sealed; each further one is twice as long. The
/// kernel's worker that pushes the rest runs as soon as TCP has room, so few connections ever wait.
const FIRST_PAUSE: Duration = Duration::from_millis(2);

/// The pause stops doubling here.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// A wait until TCP has every sealed byte.
pub(super) struct Delivery {
    pause: Duration,
    timer: Pin<Box<Sleep>>,
}

impl TlsStream {
    /// Ends the connection in order: everything sent so far, `close_notify`, FIN, then a bounded wait
    /// for the peer's FIN, so that no reset overtakes the tail.
    ///
    /// # Errors
    /// [`Error::Unfinished`] when a response has begun and is not finished, because `close_notify` would call it
    /// complete; use [`Self::abort`]. Otherwise what the transport did.
    pub async fn shutdown(&mut self) -> Result<(), Error> {
        poll_fn(|cx| self.poll_close(cx)).await?;
        self.linger().await;
        Ok(())
    }

    /// Ends the connection because of an error: the alert, FIN, the same bounded wait. The peer
    /// cannot take what it has received for complete.
    pub async fn abort(&mut self, alert: AlertDescription) {
        if poll_fn(|cx| self.poll_end_with(cx, alert)).await.is_ok() {
            self.linger().await;
        }
    }

    /// [`Self::shutdown`] without the wait at its end.
    pub(super) fn poll_close(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        if matches!(self.sending, Sending::Responding | Sending::Midway | Sending::Unfinished) {
            return Poll::Ready(Err(Error::Unfinished));
        }
        self.poll_end_with(cx, AlertDescription::CLOSE_NOTIFY)
    }

    fn poll_end_with(&mut self, cx: &mut Context<'_>, alert: AlertDescription) -> Poll<Result<(), Error>> {
        loop {
            match self.sending {
                Sending::Open | Sending::Responding | Sending::Midway | Sending::Unfinished => {
                    ready!(self.poll_drain(cx))?;
                    let payload = alert.to_wire();
                    match &mut self.sender {
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
                    // The peer may have reset the connection; then there is nothing left to end.
                    let _ = rustix::net::shutdown(self.socket(), Shutdown::Write);
                    self.sending = Sending::Closed;
                }
                Sending::Closed => return Poll::Ready(Ok(())),
            }
        }
    }

    /// Waits until TCP has every sealed byte, or the peer is given up. The kernel accepts a send of which TCP took only a part, and
    /// FIN or close would cut the rest off.
    fn poll_delivered_to_tcp(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        while let Sender::Kernel(kernel) = &self.sender {
            match kernel.tx.unsent() {
                Ok(0) => break,
                Ok(_) => {}
                Err(e) if e.kind() == Kind::Peer => return Poll::Ready(Err(Error::Io(e.into()))),
                Err(e) => return Poll::Ready(Err(Error::Kernel(e))),
            }
            if let Poll::Ready(given_up) = self.poll_given_up(cx) {
                return Poll::Ready(Err(given_up));
            }
            let delivery = self
                .delivery
                .get_or_insert_with(|| Box::new(Delivery { pause: FIRST_PAUSE, timer: Box::pin(sleep(FIRST_PAUSE)) }));
            ready!(delivery.timer.as_mut().poll(cx));
            delivery.pause = (2 * delivery.pause).min(LONGEST_PAUSE);
            delivery.timer.as_mut().reset(Instant::now() + delivery.pause);
        }
        self.patience.rewarded();
        Poll::Ready(Ok(()))
    }

    async fn linger(&mut self) {
        if !self.receiver.finished() {
            let _ = timeout(self.config.limits.linger, self.discard_until_fin()).await;
        }
    }
}
