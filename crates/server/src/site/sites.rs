//! Selection of the site for a request by host name and listener.

use std::collections::BTreeSet;
use std::sync::Arc;

use sealion_http::Status;

use super::Site;
use super::hosts::Hosts;
use crate::response::Response;

/// All sites, found by listener and name.
#[derive(Debug)]
pub(crate) struct Sites {
    sites: Vec<Site>,
    /// By the place of the listener.
    hosts: Vec<Arc<Hosts>>,
}

impl Sites {
    /// `hosts`: the names of each listener, which refer to the places of `sites`.
    pub(crate) fn new(sites: Vec<Site>, hosts: Vec<Arc<Hosts>>) -> Self {
        Sites { sites, hosts }
    }

    /// The URL, and its spellings in the caches: the caches of sites with its name, or of all sites if no site has the name.
    pub(crate) fn spellings(&self, url: String) -> BTreeSet<String> {
        let behind_scheme = url.split_once("://").map_or("", |(_, rest)| rest);
        let authority = behind_scheme.split(['/', '?']).next().unwrap_or_default();
        let name = host(authority);
        let places: BTreeSet<usize> =
            self.hosts.iter().filter_map(|hosts| hosts.find(name).or(hosts.default_site())).collect();
        let is_meant = |place: usize| places.is_empty() || places.contains(&place);
        let sites = self.sites.iter().enumerate().filter(|(place, _)| is_meant(*place)).map(|(_, site)| site);
        let mut all: BTreeSet<_> = sites.flat_map(|site| site.spellings(&url)).collect();
        all.insert(url);
        all
    }

    /// The names that keys of the cache have for upstreams.
    pub(crate) fn cache_names(&self) -> BTreeSet<String> {
        self.sites.iter().flat_map(Site::cache_names).map(str::to_owned).collect()
    }

    /// Whether there is more than one.
    pub(crate) fn are_several(&self) -> bool {
        self.sites.len() > 1
    }

    /// The site for an authority (`host[:port]`, RFC 9110 §7.2) on the listener at this place; `None` if no site there has that name and there is no default.
    pub(crate) fn find(&self, authority: Option<&str>, listener: usize) -> Option<&Site> {
        self.at(self.place(authority, listener)?)
    }

    /// The place of the same site, for [`Self::at`].
    pub(crate) fn place(&self, authority: Option<&str>, listener: usize) -> Option<usize> {
        let hosts = self.hosts.get(listener)?;
        let named = authority.and_then(|authority| hosts.find(host(authority)));
        named.or(hosts.default_site())
    }

    /// The place of the site with a name of its own, as in the log.
    pub(crate) fn named(&self, name: &str) -> Option<usize> {
        self.sites.iter().position(|site| *site.name == *name)
    }

    /// The site at a place.
    pub(crate) fn at(&self, place: usize) -> Option<&Site> {
        self.sites.get(place)
    }

    /// Whether a site has the name of an authority on a listener. A default site without names has every name.
    pub(crate) fn has_name(&self, authority: Option<&str>, listener: usize) -> bool {
        let Some(hosts) = self.hosts.get(listener) else { return false };
        let is_named = authority.is_some_and(|authority| hosts.find(host(authority)).is_some());
        is_named || hosts.default_site().is_some_and(|place| !self.sites[place].has_names)
    }

    /// A plain response with this status, where no site is known on a listener. The default site there, or else the first, says whether it has Server.
    pub(crate) fn plain(&self, status: Status, listener: usize) -> Response {
        let default = self.hosts.get(listener).and_then(|hosts| hosts.default_site()).unwrap_or(0);
        let mut response = Response::plain(status);
        response.fields.anonymous = self.sites.get(default).is_some_and(Site::is_anonymous);
        response
    }
}

/// The host of an authority, without the port.
pub(crate) fn host(authority: &str) -> &str {
    // A port begins behind the last byte that is no digit.
    let digits = authority.bytes().rev().take_while(u8::is_ascii_digit).count();
    authority[..authority.len() - digits].strip_suffix(':').unwrap_or(authority)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Config;
    use crate::files::cache::{CacheLimits, FileCache};
    use crate::site::SiteContext;
    use crate::upstream::Upstreams;
    use crate::values::Problems;

    fn sites(text: &str) -> (Sites, Problems) {
        sites_on(text, &["l"])
    }

    fn sites_on(text: &str, listeners: &[&str]) -> (Sites, Problems) {
        let (config, mut problems) = Config::parse(Path::new("/x.toml"), text).unwrap();
        let cache: Arc<FileCache> = FileCache::new(CacheLimits::default());
        let (configs, built): (Vec<_>, Vec<_>) = config
            .site
            .iter()
            .filter_map(|site| {
                Some((site, site.build(&mut SiteContext::new(&cache, &mut Upstreams::default()), &mut problems)?))
            })
            .unzip();
        let listeners: Vec<String> = listeners.iter().map(|name| (*name).to_owned()).collect();
        let hosts = Hosts::of_listeners(&configs, &listeners, &mut problems);
        (Sites::new(built, hosts), problems)
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
            assert_eq!(sites.find(authority, 0).unwrap().name, name, "{authority:?}");
        }
        assert!(sites.find(Some(&"a".repeat(9000)), 0).is_some());
    }

    #[test]
    fn several_sites_have_no_implicit_default() {
        let text = "[[site]]\nnames = ['a']\nroot = '/'\n[[site]]\nnames = ['b']\nroot = '/'\n";
        let (sites, problems) = sites(text);
        assert!(problems.is_empty(), "{problems}");
        assert!(sites.find(Some("c"), 0).is_none());
        assert!(sites.find(None, 0).is_none());
    }

    #[test]
    fn a_name_belongs_to_a_site_on_each_listener() {
        let text = "
            [[site]]
            names = ['both', 'secure']
            root = '/'
            [[site]]
            names = ['plain', 'both', '*.both']
            root = '/'
            listen = ['[::]:80', 'unix:/s']
            default = ['[::]:80']
            [[site]]
            names = ['inner', 'plain']
            root = '/'
            default = true
            listen = ['127.0.0.1:443']
        ";
        let (sites, problems) = sites_on(text, &["[::]:443", "[::]:80", "127.0.0.1:443", "unix:/s"]);
        assert!(problems.is_empty(), "{problems}");
        for (authority, expected) in [
            // A site that names the listener goes before a site that is served everywhere.
            ("both", ["both", "plain", "both", "plain"]),
            ("secure", ["both"; 4]),
            ("plain", ["", "plain", "inner", "plain"]),
            ("x.both", ["", "plain", "inner", "plain"]),
            // Elsewhere the name is unknown: the default site there answers it, if there is one.
            ("inner", ["", "plain", "inner", ""]),
            ("other", ["", "plain", "inner", ""]),
        ] {
            let found = [0, 1, 2, 3].map(|place| sites.find(Some(authority), place).map_or("", |site| &*site.name));
            assert_eq!(found, expected, "{authority}");
        }
        assert_eq!(sites.find(None, 2).unwrap().name, "inner");
        assert!(sites.find(None, 0).is_none() && sites.find(Some("both"), 4).is_none());
        assert_eq!(sites.spellings("https://both/x".to_owned()).len(), 1);
    }

    #[test]
    fn wildcards_at_the_end_and_expressions_come_after_wildcards_at_the_beginning() {
        let text = r"
            [[site]]
            names = ['~ ^a.*$']
            root = '/'
            [[site]]
            names = ['www.example.*', 'www.*']
            root = '/'
            [[site]]
            names = ['*.org', 'last']
            root = '/'
            [[site]]
            names = ['~* ^(?<user>[A-Z]+)\.example\.net$', '~ ^abc$']
            root = '/'
            default = true
        ";
        let (sites, problems) = sites(text);
        assert!(problems.is_empty(), "{problems}");
        for (authority, name) in [
            ("www.example.org", "*.org"),
            ("www.example.com", "www.example.*"),
            ("WWW.EXAMPLE.co.uk:443", "www.example.*"),
            ("www.other.com", "www.example.*"),
            ("www", "~* ^(?<user>[A-Z]+)\\.example\\.net$"),
            ("abc", "~ ^a.*$"),
            ("a.example.net", "~ ^a.*$"),
            ("b.example.net", "~* ^(?<user>[A-Z]+)\\.example\\.net$"),
        ] {
            assert_eq!(sites.find(Some(authority), 0).unwrap().name, name, "{authority}");
        }
    }

    #[test]
    fn an_expression_of_a_site_that_names_its_listener_goes_first() {
        let site =
            |name: &str, listen: &str| format!("[[site]]\nnames = ['first-of-{listen}', '~ {name}']\nroot = '/'\n");
        let text =
            [site("^n[0-9]+$", ""), site("^n", "a") + "listen = ['a']\n", site("^n[0-9]+$", "b") + "listen = ['b']\n"];
        let (found, problems) = sites_on(&text.concat(), &["a", "b", "c"]);
        assert!(problems.is_empty(), "{problems}");
        for (listener, name) in [(0, "first-of-a"), (1, "first-of-b"), (2, "first-of-")] {
            assert_eq!(found.find(Some("n1"), listener).unwrap().name, name);
        }
        let (_, problems) = sites("[[site]]\nnames = ['~ ^a']\nroot = '/'\n[[site]]\nnames = ['~ ^a']\nroot = '/'");
        assert!(problems.to_string().contains("/x.toml:5: site.names: ~ ^a is listed twice"), "{problems}");
        let twice =
            "[[site]]\nnames = ['a']\nroot = '/'\ndefault = true\n[[site]]\nnames = ['b']\nroot = '/'\ndefault = true";
        let (_, problems) = sites(twice);
        assert!(problems.to_string().contains("/x.toml:6: site.default: both"), "{problems}");
    }

    #[test]
    fn a_default_site_without_names_has_every_name() {
        let (named, _) = sites("[[site]]\nnames = ['a', '*.b']\nroot = '/'");
        for (authority, has) in [("a:80", true), ("x.b", true), ("evil.example", false), ("", false)] {
            assert_eq!(named.has_name(Some(authority), 0), has, "{authority}");
        }
        assert!(!named.has_name(None, 0));
        assert!(sites("[[site]]\nroot = '/'").0.has_name(Some("any.example"), 0));
        let (two, _) = sites("[[site]]\nnames = ['a']\nroot = '/'\n[[site]]\ndefault = true\nroot = '/'");
        assert!(two.has_name(Some("any.example"), 0), "the default site has no names, and so every name");
    }

    #[test]
    fn listeners_with_the_same_sites_share_a_table() {
        let text = "[[site]]\nnames = ['a']\nroot = '/'\n[[site]]\nnames = ['a']\nroot = '/'\nlisten = ['80']";
        let (sites, problems) = sites_on(text, &["1", "80", "2"]);
        assert!(problems.is_empty(), "{problems}");
        assert!(Arc::ptr_eq(&sites.hosts[0], &sites.hosts[2]) && !Arc::ptr_eq(&sites.hosts[0], &sites.hosts[1]));
    }

    #[test]
    fn configuration_errors() {
        for (text, word) in [
            ("[[site]]\nnames = ['a:443']\nroot = '/'", "not a host name"),
            ("[[site]]\nnames = ['a.*.b']\nroot = '/'", "not a host name"),
            ("[[site]]\nnames = ['https://a']\nroot = '/'", "not a host name"),
            ("[[site]]\nnames = ['a', 'A']\nroot = '/'", "listed twice"),
            (
                "[[site]]\nnames = ['a']\nroot = '/'\nlisten = ['l']\n[[site]]\nnames = ['a']\nlisten = ['l', 'm']\nroot = '/'",
                "/x.toml:6: site.names: a is listed twice",
            ),
            ("[[site]]\nnames = ['~ (']\nroot = '/'", "/x.toml:2: site.names: is not a regular expression"),
            (
                "[[site]]\nnames=['a']\ndefault = true\nroot = '/'\n[[site]]\nnames=['b']\ndefault = ['l']\nroot = '/'",
                "both a and b are the default",
            ),
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
