//! Finds out by trying which versions, ciphers and options this kernel accepts.

use std::fmt;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::io::Errno;

use crate::host::Host;
use crate::sys::{sockopt, uapi};
use crate::{AeadKey, Cipher, CryptoInfo, Error, Operation, Rx, Tx, Version, handover};

/// Tries everything on connections over loopback, with throw-away keys, and sends nothing.
///
/// A version number would say nothing: distributions build ciphers as modules or leave them out, back-port features,
/// and forbid system calls in containers. The probe takes milliseconds, because it may load a cipher's module; call it
/// once, at start.
pub fn probe() -> Probe {
    let pairs = match Pairs::open() {
        Ok(pairs) => pairs,
        Err(error) => return Probe::all(error, None),
    };
    if let Err(error) = pairs.connect().and_then(|(near, _far)| handover::attach(near.as_fd())) {
        return Probe::all(error, Some(Host::read()));
    }
    let each = |answer: fn(&Pairs, Version, Cipher) -> Result<(), Error>| {
        Version::ALL.map(|version| Cipher::ALL.map(|cipher| answer(&pairs, version, cipher)))
    };
    Probe {
        ulp: Ok(()),
        tx: each(|pairs, version, cipher| pairs.sending(version, cipher).map(drop)),
        rx: each(|pairs, version, cipher| pairs.both(version, cipher).map(drop)),
        rekey_tx: rekey(&pairs, uapi::TLS_TX, Operation::Rekey),
        rekey_rx: rekey(&pairs, uapi::TLS_RX, Operation::RekeyRx),
        zerocopy_read_only: pairs.sending(Version::Tls12, PLAIN).and_then(|mut c| c.tx.zerocopy_read_only(true)),
        max_payload: pairs.sending(Version::Tls13, PLAIN).and_then(|mut c| c.tx.max_payload(512)),
        expect_no_pad: pairs
            .both(Version::Tls13, PLAIN)
            .and_then(|(_c, mut rx)| rx.expect_no_pad_despite_cve_2026_74611(true)),
        host: None,
    }
}

/// The cipher for trying the options: every kernel with TLS has it.
const PLAIN: Cipher = Cipher::Aes128Gcm;

/// By version, then cipher, in the order of their `ALL`.
type Table = [[Result<(), Error>; Cipher::ALL.len()]; Version::ALL.len()];

/// The results of [`probe`]: yes, or no with the reason.
///
/// `Display` shows the whole report for an operator, with the remedy for each no.
#[derive(Clone, Debug)]
pub struct Probe {
    ulp: Result<(), Error>,
    tx: Table,
    rx: Table,
    rekey_tx: Result<(), Error>,
    rekey_rx: Result<(), Error>,
    zerocopy_read_only: Result<(), Error>,
    expect_no_pad: Result<(), Error>,
    max_payload: Result<(), Error>,
    host: Option<Host>,
}

impl Probe {
    /// Whether the TLS layer can be attached to a socket.
    pub fn ulp(&self) -> Result<(), Error> {
        self.ulp
    }

    /// Whether the kernel seals with this version and cipher.
    pub fn tx(&self, version: Version, cipher: Cipher) -> Result<(), Error> {
        look_up(&self.tx, version, cipher)
    }

    /// Whether the kernel opens with this version and cipher.
    pub fn rx(&self, version: Version, cipher: Cipher) -> Result<(), Error> {
        look_up(&self.rx, version, cipher)
    }

    /// Whether the kernel renews the sending key of a TLS 1.3 connection (Linux 6.14).
    pub fn rekey_tx(&self) -> Result<(), Error> {
        self.rekey_tx
    }

    /// Whether the kernel renews the receiving key of a TLS 1.3 connection (Linux 6.14).
    pub fn rekey_rx(&self) -> Result<(), Error> {
        self.rekey_rx
    }

    /// Whether the kernel has the option of [`Tx::zerocopy_read_only`], which only has effect with a network card that
    /// seals.
    pub fn zerocopy_read_only(&self) -> Result<(), Error> {
        self.zerocopy_read_only
    }

    /// Whether the kernel has the option of [`Rx::expect_no_pad`](crate::Rx::expect_no_pad), which may still reject it:
    /// see there.
    pub fn expect_no_pad(&self) -> Result<(), Error> {
        self.expect_no_pad
    }

    /// Whether the kernel has the option of [`Tx::max_payload`].
    pub fn max_payload(&self) -> Result<(), Error> {
        self.max_payload
    }

    /// Whether the kernel seals with at least one version and cipher.
    pub fn any_tx(&self) -> bool {
        self.tx.iter().flatten().any(Result::is_ok)
    }

    /// The reason for missing kernel TLS, and the remedy. `None` if the layer is available.
    pub fn explain(&self) -> Option<String> {
        let error = self.ulp.err()?;
        let absent = error.operation() == Operation::SetUlp && error.errno() == Some(Errno::NOENT.raw_os_error());
        Some(match &self.host {
            Some(host) if absent => host.why_no_ulp(),
            _ => error.to_string(),
        })
    }

    /// The same error for every question.
    fn all(error: Error, host: Option<Host>) -> Self {
        let no = Err(error);
        Self {
            ulp: no,
            tx: [[no; Cipher::ALL.len()]; Version::ALL.len()],
            rx: [[no; Cipher::ALL.len()]; Version::ALL.len()],
            rekey_tx: no,
            rekey_rx: no,
            zerocopy_read_only: no,
            expect_no_pad: no,
            max_payload: no,
            host,
        }
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.explain() {
            return write!(f, "kernel TLS: not available.\n{why}");
        }
        write!(f, "kernel TLS: available.")?;
        for (verb, table) in [("seal", &self.tx), ("open", &self.rx)] {
            for (version, row) in Version::ALL.iter().zip(table) {
                for (cipher, answer) in Cipher::ALL.iter().zip(row) {
                    write!(f, "\n  {verb} {version} {cipher:<18} {}", Answer(*answer))?;
                }
            }
        }
        for (what, answer) in [
            ("renew the sending key", self.rekey_tx),
            ("renew the receiving key", self.rekey_rx),
            ("zero copy to a network card", self.zerocopy_read_only),
            ("expect no padding", self.expect_no_pad),
            ("smaller records", self.max_payload),
        ] {
            write!(f, "\n  {what:<31} {}", Answer(answer))?;
        }
        Ok(())
    }
}

struct Answer(Result<(), Error>);

impl fmt::Display for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Ok(()) => f.write_str("yes"),
            Err(error) => write!(f, "no: {error}"),
        }
    }
}

fn look_up(table: &Table, version: Version, cipher: Cipher) -> Result<(), Error> {
    // Both enumerations are in the order of their ALL.
    table[version as usize][cipher as usize]
}

/// Installs the keys of one direction a second time.
fn rekey(pairs: &Pairs, option: i32, operation: Operation) -> Result<(), Error> {
    let (c, _rx) = pairs.both(Version::Tls13, PLAIN)?;
    sockopt::set_keys(c.tx.socket().as_fd(), option, throw_away(Version::Tls13, PLAIN).as_bytes())
        .map_err(|errno| Error::from_errno(operation, errno))
}

/// Keys that never seal anything.
fn throw_away(version: Version, cipher: Cipher) -> CryptoInfo {
    let key = AeadKey::from_bytes(cipher, &[1; 32][..cipher.key_len()]).expect("a key of the cipher's length");
    match version {
        Version::Tls12 => CryptoInfo::tls12(&key, &[2; 12], 0),
        Version::Tls13 => CryptoInfo::tls13(&key, &[2; 12], 0),
    }
}

/// A connection whose near end sends through the kernel.
struct Connection {
    tx: Tx<Arc<TcpStream>>,
    _far: TcpStream,
}

/// Makes connections of this process with itself.
struct Pairs(TcpListener);

impl Pairs {
    fn open() -> Result<Self, Error> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(Self).map_err(loopback)
    }

    fn sending(&self, version: Version, cipher: Cipher) -> Result<Connection, Error> {
        let (near, far) = self.connect()?;
        let tx = handover::tx(Arc::new(near), &throw_away(version, cipher))?;
        Ok(Connection { tx, _far: far })
    }

    fn both(&self, version: Version, cipher: Cipher) -> Result<(Connection, Rx<Arc<TcpStream>>), Error> {
        let connection = self.sending(version, cipher)?;
        let rx = handover::rx(&connection.tx, &throw_away(version, cipher))?;
        Ok((connection, rx))
    }

    fn connect(&self) -> Result<(TcpStream, TcpStream), Error> {
        let near = TcpStream::connect(self.0.local_addr().map_err(loopback)?).map_err(loopback)?;
        let ours = near.local_addr().map_err(loopback)?;
        loop {
            // Another process may have connected to the port in the meantime.
            let (far, address) = self.0.accept().map_err(loopback)?;
            if address == ours {
                return Ok((near, far));
            }
        }
    }
}

fn loopback(error: std::io::Error) -> Error {
    Error::from_errno(Operation::Loopback, Errno::from_io_error(&error).unwrap_or(Errno::IO))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_are_looked_up_in_the_order_of_all() {
        assert!(Version::ALL.iter().enumerate().all(|(i, &version)| version as usize == i));
        assert!(Cipher::ALL.iter().enumerate().all(|(i, &cipher)| cipher as usize == i));
    }

    #[test]
    fn the_report_gives_each_reason() {
        let no = Error::from_errno(Operation::SetUlp, Errno::NOENT);
        let report = Probe::all(no, None).to_string();
        assert!(report.starts_with("kernel TLS: not available.") && report.contains("modprobe tls"), "{report}");
        let mut found = Probe::all(no, None);
        (found.ulp, found.tx[1][0]) = (Ok(()), Ok(()));
        let report = found.to_string();
        assert!(report.contains("\n  seal TLS 1.3 AES-128-GCM        yes\n"), "{report}");
        assert!(report.contains("\n  open TLS 1.2 ARIA-256-GCM       no: "), "{report}");
        assert!(found.any_tx() && !Probe::all(no, None).any_tx());
    }
}
