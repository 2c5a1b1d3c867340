//! Files of users and password hashes, as written by `htpasswd -B`. Hashes of MD5 and SHA-1 are accepted, and named in a warning.

use std::collections::HashMap;
use std::path::Path;

use argon2::password_hash::phc::PasswordHash;
use argon2::{Argon2, PasswordVerifier};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;

use super::md5_crypt::Md5Crypt;

/// Users with their password hashes.
#[derive(Debug)]
pub(super) struct Htpasswd {
    users: HashMap<Box<str>, Hash>,
    /// A hash of each cost. A wrong password is compared with one of each, so that the response time discloses neither which users
    /// exist nor the cost of their hashes.
    of_each_cost: Vec<Hash>,
}

#[derive(Debug, Clone)]
struct Hash {
    text: Box<str>,
    cost: Cost,
}

/// The cost of a verification.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cost {
    Bcrypt(u32),
    Argon2id {
        memory: u32,
        times: u32,
        lanes: u32,
    },
    /// `$apr1$` or `$1$`
    Md5,
    /// `{SHA}`
    Sha1,
}

impl Cost {
    /// Whether a stolen file gives passwords away within hours.
    fn is_weak(self) -> bool {
        matches!(self, Cost::Md5 | Cost::Sha1)
    }
}

impl Htpasswd {
    /// Reads the text of a file.
    ///
    /// # Errors
    /// A message with file and remedy.
    pub(super) fn text(path: &Path) -> Result<String, String> {
        std::fs::read_to_string(path)
            .map_err(|e| format!("cannot read {}: {e}: create it with `sealion passwd USER > FILE`", path.display()))
    }

    /// Parses the text of the file at `path`.
    ///
    /// # Errors
    /// A message with file, line and remedy.
    pub(super) fn of_file(path: &Path, text: &str) -> Result<Self, String> {
        Self::parse(text).map_err(|(line, what)| format!("{}:{line}: {what}", path.display()))
    }

    fn parse(text: &str) -> Result<Self, (usize, String)> {
        let mut users = HashMap::new();
        for (n, line) in text.lines().enumerate() {
            let line = line.trim_end();
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let fail = |what: String| (n + 1, what);
            let (user, hash) = line.split_once(':').ok_or_else(|| fail("is not `user:hash`".to_owned()))?;
            let hash = Hash::parse(hash).map_err(|what| fail(format!("{user}: {what}")))?;
            if user.is_empty() || users.insert(user.into(), hash).is_some() {
                return Err(fail(format!("the user {user:?} is empty or listed twice: remove the line")));
            }
        }
        if users.is_empty() {
            return Err((1, "contains no user: add one with `sealion passwd USER >> FILE`".to_owned()));
        }
        let mut of_each_cost: Vec<Hash> = Vec::new();
        for hash in users.values() {
            if !of_each_cost.iter().any(|other| other.cost == hash.cost) {
                of_each_cost.push(hash.clone());
            }
        }
        Ok(Htpasswd { users, of_each_cost })
    }

    /// The users whose hashes are weak, in the order of their names.
    pub(super) fn weak(&self) -> Vec<&str> {
        let weak = self.users.iter().filter(|(_, hash)| hash.cost.is_weak());
        let mut weak: Vec<&str> = weak.map(|(user, _)| &**user).collect();
        weak.sort_unstable();
        weak
    }

    /// Whether the password is right. Takes 5 to 500 ms of processor time by design: not for a worker.
    pub(super) fn verify(&self, user: &str, password: &[u8]) -> bool {
        let own = self.users.get(user);
        if own.is_some_and(|hash| hash.verify(password)) {
            return true;
        }
        self.stand_ins(own).for_each(|hash| {
            hash.verify(password);
        });
        false
    }

    /// The hashes that a wrong password is compared with besides the user's own: one of each other cost.
    fn stand_ins(&self, own: Option<&Hash>) -> impl Iterator<Item = &Hash> {
        let own = own.map(|hash| hash.cost);
        self.of_each_cost.iter().filter(move |hash| Some(hash.cost) != own)
    }
}

impl Hash {
    fn parse(text: &str) -> Result<Self, String> {
        const REMEDY: &str = "replace it with `htpasswd -B`";
        if ["$2y$", "$2b$", "$2a$"].iter().any(|prefix| text.starts_with(prefix)) {
            let cost = text.get(4..6).and_then(|cost| cost.parse::<u32>().ok());
            if text.len() != 60 || text.as_bytes()[6] != b'$' || cost.is_none() {
                return Err(format!("the bcrypt hash is damaged: {REMEDY}"));
            }
            return match cost {
                Some(cost @ 4..=MOST_BCRYPT_COST) => Ok(Hash { text: text.into(), cost: Cost::Bcrypt(cost) }),
                _ => Err(format!("the cost of the bcrypt hash is not from 4 to {MOST_BCRYPT_COST}: {REMEDY} -C 10")),
            };
        }
        if text.starts_with("$argon2id$") {
            let parsed = PasswordHash::new(text).map_err(|e| format!("the argon2id hash is damaged: {e}: {REMEDY}"))?;
            let memory = parsed.params.get_decimal("m").unwrap_or(u32::MAX);
            let times = parsed.params.get_decimal("t").unwrap_or(u32::MAX);
            if memory > MOST_ARGON2_KIB || times > MOST_ARGON2_TIMES || parsed.hash.is_none() {
                return Err(format!(
                    "the argon2id hash takes more than {MOST_ARGON2_KIB} KiB of memory or {MOST_ARGON2_TIMES} iterations, so a few requests could exhaust the machine: lower them, or {REMEDY}"
                ));
            }
            let lanes = parsed.params.get_decimal("p").unwrap_or(1);
            return Ok(Hash { text: text.into(), cost: Cost::Argon2id { memory, times, lanes } });
        }
        if text.starts_with("$apr1$") || text.starts_with("$1$") {
            Md5Crypt::parse(text).ok_or_else(|| format!("the MD5 hash is damaged: {REMEDY}"))?;
            return Ok(Hash { text: text.into(), cost: Cost::Md5 });
        }
        if text.starts_with("{SHA}") {
            sha1_of(text).ok_or_else(|| format!("the SHA-1 hash is damaged: {REMEDY}"))?;
            return Ok(Hash { text: text.into(), cost: Cost::Sha1 });
        }
        let kind = match text {
            _ if text.starts_with("$5$") || text.starts_with("$6$") => "crypt's SHA-2",
            _ if text.starts_with("$argon2") => "argon2i or argon2d",
            _ => "DES crypt, or plain text",
        };
        Err(format!(
            "the password hash is {kind}, which is not supported (only bcrypt, argon2id, MD5 and SHA-1): {REMEDY}"
        ))
    }

    fn verify(&self, password: &[u8]) -> bool {
        match self.cost {
            Cost::Bcrypt(_) => bcrypt::verify(password, &self.text).unwrap_or(false),
            Cost::Argon2id { .. } => PasswordHash::new(&self.text)
                .is_ok_and(|hash| Argon2::default().verify_password(password, &hash).is_ok()),
            Cost::Md5 => Md5Crypt::parse(&self.text).is_some_and(|hash| hash.verify(password)),
            Cost::Sha1 => sha1_of(&self.text).is_some_and(|hash| {
                verify_slices_are_equal(&hash, digest(&SHA1_FOR_LEGACY_USE_ONLY, password).as_ref()).is_ok()
            }),
        }
    }
}

/// The hash of `{SHA}…`. `None`: it is damaged.
fn sha1_of(text: &str) -> Option<Vec<u8>> {
    let hash = BASE64_STANDARD.decode(text.strip_prefix("{SHA}")?).ok()?;
    (hash.len() == SHA1_FOR_LEGACY_USE_ONLY.output_len()).then_some(hash)
}

/// At cost 14 a verification takes about a second. A higher cost would mainly help attackers to keep the server busy.
const MOST_BCRYPT_COST: u32 = 14;

/// Twice the recommendation of RFC 9106 §4 for little memory (64 MiB); more would let a few requests exhaust memory.
const MOST_ARGON2_KIB: u32 = 128 << 10;

/// RFC 9106 §4 recommends 1 or 3 iterations; the bound limits the processor time of one request.
const MOST_ARGON2_TIMES: u32 = 10;

#[cfg(test)]
mod tests {
    use super::*;

    /// The hash of `htpasswd -nbB -C 4 ada secret`.
    fn bcrypt() -> String {
        bcrypt::hash_with_result("secret", 4).unwrap().format_for_version(bcrypt::Version::TwoY)
    }

    fn argon2id(memory: u32) -> String {
        use argon2::PasswordHasher;
        let params = argon2::Params::new(memory, 1, 1, None).unwrap();
        Argon2::new(argon2::Algorithm::Argon2id, argon2::Version::V0x13, params)
            .hash_password(b"secret")
            .unwrap()
            .to_string()
    }

    #[test]
    fn bcrypt_and_argon2id_are_accepted() {
        let text = format!("# users\nada:{}\n\nbob:{}\n", bcrypt(), argon2id(8));
        let users = Htpasswd::parse(&text).unwrap();
        for user in ["ada", "bob"] {
            assert!(users.verify(user, b"secret"), "{user}");
            assert!(!users.verify(user, b"secret2") && !users.verify(user, b""), "{user}");
        }
        assert!(!users.verify("eve", b"secret"));
    }

    #[test]
    fn weak_hashes_are_accepted_and_named() {
        let sha1 = "{SHA}5en6G6MezRroT3XKqkdPOmY/BfQ=";
        let text = format!("eve:{sha1}\nada:$apr1$lZL6Vxci$yAMrxbTXz9GgGyzVmW0Px0\nbob:{}\n", bcrypt());
        let users = Htpasswd::parse(&text).unwrap();
        for user in ["ada", "bob", "eve"] {
            assert!(users.verify(user, b"secret"), "{user}");
            assert!(!users.verify(user, b"secret2") && !users.verify(user, b""), "{user}");
        }
        assert!(!users.verify("cid", b"secret"));
        assert_eq!(users.weak(), ["ada", "eve"]);
    }

    #[test]
    fn a_wrong_password_costs_the_same_for_every_user_and_for_none() {
        let bcrypt5 = bcrypt::hash_with_result("secret", 5).unwrap().format_for_version(bcrypt::Version::TwoB);
        let text = format!("ada:{}\nbob:{}\ncid:{bcrypt5}\ndan:{}\n", bcrypt(), argon2id(8), bcrypt());
        let users = Htpasswd::parse(&text).unwrap();
        let costs = |user: &str| {
            let own = users.users.get(user);
            let mut costs: Vec<String> =
                own.into_iter().chain(users.stand_ins(own)).map(|hash| format!("{:?}", hash.cost)).collect();
            costs.sort();
            costs
        };
        assert_eq!(costs("eve").len(), 3);
        for user in ["ada", "bob", "cid", "dan"] {
            assert_eq!(costs(user), costs("eve"), "{user}");
            assert!(users.verify(user, b"secret") && !users.verify(user, b"wrong"), "{user}");
        }
    }

    #[test]
    fn others_are_refused_with_the_remedy() {
        let damaged = bcrypt()[..50].to_owned();
        let costly = bcrypt().replace("$2y$04$", "$2y$15$");
        let large = argon2id(8).replace("m=8", "m=1048576");
        for (hash, words) in [
            ("$apr1$x$y", "the MD5 hash is damaged"),
            ("{SHA}W6ph5Mm5Pz8=", "the SHA-1 hash is damaged"),
            ("$6$x$y", "SHA-2"),
            ("$argon2i$v=19$m=8,t=1,p=1$c2FsdHNhbHQ$aGFzaGhhc2hoYXNo", "argon2id"),
            ("secret", "plain text"),
            (damaged.as_str(), "damaged"),
            (costly.as_str(), "cost"),
            (large.as_str(), "memory"),
        ] {
            let (line, what) = Htpasswd::parse(&format!("# x\nada:{hash}")).unwrap_err();
            assert!(line == 2 && what.contains(words) && what.contains("htpasswd -B"), "{what}");
        }
        assert!(Htpasswd::parse("ada").unwrap_err().1.contains("user:hash"));
        assert!(Htpasswd::parse("# nobody\n").unwrap_err().1.contains("contains no user"));
        let twice = format!("ada:{0}\nada:{0}", bcrypt());
        assert!(Htpasswd::parse(&twice).unwrap_err().1.contains("twice"));
    }
}
