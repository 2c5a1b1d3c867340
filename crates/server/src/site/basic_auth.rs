//! HTTP Basic authentication (RFC 7617) .
//!
//! ```text
//! Authorization ─► verified recently? ─yes─► the user
//!                       │ no
//!                       ▼
//!         blocking task: waits for its turn, verifies slowly ─► cached if right
//! ```

use std::net::IpAddr;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Weak};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lru::LruCache;
use schemars::JsonSchema;
use sealion_http::Status;
use sealion_http::extra_fields::is_value;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::htpasswd::Htpasswd;
use super::verifications::VERIFICATIONS;
use crate::response::Response;
use crate::values::{At, Mutex, Problems};

/// Password protection (HTTP Basic).
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BasicAuthConfig {
    /// Realm, shown by browsers in the password prompt.
    #[default("this site".to_owned().into())]
    pub realm: At<String>,
    /// File of users and password hashes (bcrypt or argon2id), one per line, as `sealion passwd` and `htpasswd -B` write them. Read at
    /// start and on reload. Hashes of MD5 (`$apr1$`, `$1$`) and SHA-1 (`{SHA}`) are accepted with a warning.
    pub users: At<PathBuf>,
}

/// The password that a route asks for.
#[derive(Debug)]
pub(crate) struct BasicAuth(Arc<Protection>);

#[derive(Debug)]
struct Protection {
    challenge: String,
    users: Arc<Users>,
}

/// The users of a file, and recently verified credentials.
#[derive(Debug)]
pub(super) struct Users {
    htpasswd: Htpasswd,
    key: hmac::Key,
    /// MACs of credentials that were verified.
    known: Mutex<LruCache<[u8; 32], ()>>,
    /// SHA-256 of the file.
    digest: [u8; 32],
}

/// The decision about a request: the user, if a password is needed, or the refusal.
pub(crate) type Decision = Result<Option<Box<str>>, Box<Response>>;

/// The decision about a request, or the verification that it needs first.
#[derive(Debug)]
pub(crate) enum Verdict {
    Decided(Decision),
    /// The password has to be verified first.
    Verify(Verification),
}

/// A password to verify on the blocking pool.
#[derive(Debug)]
pub(crate) struct Verification {
    protection: Arc<Protection>,
    credentials: Credentials,
}

/// The result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verified {
    /// User and password match.
    Right,
    /// The password is wrong, or the user does not exist.
    Wrong,
    /// Too many verifications are waiting.
    Busy,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Credentials {
    user: String,
    password: Vec<u8>,
}

impl BasicAuthConfig {
    /// Reads the file of users. `None`: there are problems.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Option<BasicAuth> {
        if !is_value(&self.realm) || self.realm.is_empty() || self.realm.contains(['"', '\\']) {
            let remedy = "write visible ASCII without quotes and backslashes";
            problems.add(&self.realm.span, &format!("{key}.realm"), remedy);
        }
        let users_key = format!("{key}.users");
        if self.users.as_os_str().is_empty() {
            problems.add(&self.users.span, &users_key, "is missing: name the file of users and password hashes");
            return None;
        }
        let users = Users::of_file(&problems.resolve(&self.users));
        let users = users.map_err(|what| problems.add(&self.users.span, &users_key, what)).ok()?;
        let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", self.realm.value);
        Some(BasicAuth(Arc::new(Protection { challenge, users })))
    }
}

impl BasicAuth {
    /// Decides about a request. `authorization`: the value of Authorization.
    pub(crate) fn check(&self, authorization: Option<&[u8]>) -> Verdict {
        let Some(credentials) = authorization.and_then(Credentials::parse) else {
            return Verdict::Decided(Err(self.0.challenge()));
        };
        match self.0.users.knows(&credentials) {
            true => Verdict::Decided(Ok(Some(credentials.user.into()))),
            false => Verdict::Verify(Verification { protection: Arc::clone(&self.0), credentials }),
        }
    }

    /// Whether both have the same file of users.
    pub(super) fn has_users_of(&self, other: &BasicAuth) -> bool {
        Arc::ptr_eq(&self.0.users, &other.0.users)
    }
}

impl Protection {
    fn challenge(&self) -> Box<Response> {
        let mut response = Response::plain(Status::UNAUTHORIZED);
        response.fields.extra.add("WWW-Authenticate", &self.challenge);
        Box::new(response)
    }
}

impl Verification {
    /// Waits for a turn, then verifies. May take long. `client`: `None` over a Unix socket.
    pub(crate) fn run(self, client: Option<IpAddr>) -> Decision {
        let Verification { protection, credentials } = self;
        match protection.users.verify(&credentials, client) {
            Verified::Right => Ok(Some(credentials.user.into())),
            Verified::Wrong => Err(protection.challenge()),
            Verified::Busy => Err(Box::new(Response::plain(Status::SERVICE_UNAVAILABLE))),
        }
    }
}

impl Users {
    /// Reads a file. If one with the same bytes is in use, before a reload or for another route, its users are shared: credentials that are known
    /// stay known.
    fn of_file(path: &Path) -> Result<Arc<Self>, String> {
        static IN_USE: Mutex<Vec<Weak<Users>>> = Mutex::new(Vec::new());
        let text = Htpasswd::text(path)?;
        let mut digest = [0; 32];
        digest.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref());
        let mut in_use = IN_USE.lock();
        in_use.retain(|users| users.strong_count() > 0);
        if let Some(same) = in_use.iter().filter_map(Weak::upgrade).find(|users| users.digest == digest) {
            return Ok(same);
        }
        let htpasswd = Htpasswd::of_file(path, &text)?;
        warn_of_weak(path, &htpasswd);
        let users = Arc::new(Users::new(htpasswd, digest));
        in_use.push(Arc::downgrade(&users));
        Ok(users)
    }

    fn new(htpasswd: Htpasswd, digest: [u8; 32]) -> Self {
        let mut key = [0; 32];
        // Without random numbers TLS would not work either.
        aws_lc_rs::rand::fill(&mut key).expect("the system has random numbers");
        Users {
            htpasswd,
            key: hmac::Key::new(hmac::HMAC_SHA256, &key),
            known: Mutex::new(LruCache::new(KNOWN)),
            digest,
        }
    }

    /// Waits for a turn, then verifies. May take long.
    fn verify(&self, credentials: &Credentials, client: Option<IpAddr>) -> Verified {
        let Some(_turn) = VERIFICATIONS.wait(client) else { return Verified::Busy };
        // A browser that requests many files at once sends the same password with each; one verification is enough.
        if self.knows(credentials) {
            return Verified::Right;
        }
        if !self.htpasswd.verify(&credentials.user, &credentials.password) {
            return Verified::Wrong;
        }
        self.known.lock().put(self.mac(credentials), ());
        Verified::Right
    }

    fn mac(&self, credentials: &Credentials) -> [u8; 32] {
        let mut context = hmac::Context::with_key(&self.key);
        // The separator is unambiguous: a user name has no colon.
        context.update(credentials.user.as_bytes());
        context.update(b":");
        context.update(&credentials.password);
        let mut mac = [0; 32];
        mac.copy_from_slice(context.sign().as_ref());
        mac
    }

    /// The lookup need not be constant-time: without the key, an attacker cannot choose the MAC.
    fn knows(&self, credentials: &Credentials) -> bool {
        self.known.lock().get(&self.mac(credentials)).is_some()
    }
}

impl Credentials {
    fn parse(value: &[u8]) -> Option<Self> {
        let (scheme, token) = value.split_at(value.iter().position(|octet| *octet == b' ')?);
        if !scheme.eq_ignore_ascii_case(b"basic") {
            return None;
        }
        let decoded = STANDARD.decode(token.trim_ascii()).ok()?;
        let colon = decoded.iter().position(|octet| *octet == b':')?;
        let user = String::from_utf8(decoded[..colon].to_vec()).ok()?;
        Some(Credentials { user, password: decoded[colon + 1..].to_vec() })
    }
}

/// Names the users whose hashes have to be renewed, in one line for a file.
fn warn_of_weak(path: &Path, htpasswd: &Htpasswd) {
    let weak = htpasswd.weak();
    let Some((first, others)) = weak.split_first() else { return };
    let who = match others.len() {
        0 => format!("the password of {first} is"),
        1 => format!("the passwords of {first} and {} are", others[0]),
        more => format!("the passwords of {first} and {more} others are"),
    };
    tracing::warn!(
        "{}: {who} hashed by MD5 or SHA-1, which are guessed fast once the file is stolen: renew each line with `sealion passwd USER` or `htpasswd -B`",
        path.display()
    );
}

/// Credentials remembered per user file: more than the daily users of most sites that keep users in a file.
const KNOWN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

#[cfg(test)]
#[path = "basic_auth_tests.rs"]
mod tests;
