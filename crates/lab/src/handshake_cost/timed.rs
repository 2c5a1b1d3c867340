//! rustls' provider over aws-lc-rs, with a timer around each step.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::crypto::cipher::{
    AeadKey, InboundOpaqueMessage, InboundPlainMessage, Iv, MessageDecrypter, MessageEncrypter, OutboundOpaqueMessage,
    OutboundPlainMessage, Tls13AeadAlgorithm, UnsupportedOperationError,
};
use rustls::crypto::tls13::{Hkdf, HkdfExpander, OkmBlock, OutputLengthError};
use rustls::crypto::{
    ActiveKeyExchange, CompletedKeyExchange, CryptoProvider, GetRandomFailed, SecureRandom, SupportedKxGroup,
    aws_lc_rs, hash, hmac,
};
use rustls::server::ProducesTickets;
use rustls::sign::{Signer, SigningKey};
use rustls::{
    CipherSuiteCommon, ConnectionTrafficSecrets, Error, NamedGroup, ProtocolVersion, SignatureAlgorithm,
    SignatureScheme, SupportedCipherSuite, Tls13CipherSuite,
};

/// A part of a handshake, performed by the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// Generating a key of the group, and computing the shared secret.
    KeyShare,
    /// The signature in CertificateVerify.
    Signature,
    /// HKDF and the MACs of Finished and PSK binder.
    KeySchedule,
    /// Hashes of the messages.
    Transcript,
    /// AEAD keys, and sealing and opening records.
    Records,
    /// Random bytes.
    Random,
    /// Sealing and opening of tickets.
    Tickets,
}

impl Part {
    pub(crate) const ALL: [Self; 7] = [
        Self::KeyShare,
        Self::Signature,
        Self::KeySchedule,
        Self::Transcript,
        Self::Records,
        Self::Random,
        Self::Tickets,
    ];
}

/// Time by part, in the order of [`Part::ALL`].
pub(crate) type Times = [Duration; Part::ALL.len()];

thread_local! {
    static SPENT: Cell<Times> = const { Cell::new([Duration::ZERO; Part::ALL.len()]) };
}

/// The times since the last call, on this thread.
pub(crate) fn take() -> Times {
    SPENT.take()
}

fn timed<T>(part: Part, step: impl FnOnce() -> T) -> T {
    let began = Instant::now();
    let done = step();
    let took = began.elapsed();
    let mut spent = SPENT.get();
    spent[part as usize] += took;
    SPENT.set(spent);
    done
}

/// TLS 1.3 with AES-128-GCM and this group.
pub(crate) fn provider(group: &'static dyn SupportedKxGroup) -> CryptoProvider {
    static GROUPS: [TimedGroup; 2] =
        [TimedGroup(aws_lc_rs::kx_group::X25519), TimedGroup(aws_lc_rs::kx_group::X25519MLKEM768)];
    static SUITE: Tls13CipherSuite = Tls13CipherSuite {
        common: CipherSuiteCommon {
            suite: rustls::CipherSuite::TLS13_AES_128_GCM_SHA256,
            hash_provider: &Timed,
            confidentiality_limit: 1 << 24,
        },
        hkdf_provider: &Timed,
        aead_alg: &Timed,
        quic: None,
    };
    let group = GROUPS.iter().find(|timed| timed.0.name() == group.name()).expect("one of the two");
    CryptoProvider {
        cipher_suites: vec![SupportedCipherSuite::Tls13(&SUITE)],
        kx_groups: vec![group],
        secure_random: &Timed,
        ..aws_lc_rs::default_provider()
    }
}

/// The suite below.
fn inner() -> &'static Tls13CipherSuite {
    aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256.tls13().expect("a suite of TLS 1.3")
}

#[derive(Debug)]
struct TimedGroup(&'static dyn SupportedKxGroup);

impl SupportedKxGroup for TimedGroup {
    fn start(&self) -> Result<Box<dyn ActiveKeyExchange>, Error> {
        timed(Part::KeyShare, || self.0.start())
    }

    fn start_and_complete(&self, peer: &[u8]) -> Result<CompletedKeyExchange, Error> {
        timed(Part::KeyShare, || self.0.start_and_complete(peer))
    }

    fn name(&self) -> NamedGroup {
        self.0.name()
    }

    fn usable_for_version(&self, version: ProtocolVersion) -> bool {
        self.0.usable_for_version(version)
    }
}

/// A certificate's key.
#[derive(Debug)]
pub(crate) struct TimedKey(pub(crate) Arc<dyn SigningKey>);

#[derive(Debug)]
struct TimedSigner(Box<dyn Signer>);

impl SigningKey for TimedKey {
    fn choose_scheme(&self, offered: &[SignatureScheme]) -> Option<Box<dyn Signer>> {
        self.0.choose_scheme(offered).map(|signer| Box::new(TimedSigner(signer)) as _)
    }

    fn algorithm(&self) -> SignatureAlgorithm {
        self.0.algorithm()
    }
}

impl Signer for TimedSigner {
    fn sign(&self, message: &[u8]) -> Result<Vec<u8>, Error> {
        timed(Part::Signature, || self.0.sign(message))
    }

    fn scheme(&self) -> SignatureScheme {
        self.0.scheme()
    }
}

/// Tickets of a server.
#[derive(Debug)]
pub(crate) struct TimedTickets(pub(crate) Arc<dyn ProducesTickets>);

impl ProducesTickets for TimedTickets {
    fn enabled(&self) -> bool {
        self.0.enabled()
    }

    fn lifetime(&self) -> u32 {
        self.0.lifetime()
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        timed(Part::Tickets, || self.0.encrypt(plain))
    }

    fn decrypt(&self, cipher: &[u8]) -> Option<Vec<u8>> {
        timed(Part::Tickets, || self.0.decrypt(cipher))
    }
}

/// Timers for everything without state.
#[derive(Debug)]
struct Timed;

impl SecureRandom for Timed {
    fn fill(&self, bytes: &mut [u8]) -> Result<(), GetRandomFailed> {
        timed(Part::Random, || ::aws_lc_rs::rand::fill(bytes).map_err(|_| GetRandomFailed))
    }
}

impl hash::Hash for Timed {
    fn start(&self) -> Box<dyn hash::Context> {
        timed(Part::Transcript, || Box::new(TimedHash(inner().common.hash_provider.start())))
    }

    fn hash(&self, data: &[u8]) -> hash::Output {
        timed(Part::Transcript, || inner().common.hash_provider.hash(data))
    }

    fn output_len(&self) -> usize {
        inner().common.hash_provider.output_len()
    }

    fn algorithm(&self) -> hash::HashAlgorithm {
        inner().common.hash_provider.algorithm()
    }
}

struct TimedHash(Box<dyn hash::Context>);

impl hash::Context for TimedHash {
    fn fork_finish(&self) -> hash::Output {
        timed(Part::Transcript, || self.0.fork_finish())
    }

    fn fork(&self) -> Box<dyn hash::Context> {
        timed(Part::Transcript, || Box::new(Self(self.0.fork())))
    }

    fn finish(self: Box<Self>) -> hash::Output {
        timed(Part::Transcript, || self.0.finish())
    }

    fn update(&mut self, data: &[u8]) {
        timed(Part::Transcript, || self.0.update(data));
    }
}

impl Hkdf for Timed {
    fn extract_from_zero_ikm(&self, salt: Option<&[u8]>) -> Box<dyn HkdfExpander> {
        timed(Part::KeySchedule, || Box::new(TimedExpander(inner().hkdf_provider.extract_from_zero_ikm(salt))))
    }

    fn extract_from_secret(&self, salt: Option<&[u8]>, secret: &[u8]) -> Box<dyn HkdfExpander> {
        timed(Part::KeySchedule, || Box::new(TimedExpander(inner().hkdf_provider.extract_from_secret(salt, secret))))
    }

    fn expander_for_okm(&self, okm: &OkmBlock) -> Box<dyn HkdfExpander> {
        timed(Part::KeySchedule, || Box::new(TimedExpander(inner().hkdf_provider.expander_for_okm(okm))))
    }

    fn hmac_sign(&self, key: &OkmBlock, message: &[u8]) -> hmac::Tag {
        timed(Part::KeySchedule, || inner().hkdf_provider.hmac_sign(key, message))
    }
}

struct TimedExpander(Box<dyn HkdfExpander>);

impl HkdfExpander for TimedExpander {
    fn expand_slice(&self, info: &[&[u8]], output: &mut [u8]) -> Result<(), OutputLengthError> {
        timed(Part::KeySchedule, || self.0.expand_slice(info, output))
    }

    fn expand_block(&self, info: &[&[u8]]) -> OkmBlock {
        timed(Part::KeySchedule, || self.0.expand_block(info))
    }

    fn hash_len(&self) -> usize {
        self.0.hash_len()
    }
}

impl Tls13AeadAlgorithm for Timed {
    fn encrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageEncrypter> {
        timed(Part::Records, || Box::new(TimedEncrypter(inner().aead_alg.encrypter(key, iv))))
    }

    fn decrypter(&self, key: AeadKey, iv: Iv) -> Box<dyn MessageDecrypter> {
        timed(Part::Records, || Box::new(TimedDecrypter(inner().aead_alg.decrypter(key, iv))))
    }

    fn key_len(&self) -> usize {
        inner().aead_alg.key_len()
    }

    fn extract_keys(&self, key: AeadKey, iv: Iv) -> Result<ConnectionTrafficSecrets, UnsupportedOperationError> {
        inner().aead_alg.extract_keys(key, iv)
    }
}

struct TimedEncrypter(Box<dyn MessageEncrypter>);

impl MessageEncrypter for TimedEncrypter {
    fn encrypt(&mut self, message: OutboundPlainMessage<'_>, sequence: u64) -> Result<OutboundOpaqueMessage, Error> {
        timed(Part::Records, || self.0.encrypt(message, sequence))
    }

    fn encrypted_payload_len(&self, len: usize) -> usize {
        self.0.encrypted_payload_len(len)
    }
}

struct TimedDecrypter(Box<dyn MessageDecrypter>);

impl MessageDecrypter for TimedDecrypter {
    fn decrypt<'a>(
        &mut self,
        message: InboundOpaqueMessage<'a>,
        sequence: u64,
    ) -> Result<InboundPlainMessage<'a>, Error> {
        timed(Part::Records, || self.0.decrypt(message, sequence))
    }
}

impl fmt::Display for Part {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::KeyShare => "key share",
            Self::Signature => "signature",
            Self::KeySchedule => "key schedule",
            Self::Transcript => "transcript hash",
            Self::Records => "records",
            Self::Random => "random numbers",
            Self::Tickets => "tickets",
        })
    }
}
