//! Bounds on the requests to servers: at a time, waiting, and repeated.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use crate::values::Mutex;

/// The places at a server, of all workers.
#[derive(Debug)]
pub(super) struct Gate {
    places: Arc<Semaphore>,
    most: usize,
    waiting: AtomicUsize,
    most_waiting: usize,
}

/// A server has no place for a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum Full {
    #[error("{0} requests are in progress, and {1} wait")]
    Queue(usize, usize),
    #[error("{0} requests are in progress, and none ended within {time} s", time = .1.as_secs_f32())]
    Patience(usize, Duration),
}

/// A request that waits for its place.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Gate {
    pub(super) fn new(most: usize, most_waiting: usize) -> Self {
        Gate { places: Arc::new(Semaphore::new(most)), most, waiting: AtomicUsize::new(0), most_waiting }
    }

    /// A place, which is free again when it is dropped.
    ///
    /// # Errors
    /// [`Full`]
    pub(super) async fn enter(&self, patience: Duration) -> Result<OwnedSemaphorePermit, Full> {
        if let Ok(place) = Arc::clone(&self.places).try_acquire_owned() {
            return Ok(place);
        }
        let before = self.waiting.fetch_add(1, Ordering::Relaxed);
        let _waiting = Waiting(&self.waiting);
        if before >= self.most_waiting {
            return Err(Full::Queue(self.most, before));
        }
        match timeout(patience, Arc::clone(&self.places).acquire_owned()).await {
            Ok(Ok(place)) => Ok(place),
            _ => Err(Full::Patience(self.most, patience)),
        }
    }
}

/// How many requests are asked again: where many fail, asking again is a load that keeps servers from coming back.
#[derive(Debug)]
pub(super) struct Budget(Mutex<Window>);

#[derive(Debug)]
struct Window {
    begun: Instant,
    /// Requests before it.
    asked: u64,
    /// Requests that were asked again in it.
    again: u64,
}

/// Time over which requests are counted.
const WINDOW: Duration = Duration::from_secs(10);

/// One of so many requests may be asked again.
const ONE_OF: u64 = 5;

/// Requests that may be asked again, however few there are.
const FEW: u64 = 10;

impl Budget {
    pub(super) fn new(now: Instant) -> Self {
        Budget(Mutex::new(Window { begun: now, asked: 0, again: 0 }))
    }

    /// Whether one more request may be asked again. `asked`: all requests so far.
    pub(super) fn spend(&self, asked: u64, now: Instant) -> bool {
        let mut window = self.0.lock();
        if now.saturating_duration_since(window.begun) > WINDOW {
            *window = Window { begun: now, asked, again: 0 };
        }
        let is_permitted = window.again < FEW + asked.saturating_sub(window.asked) / ONE_OF;
        window.again += u64::from(is_permitted);
        is_permitted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run<T>(future: impl Future<Output = T>) -> T {
        tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(future)
    }

    #[test]
    fn a_place_is_free_again_when_its_request_has_ended() {
        run(async {
            let gate = Gate::new(2, 0);
            let first = gate.enter(Duration::from_secs(60)).await.unwrap();
            let _second = gate.enter(Duration::from_secs(60)).await.unwrap();
            assert_eq!(gate.enter(Duration::from_secs(60)).await.unwrap_err(), Full::Queue(2, 0));
            drop(first);
            assert!(gate.enter(Duration::from_secs(60)).await.is_ok());
        });
    }

    #[test]
    fn requests_wait_in_a_queue_that_has_an_end() {
        run(async {
            let gate = Gate::new(1, 1);
            let first = gate.enter(Duration::from_secs(60)).await.unwrap();
            let waits = gate.enter(Duration::from_secs(60));
            let others = async {
                tokio::task::yield_now().await;
                let refused = gate.enter(Duration::from_secs(60)).await.unwrap_err();
                drop(first);
                refused
            };
            let (waited, refused) = tokio::join!(waits, others);
            assert_eq!(refused, Full::Queue(1, 1));
            assert_eq!(gate.waiting.load(Ordering::Relaxed), 0);
            let patience = Duration::from_millis(1);
            assert_eq!(gate.enter(patience).await.unwrap_err(), Full::Patience(1, patience));
            drop(waited.unwrap());
            // A request that gave up takes no place.
            assert!(gate.enter(patience).await.is_ok());
        });
    }

    #[test]
    fn a_fifth_of_the_requests_may_be_asked_again_and_a_few() {
        let start = Instant::now();
        let budget = Budget::new(start);
        let spent =
            |asked, at: u64| (0..1000).take_while(|_| budget.spend(asked, start + Duration::from_secs(at))).count();
        assert_eq!(spent(0, 0), 10);
        assert_eq!(spent(100, 1), 20);
        assert_eq!(spent(100, 10), 0);
        // The next window counts its own requests.
        assert_eq!(spent(100, 11), 10);
        assert_eq!(spent(110, 12), 2);
    }
}
