//! What this kernel accepts, found out by trying.

use std::fmt;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::fd::AsFd;

use rustix::io::Errno;

use crate::host::Host;
use crate::sys::{sockopt, uapi};
use crate::{AeadKey, Cipher, CryptoInfo, Error, Operation, Version, handover};

/// Tries everything on connections over loopback, with throw-away keys, and sends nothing.
///
/// By trying, because a version number says nothing: distributions build ciphers as modules or leave them out, back-port
/// features, and forbid things in containers. Takes milliseconds (a cipher's module may be loaded); ask once, at start.
pub fn probe() -> Probe {
    let pairs = Pairs::open();
    let ulp = pairs.as_ref().map_err(|&error| error).and_then(|pairs| handover::attach(pairs.connect()?.0.as_fd()));
    let tx = Version::ALL.map(|version| {
        Cipher::ALL.map(|cipher| {
            ulp?;
            handover::tx(pairs.as_ref().map_err(|&error| error)?.connect()?.0, &throw_away(version, cipher)).map(drop)
        })
    });
    let rekey_tx = ulp.and_then(|()| rekey_tx(pairs.as_ref().map_err(|&error| error)?));
    let host = (ulp.is_err()).then(Host::read);
    Probe { ulp, tx, rekey_tx, host }
}

/// The answers of [`probe`]: yes, or no with the reason.
///
/// `Display` is the whole report for an operator, and says what would change a no.
#[derive(Clone, Debug)]
pub struct Probe {
    ulp: Result<(), Error>,
    /// By version, then cipher, in the order of their `ALL`.
    tx: [[Result<(), Error>; Cipher::ALL.len()]; Version::ALL.len()],
    rekey_tx: Result<(), Error>,
    host: Option<Host>,
}

impl Probe {
    /// Whether the TLS layer can be attached to a socket.
    pub fn ulp(&self) -> Result<(), Error> {
        self.ulp
    }

    /// Whether the kernel seals with this version and cipher.
    pub fn tx(&self, version: Version, cipher: Cipher) -> Result<(), Error> {
        let row = Version::ALL.iter().position(|&v| v == version);
        let column = Cipher::ALL.iter().position(|&c| c == cipher);
        match (row, column) {
            (Some(row), Some(column)) => self.tx[row][column],
            _ => Err(Error::misuse(Operation::SetTx, "this cipher was not probed")),
        }
    }

    /// Whether the kernel renews the sending key of a TLS 1.3 connection (Linux 6.14).
    pub fn rekey_tx(&self) -> Result<(), Error> {
        self.rekey_tx
    }

    /// Whether at least one version and cipher works.
    pub fn any_tx(&self) -> bool {
        self.tx.iter().flatten().any(Result::is_ok)
    }

    /// Why there is no kernel TLS here, and what would change it; `None` if the layer is there.
    pub fn explain(&self) -> Option<String> {
        let host = self.host.as_ref()?;
        let error = self.ulp.err()?;
        let absent = error.operation() == Operation::SetUlp && error.errno() == Some(Errno::NOENT.raw_os_error());
        Some(if absent { host.why_no_ulp() } else { error.to_string() })
    }
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = self.explain() {
            return write!(f, "kernel TLS: not available.\n{why}");
        }
        write!(f, "kernel TLS: available.")?;
        for version in Version::ALL {
            for cipher in Cipher::ALL {
                write!(f, "\n  send {version} {cipher:<18} ")?;
                answer(f, self.tx(version, cipher))?;
            }
        }
        write!(f, "\n  renew the sending key      ")?;
        answer(f, self.rekey_tx)
    }
}

fn answer(f: &mut fmt::Formatter<'_>, answer: Result<(), Error>) -> fmt::Result {
    match answer {
        Ok(()) => f.write_str("yes"),
        Err(error) => write!(f, "no: {error}"),
    }
}

fn rekey_tx(pairs: &Pairs) -> Result<(), Error> {
    let (near, _far) = pairs.connect()?;
    let info = || throw_away(Version::Tls13, Cipher::Aes128Gcm);
    handover::tx(&near, &info())?;
    sockopt::set_keys(near.as_fd(), uapi::TLS_TX, info().as_bytes())
        .map_err(|errno| Error::from_errno(Operation::Rekey, errno))
}

/// Keys that never seal anything.
fn throw_away(version: Version, cipher: Cipher) -> CryptoInfo {
    let key = match cipher {
        Cipher::Aes128Gcm => AeadKey::Aes128Gcm([1; 16]),
        Cipher::Aes256Gcm => AeadKey::Aes256Gcm([1; 32]),
        Cipher::Chacha20Poly1305 => AeadKey::Chacha20Poly1305([1; 32]),
    };
    match version {
        Version::Tls12 => CryptoInfo::tls12(key, [2; 12], 0),
        Version::Tls13 => CryptoInfo::tls13(key, [2; 12], 0),
    }
}

/// Makes connections of this process with itself.
struct Pairs(TcpListener);

impl Pairs {
    fn open() -> Result<Self, Error> {
        TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).map(Self).map_err(loopback)
    }

    fn connect(&self) -> Result<(TcpStream, TcpStream), Error> {
        let near = TcpStream::connect(self.0.local_addr().map_err(loopback)?).map_err(loopback)?;
        let ours = near.local_addr().map_err(loopback)?;
        loop {
            // Another process may have connected to the port in between.
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
