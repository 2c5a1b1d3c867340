//! The only `unsafe` code of the workspace.
//!
//! Allowed here: C library calls that rustix lacks, each in a wrapper that takes a borrowed descriptor and slices and
//! returns owned values; and the raw bytes of `msghdr` and control messages. Not allowed: state, retries of anything
//! but EINTR, policy, pointers that outlive the call, descriptors made from numbers. A pointer passed to the kernel
//! always comes from a live slice or local of the same function, with that object's length.
#![allow(unsafe_code)]

pub(crate) mod msg;
pub(crate) mod sockopt;
pub(crate) mod uapi;

use rustix::io::Errno;

/// Repeats `call` while a signal interrupts it, and turns −1 into the errno.
fn retry(mut call: impl FnMut() -> isize) -> Result<usize, Errno> {
    loop {
        if let Ok(done) = usize::try_from(call()) {
            return Ok(done);
        }
        // SAFETY: errno is a thread-local integer of the C library; the pointer it returns is valid for this thread.
        let errno = Errno::from_raw_os_error(unsafe { *libc::__errno_location() });
        if errno != Errno::INTR {
            return Err(errno);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fail_with(errno: i32) -> isize {
        // SAFETY: as in `retry`; the pointer is valid for writing by this thread.
        unsafe { *libc::__errno_location() = errno };
        -1
    }

    #[test]
    fn signals_are_retried_and_nothing_else() {
        let mut calls = 0;
        let done = retry(|| {
            calls += 1;
            if calls < 3 { fail_with(libc::EINTR) } else { 7 }
        });
        assert_eq!((done, calls), (Ok(7), 3));
        assert_eq!(retry(|| fail_with(libc::EAGAIN)), Err(Errno::AGAIN));
    }
}
