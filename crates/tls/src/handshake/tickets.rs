//! Session tickets (RFC 5077, RFC 8446 §4.6.1): sessions that the client keeps, sealed for us.
//!
//! ```text
//! ticket = name of the key (16) | salt (32) | AES-256-GCM { authenticated at (8) | not after (8) | session } | tag (16)
//! ```
//!
//! RFC 5077 §4 recommends a name of the key in front and authenticated encryption. Each ticket is sealed under a key and
//! nonce derived from the secret and a random salt, so that no number of tickets, made by any number of machines with the
//! same secret, repeats a nonce (random nonces of 96 bits would begin to after 2^32 tickets).
//!
//! What a client was asked for to get a session is authenticated along with it: a site that demands other client
//! certificates, or demands them now, does not resume it.
//!
//! A full handshake brings two tickets, so that a client can open two connections at a time without showing one ticket twice
//! (RFC 8446 appendix C.4); a resumption brings one for the one that it used. Every resumption renews the ticket, but not the session's time: that of the full handshake travels from ticket to ticket, and the
//! session ends [`TICKET_LIFETIME`] after it, or with the client's certificate if that comes first.

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

/// How long a session can be resumed after its full handshake, however often it is renewed. The lifetime of rustls' own tickets. RFC 8446 §4.6.1 allows seven
/// days; the longer it is, the more sessions a stolen key opens.
pub const TICKET_LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);

/// How long a key of this process seals tickets; it opens them for as long again.
const ROTATION: Duration = Duration::from_secs(TICKET_LIFETIME.as_secs() / 2);

/// Tolerated difference between the clocks of machines that share keys: far above the error of NTP, far below [`TICKET_LIFETIME`].
const CLOCK_SKEW: Duration = Duration::from_secs(300);

const NAME_LEN: usize = 16;
const SALT_LEN: usize = 32;
const KEY_LEN: usize = 32;
const NONCE_LEN: usize = 12;
const TAG_LEN: usize = 16;

/// A secret from which keys of tickets are derived: random bytes, wiped when dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct TicketSecret(Zeroizing<[u8; Self::LEN]>);

impl TicketSecret {
    /// Bytes of a secret.
    pub const LEN: usize = 32;

    /// A new one from the system's random numbers.
    ///
    /// # Errors
    /// There are none to be had.
    pub fn generate() -> Result<Self, NoRandomNumbers> {
        let mut bytes = Zeroizing::new([0; Self::LEN]);
        rand::fill(&mut *bytes).map_err(|_| NoRandomNumbers)?;
        Ok(Self(bytes))
    }

    /// One from elsewhere. `None` if it has not [`Self::LEN`] bytes.
    pub fn from_bytes(bytes: &[u8]) -> Option<Self> {
        Some(Self(Zeroizing::new(bytes.try_into().ok()?)))
    }

    /// The bytes, to be kept secret.
    pub fn bytes(&self) -> &[u8; Self::LEN] {
        &self.0
    }
}

impl fmt::Debug for TicketSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketSecret(..)")
    }
}

/// The system gives no random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoRandomNumbers;

impl fmt::Display for NoRandomNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the system gives no random numbers")
    }
}

impl std::error::Error for NoRandomNumbers {}

/// The keys of tickets: of this process alone, which change by themselves, or from outside, so that several processes resume
/// each other's sessions. They outlive configurations.
pub struct TicketKeys {
    set: ArcSwap<KeySet>,
}

struct KeySet {
    sealing: Key,
    /// Keys that open tickets and seal none.
    others: Vec<Key>,
    /// When a key of our own has to make way for another.
    until: Option<SystemTime>,
}

#[derive(Clone)]
struct Key {
    name: [u8; NAME_LEN],
    secret: Prk,
}

impl TicketKeys {
    /// Keys of this process: a new one seals every six hours, and the one before it still opens.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn rotating() -> Result<Self, NoRandomNumbers> {
        let set = KeySet::own(&TicketSecret::generate()?, Vec::new(), SystemTime::now());
        Ok(Self { set: ArcSwap::from_pointee(set) })
    }

    /// Keys from outside: `sealing` seals and opens, `others` open.
    pub fn shared(sealing: &TicketSecret, others: &[TicketSecret]) -> Self {
        Self { set: ArcSwap::from_pointee(KeySet::shared(sealing, others)) }
    }

    /// Takes others from outside; from now on these alone count.
    pub fn replace(&self, sealing: &TicketSecret, others: &[TicketSecret]) {
        self.set.store(Arc::new(KeySet::shared(sealing, others)));
    }

    /// Replaces keys of this process that have expired, and drops the ones before them. Call it regularly: without visitors, keys would
    /// otherwise outlive their time in memory.
    ///
    /// # Errors
    /// There are no random numbers.
    pub fn rotate(&self) -> Result<(), NoRandomNumbers> {
        self.rotate_at(SystemTime::now())
    }

    fn rotate_at(&self, now: SystemTime) -> Result<(), NoRandomNumbers> {
        let set = self.set.load();
        let Some(until) = set.until else { return Ok(()) };
        // The end of its time is further away than it ever was: the clock was set back.
        let set_back = now + ROTATION + CLOCK_SKEW < until;
        if now < until && !set_back {
            return Ok(());
        }
        let still_opens = set_back || now < until + ROTATION;
        let others = if still_opens { vec![set.sealing.clone()] } else { Vec::new() };
        // Of several threads that come here at once, one makes the change.
        self.set.compare_and_swap(&set, Arc::new(KeySet::own(&TicketSecret::generate()?, others, now)));
        Ok(())
    }

    /// `None` also for a ticket that would be refused at once.
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

/// Bytes to be derived.
struct Len(usize);

impl KeyType for Len {
    fn len(&self) -> usize {
        self.0
    }
}

impl Key {
    fn new(secret: &TicketSecret) -> Self {
        let secret = Prk::new_less_safe(HKDF_SHA256, secret.bytes());
        let mut name = [0; NAME_LEN];
        derive(&secret, &[b"sealion ticket key name"], &mut name);
        Self { name, secret }
    }

    /// The key and nonce of one ticket.
    fn of_ticket(&self, salt: &[u8]) -> Option<(LessSafeKey, Nonce)> {
        let mut bytes = Zeroizing::new([0; KEY_LEN + NONCE_LEN]);
        // The number is the format's: a ticket of another one does not open.
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

    /// However old the ticket is.
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

/// When a session's client was authenticated, by a full handshake, and the end of its certificate. Every ticket of the session
/// holds it, unchanged by renewals.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Authentication {
    /// Unix time of the full handshake.
    at: u64,
    /// The last second in which the client's certificate is valid; [`u64::MAX`] without one.
    not_after: u64,
}

impl Authentication {
    const LEN: usize = 16;

    fn new(at: SystemTime, not_after: Option<SystemTime>) -> Self {
        Self { at: seconds(at), not_after: not_after.map_or(u64::MAX, seconds) }
    }

    /// Whether a session may be resumed by it.
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

/// What a session is bound to: what was asked of the client.
#[derive(Clone, Copy)]
struct Context([u8; 32]);

/// Tickets for connections under one policy.
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
                // rustls asks for as many as after a full handshake, and goes on without one that it does not get.
                Some(_) if had_one => return None,
                Some(resumed) => resumed,
                None => Authentication::new(now, handshake.client_not_after),
            };
            Some((authentication, handshake.ticket_context))
        })??;
        // Lists may have been loaded since the client was verified.
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

        // Elsewhere, where it opens only; and where it is not known.
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
            // That second belongs to the certificate's validity.
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
            // One that nobody would accept is not made.
            assert_eq!(keys.seal(&NONE, first, b"session", end), None);
        }
    }

    /// A clock that is ahead adds its error once, and not with each renewal.
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

    /// Without a ticket being made.
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
        // Asleep for a day.
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
