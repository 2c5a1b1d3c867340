//! Pipes for content that passes from a server to a client without being read.

use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};

use sealion_tls::Pipe;

/// Empty pipes that a worker keeps.
const MAX_KEPT: usize = 8;

/// Pipes of all workers, and how many there may be: the limit on open files is the process's too.
static PIPES: AtomicUsize = AtomicUsize::new(0);
static MAX_PIPES: AtomicUsize = AtomicUsize::new(usize::MAX);

thread_local! {
    static KEPT: RefCell<Vec<LeasedPipe>> = const { RefCell::new(Vec::new()) };
}

/// Bounds the pipes of the process.
pub(crate) fn bound_pipes(most: usize) {
    MAX_PIPES.store(most, Ordering::Relaxed);
}

/// A pipe of one response. Dropped, it is closed with the bytes that it holds.
#[derive(Debug)]
pub(crate) struct LeasedPipe {
    pub(crate) pipe: Pipe,
    _counted: Counted,
}

/// One of the pipes of the process, until dropped.
#[derive(Debug)]
struct Counted;

impl LeasedPipe {
    /// An empty pipe. `None`: there are enough, or the kernel gives no other.
    pub(crate) fn take() -> Option<Self> {
        KEPT.with_borrow_mut(Vec::pop).or_else(Self::new)
    }

    fn new() -> Option<Self> {
        let before = PIPES.fetch_add(1, Ordering::Relaxed);
        let counted = Counted;
        let pipe = (before < MAX_PIPES.load(Ordering::Relaxed)).then(Pipe::new)?.ok()?;
        Some(LeasedPipe { pipe, _counted: counted })
    }

    /// Keeps the pipe for another response, if it is empty: the bytes in it belong to no other client.
    pub(crate) fn give_back(self) {
        KEPT.with_borrow_mut(|kept| {
            if self.pipe.held() == 0 && kept.len() < MAX_KEPT {
                kept.push(self);
            }
        });
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        PIPES.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_pipe_with_bytes_is_never_kept() {
        let (mut far, near) = UnixStream::pair().unwrap();
        far.write_all(b"of another client").unwrap();
        let mut full = LeasedPipe::take().unwrap();
        full.pipe.fill(&near, 7).unwrap();
        full.give_back();
        assert_eq!(KEPT.with_borrow(Vec::len), 0);
        let mut emptied = LeasedPipe::take().unwrap();
        emptied.pipe.fill(&near, u64::MAX).unwrap();
        assert_eq!(emptied.pipe.take().unwrap(), b"her client");
        emptied.give_back();
        assert_eq!(KEPT.with_borrow(Vec::len), 1);
        assert_eq!(LeasedPipe::take().unwrap().pipe.held(), 0);
        let many: Vec<_> = (0..MAX_KEPT + 1).map(|_| LeasedPipe::take().unwrap()).collect();
        many.into_iter().for_each(LeasedPipe::give_back);
        assert_eq!(KEPT.with_borrow(Vec::len), MAX_KEPT);
    }
}
