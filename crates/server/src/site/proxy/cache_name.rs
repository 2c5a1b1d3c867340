//! The name of a rule in keys of the cache.

use aws_lc_rs::digest::{Context, SHA256};

use super::ProxyConfig;
use crate::site::fastcgi::Scripts;

/// The keys of a rule that change the server's response for a URL. Two rules that differ in one of them share no stored response.
pub(super) struct CacheName {
    digest: Context,
    has_parts: bool,
}

impl CacheName {
    /// `directory`: that `strip_prefix` removes.
    pub(super) fn of(config: &ProxyConfig, directory: Option<&[u8]>, scripts: Option<&Scripts>) -> Self {
        let mut name = CacheName { digest: Context::new(&SHA256), has_parts: false };
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
            name.add(&field.name.to_ascii_lowercase(), field.value.reveal().as_bytes());
        }
        if let (Some(scripts), Some(fastcgi)) = (scripts, &config.fastcgi) {
            name.add("root", &scripts.root_path);
            name.add("index", fastcgi.index.as_bytes());
            name.add("front", fastcgi.front.as_ref().map_or("", |front| front.as_str()).as_bytes());
            name.add("only_front", if fastcgi.only_front { b"true" } else { b"false" });
            fastcgi.extensions.iter().for_each(|extension| name.add("extension", extension.as_bytes()));
            fastcgi.params.iter().for_each(|(param, value)| name.add(param, value.reveal().as_bytes()));
        }
        if let Some(uwsgi) = &config.uwsgi {
            name.add("modifiers", &[uwsgi.modifier1, uwsgi.modifier2]);
            uwsgi.params.iter().for_each(|(param, value)| name.add(param, value.reveal().as_bytes()));
        }
        if let Some(cache) = &config.cache {
            cache.selecting().for_each(|(key, text)| name.add(key, text.as_bytes()));
        }
        name
    }

    fn add(&mut self, key: &str, value: &[u8]) {
        self.has_parts = true;
        for part in [key.as_bytes(), value] {
            // With its length, no part goes on as another.
            self.digest.update(&(part.len() as u64).to_le_bytes());
            self.digest.update(part);
        }
    }

    /// The name of the upstream, with the listeners of a site that names them, and a digest of the keys that are set.
    pub(super) fn finish(self, upstream: &str, listeners: &str) -> Box<str> {
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
