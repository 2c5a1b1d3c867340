//! Linux kernel TLS: keys in, records out.
//!
//! A TLS library shakes hands in user space. Its traffic keys then go to the kernel, which seals (and opens) the records
//! on the socket, so that `sendfile(2)` can serve a file over TLS without a copy through user space. This crate is the
//! part between the two: it knows no TLS library and no runtime, takes anything that is [`AsFd`](std::os::fd::AsFd)
//! and returns owned types.
//!
//! 1. [`probe::probe`] tells what this kernel accepts, by trying.
//! 2. [`CryptoInfo`] holds one direction's key, IV and sequence number as the kernel wants them.
//! 3. [`handover::tx`] gives the sending half to the kernel and returns [`Tx`].
//! 4. [`Tx`] sends data, files and control records, renews keys and says what has not reached TCP yet.
//! 5. [`handover::rx`] gives the receiving half too, where that is wanted, and [`Rx`] returns records with their type.
//! 6. [`stat::TlsStat`] reads the kernel's counters, [`diag`] says of any socket how it uses kernel TLS, and
//!    [`nic`] which network cards could do it.
//!
//! Every [`Error`] says who is at fault, which step failed, and what to do.
//! Features, each of which only adds: `rustls` makes [`CryptoInfo`] from rustls' secrets, `tokio` waits for the readiness of its sockets.
//!
//! The kernel facts relied on are in `docs/kernel.md`, each with the test that asserts it.
//!
//! Source: `Documentation/networking/tls.rst`, `include/uapi/linux/tls.h` and `net/tls` of the Linux kernel.

pub mod diag;
pub mod handover;
pub mod nic;
pub mod nonce;
pub mod probe;
pub mod stat;
#[cfg(feature = "tokio")]
pub mod tokio;

mod cipher;
mod crypto_info;
mod errno;
mod error;
mod host;
mod ledger;
mod netlink;
mod record;
mod rx;
#[cfg(feature = "rustls")]
mod secrets;
mod sys;
mod tx;

pub use cipher::{AeadKey, Cipher, Version};
pub use crypto_info::CryptoInfo;
pub use error::{Error, Kind, Operation};
pub use ledger::acknowledged;
pub use record::{MAX_PLAINTEXT, More, RecordType};
pub use rx::{Incoming, Rx, Spliced};
pub use tx::Tx;

/// What reads bytes of the kernel, for fuzz targets. Not part of the interface.
#[doc(hidden)]
pub mod fuzzing {
    /// Control messages.
    pub fn record_type_in(control: &[u8]) -> Option<u8> {
        crate::sys::msg::record_type_in(control)
    }

    /// A datagram of socket diagnosis.
    pub fn sockets_in(datagram: &[u8]) -> Vec<crate::diag::Socket> {
        crate::diag::parse(datagram)
    }

    /// A datagram of ethtool's features.
    pub fn nics_in(datagram: &[u8]) -> Vec<crate::nic::Nic> {
        crate::nic::parse(datagram)
    }
}
