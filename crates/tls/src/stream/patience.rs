//! Timeouts for a peer that takes little or nothing.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::time::{Instant, Sleep, sleep_until};

use crate::error::Error;
use crate::handshake::config::Limits;

/// The waits of a connection for its peer. A peer times out if it takes nothing for [`Limits::stall`], or less than
/// [`Limits::least_rate`] while it makes the server wait.
#[derive(Default)]
pub(super) struct Patience {
    /// Set while TCP takes nothing.
    wait: Option<Box<(Wait, Pin<Box<Sleep>>)>>,
    rate: Rate,
    /// A wait that another process began.
    stopped: Option<Stall>,
}

/// The waits so far, for [`Patience::resume`].
#[derive(Clone, Copy, Serialize, Deserialize)]
pub(super) struct Waits {
    /// The time that the peer made the server wait in the present window, and the bytes that it had taken when the window began.
    waited: Duration,
    taken: u64,
    stall: Option<Stall>,
}

/// A peer that takes nothing.
#[derive(Clone, Copy, Serialize, Deserialize)]
struct Stall {
    /// The bytes that it has taken, and for how long no more.
    taken: u64,
    lasts: Duration,
}

/// A wait in progress.
struct Wait {
    /// The start of the wait, or of its part that counts towards the current window.
    since: Instant,
    /// The bytes that the peer had taken at the last check.
    taken: u64,
    /// When this number was first seen.
    taken_at: Instant,
}

/// The current window of the rate.
#[derive(Default)]
struct Rate {
    /// The time waited in the window, without the current wait.
    waited: Duration,
    /// The bytes that the peer had taken when the window began.
    taken: u64,
}

impl Patience {
    /// Stops the wait, which [`Self::resume`] continues.
    pub(super) fn stop(&mut self) -> Waits {
        let wait = self.wait.as_ref().map(|wait| &wait.0);
        let stall = wait.map(|wait| Stall { taken: wait.taken, lasts: wait.taken_at.elapsed() }).or(self.stopped);
        self.rewarded();
        Waits { waited: self.rate.waited, taken: self.rate.taken, stall }
    }

    /// Continues the waits of another process.
    pub(super) fn resume(Waits { waited, taken, stall }: Waits) -> Self {
        Self { wait: None, rate: Rate { waited, taken }, stopped: stall }
    }

    /// Ends the wait: TCP took something.
    pub(super) fn rewarded(&mut self) {
        self.stopped = None;
        if let Some(wait) = self.wait.take() {
            self.rate.waited += wait.0.since.elapsed();
        }
    }

    /// Waits until the peer times out. `taken`: the bytes that it has taken so far, which increase without sends if the
    /// peer is slow but not stalled.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, limits: &Limits, taken: impl Fn() -> u64) -> Poll<Error> {
        let stopped = self.stopped.take();
        let (wait, timer) = &mut **self.wait.get_or_insert_with(|| {
            let wait = Wait::new(Instant::now(), taken()).behind(stopped);
            let timer = Box::pin(sleep_until(wait.deadline(&self.rate, limits)));
            Box::new((wait, timer))
        });
        loop {
            ready!(timer.as_mut().poll(cx));
            if let Err(given_up) = wait.look(&mut self.rate, limits, Instant::now(), taken()) {
                return Poll::Ready(given_up);
            }
            timer.as_mut().reset(wait.deadline(&self.rate, limits));
        }
    }
}

impl Wait {
    fn new(now: Instant, taken: u64) -> Self {
        Self { since: now, taken, taken_at: now }
    }

    /// The same wait, if the peer has taken nothing since it began in another process.
    fn behind(mut self, stopped: Option<Stall>) -> Self {
        if let Some(Stall { taken, lasts }) = stopped
            && taken >= self.taken
        {
            self.taken_at = self.taken_at.checked_sub(lasts).unwrap_or(self.taken_at);
        }
        self
    }

    /// The time of the next [`Self::look`].
    fn deadline(&self, rate: &Rate, limits: &Limits) -> Instant {
        let stalled = self.taken_at + limits.stall;
        match &limits.least_rate {
            Some(least) => stalled.min(self.since + least.window.saturating_sub(rate.waited)),
            None => stalled,
        }
    }

    /// Checks the peer's progress.
    fn look(&mut self, rate: &mut Rate, limits: &Limits, now: Instant, taken: u64) -> Result<(), Error> {
        if taken > self.taken {
            (self.taken, self.taken_at) = (taken, now);
        } else if now - self.taken_at >= limits.stall {
            return Err(Error::Stalled(limits.stall));
        }
        if let Some(least) = &limits.least_rate
            && rate.waited + (now - self.since) >= least.window
        {
            let came = taken.saturating_sub(rate.taken);
            if came < least.bytes() {
                return Err(Error::TooSlow { taken: came, window: least.window });
            }
            *rate = Rate { waited: Duration::ZERO, taken };
            self.since = now;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::LeastRate;

    const SECOND: Duration = Duration::from_secs(1);

    fn limits() -> Limits {
        let least_rate = Some(LeastRate { bytes_per_second: 100, window: 60 * SECOND });
        Limits { stall: 10 * SECOND, least_rate, ..Limits::default() }
    }

    /// One wait of at most `most` seconds for a peer that takes `bytes` per second. Returns the error, and the second
    /// in which it occurred.
    fn given_up(rate: &mut Rate, taken: &mut u64, bytes: u64, most: u64) -> Option<(Error, u64)> {
        let begun = Instant::now();
        let mut wait = Wait::new(begun, *taken);
        for second in 1..=most {
            *taken += bytes;
            let now = begun + second as u32 * SECOND;
            if now >= wait.deadline(rate, &limits())
                && let Err(error) = wait.look(rate, &limits(), now, *taken)
            {
                return Some((error, second));
            }
        }
        rate.waited += most as u32 * SECOND - (wait.since - begun);
        None
    }

    #[test]
    fn a_peer_that_takes_nothing_and_one_that_takes_too_little_are_given_up() {
        let given_up = |bytes| given_up(&mut Rate::default(), &mut 0, bytes, 1000);
        assert!(matches!(given_up(0), Some((Error::Stalled(_), 10))));
        assert!(matches!(given_up(99), Some((Error::TooSlow { taken: 5940, .. }, 60))));
        assert!(given_up(100).is_none());
    }

    #[test]
    fn a_stall_goes_on_in_another_process_unless_the_peer_takes_something() {
        let stall = Some(Stall { taken: 5, lasts: 4 * SECOND });
        for (taken, left) in [(5, 6), (6, 10)] {
            let now = Instant::now();
            let wait = Wait::new(now, taken).behind(stall);
            assert_eq!(wait.deadline(&Rate::default(), &limits()), now + left * SECOND);
        }
    }

    #[test]
    fn bytes_of_an_earlier_window_do_not_count() {
        let (mut rate, mut taken) = (Rate::default(), 0);
        assert!(given_up(&mut rate, &mut taken, 1_000_000, 60).is_none());
        assert!(matches!(given_up(&mut rate, &mut taken, 1, 1000), Some((Error::TooSlow { taken: 60, .. }, 60))));
    }

    #[test]
    fn short_waits_add_up() {
        let (mut rate, mut taken) = (Rate::default(), 0);
        for _ in 0..5 {
            assert!(given_up(&mut rate, &mut taken, 1, 11).is_none());
        }
        assert!(matches!(given_up(&mut rate, &mut taken, 1, 11), Some((Error::TooSlow { taken: 60, .. }, 5))));
    }
}
