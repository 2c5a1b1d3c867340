//! The rate at which TCP may send. It has nothing to do with TLS and is here because the option needs `unsafe`, which `sys` alone may hold,
//! and because rustix, socket2 and nix have no function for it (rustix 1.1, socket2 0.6, nix 0.31).

use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::sys::sockopt;

/// Bounds the rate at which TCP sends on this socket, in bytes a second (`SO_MAX_PACING_RATE`, socket(7)).
///
/// The kernel's TCP spaces the segments itself where no `fq` queue does (Linux 4.13). Works below kernel TLS, since it is TCP that waits.
/// Headers of segments count too.
///
/// # Errors
/// EBADF, ENOTSOCK: not a socket. A local socket takes the option and ignores it.
pub fn set_max_rate(socket: impl AsFd, bytes_per_second: u64) -> Result<(), Errno> {
    sockopt::set_max_pacing_rate(socket.as_fd(), bytes_per_second)
}

/// The bound, in bytes a second; `u64::MAX` if there is none.
///
/// # Errors
/// As [`set_max_rate`].
pub fn max_rate(socket: impl AsFd) -> Result<u64, Errno> {
    sockopt::max_pacing_rate(socket.as_fd())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn a_rate_is_kept_by_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(max_rate(&socket), Ok(u64::MAX));
        for rate in [4096, 1_000_000, 5 << 32] {
            set_max_rate(&socket, rate).unwrap();
            assert_eq!(max_rate(&socket), Ok(rate));
        }
        assert_eq!(set_max_rate(std::fs::File::open("/dev/null").unwrap(), 4096), Err(Errno::NOTSOCK));
    }
}
