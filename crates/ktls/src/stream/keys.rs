//! The next keys of a connection, and session tickets.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use rustls::client::ClientConnectionData;
use rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use rustls::kernel::KernelConnection;
use rustls::server::ServerConnectionData;
use rustls::{ConnectionTrafficSecrets, ExtractedSecrets, KeyLog, Side, SupportedCipherSuite, Tls13CipherSuite};
use zeroize::Zeroizing;

use crate::{AeadKey, Cipher, CryptoInfo, Error, Operation, Version};

/// The services of the TLS library for a connection that the kernel seals.
pub(super) trait Keys: Send + Sync {
    /// The sending key that follows the present one.
    fn next_tx(&mut self) -> Result<CryptoInfo, Error>;

    /// The receiving key that follows the present one.
    fn next_rx(&mut self) -> Result<CryptoInfo, Error>;

    /// Handles the content of a NewSessionTicket. `Err`: it violates the protocol.
    fn ticket(&mut self, content: &[u8]) -> Result<(), rustls::Error>;
}

const NONE: Error = Error::unsupported(
    Operation::Secrets,
    "the traffic secrets are unknown: give the configuration a SecretLog before the handshake, or use accept and connect",
);

impl Keys for KernelConnection<ServerConnectionData> {
    fn next_tx(&mut self) -> Result<CryptoInfo, Error> {
        info(self.update_tx_secret())
    }

    fn next_rx(&mut self) -> Result<CryptoInfo, Error> {
        info(self.update_rx_secret())
    }

    fn ticket(&mut self, _: &[u8]) -> Result<(), rustls::Error> {
        Err(rustls::Error::General("a client sent a session ticket".to_owned()))
    }
}

impl Keys for KernelConnection<ClientConnectionData> {
    fn next_tx(&mut self) -> Result<CryptoInfo, Error> {
        info(self.update_tx_secret())
    }

    fn next_rx(&mut self) -> Result<CryptoInfo, Error> {
        info(self.update_rx_secret())
    }

    fn ticket(&mut self, content: &[u8]) -> Result<(), rustls::Error> {
        self.handle_new_session_ticket(content)
    }
}

fn info(next: Result<(u64, ConnectionTrafficSecrets), rustls::Error>) -> Result<CryptoInfo, Error> {
    let (sequence, secrets) = next.map_err(|_| NONE)?;
    CryptoInfo::from_rustls(Version::Tls13, &secrets, sequence)
}

/// A rustls key log that keeps traffic secrets until [`KtlsStream::from_rustls`](super::KtlsStream::from_rustls) takes
/// over their connection, so that the keys can be updated.
///
/// Put it into the configuration's `key_log`, and pass the same `Arc` to the call. It keeps the secrets of the last
/// 1024 handshakes in memory, writes them nowhere, and removes and wipes the secrets of a connection that was taken
/// over.
#[derive(Default)]
pub struct SecretLog(Mutex<VecDeque<Logged>>);

struct Logged {
    client_random: Vec<u8>,
    client: Option<Secret>,
    server: Option<Secret>,
}

type Secret = Zeroizing<Box<[u8]>>;

/// The number of handshakes whose secrets are kept.
const KEPT: usize = 1024;

impl KeyLog for SecretLog {
    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = logged.iter().rposition(|entry| entry.client_random == client_random).unwrap_or_else(|| {
            if logged.len() == KEPT {
                logged.pop_front();
            }
            logged.push_back(Logged { client_random: client_random.to_vec(), client: None, server: None });
            logged.len() - 1
        });
        let secret = Some(Zeroizing::new(secret.into()));
        match label {
            "CLIENT_TRAFFIC_SECRET_0" => logged[at].client = secret,
            "SERVER_TRAFFIC_SECRET_0" => logged[at].server = secret,
            _ => {}
        }
    }

    fn will_log(&self, label: &str) -> bool {
        label.ends_with("_TRAFFIC_SECRET_0")
    }
}

impl fmt::Debug for SecretLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretLog")
    }
}

impl SecretLog {
    /// Removes and returns the secrets from which `keys` were derived.
    fn take(&self, suite: &'static Tls13CipherSuite, side: Side, keys: &ExtractedSecrets) -> Option<Schedule> {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let at = logged.iter().position(|entry| {
            let (Some(client), Some(server)) = (&entry.client, &entry.server) else { return false };
            let (tx, rx) = if side == Side::Client { (client, server) } else { (server, client) };
            made_of(suite, tx, &keys.tx.1) && made_of(suite, rx, &keys.rx.1)
        })?;
        let Logged { client, server, .. } = logged.remove(at)?;
        let (tx, rx) = if side == Side::Client { (client?, server?) } else { (server?, client?) };
        Some(Schedule { suite, cipher: AeadKey::from_rustls(Version::Tls13, &keys.tx.1).ok()?.0.cipher(), tx, rx })
    }
}

fn made_of(suite: &Tls13CipherSuite, secret: &Secret, keys: &ConnectionTrafficSecrets) -> bool {
    let Ok((key, iv)) = AeadKey::from_rustls(Version::Tls13, keys) else { return false };
    derive(suite, secret, key.cipher())
        .is_some_and(|(made, made_iv)| made.as_bytes() == key.as_bytes() && **made_iv == **iv)
}

/// The keys of a connection whose traffic secrets a [`SecretLog`] recorded (RFC 8446 §7.2).
struct Schedule {
    suite: &'static Tls13CipherSuite,
    cipher: Cipher,
    tx: Secret,
    rx: Secret,
}

impl Keys for Schedule {
    fn next_tx(&mut self) -> Result<CryptoInfo, Error> {
        next(self.suite, self.cipher, &mut self.tx)
    }

    fn next_rx(&mut self) -> Result<CryptoInfo, Error> {
        next(self.suite, self.cipher, &mut self.rx)
    }

    /// A ticket may arrive, but there is no session to store it in.
    fn ticket(&mut self, _: &[u8]) -> Result<(), rustls::Error> {
        Ok(())
    }
}

/// Keys without recorded secrets, or keys of TLS 1.2, which never change.
struct Unknown;

impl Keys for Unknown {
    fn next_tx(&mut self) -> Result<CryptoInfo, Error> {
        Err(NONE)
    }

    fn next_rx(&mut self) -> Result<CryptoInfo, Error> {
        Err(NONE)
    }

    fn ticket(&mut self, _: &[u8]) -> Result<(), rustls::Error> {
        Ok(())
    }
}

/// The key schedule of a connection of rustls' buffered interface, if its log has the secrets.
pub(super) fn logged(
    log: Option<&SecretLog>,
    suite: Option<SupportedCipherSuite>,
    side: Side,
    keys: &ExtractedSecrets,
) -> Box<dyn Keys> {
    if let (Some(log), Some(SupportedCipherSuite::Tls13(suite))) = (log, suite)
        && let Some(schedule) = log.take(suite, side, keys)
    {
        return Box::new(schedule);
    }
    Box::new(Unknown)
}

fn next(suite: &Tls13CipherSuite, cipher: Cipher, secret: &mut Secret) -> Result<CryptoInfo, Error> {
    let mut next: Secret = Zeroizing::new(vec![0; secret.len()].into());
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    expand_label(&*expander, b"traffic upd", &mut next).ok_or(NONE)?;
    *secret = next;
    let (key, iv) = derive(suite, secret, cipher).ok_or(NONE)?;
    Ok(CryptoInfo::tls13(&key, &iv, 0))
}

/// Derives the key and IV of a traffic secret (RFC 8446 §7.3).
fn derive(suite: &Tls13CipherSuite, secret: &Secret, cipher: Cipher) -> Option<(AeadKey, crate::Iv)> {
    let expander = suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    let mut key = Zeroizing::new([0; 32]);
    let key = &mut key[..cipher.key_len()];
    let mut iv = crate::Iv::default();
    expand_label(&*expander, b"key", key)?;
    expand_label(&*expander, b"iv", &mut **iv)?;
    Some((AeadKey::from_bytes(cipher, key)?, iv))
}

/// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
fn expand_label(expander: &dyn HkdfExpander, label: &[u8], output: &mut [u8]) -> Option<()> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = (output.len() as u16).to_be_bytes();
    let label_length = [(PREFIX.len() + label.len()) as u8];
    expander.expand_slice(&[&length, &label_length, PREFIX, label, &[0]], output).ok()
}
