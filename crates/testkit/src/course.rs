//! How far a load is, for its clients and for the test that steers it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// The course of one load.
#[derive(Default)]
pub struct Course {
    may_break: AtomicBool,
    ended: AtomicBool,
}

impl Course {
    /// From now on a connection may break, and an acknowledgement counts for nothing.
    pub fn may_break(&self) {
        self.may_break.store(true, Ordering::SeqCst);
    }

    /// Whether a connection may break.
    pub fn is_breaking(&self) -> bool {
        self.may_break.load(Ordering::SeqCst)
    }

    /// Clients stop behind their current request.
    pub fn end(&self) {
        self.ended.store(true, Ordering::SeqCst);
    }

    /// Ends the course when it is dropped: behind a panic, too.
    pub fn ending(&self) -> Ends<'_> {
        Ends(self)
    }

    /// Whether clients stop.
    pub fn has_ended(&self) -> bool {
        self.ended.load(Ordering::SeqCst)
    }

    /// Lets the load run for a time, or until it has ended by itself: a client found a fault.
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
