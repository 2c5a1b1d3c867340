//! The rate at which TCP may send. It has nothing to do with TLS and is here because the option needs `unsafe`, which `sys` alone may hold,
//! and because rustix, socket2 and nix have no function for it (rustix 1.1, socket2 0.6, nix 0.31).

use std::os::fd::AsFd;

use crate::sys::sockopt;
use crate::{Error, Operation};

/// Bounds the rate at which TCP sends on this socket, in bytes a second (`SO_MAX_PACING_RATE`, socket(7)).
///
/// The kernel's TCP spaces the segments itself where no `fq` queue does (Linux 4.13). Works below kernel TLS, since it is TCP that waits.
/// Headers of segments count too.
///
/// # Errors
/// [`Kind::Misuse`](crate::Kind::Misuse): not a socket. A local socket takes the option and ignores it.
pub fn set_max_rate(socket: impl AsFd, bytes_per_second: u64) -> Result<(), Error> {
    sockopt::set_max_pacing_rate(socket.as_fd(), bytes_per_second).map_err(failed)
}

/// The bound, in bytes a second; `u64::MAX` if there is none.
///
/// # Errors
/// As [`set_max_rate`].
pub fn max_rate(socket: impl AsFd) -> Result<u64, Error> {
    sockopt::max_pacing_rate(socket.as_fd()).map_err(failed)
}

fn failed(errno: rustix::io::Errno) -> Error {
    Error::from_errno(Operation::PacingRate, errno)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::Kind;

    #[test]
    fn a_rate_is_kept_by_the_socket() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        assert_eq!(max_rate(&socket), Ok(u64::MAX));
        for rate in [4096, 1_000_000, 5 << 32] {
            set_max_rate(&socket, rate).unwrap();
            assert_eq!(max_rate(&socket), Ok(rate));
        }
        let refused = set_max_rate(std::fs::File::open("/dev/null").unwrap(), 4096).unwrap_err();
        assert_eq!((refused.kind(), refused.errno()), (Kind::Misuse, Some(rustix::io::Errno::NOTSOCK.raw_os_error())));
    }
}
