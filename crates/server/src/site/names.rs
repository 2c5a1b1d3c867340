//! Selection of the site for a request by host name.

use std::collections::{BTreeSet, HashMap};

use sealion_http::Status;

use super::{Site, SiteConfig};
use crate::response::Response;
use crate::values::{At, Problems};

/// All sites, found by name.
#[derive(Debug)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    /// Whether each site has names.
    named: Vec<bool>,
    exact: HashMap<Box<str>, usize>,
    /// `example.org` for `*.example.org`.
    wildcard: HashMap<Box<str>, usize>,
    default: Option<usize>,
}

impl Sites {
    /// The URL, and as caches store it: that of its site does, or those of all sites where none has its name.
    pub(crate) fn spellings(&self, url: String) -> BTreeSet<String> {
        let behind_scheme = url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = behind_scheme.split(['/', '?']).next().unwrap_or_default();
        let sites = match self.by_name(host(authority)).or(self.default) {
            Some(number) => &self.sites[number..=number],
            None => &self.sites[..],
        };
        let mut all: BTreeSet<_> = sites.iter().flat_map(|site| site.spellings(&url)).collect();
        all.insert(url);
        all
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.sites.len() > 1
    }

    /// Builds the table from sites and their configurations.
    pub(crate) fn new(sites: Vec<(&SiteConfig, Site)>, problems: &mut Problems) -> Self {
        let mut all = Sites {
            sites: Vec::new(),
            named: Vec::new(),
            exact: HashMap::new(),
            wildcard: HashMap::new(),
            default: None,
        };
        let only = sites.len() == 1;
        for (config, site) in sites {
            let number = all.sites.len();
            for name in &config.names {
                all.add_name(name, number, problems);
            }
            if config.default || only {
                if let Some(other) = all.default {
                    let other = &all.sites[other].name;
                    problems.add(
                        &(0..0),
                        "site.default",
                        format_args!("both {other} and {} are the default: choose one", site.name),
                    );
                }
                all.default = Some(number);
            } else if config.names.is_empty() {
                problems.add(
                    &(0..0),
                    "site.names",
                    "a site has neither names nor `default = true`, so no request can reach it",
                );
            }
            all.sites.push(site);
            all.named.push(!config.names.is_empty());
        }
        all
    }

    fn add_name(&mut self, name: &At<String>, number: usize, problems: &mut Problems) {
        let (table, plain) = match name.strip_prefix("*.") {
            Some(parent) => (&mut self.wildcard, parent),
            None => (&mut self.exact, name.as_str()),
        };
        if !is_host(plain) {
            let hint =
                "is not a host name: write for instance example.org, *.example.org, 192.0.2.1 or [::1], without port";
            problems.add(&name.span, "site.names", format_args!("{:?} {hint}", name.value));
            return;
        }
        if table.insert(plain.trim_end_matches('.').to_ascii_lowercase().into(), number).is_some() {
            problems.add(
                &name.span,
                "site.names",
                format_args!("{} is listed twice: keep it in one site only", name.value),
            );
        }
    }

    /// The site for an authority (`host[:port]`, RFC 9110 §7.2) on a listener; `None` if no site has that name and there is no default,
    /// or if that site does not answer there.
    ///
    /// An exact name takes precedence over a wildcard, a longer wildcard over a shorter one, and any of them over the default.
    pub(crate) fn find(&self, authority: Option<&str>, listener: &str) -> Option<&Site> {
        let number = match authority {
            Some(authority) if !self.exact.is_empty() || !self.wildcard.is_empty() => {
                self.by_name(host(authority)).or(self.default)
            }
            _ => self.default,
        };
        number.map(|number| &self.sites[number]).filter(|site| site.answers_on(listener))
    }

    /// Whether a listener without TLS redirects requests for an authority: a site has that name there, or the default site there has no
    /// names, and hence every name.
    pub(crate) fn redirects(&self, authority: Option<&str>, listener: &str) -> bool {
        let named = authority.and_then(|authority| self.by_name(host(authority)));
        let site = named.or(self.default.filter(|number| !self.named[*number])).map(|number| &self.sites[number]);
        site.is_some_and(|site| site.answers_on(listener))
    }

    /// Whether to omit Server where no site is known: the setting of the default site, or else of the first.
    pub(crate) fn are_anonymous(&self) -> bool {
        let site = self.sites.get(self.default.unwrap_or(0));
        site.is_some_and(Site::is_anonymous)
    }

    /// A plain response with this status, where no site is known.
    pub(crate) fn plain(&self, status: Status) -> Response {
        let mut response = Response::plain(status);
        response.fields.anonymous = self.are_anonymous();
        response
    }

    fn by_name(&self, host: &str) -> Option<usize> {
        // A name has at most 253 octets (RFC 1035 §2.3.4).
        let mut lower = [0; 256];
        let lower = lower.get_mut(..host.len())?;
        lower.copy_from_slice(host.as_bytes());
        lower.make_ascii_lowercase();
        let name = std::str::from_utf8(lower).ok()?;
        let name = name.strip_suffix('.').unwrap_or(name);
        if let Some(number) = self.exact.get(name) {
            return Some(*number);
        }
        let mut rest = name;
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(number) = self.wildcard.get(parent) {
                return Some(*number);
            }
            rest = parent;
        }
        None
    }
}

/// The host of an authority, without the port.
pub(crate) fn host(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => host,
        _ => authority,
    }
}

fn is_host(name: &str) -> bool {
    let bracketed = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    match bracketed {
        Some(address) => address.parse::<std::net::Ipv6Addr>().is_ok(),
        None => {
            let labels = name.strip_suffix('.').unwrap_or(name);
            labels.len() <= 253
                && labels.split('.').all(|label| {
                    (1..=63).contains(&label.len())
                        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
                })
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;

    use super::*;
    use crate::config::Config;
    use crate::files::cache::{CacheLimits, FileCache};
    use crate::site::SiteContext;
    use crate::upstream::Upstreams;

    fn sites(text: &str) -> (Sites, Problems) {
        let (config, mut problems) = Config::parse(Path::new("/x.toml"), text).unwrap();
        let cache: Arc<FileCache> = FileCache::new(CacheLimits::default());
        let built: Vec<_> = config
            .site
            .iter()
            .filter_map(|site| {
                Some((site, site.build(&mut SiteContext::new(&cache, &mut Upstreams::default()), &mut problems)?))
            })
            .collect();
        (Sites::new(built, &mut problems), problems)
    }

    const THREE: &str = "
        [[site]]
        names = ['example.org', 'www.Example.org', '192.0.2.1', '[::1]']
        root = '/'
        [[site]]
        names = ['*.example.org']
        root = '/'
        [[site]]
        names = ['*.deep.example.org', 'last']
        default = true
        root = '/'
    ";

    #[test]
    fn exact_before_wildcard_before_default() {
        let (sites, problems) = sites(THREE);
        assert!(problems.is_empty(), "{problems}");
        for (authority, name) in [
            (Some("example.org"), "example.org"),
            (Some("EXAMPLE.org:8443"), "example.org"),
            (Some("example.org."), "example.org"),
            (Some("www.example.org"), "example.org"),
            (Some("192.0.2.1:443"), "example.org"),
            (Some("[::1]:443"), "example.org"),
            (Some("a.example.org"), "*.example.org"),
            (Some("a.b.example.org"), "*.example.org"),
            (Some("a.deep.example.org"), "*.deep.example.org"),
            (Some("deep.example.org"), "*.example.org"),
            (Some("badexample.org"), "*.deep.example.org"),
            (Some("a.test"), "*.deep.example.org"),
            (Some(""), "*.deep.example.org"),
            (None, "*.deep.example.org"),
        ] {
            assert_eq!(sites.find(authority, "l").unwrap().name, name, "{authority:?}");
        }
        assert!(sites.find(Some(&"a".repeat(9000)), "l").is_some());
    }

    #[test]
    fn several_sites_have_no_implicit_default() {
        let text = "[[site]]\nnames = ['a']\nroot = '/'\n[[site]]\nnames = ['b']\nroot = '/'\n";
        let (sites, problems) = sites(text);
        assert!(problems.is_empty(), "{problems}");
        assert!(sites.find(Some("c"), "l").is_none());
        assert!(sites.find(None, "l").is_none());
    }

    #[test]
    fn a_site_answers_on_its_listeners_only() {
        let text = "
            [[site]]
            names = ['inner']
            root = '/'
            listen = ['127.0.0.1:443', '127.0.0.1:80']
            [[site]]
            names = ['outer']
            root = '/'
            [[site]]
            default = true
            root = '/'
            listen = ['[::]:443']
        ";
        let (sites, problems) = sites(text);
        assert!(problems.is_empty(), "{problems}");
        let name = |authority, listener| sites.find(authority, listener).map(|site| site.name.as_str());
        for (authority, listener, expected) in [
            (Some("inner"), "127.0.0.1:443", Some("inner")),
            (Some("inner"), "127.0.0.1:80", Some("inner")),
            (Some("inner"), "0.0.0.0:443", None),
            // Not the default either: it would say whether the name exists.
            (Some("inner"), "[::]:443", None),
            (Some("outer"), "127.0.0.1:443", Some("outer")),
            (Some("outer"), "0.0.0.0:443", Some("outer")),
            (Some("other"), "[::]:443", Some("default")),
            (Some("other"), "0.0.0.0:443", None),
            (None, "[::]:443", Some("default")),
            (None, "0.0.0.0:443", None),
        ] {
            assert_eq!(name(authority, listener), expected, "{authority:?} {listener}");
            assert_eq!(sites.redirects(authority, listener), expected.is_some(), "{authority:?} {listener}");
        }
    }

    #[test]
    fn a_listener_without_tls_redirects_the_names_of_sites() {
        let (named, _) = sites("[[site]]\nnames = ['a', '*.b']\nroot = '/'");
        for (authority, redirects) in [("a:80", true), ("x.b", true), ("evil.example", false), ("", false)] {
            assert_eq!(named.redirects(Some(authority), "l"), redirects, "{authority}");
        }
        assert!(!named.redirects(None, "l"));
        assert!(sites("[[site]]\nroot = '/'").0.redirects(Some("any.example"), "l"));
        let (two, _) = sites("[[site]]\nnames = ['a']\nroot = '/'\n[[site]]\ndefault = true\nroot = '/'");
        assert!(two.redirects(Some("any.example"), "l"), "the default site has no names, and so every name");
    }

    #[test]
    fn configuration_errors() {
        for (text, word) in [
            ("[[site]]\nnames = ['a:443']\nroot = '/'", "not a host name"),
            ("[[site]]\nnames = ['a.*.b']\nroot = '/'", "not a host name"),
            ("[[site]]\nnames = ['https://a']\nroot = '/'", "not a host name"),
            ("[[site]]\nnames = ['a', 'A']\nroot = '/'", "listed twice"),
            ("[[site]]\nroot = '/'\n[[site]]\nnames = ['a']\nroot = '/'", "no request can reach it"),
            ("[[site]]\nnames=['a']\ndefault = true\nroot = '/'\n[[site]]\ndefault = true\nroot = '/'", "choose one"),
            ("[[site]]\nnames = ['a']", "site.root: is missing for site a"),
            ("[[site]]\nnames = ['a']\nroot = '/no/such'", "/x.toml:3: site.root: cannot serve /no/such"),
        ] {
            let (_, problems) = sites(text);
            assert!(problems.to_string().contains(word), "{word:?} is not in {problems}");
        }
    }
}
