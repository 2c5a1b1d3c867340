//! HTTP Basic authentication (RFC 7617) for parts of a site.
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
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use aws_lc_rs::hmac;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use lru::LruCache;
use schemars::JsonSchema;
use sealion_http::Status;
use sealion_http::extra_fields::is_value;
use serde::{Deserialize, Serialize};

use super::htpasswd::Htpasswd;
use super::pattern::Prefix;
use super::verifications::VERIFICATIONS;
use crate::response::Response;
use crate::values::{At, Problems};

/// Password protection (HTTP Basic) of a part of the site.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BasicAuthConfig {
    /// Path to protect, with everything beneath it.
    pub path: At<String>,
    /// Realm, shown by browsers in the password prompt.
    pub realm: At<String>,
    /// File of users and password hashes (bcrypt or argon2id), one per line, as written by `htpasswd -B -c FILE USER`. Read at
    /// start and on reload.
    pub users: At<PathBuf>,
}

impl Default for BasicAuthConfig {
    fn default() -> Self {
        BasicAuthConfig {
            path: "/".to_owned().into(),
            realm: "this site".to_owned().into(),
            users: PathBuf::new().into(),
        }
    }
}

/// The password-protected parts of a site.
#[derive(Debug)]
pub(crate) struct BasicAuth(Vec<Part>);

#[derive(Debug)]
struct Part {
    path: Prefix,
    challenge: String,
    users: Arc<Users>,
}

/// The users of a part, and recently verified credentials.
#[derive(Debug)]
pub(super) struct Users {
    htpasswd: Htpasswd,
    key: hmac::Key,
    /// MACs of credentials that were verified.
    known: Mutex<LruCache<[u8; 32], ()>>,
    /// SHA-256 of the file.
    digest: [u8; 32],
}

/// The decision about a request.
#[derive(Debug)]
pub(crate) enum Verdict {
    /// No password is needed, or the password is right: the user, if any.
    Pass(Option<String>),
    /// Send this response.
    Refuse(Box<Response>),
    /// Verify the password first, then check again.
    Verify(Verification),
}

/// A password to verify on the blocking pool.
#[derive(Debug)]
pub(crate) struct Verification {
    users: Arc<Users>,
    credentials: Credentials,
}

/// The result of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verified {
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

impl BasicAuth {
    /// Reads the user files. `None`: no part is protected.
    pub(crate) fn build(configs: &[BasicAuthConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut parts = Vec::new();
        for config in configs {
            let path = Prefix::build(&config.path, &config.path.span, &format!("{key}.path"), problems);
            if !is_value(&config.realm) || config.realm.is_empty() || config.realm.contains(['"', '\\']) {
                let remedy = "write visible ASCII without quotes and backslashes";
                problems.add(&config.realm.span, &format!("{key}.realm"), remedy);
            }
            if config.users.as_os_str().is_empty() {
                problems.add(
                    &config.path.span,
                    &format!("{key}.users"),
                    "is missing: name the file of users and password hashes",
                );
                continue;
            }
            match Users::of_file(&problems.resolve(&config.users)) {
                Ok(users) => parts.extend(path.map(|path| Part {
                    path,
                    challenge: format!("Basic realm=\"{}\", charset=\"UTF-8\"", config.realm.value),
                    users,
                })),
                Err(what) => problems.add(&config.users.span, &format!("{key}.users"), what),
            }
        }
        // The innermost part applies. Only one can, since a request carries one password.
        parts.sort_by_key(|part| std::cmp::Reverse(part.path.as_bytes().len()));
        (!parts.is_empty()).then_some(BasicAuth(parts))
    }

    /// Decides about a request for a decoded path without leading and trailing slashes. `authorization`: the value of
    /// Authorization. `verified`: the result of the verification that an earlier call asked for.
    pub(crate) fn check(&self, name: &[u8], authorization: Option<&[u8]>, verified: Option<Verified>) -> Verdict {
        let Some(part) = self.0.iter().find(|part| part.path.guards(name)) else { return Verdict::Pass(None) };
        let Some(credentials) = authorization.and_then(Credentials::parse) else { return part.challenge() };
        match verified {
            Some(Verified::Right) => Verdict::Pass(Some(credentials.user)),
            Some(Verified::Wrong) => part.challenge(),
            Some(Verified::Busy) => Verdict::Refuse(Box::new(Response::plain(Status::SERVICE_UNAVAILABLE))),
            None if part.users.knows(&credentials) => Verdict::Pass(Some(credentials.user)),
            None => Verdict::Verify(Verification { users: Arc::clone(&part.users), credentials }),
        }
    }
}

impl Part {
    fn challenge(&self) -> Verdict {
        let mut response = Response::plain(Status::UNAUTHORIZED);
        response.fields.extra.add("WWW-Authenticate", &self.challenge);
        Verdict::Refuse(Box::new(response))
    }
}

impl Verification {
    /// Waits for a turn, then verifies. May take long. `client`: `None` over a Unix socket.
    pub(crate) fn run(self, client: Option<IpAddr>) -> Verified {
        let Verification { users, credentials } = self;
        let Some(_turn) = VERIFICATIONS.wait(client) else { return Verified::Busy };
        // A browser that requests many files at once sends the same password with each; one verification is enough.
        if users.knows(&credentials) {
            return Verified::Right;
        }
        if !users.htpasswd.verify(&credentials.user, &credentials.password) {
            return Verified::Wrong;
        }
        lock(&users.known).put(users.mac(&credentials), ());
        Verified::Right
    }
}

impl Users {
    /// Reads a file. If one with the same bytes is in use, before a reload or for another part, its users are shared: credentials that are known
    /// stay known.
    fn of_file(path: &Path) -> Result<Arc<Self>, String> {
        static IN_USE: Mutex<Vec<Weak<Users>>> = Mutex::new(Vec::new());
        let text = Htpasswd::text(path)?;
        let mut digest = [0; 32];
        digest.copy_from_slice(aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, text.as_bytes()).as_ref());
        let mut in_use = lock(&IN_USE);
        in_use.retain(|users| users.strong_count() > 0);
        if let Some(same) = in_use.iter().filter_map(Weak::upgrade).find(|users| users.digest == digest) {
            return Ok(same);
        }
        let users = Arc::new(Users::new(Htpasswd::of_file(path, &text)?, digest));
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
        lock(&self.known).get(&self.mac(credentials)).is_some()
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

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Credentials remembered per user file: more than the daily users of most sites that keep users in a file.
const KNOWN: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

#[cfg(test)]
#[path = "basic_auth_tests.rs"]
mod tests;
