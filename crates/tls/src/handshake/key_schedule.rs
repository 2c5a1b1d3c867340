//! The next keys of a connection (RFC 8446 §7.2).
//!
//! rustls could derive them from a `KernelConnection`, which keeps the handshake's state: 800 bytes in each idle
//! connection. The derivation only needs the two application traffic secrets, which rustls passes to its key log.

use rustls::crypto::tls13::{HkdfExpander, OkmBlock};
use rustls::{SupportedCipherSuite, Tls13CipherSuite};
use sealion_ktls::Version;
use zeroize::Zeroizing;

use crate::record::{Aead, TrafficKeys};

/// An application traffic secret. It is on the heap, so that a move leaves no copy, and is wiped on drop.
type Secret = Zeroizing<Box<[u8]>>;

/// The known application traffic secrets of both directions.
#[derive(Default)]
pub(super) struct TrafficSecrets {
    client: Option<Secret>,
    server: Option<Secret>,
}

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

impl TrafficSecrets {
    /// Whether `label` of a key log names an application traffic secret.
    pub(super) fn has(label: &str) -> bool {
        label == CLIENT || label == SERVER
    }

    /// Stores the secret that `label` of a key log names.
    pub(super) fn take(&mut self, label: &str, secret: &[u8]) {
        let secret = Some(Zeroizing::new(secret.into()));
        match label {
            CLIENT => self.client = secret,
            SERVER => self.server = secret,
            _ => {}
        }
    }
}

/// Derives the next keys of a direction. TLS 1.2 has no next keys.
pub(crate) struct KeySchedule(Option<Tls13Schedule>);

struct Tls13Schedule {
    suite: &'static Tls13CipherSuite,
    aead: Aead,
    /// For the client's data.
    client: Secret,
    /// For the server's data.
    server: Secret,
}

/// TLS 1.2 cannot change the keys of a connection without a new handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoNextKeys;

impl KeySchedule {
    /// `secrets`: the secrets of the finished handshake. `None`: a TLS 1.3 handshake lacks secrets.
    pub(super) fn new(suite: SupportedCipherSuite, aead: Aead, secrets: TrafficSecrets) -> Option<Self> {
        match suite {
            SupportedCipherSuite::Tls12(_) => Some(Self(None)),
            SupportedCipherSuite::Tls13(suite) => {
                let (client, server) = (secrets.client?, secrets.server?);
                Some(Self(Some(Tls13Schedule { suite, aead, client, server })))
            }
        }
    }

    /// The next keys for the server's data.
    pub(crate) fn next_tx(&mut self) -> Result<TrafficKeys, NoNextKeys> {
        let Some(schedule) = &mut self.0 else { return Err(NoNextKeys) };
        next(schedule.suite, schedule.aead, &mut schedule.server)
    }

    /// The next keys for the client's data.
    pub(crate) fn next_rx(&mut self) -> Result<TrafficKeys, NoNextKeys> {
        let Some(schedule) = &mut self.0 else { return Err(NoNextKeys) };
        next(schedule.suite, schedule.aead, &mut schedule.client)
    }
}

/// Replaces `secret` by its successor (RFC 8446 §7.2) and derives its keys (§7.3).
fn next(suite: &Tls13CipherSuite, aead: Aead, secret: &mut Secret) -> Result<TrafficKeys, NoNextKeys> {
    let expander = |secret: &Secret| suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret));
    let mut next: Secret = Zeroizing::new(vec![0; secret.len()].into());
    expand_label(&*expander(secret), b"traffic upd", &mut next)?;
    *secret = next;
    let expander = expander(secret);
    let mut key = Zeroizing::new([0; 32]);
    let key = &mut key[..aead.key_len()];
    let mut iv = Zeroizing::new([0; 12]);
    expand_label(&*expander, b"key", key)?;
    expand_label(&*expander, b"iv", &mut *iv)?;
    Ok(TrafficKeys::new(Version::Tls13, aead, key, &iv))
}

/// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
fn expand_label(expander: &dyn HkdfExpander, label: &[u8], output: &mut [u8]) -> Result<(), NoNextKeys> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = (output.len() as u16).to_be_bytes();
    let label_length = [(PREFIX.len() + label.len()) as u8];
    let context_length = [0];
    expander.expand_slice(&[&length, &label_length, PREFIX, label, &context_length], output).map_err(|_| NoNextKeys)
}
