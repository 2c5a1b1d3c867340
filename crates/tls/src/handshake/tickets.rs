//! Session tickets (RFC 5077, RFC 8446 §4.6.1): sealed sessions that the client stores.
//!
//! ```text
//! ticket = name of the key (16) | salt (32) | AES-256-GCM { authenticated at (8) | not after (8) | session } | tag (16)
//! ```
//!
//! RFC 5077 §4 recommends a key name in front, and authenticated encryption. The key and nonce of each ticket are
//! derived from the secret and a random salt. So no nonce is repeated, however many machines with the same secret issue
//! tickets. Random nonces of 96 bits would begin to repeat after 2^32 tickets.
//!
//! A ticket also authenticates the client authentication of its session: a site with other requirements does not resume
//! it.
//!
//! A full handshake issues two tickets, so that a client can open two connections at a time without using one ticket
//! twice (RFC 8446 appendix C.4). A resumption issues one. It renews the ticket, but not the session's lifetime: each
//! ticket contains the time of the full handshake. The session ends [`TICKET_LIFETIME`] later, or when the client's
//! certificate expires if that is earlier.

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use arc_swap::ArcSwap;
use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, KeyType, Prk};
use aws_lc_rs::rand;
use rustls::server::ProducesTickets;
use rustls::time_provider::TimeProvider;
use zeroize::Zeroizing;

use super::callbacks;
use super::client_auth::ClientAuth;

/// How long a session can be resumed after its full handshake, regardless of renewals. rustls' own tickets have the
/// same lifetime. RFC 8446 §4.6.1 allows seven days, but a longer lifetime means that a stolen key opens more sessions.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// How long a key of this process seals tickets. It opens them for the same time again.
const ROTATION: Duration = Duration::from_secs(TICKET_LIFETIME.as_secs() / 2);

/// The tolerated difference between the clocks of machines that share keys: far more than NTP's error, far less than
/// [`TICKET_LIFETIME`].
const CLOCK_SKEW: Duration = Duration::from_secs(300);

const NAME_LEN: usize = 16;
const SALT_LEN: usize = 32;
const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;

/// A secret from which ticket keys are derived: random bytes, wiped on drop.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret(Zeroizing<[u8; Self::LEN]>);

impl TicketSecret {
    /// Bytes of a secret.
    pub const LEN: usize = 32;

    /// A new secret from the system's random numbers.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn generate() -> Result<Self, NoRandomNumbers> {
        let mut bytes = Zeroizing::new([0; Self::LEN]);
        rand::fill(&mut *bytes).map_err(|_| NoRandomNumbers)?;
        Ok(Self(bytes))
    }

    /// A secret from elsewhere. `None` if it does not have [`Self::LEN`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// The bytes, which must stay secret.
    pub fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret(..)")
    }
}

/// The system provides no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomNumbers;

impl fmt::Display for NoRandomNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system gives no random numbers")
    }
}

impl std::error::Error for NoRandomNumbers {}

/// Ticket keys: either of this process, which rotates them, or from outside, so that several processes resume each
/// other's sessions. They outlive configurations.
pub struct TicketKeys {
    set: ArcSwap<KeySet>,
}

struct KeySet {
    sealing: Key,
    /// Keys that open tickets but do not seal them.
    others: Vec<Key>,
    /// When this process has to replace its sealing key.
    until: Option<SystemTime>,
}

#[derive(Clone)]
struct Key {
    name: [u8; NAME_LEN],
    secret: Prk,
    /// The origin of `secret`, which does not give it back.
    source: TicketSecret,
}

/// The keys of a process that rotates them, for its successor: see [`TicketKeys::own`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnTicketKeys {
    /// The secret of the key that seals.
    pub sealing: TicketSecret,
    /// Secrets of keys that open tickets but do not seal them.
    pub others: Vec<TicketSecret>,
    /// When the sealing key has to be replaced.
    pub until: SystemTime,
}

impl TicketKeys {
    /// Keys of this process. A new key seals every six hours, and the previous key still opens.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn rotating() -> Result<Self, NoRandomNumbers> {
        let set = KeySet::own(&TicketSecret::generate()?, Vec::new(), SystemTime::now());
        Ok(Self { set: ArcSwap::from_pointee(set) })
    }

    /// Continues with the keys of a process before, so that its sessions are resumed. They are replaced when that process would have replaced them.
    pub fn continuing(own: &OwnTicketKeys) -> Self {
        let set = KeySet { until: Some(own.until), ..KeySet::shared(&own.sealing, &own.others) };
        Self { set: ArcSwap::from_pointee(set) }
    }

    /// The keys, for a successor of this process. `None`: they are from outside, where the successor finds them too.
    pub fn own(&self) -> Option<OwnTicketKeys> {
        let set = self.set.load();
        let others = set.others.iter().map(|key| key.source.clone()).collect();
        Some(OwnTicketKeys { sealing: set.sealing.source.clone(), others, until: set.until? })
    }

    /// Keys from outside: `sealing` seals and opens, `others` open.
    pub fn shared(sealing: &TicketSecret, others: &[TicketSecret]) -> Self {
        Self { set: ArcSwap::from_pointee(KeySet::shared(sealing, others)) }
    }

    /// Replaces all keys by others from outside.
    pub fn replace(&self, sealing: &TicketSecret, others: &[TicketSecret]) {
        self.set.store(Arc::new(KeySet::shared(sealing, others)));
    }

    /// Replaces expired keys of this process, and drops their predecessors. Call it regularly: without clients, keys
    /// would otherwise stay in memory beyond their time.
    ///
    /// # Errors
    /// The system provides no random numbers.
    pub fn rotate(&self) -> Result<(), NoRandomNumbers> {
        self.rotate_at(SystemTime::now())
    }

    fn rotate_at(&self, now: SystemTime) -> Result<(), NoRandomNumbers> {
        let set = self.set.load();
        let Some(until) = set.until else { return Ok(()) };
        // The key's end is further away than possible: the clock was set back.
        let set_back = now + ROTATION + CLOCK_SKEW < until;
        if now < until && !set_back {
            return Ok(());
        }
        let still_opens = set_back || now < until + ROTATION;
        let others = if still_opens { vec![set.sealing.clone()] } else { Vec::new() };
        // If several threads come here at once, one of them makes the change.
        self.set.compare_and_swap(&set, Arc::new(KeySet::own(&TicketSecret::generate()?, others, now)));
        Ok(())
    }

    /// `None` also for a ticket that would be rejected at once.
    fn seal(
        &self,
        context: &Context,
        authentication: Authentication,
        session: &[u8],
        now: SystemTime,
    ) -> Option<Vec<u8>> {
        if !authentication.holds(now) {
            return None;
        }
        self.rotate_at(now).ok()?;
        let set = self.set.load();
        let mut salt = [0; SALT_LEN];
        rand::fill(&mut salt).ok()?;
        set.sealing.seal(&salt, context, authentication, session)
    }

    fn open(&self, context: &Context, ticket: &[u8], now: SystemTime) -> Option<(Authentication, Vec<u8>)> {
        let set = self.set.load();
        let name = ticket.first_chunk::<NAME_LEN>()?;
        let key = std::iter::once(&set.sealing).chain(&set.others).find(|key| key.name == *name)?;
        key.open(context, ticket).filter(|(authentication, _)| authentication.holds(now))
    }
}

impl fmt::Debug for TicketKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKeys(..)")
    }
}

impl KeySet {
    fn own(secret: &TicketSecret, others: Vec<Key>, now: SystemTime) -> Self {
        Self { sealing: Key::new(secret), others, until: Some(now + ROTATION) }
    }

    fn shared(sealing: &TicketSecret, others: &[TicketSecret]) -> Self {
        Self { sealing: Key::new(sealing), others: others.iter().map(Key::new).collect(), until: None }
    }
}

/// The number of bytes to derive.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

impl Key {
    fn new(secret: &TicketSecret) -> Self {
        let source = secret.clone();
        let secret = Prk::new_less_safe(HKDF_SHA256, secret.bytes());
        let mut name = [0; NAME_LEN];
        derive(&secret, &[b"sealion ticket key name"], &mut name);
        Self { name, secret, source }
    }

    /// The key and nonce of one ticket.
    fn of_ticket(&self, salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
        let mut bytes = Zeroizing::new([0; KEY_LEN + NONCE_LEN]);
        // The number is the format's version: a ticket of another format does not open.
        derive(&self.secret, &[b"sealion ticket 2", salt], &mut *bytes);
        let (key, nonce) = bytes.split_at(KEY_LEN);
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM, key).ok()?);
        Some((key, Nonce::try_assume_unique_for_key(nonce).ok()?))
    }

    fn seal(
        &self,
        salt: &[u8; SALT_LEN],
        context: &Context,
        authentication: Authentication,
        session: &[u8],
    ) -> Option<Vec<u8>> {
        const HEAD: usize = NAME_LEN + SALT_LEN;
        let (key, nonce) = self.of_ticket(salt)?;
        let mut ticket = Vec::with_capacity(HEAD + Authentication::LEN + session.len() + TAG_LEN);
        ticket.extend_from_slice(&self.name);
        ticket.extend_from_slice(salt);
        ticket.extend_from_slice(&authentication.encode());
        ticket.extend_from_slice(session);
        let tag = key.seal_in_place_separate_tag(nonce, Aad::from(context.0), &mut ticket[HEAD..]).ok()?;
        ticket.extend_from_slice(tag.as_ref());
        Some(ticket)
    }

    /// Opens a ticket of any age.
    fn open(&self, context: &Context, ticket: &[u8]) -> Option<(Authentication, Vec<u8>)> {
        let (salt, sealed) = ticket.get(NAME_LEN..)?.split_at_checked(SALT_LEN)?;
        let (key, nonce) = self.of_ticket(salt)?;
        let mut session = sealed.to_vec();
        let len = key.open_in_place(nonce, Aad::from(context.0), &mut session).ok()?.len();
        session.truncate(len);
        let authentication = Authentication::decode(session.first_chunk()?);
        Some((authentication, session.split_off(Authentication::LEN)))
    }
}

fn derive(secret: &Prk, info: &[&[u8]], out: &mut [u8]) {
    let derived = secret.expand(info, Len(out.len())).and_then(|okm| okm.fill(out));
    derived.expect("HKDF gives up to 255 hashes");
}

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs()
}

/// The time of the full handshake that authenticated a session's client, and the end of the client's certificate.
/// Renewals copy it unchanged into every ticket of the session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authentication {
    /// The time of the full handshake, in Unix time.
    at: u64,
    /// The last valid second of the client's certificate, or [`u64::MAX`] without a certificate.
    not_after: u64,
}

impl Authentication {
    const LEN: usize = 16;

    fn new(at: SystemTime, not_after: Option<SystemTime>) -> Self {
        Self { at: seconds(at), not_after: not_after.map_or(u64::MAX, seconds) }
    }

    /// Whether the session may still be resumed.
    fn holds(self, now: SystemTime) -> bool {
        let now = seconds(now);
        let possible = self.at <= now.saturating_add(CLOCK_SKEW.as_secs());
        let young = now < self.at.saturating_add(TICKET_LIFETIME.as_secs());
        possible && young && now <= self.not_after
    }

    fn encode(self) -> [u8; Self::LEN] {
        (u128::from(self.at) << 64 | u128::from(self.not_after)).to_be_bytes()
    }

    fn decode(bytes: &[u8; Self::LEN]) -> Self {
        let both = u128::from_be_bytes(*bytes);
        Self { at: (both >> 64) as u64, not_after: both as u64 }
    }
}

/// The client authentication that a session is bound to.
#[derive(Clone, Copy)]
struct Context([u8; 32]);

/// Issues and opens tickets for connections under one policy.
pub(super) struct Ticketer {
    keys: Arc<TicketKeys>,
    client_auth: Option<ClientAuth>,
    time: Arc<dyn TimeProvider>,
}

impl Ticketer {
    pub(super) fn new(keys: Arc<TicketKeys>, client_auth: Option<ClientAuth>, time: Arc<dyn TimeProvider>) -> Self {
        Self { keys, client_auth, time }
    }

    fn context(&self) -> Context {
        Context(self.client_auth.as_ref().map_or([0; 32], ClientAuth::ticket_context))
    }

    fn now(&self) -> Option<SystemTime> {
        Some(UNIX_EPOCH + Duration::from_secs(self.time.current_time()?.as_secs()))
    }
}

impl fmt::Debug for Ticketer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ticketer(..)")
    }
}

impl ProducesTickets for Ticketer {
    fn enabled(&self) -> bool {
        true
    }

    fn lifetime(&self) -> u32 {
        TICKET_LIFETIME.as_secs() as u32
    }

    fn encrypt(&self, plain: &[u8]) -> Option<Vec<u8>> {
        let now = self.now()?;
        let (authentication, context) = callbacks::with_current(|handshake| {
            let had_one = std::mem::replace(&mut handshake.issued_ticket, true);
            let authentication = match handshake.opened_ticket {
                // rustls requests as many tickets as after a full handshake, but continues if it gets fewer.
                Some(_) if had_one => return None,
                Some(resumed) => resumed,
                None => Authentication::new(now, handshake.client_not_after),
            };
            Some((authentication, handshake.ticket_context))
        })??;
        // Lists may have been reloaded since the client was verified.
        let context = context.map_or_else(|| self.context(), Context);
        self.keys.seal(&context, authentication, plain, now)
    }

    fn decrypt(&self, ticket: &[u8]) -> Option<Vec<u8>> {
        let context = self.context();
        let (authentication, session) = self.keys.open(&context, ticket, self.now()?)?;
        callbacks::with_current(|handshake| {
            handshake.opened_ticket = Some(authentication);
            handshake.ticket_context = Some(context.0);
        })?;
        Some(session)
    }
}

#[cfg(test)]
mod tests {
    use rustls::time_provider::DefaultTimeProvider;

    use super::*;

    const NONE: Context = Context([0; 32]);
    const SECOND: Duration = Duration::from_secs(1);

    fn secret(byte: u8) -> TicketSecret {
        TicketSecret::from_bytes(&[byte; TicketSecret::LEN]).unwrap()
    }

    /// A ticket of a session that begins now.
    fn seal(keys: &TicketKeys, now: SystemTime) -> Vec<u8> {
        keys.seal(&NONE, Authentication::new(now, None), b"session", now).unwrap()
    }

    fn open(keys: &TicketKeys, context: &Context, ticket: &[u8], now: SystemTime) -> Option<Vec<u8>> {
        keys.open(context, ticket, now).map(|(_, session)| session)
    }

    #[test]
    fn a_ticket_opens_with_its_key_and_under_its_policy_alone() {
        let now = SystemTime::now();
        let keys = TicketKeys::shared(&secret(1), &[secret(2)]);
        let ticket = seal(&keys, now);
        assert_eq!(open(&keys, &NONE, &ticket, now).unwrap(), b"session");
        assert_eq!(open(&keys, &Context([1; 32]), &ticket, now), None);
        assert_ne!(seal(&keys, now), ticket);

        // Another process that can only open the ticket, and one that does not know its key.
        let elsewhere = TicketKeys::shared(&secret(3), &[secret(2), secret(1)]);
        assert_eq!(open(&elsewhere, &NONE, &ticket, now).unwrap(), b"session");
        elsewhere.replace(&secret(3), &[]);
        assert_eq!(open(&elsewhere, &NONE, &ticket, now), None);

        for n in 0..ticket.len() {
            let mut bad = ticket.clone();
            bad[n] ^= 1;
            assert_eq!(open(&keys, &NONE, &bad, now), None, "byte {n}");
            assert_eq!(open(&keys, &NONE, &ticket[..n], now), None, "cut at {n}");
        }
    }

    #[test]
    fn a_ticket_ends_with_its_lifetime() {
        let now = SystemTime::now();
        let keys = TicketKeys::shared(&secret(1), &[]);
        let ticket = seal(&keys, now);
        let opens = |at| keys.open(&NONE, &ticket, at).is_some();
        assert!(opens(now + TICKET_LIFETIME - SECOND));
        assert!(!opens(now + TICKET_LIFETIME));
        assert!(opens(now - CLOCK_SKEW));
        assert!(!opens(now - CLOCK_SKEW - SECOND));
    }

    #[test]
    fn a_renewed_ticket_keeps_the_end_of_the_first() {
        let start = SystemTime::now();
        let keys = TicketKeys::shared(&secret(1), &[]);
        for (not_after, end) in [
            (None, start + TICKET_LIFETIME),
            (Some(start + TICKET_LIFETIME * 2), start + TICKET_LIFETIME),
            // This second still belongs to the certificate's validity.
            (Some(start + TICKET_LIFETIME / 4), start + TICKET_LIFETIME / 4 + SECOND),
        ] {
            let first = Authentication::new(start, not_after);
            let mut ticket = keys.seal(&NONE, first, b"session", start).unwrap();
            for now in [start + SECOND, end - SECOND] {
                let (authentication, _) = keys.open(&NONE, &ticket, now).unwrap();
                assert_eq!(authentication, first);
                ticket = keys.seal(&NONE, authentication, b"session", now).unwrap();
            }
            assert_eq!(keys.open(&NONE, &ticket, end), None);
            // A ticket that would always be rejected is not issued.
            assert_eq!(keys.seal(&NONE, first, b"session", end), None);
        }
    }

    /// A fast clock adds its error once, not with each renewal.
    #[test]
    fn clocks_of_a_fleet_may_differ() {
        let now = SystemTime::now();
        let keys = TicketKeys::shared(&secret(1), &[]);
        let ahead = now + CLOCK_SKEW;
        let ticket = seal(&keys, ahead);
        let (authentication, _) = keys.open(&NONE, &ticket, now).unwrap();
        let renewed = keys.seal(&NONE, authentication, b"session", now).unwrap();
        assert!(open(&keys, &NONE, &renewed, ahead + TICKET_LIFETIME - SECOND).is_some());
        assert!(open(&keys, &NONE, &renewed, ahead + TICKET_LIFETIME).is_none());
        assert_eq!(keys.seal(&NONE, authentication, b"session", now - SECOND), None);
    }

    #[test]
    fn outside_a_handshake_there_are_no_tickets() {
        let keys = Arc::new(TicketKeys::shared(&secret(1), &[]));
        let ticketer = Ticketer::new(keys.clone(), None, Arc::new(DefaultTimeProvider));
        assert_eq!(ticketer.encrypt(b"session"), None);
        assert_eq!(ticketer.decrypt(&seal(&keys, SystemTime::now())), None);
    }

    #[test]
    fn own_keys_change_and_open_for_one_more_turn() {
        let mut now = SystemTime::now();
        let keys = TicketKeys::rotating().unwrap();
        let first = seal(&keys, now);
        now += ROTATION + Duration::from_secs(1);
        let second = seal(&keys, now);
        assert_ne!(first[..NAME_LEN], second[..NAME_LEN]);
        assert!(keys.open(&NONE, &first, now).is_some());
        now += ROTATION + Duration::from_secs(1);
        seal(&keys, now);
        assert!(keys.open(&NONE, &first, now).is_none());
        assert!(keys.open(&NONE, &second, now).is_some());
    }

    /// Keys change without a ticket being issued.
    #[test]
    fn own_keys_change_by_time_and_are_forgotten() {
        let now = SystemTime::now();
        let keys = TicketKeys::rotating().unwrap();
        let first = seal(&keys, now);
        let known = |keys: &TicketKeys| {
            let set = keys.set.load();
            std::iter::once(&set.sealing).chain(&set.others).map(|key| key.name).collect::<Vec<_>>()
        };
        keys.rotate_at(now + ROTATION - SECOND * 60).unwrap();
        assert_eq!(known(&keys).concat(), first[..NAME_LEN]);
        keys.rotate_at(now + ROTATION + SECOND).unwrap();
        let [second, old] = known(&keys).try_into().unwrap();
        assert_eq!(old, first[..NAME_LEN]);
        // The machine was asleep for a day.
        keys.rotate_at(now + ROTATION * 4).unwrap();
        assert!(!known(&keys).contains(&second));
        assert_eq!(known(&keys).len(), 1);
    }

    #[test]
    fn own_keys_go_on_changing_after_a_clock_was_set_back() {
        let now = SystemTime::now();
        let keys = TicketKeys::rotating().unwrap();
        let name = |now| seal(&keys, now)[..NAME_LEN].to_vec();
        let first = name(now);
        assert_eq!(name(now - CLOCK_SKEW / 2), first);
        let year_before = now - Duration::from_secs(365 * 24 * 3600);
        let second = name(year_before);
        assert_ne!(second, first);
        assert_eq!(name(year_before + ROTATION / 2), second);
        assert_ne!(name(year_before + ROTATION), second);
    }
}
