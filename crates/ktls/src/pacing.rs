//! The rate at which TCP may send. This has nothing to do with TLS. It is here because the option needs `unsafe`, which
//! only `sys` may contain: rustix 1.1, socket2 0.6 and nix 0.31 have no function for it.

use std::os::fd::AsFd;

use crate::sys::sockopt;
use crate::{Error, Operation};

/// Bounds the rate at which TCP sends on this socket, in bytes a second (`SO_MAX_PACING_RATE`, socket(7)).
///
/// TCP itself spaces the segments if there is no `fq` queue (Linux 4.13). This works together with kernel TLS, because
/// TCP is the layer that waits. Segment headers count too.
///
/// # Errors
/// [`Kind::Misuse`](crate::Kind::Misuse) if it is not a socket. A Unix socket accepts the option and ignores it.
pub fn set_max_rate(socket: impl AsFd, bytes_per_second: u64) -> Result<(), Error> {
    sockopt::set_max_pacing_rate(socket.as_fd(), bytes_per_second).map_err(failed)
}

/// The bound, in bytes a second; `u64::MAX` without a bound.
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
