//! Linux kernel TLS: keys in, records out.
//!
//! A TLS library performs the handshake in user space. Its traffic keys then go to the kernel, which seals (and opens)
//! the records on the socket, so that `sendfile(2)` can serve a file over TLS without a copy through user space. This
//! crate connects the two: it knows no TLS library and no runtime, takes anything that is [`AsFd`](std::os::fd::AsFd)
//! and returns owned types.
//!
//! 1. [`probe::probe`] finds out what this kernel accepts, by trying.
//! 2. [`CryptoInfo`] holds one direction's key, IV and sequence number as the kernel wants them.
//! 3. [`handover::tx`] gives the sending half to the kernel and returns [`Tx`].
//! 4. [`Tx`] sends data, files and control records, renews keys and counts the bytes that have not reached TCP yet.
//! 5. [`handover::rx`] gives the receiving half too, if wanted, and [`Rx`] returns records with their type.
//! 6. [`stat::TlsStat`] reads the kernel's counters, [`diag`] shows how any socket uses kernel TLS, and
//!    [`nic`] which network cards could seal records.
//!
//! Every [`Error`] names the side at fault, the failed step and the remedy.
//! Features, each of which only adds: `rustls` makes [`CryptoInfo`] from rustls' secrets, `tokio` waits for the readiness of its sockets,
//! `stream` has a TLS stream with `AsyncRead` and `AsyncWrite`.
//!
//! `docs/kernel.md` lists the kernel behaviour that the crate relies on, each with the test that asserts it.
//!
//! Source: `Documentation/networking/tls.rst`, `include/uapi/linux/tls.h` and `net/tls` of the Linux kernel.
//!
//! # A connection from handshake to end
//!
//! One response, on a blocking socket, with TLS 1.3 and AES-128-GCM. The TLS library extracts `key`, `iv` and
//! `sequence` for the sending direction.
//!
//! ```no_run
//! # fn respond(
//! #     stream: &std::net::TcpStream,
//! #     (key, iv, sequence): (&[u8], &[u8; 12], u64),
//! #     file: &std::fs::File,
//! #     len: u64,
//! # ) -> Result<(), Box<dyn std::error::Error>> {
//! use sealion_ktls::{AeadKey, Cipher, CryptoInfo, More, handover};
//!
//! // The number of the next record counts all that the handshake sealed under this key, tickets too: one too low repeats a nonce.
//! // With the feature `rustls`, `CryptoInfo::from_rustls` does this, and sees to the nonces of TLS 1.2.
//! let key = AeadKey::from_bytes(Cipher::Aes128Gcm, key).ok_or("a key of another length")?;
//! let info = CryptoInfo::tls13(&key, iv, sequence);
//!
//! // What user space sealed must be written by now: the kernel's first record follows the last byte in the socket. From here on a
//! // plain write would be sealed but not counted, so only `tx` writes.
//! let mut tx = handover::tx(stream, &info).map_err(|refused| refused.error)?;
//!
//! // `More` keeps the record open, so that the head shares it with the file. A send may take less than all.
//! let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {len}\r\nconnection: close\r\n\r\n");
//! let mut rest = head.as_bytes();
//! while !rest.is_empty() {
//!     let sent = tx.send(rest, More::Yes)?;
//!     rest = &rest[sent..];
//! }
//!
//! // From the page cache into records. 0 before the end means that the file shrank: no close_notify then, so that the peer sees the
//! // response cut.
//! let mut offset = 0;
//! while offset < len {
//!     let count = usize::try_from(len - offset).unwrap_or(usize::MAX);
//!     if tx.send_file(file, &mut offset, count)? == 0 {
//!         return Err("the file shrank".into());
//!     }
//! }
//!
//! // Seals what is open, which is the head alone where the file is empty, and tells the peer that nothing is missing.
//! tx.close_notify()?;
//!
//! // Sent is not yet in TCP: the kernel may hold the end of a record, which shutdown and close would lose.
//! while tx.unsent()? > 0 {
//!     std::thread::sleep(std::time::Duration::from_millis(2));
//! }
//!
//! // Now TCP owns every byte. FIN, then reading to the end: a close with unread bytes in the socket would reset the connection.
//! stream.shutdown(std::net::Shutdown::Write)?;
//! std::io::copy(&mut &*stream, &mut std::io::sink())?;
//! # Ok(())
//! # }
//! ```
//!
//! `examples/sendfile.rs` does the same after a rustls handshake.

#[cfg(not(target_os = "linux"))]
compile_error!(
    "sealion-ktls needs Linux: kernel TLS is a feature of its TCP sockets; make it a dependency under [target.'cfg(target_os = \"linux\")'.dependencies]"
);

pub mod diag;
pub mod faults;
pub mod handover;
pub mod nic;
pub mod nonce;
pub mod pacing;
pub mod probe;
pub mod stat;
#[cfg(feature = "stream")]
pub mod stream;
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

/// The numbers of `include/uapi/linux/tls.h` for programs that call `setsockopt` themselves. See
/// [`CryptoInfo::as_bytes`].
pub mod uapi {
    pub use crate::sys::uapi::{SOL_TLS, TCP_ULP, TLS_RX, TLS_TX, ULP_TLS};
}

pub use cipher::{AeadKey, Cipher, Iv, Version};
pub use crypto_info::CryptoInfo;
pub use error::{Error, Kind, Operation};
pub use ledger::{acknowledged, queued, room};
pub use record::{MAX_PLAINTEXT, More, RecordType};
pub use rx::{Incoming, Rx, RxState, Spliced};
pub use tx::{FrozenTx, Tx, TxState};

/// Parsers of kernel data for fuzz targets, and system calls for tests, which must not contain `unsafe`. Not part of
/// the interface.
#[doc(hidden)]
pub mod fuzzing {
    /// Sets any socket option by setsockopt(2).
    pub fn set_option(fd: impl std::os::fd::AsFd, level: i32, option: i32, value: &[u8]) -> std::io::Result<()> {
        Ok(crate::sys::sockopt::set(fd.as_fd(), level, option, value)?)
    }

    /// sendmsg(2) with the control message of a record type, without any of this crate's checks.
    pub fn send_record(fd: impl std::os::fd::AsFd, record_type: u8, data: &[u8]) -> std::io::Result<usize> {
        Ok(crate::sys::msg::send_record(fd.as_fd(), record_type, data)?)
    }

    /// Makes a stream believe that it sealed this many records under its present key.
    #[cfg(feature = "stream")]
    pub fn wear(stream: &mut crate::stream::KtlsStream, records: u64) {
        stream.wear(records);
    }

    /// Finds the record type in the control messages of a recvmsg(2).
    pub fn record_type_in(control: &[u8]) -> Option<u8> {
        crate::sys::msg::record_type_in(control)
    }

    /// Parses a datagram of socket diagnosis.
    pub fn sockets_in(datagram: &[u8]) -> Vec<crate::diag::Socket> {
        crate::diag::parse(datagram)
    }

    /// Parses a datagram of ethtool features.
    pub fn nics_in(datagram: &[u8]) -> Vec<crate::nic::Nic> {
        crate::nic::parse(datagram)
    }
}

/// Compiles the code in the README as a doctest.
#[cfg(all(doctest, feature = "stream"))]
#[doc = include_str!("../README.md")]
struct Readme;
