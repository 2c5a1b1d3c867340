//! Maintenance: a site that answers 503 for a while.

use std::net::IpAddr;
use std::time::Duration;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::access::{names, network};
use super::pages::Page;
use crate::files::resolve::Root;
use crate::values::{At, Problems, Time};

/// Maintenance: every request is answered 503. `maintenance = true` for the defaults.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MaintenanceConfig {
    /// Page to send: a path beneath the root [default: the page of `error_pages` for 503, else the server's own text]
    pub page: Option<At<String>>,
    /// Time after which clients are asked to come back (Retry-After).
    // Short enough that visitors and crawlers are back soon after work that ended early.
    #[default(Time(Duration::from_secs(600)).into())]
    pub retry_after: At<Time>,
    /// Networks whose clients see the site, with all its guards.
    pub allow: Vec<At<String>>,
}

/// A site under maintenance.
#[derive(Debug)]
pub(crate) struct Maintenance {
    page: Option<Page>,
    /// Seconds.
    pub(super) retry_after: u32,
    allow: Vec<IpNet>,
}

impl Maintenance {
    /// Validates the page and the networks.
    pub(super) fn build(config: &MaintenanceConfig, root: &Root, key: &str, problems: &mut Problems) -> Self {
        let page = config.page.as_ref();
        let key_of = |name: &str| format!("{key}.{name}");
        let seconds = config.retry_after.0.as_secs();
        if seconds == 0 {
            let what = "is less than a second: write for instance \"10m\"";
            problems.add(&config.retry_after.span, &key_of("retry_after"), what);
        }
        let allow = config.allow.iter().filter_map(|text| network(text, &key_of("allow"), problems)).collect();
        Maintenance {
            page: page.and_then(|page| Page::build(page, root, &key_of("page"), problems)),
            retry_after: u32::try_from(seconds).unwrap_or(u32::MAX),
            allow,
        }
    }

    /// Whether this client sees the site. `None`: a client on a Unix socket, without an address.
    pub(super) fn admits(&self, client: Option<IpAddr>) -> bool {
        names(&self.allow, client.map(|address| address.to_canonical()))
    }

    pub(super) fn page(&self) -> Option<&Page> {
        self.page.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_say_what_to_write() {
        let root = Root::empty().unwrap();
        for (text, expected) in [
            ("retry_after = '10m'\nallow = ['10.0.0.0/8']", ""),
            ("retry_after = '0s'", "f:1: maintenance.retry_after: is less than a second"),
            ("allow = ['office']", "f:1: maintenance.allow: \"office\" is not a network"),
            ("page = '/503.html'", "f:1: maintenance.page: no such file"),
        ] {
            let mut problems = Problems::of_file("f".as_ref(), text);
            Maintenance::build(&toml::from_str(text).unwrap(), &root, "maintenance", &mut problems);
            assert_eq!(problems.is_empty(), expected.is_empty());
            assert!(problems.to_string().starts_with(expected), "{problems}");
        }
    }

    #[test]
    fn clients_of_the_allowed_networks_are_admitted() {
        let config: MaintenanceConfig = toml::from_str("allow = ['10.0.0.0/8']").unwrap();
        let allowing =
            |config| Maintenance::build(config, &Root::empty().unwrap(), "maintenance", &mut Problems::of_arguments());
        let maintenance = allowing(&config);
        for (address, admitted) in [("10.1.2.3", true), ("::ffff:10.1.2.3", true), ("192.0.2.1", false)] {
            assert_eq!(maintenance.admits(address.parse().ok()), admitted, "{address}");
        }
        assert!(!maintenance.admits(None));
        assert!(!allowing(&MaintenanceConfig::default()).admits("10.1.2.3".parse().ok()), "nobody is listed");
    }
}
