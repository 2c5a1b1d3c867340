//! The name of a rule in keys of the cache.

use std::collections::HashMap;
use std::sync::LazyLock;

use argon2::{Algorithm, Argon2, Params, Version};
use aws_lc_rs::digest::{Context, SHA256, digest};

use super::ProxyConfig;
use crate::site::fastcgi::Scripts;
use crate::values::Mutex;

/// The keys of a rule that change the server's response for a URL. Two rules that differ in one of them share no stored response.
///
/// The name stands in the files of the cache, and a value may be a secret. A digest of values alone would tell whether a guess is right; [`stretched`] makes
/// a guess as dear as a guess at the hash of a password.
pub(super) struct CacheName {
    digest: Context,
    has_parts: bool,
    /// The values that may be secret, with their keys.
    secrets: Vec<u8>,
}

impl CacheName {
    /// `directory`: that `strip_prefix` removes.
    pub(super) fn of(config: &ProxyConfig, directory: Option<&[u8]>, scripts: Option<&Scripts>) -> Self {
        let mut name = CacheName { digest: Context::new(&SHA256), has_parts: false, secrets: Vec::new() };
        if let Some(directory) = directory.filter(|directory| *config.strip_prefix && !directory.is_empty()) {
            name.add("strip_prefix", directory);
        }
        if let Some(to) = config.to_prefix.as_ref().map(|to| to.trim_end_matches('/')).filter(|to| !to.is_empty()) {
            name.add("to_prefix", to.as_bytes());
        }
        if let Some(host) = config.host.as_ref().filter(|host| host.as_str() != "client") {
            name.add("host", host.as_bytes());
        }
        if !config.pass_fields {
            name.add("pass_fields", b"false");
        }
        for field in config.request_headers.iter() {
            name.add_secret(&field.name.to_ascii_lowercase(), field.value.reveal());
        }
        if let (Some(scripts), Some(fastcgi)) = (scripts, &config.fastcgi) {
            name.add("root", &scripts.root_path);
            name.add("index", fastcgi.index.as_bytes());
            name.add("front", fastcgi.front.as_ref().map_or("", |front| front.as_str()).as_bytes());
            name.add("only_front", if fastcgi.only_front { b"true" } else { b"false" });
            fastcgi.extensions.iter().for_each(|extension| name.add("extension", extension.as_bytes()));
            fastcgi.params.iter().for_each(|(param, value)| name.add_secret(param, value.reveal()));
        }
        if let Some(uwsgi) = &config.uwsgi {
            name.add("modifiers", &[uwsgi.modifier1, uwsgi.modifier2]);
            uwsgi.params.iter().for_each(|(param, value)| name.add_secret(param, value.reveal()));
        }
        if let Some(cache) = &config.cache {
            cache.selecting().for_each(|(key, text)| name.add(key, text.as_bytes()));
        }
        name
    }

    fn add(&mut self, key: &str, value: &[u8]) {
        self.has_parts = true;
        parts(key, value).into_iter().for_each(|part| self.digest.update(&part));
    }

    fn add_secret(&mut self, key: &str, value: &str) {
        self.secrets.extend(parts(key, value.as_bytes()).concat());
    }

    /// The name of the upstream, with the listeners of a site that names them, and a digest of the keys that are set.
    pub(super) fn finish(mut self, upstream: &str, listeners: &str) -> Box<str> {
        if !self.secrets.is_empty() {
            self.add("secrets", &stretched(&self.secrets));
        }
        let mut name = upstream.to_owned();
        if !listeners.is_empty() {
            name.push(' ');
            name.push_str(listeners);
        }
        if self.has_parts {
            name.push_str(" #");
            name.extend(self.digest.finish().as_ref()[..8].iter().map(|byte| format!("{byte:02x}")));
        }
        name.into()
    }
}

/// A key and its value. With their lengths, no part goes on as another.
fn parts(key: &str, value: &[u8]) -> [Vec<u8>; 2] {
    [key.as_bytes(), value].map(|part| [&(part.len() as u64).to_le_bytes()[..], part].concat())
}

/// Bytes that secrets alone have, and that take long to compute. Each is computed once in a process, whatever number of rules and reloads has it.
fn stretched(secrets: &[u8]) -> [u8; 16] {
    static KNOWN: LazyLock<Mutex<HashMap<[u8; 32], [u8; 16]>>> = LazyLock::new(Mutex::default);
    let mut key = [0; 32];
    key.copy_from_slice(digest(&SHA256, secrets).as_ref());
    let mut known = KNOWN.lock();
    *known.entry(key).or_insert_with(|| {
        let mut bytes = [0; 16];
        let params = Params::new(MEMORY_KIB, ITERATIONS, 1, Some(bytes.len())).unwrap_or_default();
        let argon2 = Argon2::new(Algorithm::Argon2id, Version::V0x13, params);
        if argon2.hash_password_into(secrets, SALT, &mut bytes).is_err() {
            bytes.copy_from_slice(&key[..16]);
        }
        bytes
    })
}

/// The cost of a guess. INHERITED: the least that OWASP's cheat sheet on storing passwords names for argon2id.
const MEMORY_KIB: u32 = 7 << 10;
const ITERATIONS: u32 = 5;

/// Equal in all processes: they share directories.
const SALT: &[u8] = b"sealion cache name";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::site::proxy::config::FieldRule;
    use crate::site::uwsgi::UwsgiConfig;

    fn name(config: &ProxyConfig, directory: Option<&[u8]>) -> Box<str> {
        CacheName::of(config, directory, None).finish("app", "")
    }

    #[test]
    fn a_rule_that_changes_no_request_has_the_name_of_its_upstream() {
        let config = ProxyConfig { host: Some("client".to_owned().into()), ..ProxyConfig::default() };
        assert_eq!(&*name(&config, Some(b"api")), "app");
        assert_eq!(&*CacheName::of(&config, None, None).finish("app", "127.0.0.1:443"), "app 127.0.0.1:443");
    }

    /// A digest of the parts alone would tell at once whether a guess is right.
    #[test]
    fn a_secret_stands_behind_a_slow_hash() {
        let rule = FieldRule { name: "X-Key".to_owned(), value: "guess".to_owned().into() };
        let config = ProxyConfig { request_headers: vec![rule].into(), ..ProxyConfig::default() };
        let mut fast = CacheName { digest: Context::new(&SHA256), has_parts: false, secrets: Vec::new() };
        fast.add("x-key", b"guess");
        assert_ne!(name(&config, None), fast.finish("app", ""));
        assert_eq!(name(&config, None), name(&config, None));
    }

    #[test]
    fn rules_that_change_requests_differently_have_different_names() {
        let field = |name: &str, value: &str| {
            let rule = FieldRule { name: name.to_owned(), value: value.to_owned().into() };
            ProxyConfig { request_headers: vec![rule].into(), ..ProxyConfig::default() }
        };
        let uwsgi = |modifier1| {
            let uwsgi = UwsgiConfig { modifier1, ..UwsgiConfig::default() };
            ProxyConfig { uwsgi: Some(uwsgi.into()), ..ProxyConfig::default() }
        };
        let strips = ProxyConfig { strip_prefix: true.into(), ..ProxyConfig::default() };
        let all = [
            name(&ProxyConfig::default(), None),
            name(&ProxyConfig { host: Some("a.test".to_owned().into()), ..ProxyConfig::default() }, None),
            name(&ProxyConfig { to_prefix: Some("/a.test".to_owned().into()), ..ProxyConfig::default() }, None),
            name(&ProxyConfig { pass_fields: false, ..ProxyConfig::default() }, None),
            name(&field("X-A", "b"), None),
            name(&field("X-Ab", ""), None),
            name(&strips, Some(b"a")),
            name(&strips, Some(b"b")),
            name(&uwsgi(0), None),
            name(&uwsgi(5), None),
        ];
        let mut different = all.to_vec();
        different.sort();
        different.dedup();
        assert_eq!(different.len(), all.len(), "{all:?}");
        assert_eq!(name(&field("x-a", "b"), None), all[4]);
    }
}
