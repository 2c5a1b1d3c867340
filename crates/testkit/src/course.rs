//! The phase of a load, shared by its clients and the test that controls it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The phase of one load.
#[derive(Default)]
pub struct Course {
    may_break: AtomicBool,
    ended: AtomicBool,
}

impl Course {
    /// From now on connections may break, and acknowledgements do not count.
    pub fn may_break(&self) {
        self.may_break.store(true, Ordering::SeqCst);
    }

    /// Whether a connection may break.
    pub fn is_breaking(&self) -> bool {
        self.may_break.load(Ordering::SeqCst)
    }

    /// Makes the clients stop after their current request.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// A guard that ends the course on drop, even after a panic.
    pub fn ending(&self) -> Ends<'_> {
        Ends(self)
    }

    /// Whether clients should stop.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Lets the load run for `time`, or until it ends by itself because a client found a fault.
    pub fn run(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.has_ended() && Instant::now() < until {
            thread::sleep(until.saturating_duration_since(Instant::now()).min(Duration::from_millis(5)));
        }
    }
}

/// Made by [`Course::ending`].
pub struct Ends<'a>(&'a Course);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.end();
    }
}
