//! Access control by client network.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::values::{At, Problems, parse_network};

/// Access by client network. Other clients get 403.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessConfig {
    /// Networks to allow, for instance `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`. Empty: all that `deny` does not list.
    pub allow: Vec<At<String>>,
    /// Networks to deny, even if `allow` lists them.
    pub deny: Vec<At<String>>,
}

/// Which guards of a route a request must pass.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Satisfy {
    /// Networks, password and other servers.
    #[default]
    All,
    /// Networks, or else password and other servers: clients of the networks need no password.
    Any,
}

/// The networks whose clients a route admits.
#[derive(Debug)]
pub(crate) struct Access {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

impl AccessConfig {
    /// Validates the networks. `None`: all clients are admitted.
    pub(crate) fn build(&self, key: &str, problems: &mut Problems) -> Option<Access> {
        let mut networks = |named: &[At<String>], which| {
            let key = format!("{key}.{which}");
            named.iter().filter_map(|text| network(text, &key, problems)).collect::<Vec<_>>()
        };
        let access = Access { allow: networks(&self.allow, "allow"), deny: networks(&self.deny, "deny") };
        (!self.allow.is_empty() || !self.deny.is_empty()).then_some(access)
    }
}

impl Access {
    /// Whether a client is admitted. `None`: a client on a Unix socket, without an address; it matches only `0.0.0.0/0` and `::/0`.
    pub(crate) fn allows(&self, client: Option<IpAddr>) -> bool {
        // On a dual-stack socket, IPv4 clients have IPv4-mapped addresses.
        let client = client.map(|address| address.to_canonical());
        !names(&self.deny, client) && (self.allow.is_empty() || names(&self.allow, client))
    }
}

/// Whether one of the networks has the client. `None`: a client without an address, which only `0.0.0.0/0` and `::/0` have.
pub(super) fn names(networks: &[IpNet], client: Option<IpAddr>) -> bool {
    networks.iter().any(|network| match client {
        Some(client) => network.contains(&client),
        None => network.prefix_len() == 0,
    })
}

/// Reads a network of the configuration.
pub(super) fn network(text: &At<String>, key: &str, problems: &mut Problems) -> Option<IpNet> {
    match parse_network(text) {
        Some(network) if network.trunc() == network => return Some(network),
        Some(network) => problems.add(
            &text.span,
            key,
            format!(
                "{} has bits beyond its prefix length: write {} or {}",
                text.value,
                network.trunc(),
                network.addr()
            ),
        ),
        None => {
            let remedy =
                format!("{:?} is not a network: write for instance 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7", text.value);
            problems.add(&text.span, key, remedy);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn build(text: &str) -> (Option<Access>, Problems) {
        let mut problems = Problems::of_file("f".as_ref(), text);
        (toml::from_str::<AccessConfig>(text).unwrap().build("site.access", &mut problems), problems)
    }

    #[test]
    fn networks_are_denied_before_others_are_allowed() {
        let (access, problems) =
            build("allow = ['10.0.0.0/8', '2001:db8::/32', '192.0.2.1']\ndeny = ['10.1.0.0/16', '192.0.2.0/24']");
        assert!(problems.is_empty(), "{problems}");
        let access = access.unwrap();
        for (client, allowed) in [
            ("198.51.100.1", false),
            ("10.2.3.4", true),
            ("10.1.3.4", false),
            ("::ffff:10.2.3.4", true),
            ("2001:db8::1", true),
            ("2001:db9::1", false),
            ("192.0.2.1", false),
            ("::ffff:192.0.2.9", false),
        ] {
            assert_eq!(access.allows(client.parse().ok()), allowed, "{client}");
        }
        assert!(!access.allows(None));
        let others = build("deny = ['192.0.2.0/24']").0.unwrap();
        assert!(others.allows("198.51.100.1".parse().ok()) && others.allows(None));
        let closed = build("deny = ['0.0.0.0/0', '::/0']").0.unwrap();
        assert!(!closed.allows(None), "a rule that denies all networks covers Unix sockets too");
    }

    #[test]
    fn configuration_errors() {
        for (text, expected) in [
            (
                "allow = ['10.0.0.1/8']",
                "f:1: site.access.allow: 10.0.0.1/8 has bits beyond its prefix length: write 10.0.0.0/8 or 10.0.0.1",
            ),
            ("deny = ['example.org']", "f:1: site.access.deny: \"example.org\" is not a network"),
        ] {
            let (_, problems) = build(text);
            assert!(problems.to_string().starts_with(expected), "{text}: {problems}");
        }
        assert!(build("").0.is_none());
    }
}
