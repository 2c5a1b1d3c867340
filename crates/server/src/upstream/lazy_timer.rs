//! A timer that passes from one wait to the next.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer that is set again only if it goes off before the deadline of the wait. A wait that ends in time leaves it as it is, for the next wait: to set
/// and remove a timer costs several times as much as to look at it.
///
/// It may wake the task of the last wait once, for nothing.
#[derive(Debug, Default)]
pub(super) struct LazyTimer {
    /// `None`: no wait has set it yet.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Ready when `deadline` has passed. Each wait has its own deadline.
    pub(super) fn poll(&mut self, deadline: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.sleep.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= deadline {
                return Poll::Ready(());
            }
            // It was set for an earlier wait.
            sleep.as_mut().reset(deadline);
        }
        Poll::Pending
    }
}

/// The deadline of a wait that begins now.
pub(super) fn deadline_in(limit: Duration) -> Instant {
    let now = Instant::now();
    now.checked_add(limit).unwrap_or_else(|| now + FAR)
}

/// Longer than any wait.
const FAR: Duration = Duration::from_secs(10 * 365 * 86400);

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use super::*;

    #[tokio::test]
    async fn each_wait_has_its_own_deadline() {
        let mut timer = LazyTimer::default();
        let now = Instant::now();
        let at = |milliseconds| now + Duration::from_millis(milliseconds);
        let is_pending = |timer: &mut LazyTimer, deadline| {
            let mut cx = Context::from_waker(Waker::noop());
            timer.poll(deadline, &mut cx).is_pending()
        };
        assert!(is_pending(&mut timer, at(1_000_000)));
        // An earlier deadline holds at once.
        poll_fn(|cx| timer.poll(at(5), cx)).await;
        // A later deadline holds though the timer has gone off, or goes off before.
        for later in [at(10), at(20)] {
            poll_fn(|cx| timer.poll(later, cx)).await;
            assert!(Instant::now() >= later);
        }
        assert!(is_pending(&mut timer, at(1_000_000)));
    }
}
