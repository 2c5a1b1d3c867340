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
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};

use super::htpasswd::Htpasswd;
use super::pattern::{Case, Guarded, PathRegex, Prefix};
use super::verifications::VERIFICATIONS;
use crate::response::Response;
use crate::values::{At, Problems};

/// Password protection (HTTP Basic) of a part of the site. Of the rules with a path the innermost applies; rules with a regex apply in
/// addition, and the password must then be right for each.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct BasicAuthConfig {
    /// Path to protect, with everything beneath it [default: `/`, unless `regex` is given]
    pub path: Option<At<String>>,
    /// Regular expression for the decoded paths to protect, instead of `path`. It matches octets, anywhere in the path; anchor it with
    /// `^` and `$`. The file that is sent must pass too: an index, a rewritten path, the fallback, a compressed sibling.
    pub regex: Option<At<String>>,
    /// Whether case is ignored, for applications and file systems that do: `/admin/` then covers `/ADMIN/` too.
    pub ignore_case: bool,
    /// Realm, shown by browsers in the password prompt.
    pub realm: At<String>,
    /// File of users and password hashes (bcrypt or argon2id), one per line, as `sealion passwd` and `htpasswd -B` write them. Read at
    /// start and on reload.
    pub users: At<PathBuf>,
}

impl Default for BasicAuthConfig {
    fn default() -> Self {
        BasicAuthConfig {
            path: None,
            regex: None,
            ignore_case: false,
            realm: "this site".to_owned().into(),
            users: PathBuf::new().into(),
        }
    }
}

/// The password-protected parts of a site.
#[derive(Debug)]
pub(crate) struct BasicAuth {
    /// The innermost first.
    by_prefix: Vec<(Prefix, Arc<Part>)>,
    by_regex: Vec<(PathRegex, Arc<Part>)>,
}

#[derive(Debug)]
struct Part {
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

/// The decision about a request: the user, if a password is needed, or the refusal.
pub(crate) type Decision = Result<Option<Box<str>>, Box<Response>>;

/// What is known of a request at once.
#[derive(Debug)]
pub(crate) enum Verdict {
    Decided(Decision),
    /// The password has to be verified first.
    Verify(Verification),
}

/// A password to verify on the blocking pool.
#[derive(Debug)]
pub(crate) struct Verification {
    parts: Vec<Arc<Part>>,
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

impl BasicAuth {
    /// Reads the user files. `None`: no part is protected.
    pub(crate) fn build(configs: &[BasicAuthConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut auth = BasicAuth { by_prefix: Vec::new(), by_regex: Vec::new() };
        for config in configs {
            let case = Case::from_key(config.ignore_case);
            let paths = Guarded::build(config.path.as_ref(), config.regex.as_ref(), case, key, problems);
            if !is_value(&config.realm) || config.realm.is_empty() || config.realm.contains(['"', '\\']) {
                let remedy = "write visible ASCII without quotes and backslashes";
                problems.add(&config.realm.span, &format!("{key}.realm"), remedy);
            }
            if config.users.as_os_str().is_empty() {
                let span = config.path.as_ref().or(config.regex.as_ref()).map_or(0..0, |text| text.span.clone());
                let remedy = "is missing: name the file of users and password hashes";
                problems.add(&span, &format!("{key}.users"), remedy);
                continue;
            }
            let users = match Users::of_file(&problems.resolve(&config.users)) {
                Ok(users) => users,
                Err(what) => {
                    problems.add(&config.users.span, &format!("{key}.users"), what);
                    continue;
                }
            };
            let challenge = format!("Basic realm=\"{}\", charset=\"UTF-8\"", config.realm.value);
            let part = Arc::new(Part { challenge, users });
            match paths {
                Some(Guarded::Beneath(prefix)) => {
                    if auth.by_prefix.iter().any(|(other, _)| other.as_bytes() == prefix.as_bytes()) {
                        let span = config.path.as_ref().map_or(&config.users.span, |path| &path.span);
                        let remedy = "has two rules, of which the first alone would count: put all users into one file";
                        problems.add(span, &format!("{key}.path"), remedy);
                    }
                    auth.by_prefix.push((prefix, part));
                }
                Some(Guarded::Matching(regex)) => auth.by_regex.push((regex, part)),
                None => {}
            }
        }
        auth.by_prefix.sort_by_key(|(prefix, _)| std::cmp::Reverse(prefix.as_bytes().len()));
        (!configs.is_empty()).then_some(auth)
    }

    /// Whether a part is named by an expression.
    pub(super) fn has_expressions(&self) -> bool {
        !self.by_regex.is_empty()
    }

    /// Decides about a request for a path. `authorization`: the value of Authorization.
    pub(crate) fn check(&self, path: &SitePath<'_>, authorization: Option<&[u8]>) -> Verdict {
        let parts = self.parts(path);
        let Some(first) = parts.first() else { return Verdict::Decided(Ok(None)) };
        let Some(credentials) = authorization.and_then(Credentials::parse) else {
            return Verdict::Decided(Err(first.challenge()));
        };
        match parts.iter().all(|part| part.users.knows(&credentials)) {
            true => Verdict::Decided(Ok(Some(credentials.user.into()))),
            false => Verdict::Verify(Verification { parts, credentials }),
        }
    }

    /// Whether a path needs a password that is not among those of `passed`.
    pub(crate) fn needs_more(&self, path: &SitePath<'_>, passed: Option<&SitePath<'_>>) -> bool {
        let parts = self.parts(path);
        if parts.is_empty() {
            return false;
        }
        let passed = passed.map_or_else(Vec::new, |passed| self.parts(passed));
        !parts.iter().all(|part| passed.iter().any(|passed| Arc::ptr_eq(&part.users, &passed.users)))
    }

    /// The parts whose passwords a path needs, each file of users once: the innermost part that covers the path, the file of which it
    /// would be a compressed sibling, and the parts whose expression matches either. A request carries one password, which must be right
    /// for all of them.
    fn parts(&self, path: &SitePath<'_>) -> Vec<Arc<Part>> {
        let name = path.as_bytes();
        let covering = self.by_prefix.iter().find(|(prefix, _)| prefix.covers(name));
        let original = self.by_prefix.iter().find(|(prefix, _)| prefix.has_sibling(name));
        let mut parts: Vec<Arc<Part>> = Vec::new();
        let mut add = |part: &Arc<Part>| {
            if !parts.iter().any(|other| Arc::ptr_eq(&other.users, &part.users)) {
                parts.push(Arc::clone(part));
            }
        };
        covering.into_iter().chain(original).for_each(|(_, part)| add(part));
        if !self.by_regex.is_empty() {
            let full = path.full();
            let matching = self.by_regex.iter().filter(|(regex, _)| regex.guards(&full));
            matching.for_each(|(_, part)| add(part));
        }
        parts
    }
}

impl Part {
    fn challenge(&self) -> Box<Response> {
        let mut response = Response::plain(Status::UNAUTHORIZED);
        response.fields.extra.add("WWW-Authenticate", &self.challenge);
        Box::new(response)
    }
}

impl Verification {
    /// Waits for a turn, then verifies, for each part. May take long. `client`: `None` over a Unix socket.
    pub(crate) fn run(self, client: Option<IpAddr>) -> Decision {
        let Verification { parts, credentials } = self;
        for part in parts {
            match part.users.verify(&credentials, client) {
                Verified::Right => {}
                Verified::Wrong => return Err(part.challenge()),
                Verified::Busy => return Err(Box::new(Response::plain(Status::SERVICE_UNAVAILABLE))),
            }
        }
        Ok(Some(credentials.user.into()))
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
        lock(&self.known).put(self.mac(credentials), ());
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
