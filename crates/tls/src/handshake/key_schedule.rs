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

/// The source of a connection's keys. TLS 1.2 has no next keys.
pub(crate) enum KeySchedule {
    Tls12,
    Tls13(Tls13Schedule),
}

/// The present application traffic secrets.
pub(crate) struct Tls13Schedule {
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
            SupportedCipherSuite::Tls12(_) => Some(Self::Tls12),
            SupportedCipherSuite::Tls13(suite) => {
                let (client, server) = (secrets.client?, secrets.server?);
                Some(Self::Tls13(Tls13Schedule { suite, aead, client, server }))
            }
        }
    }

    /// The next keys for the server's data.
    pub(crate) fn next_tx(&mut self) -> Result<TrafficKeys, NoNextKeys> {
        let Self::Tls13(schedule) = self else { return Err(NoNextKeys) };
        schedule.server = schedule.after(&schedule.server)?;
        schedule.tx()
    }

    /// The next keys for the client's data.
    pub(crate) fn next_rx(&mut self) -> Result<TrafficKeys, NoNextKeys> {
        let Self::Tls13(schedule) = self else { return Err(NoNextKeys) };
        schedule.client = schedule.after(&schedule.client)?;
        schedule.rx()
    }
}

impl Tls13Schedule {
    /// Continues with the secrets of [`Self::secrets`]. `None`: they do not have the length of the suite's hash.
    pub(crate) fn resume(
        suite: &'static Tls13CipherSuite,
        aead: Aead,
        [client, server]: [Zeroizing<Vec<u8>>; 2],
    ) -> Option<Self> {
        let length = suite.common.hash_provider.output_len();
        let own = |secret: Zeroizing<Vec<u8>>| (secret.len() == length).then(|| Secret::new(secret.as_slice().into()));
        Some(Self { suite, aead, client: own(client)?, server: own(server)? })
    }

    /// The secrets of the client's and of the server's data.
    pub(crate) fn secrets(&self) -> [Zeroizing<Vec<u8>>; 2] {
        [&self.client, &self.server].map(|secret| Zeroizing::new(secret.to_vec()))
    }

    /// The present keys for the server's data.
    pub(crate) fn tx(&self) -> Result<TrafficKeys, NoNextKeys> {
        self.keys(&self.server)
    }

    /// The present keys for the client's data.
    pub(crate) fn rx(&self) -> Result<TrafficKeys, NoNextKeys> {
        self.keys(&self.client)
    }

    fn expander(&self, secret: &Secret) -> Box<dyn HkdfExpander> {
        self.suite.hkdf_provider.expander_for_okm(&OkmBlock::new(secret))
    }

    /// The successor of `secret` (RFC 8446 §7.2).
    fn after(&self, secret: &Secret) -> Result<Secret, NoNextKeys> {
        let mut next: Secret = Zeroizing::new(vec![0; secret.len()].into());
        expand_label(&*self.expander(secret), b"traffic upd", &mut next)?;
        Ok(next)
    }

    /// The keys of `secret` (RFC 8446 §7.3).
    fn keys(&self, secret: &Secret) -> Result<TrafficKeys, NoNextKeys> {
        let expander = self.expander(secret);
        let mut key = Zeroizing::new([0; 32]);
        let key = &mut key[..self.aead.key_len()];
        let mut iv = Zeroizing::new([0; 12]);
        expand_label(&*expander, b"key", key)?;
        expand_label(&*expander, b"iv", &mut *iv)?;
        Ok(TrafficKeys::new(Version::Tls13, self.aead, key, &iv))
    }
}

/// HKDF-Expand-Label with an empty context (RFC 8446 §7.1).
fn expand_label(expander: &dyn HkdfExpander, label: &[u8], output: &mut [u8]) -> Result<(), NoNextKeys> {
    const PREFIX: &[u8] = b"tls13 ";
    let length = (output.len() as u16).to_be_bytes();
    let label_length = [(PREFIX.len() + label.len()) as u8];
    let context_length = [0];
    expander.expand_slice(&[&length, &label_length, PREFIX, label, &context_length], output).map_err(|_| NoNextKeys)
}
