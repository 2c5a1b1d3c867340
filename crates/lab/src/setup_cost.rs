//! The cost of handing a connection's keys to the kernel: the time of each system call, over many connections.

use std::net::{Ipv4Addr, TcpListener, TcpStream};

use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use sealion_ktls::{AeadKey, Cipher, CryptoInfo, Kind, Version, handover};

use crate::histogram::{of_times, record};

/// The cost of a handover on this kernel.
#[derive(Debug, Clone)]
pub enum SetUpCost {
    /// The times, measured on this kernel.
    Measured(Box<SetUpTimes>),
    /// The reason why the kernel does not support this version and cipher.
    Absent(String),
}

/// Distributions over connections, ns.
#[derive(Debug, Clone)]
pub struct SetUpTimes {
    /// Attaching the TLS layer, `TCP_ULP`, ns.
    pub ulp: Histogram<u64>,
    /// Installing the sending keys, `TLS_TX`, ns.
    pub tx: Histogram<u64>,
    /// Installing the receiving keys, `TLS_RX`, ns.
    pub rx: Histogram<u64>,
}

/// Hands the keys of `connections` loopback connections to the kernel, one after another. The keys are random, and no
/// data is sent.
///
/// # Errors
/// A loopback connection fails, random numbers are not available, or a call fails although the kernel supports kernel
/// TLS.
pub fn measure(version: Version, cipher: Cipher, connections: u32) -> Result<SetUpCost> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?;
    let mut times = SetUpTimes { ulp: of_times(), tx: of_times(), rx: of_times() };
    for _ in 0..connections {
        let (near, _far) = connect(&listener)?;
        let (sending, receiving) = (random_keys(version, cipher)?, random_keys(version, cipher)?);
        match handover::measure(&near, &sending, &receiving) {
            Ok(taken) => {
                record(&mut times.ulp, taken.ulp);
                record(&mut times.tx, taken.tx);
                record(&mut times.rx, taken.rx);
            }
            Err(error) if error.kind() == Kind::Unsupported => return Ok(SetUpCost::Absent(error.to_string())),
            Err(error) => return Err(error).context("cannot hand a connection's keys to the kernel"),
        }
    }
    Ok(SetUpCost::Measured(Box::new(times)))
}

/// A connection over loopback.
pub(crate) fn connect_pair() -> Result<(TcpStream, TcpStream)> {
    connect(&TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("cannot listen on 127.0.0.1")?)
}

fn connect(listener: &TcpListener) -> Result<(TcpStream, TcpStream)> {
    let near = TcpStream::connect(listener.local_addr()?).context("cannot connect over loopback")?;
    let (far, from) = listener.accept().context("cannot accept over loopback")?;
    ensure!(
        from == near.local_addr()?,
        "another process, {from}, connected to the port of this measurement: run it again"
    );
    Ok((near, far))
}

/// Random sending keys of a connection.
pub(crate) fn random_keys(version: Version, cipher: Cipher) -> Result<CryptoInfo> {
    let mut key = [0; 32];
    let mut iv = [0; 12];
    aws_lc_rs::rand::fill(&mut key).and_then(|()| aws_lc_rs::rand::fill(&mut iv)).context("no random numbers")?;
    let key = AeadKey::from_bytes(cipher, &key[..cipher.key_len()]).context("a key of the cipher's length")?;
    Ok(match version {
        Version::Tls12 => CryptoInfo::tls12(&key, &iv, 0),
        Version::Tls13 => CryptoInfo::tls13(&key, &iv, 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// On a kernel without kernel TLS the result is a reason, not a number.
    #[test]
    fn every_connection_is_counted_or_none_is() {
        match measure(Version::Tls13, Cipher::Aes128Gcm, 5).unwrap() {
            SetUpCost::Measured(times) => assert_eq!([times.ulp.len(), times.tx.len(), times.rx.len()], [5; 3]),
            SetUpCost::Absent(why) => assert!(!why.is_empty()),
        }
    }
}
