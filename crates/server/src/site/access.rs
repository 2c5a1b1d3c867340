//! Who may ask at all, by network.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::pattern::Prefix;
use crate::values::{At, Problems};

/// Lets only some networks in; others get 403.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessConfig {
    /// The path that it is for, with all beneath it.
    pub path: At<String>,
    /// Networks that may, for instance `10.0.0.0/8`, `2001:db8::/32` or `192.0.2.7`. Empty: all that `deny` does not name.
    pub allow: Vec<At<String>>,
    /// Networks that may not, even if `allow` names them.
    pub deny: Vec<At<String>>,
}

impl Default for AccessConfig {
    fn default() -> Self {
        AccessConfig { path: "/".to_owned().into(), allow: Vec::new(), deny: Vec::new() }
    }
}

/// The rules of a site. Every rule whose path covers a request must let it in.
#[derive(Debug)]
pub(crate) struct Access(Vec<Rule>);

#[derive(Debug)]
struct Rule {
    path: Prefix,
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

impl Access {
    /// Checks every path and network. `None`: there are no rules.
    pub(crate) fn build(configs: &[AccessConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut rules = Vec::new();
        for config in configs {
            let path = Prefix::build(&config.path, &config.path.span, &format!("{key}.path"), problems);
            let mut networks = |named: &[At<String>], which| {
                let key = format!("{key}.{which}");
                named.iter().filter_map(|text| network(text, &key, problems)).collect::<Vec<_>>()
            };
            let (allow, deny) = (networks(&config.allow, "allow"), networks(&config.deny, "deny"));
            if config.allow.is_empty() && config.deny.is_empty() {
                problems.add(&config.path.span, key, "does nothing: add allow = [\"10.0.0.0/8\"] or deny");
            }
            rules.extend(path.map(|path| Rule { path, allow, deny }));
        }
        (!rules.is_empty()).then_some(Access(rules))
    }

    /// Whether a client may ask for a path (decoded, without slashes at its ends). `None`: a client without an address, on a Unix socket, whom
    /// no network names but those of everybody, `0.0.0.0/0` and `::/0`.
    pub(crate) fn allows(&self, client: Option<IpAddr>, name: &[u8]) -> bool {
        // On a socket for both, IPv4 clients have IPv6 addresses.
        let client = client.map(|address| address.to_canonical());
        let named_by = |network: &IpNet| match client {
            Some(client) => network.contains(&client),
            None => network.prefix_len() == 0,
        };
        let names = |networks: &[IpNet]| networks.iter().any(named_by);
        self.0
            .iter()
            .filter(|rule| rule.path.guards(name))
            .all(|rule| !names(&rule.deny) && (rule.allow.is_empty() || names(&rule.allow)))
    }
}

fn network(text: &At<String>, key: &str, problems: &mut Problems) -> Option<IpNet> {
    let parsed = text.parse::<IpNet>().ok().or_else(|| text.parse::<IpAddr>().ok().map(IpNet::from));
    match parsed {
        Some(network) if network.trunc() == network => return Some(network),
        Some(network) => problems.add(
            &text.span,
            key,
            format!("{} has bits beyond its length: write {} or {}", text.value, network.trunc(), network.addr()),
        ),
        None => {
            let remedy =
                format!("{:?} is no network: write for instance 10.0.0.0/8, 2001:db8::/32 or 192.0.2.7", text.value);
            problems.add(&text.span, key, remedy);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Deserialize)]
    struct File {
        access: Vec<AccessConfig>,
    }

    fn build(text: &str) -> (Option<Access>, Problems) {
        let mut problems = Problems::of_file("f".as_ref(), text);
        let file: File = toml::from_str(text).unwrap();
        (Access::build(&file.access, "site.access", &mut problems), problems)
    }

    #[test]
    fn every_rule_must_let_in() {
        let (access, problems) = build(
            "access = [{ deny = ['192.0.2.0/24'] },\n\
             { path = '/admin/', allow = ['10.0.0.0/8', '2001:db8::/32', '192.0.2.1'], deny = ['10.1.0.0/16'] }]",
        );
        assert!(problems.is_empty(), "{problems}");
        let access = access.unwrap();
        for (client, path, allowed) in [
            ("198.51.100.1", "", true),
            ("198.51.100.1", "admin", false),
            ("198.51.100.1", "admin/x", false),
            ("198.51.100.1", "administrator", true),
            ("10.2.3.4", "admin/x", true),
            ("10.1.3.4", "admin/x", false),
            ("::ffff:10.2.3.4", "admin/x", true),
            ("2001:db8::1", "admin/x", true),
            ("2001:db9::1", "admin/x", false),
            ("192.0.2.1", "admin/x", false),
            ("::ffff:192.0.2.9", "a", false),
        ] {
            assert_eq!(access.allows(client.parse().ok(), path.as_bytes()), allowed, "{client} {path}");
        }
        assert!(access.allows(None, b"a") && !access.allows(None, b"admin"));
        let (nobody, _) = build("access = [{ deny = ['0.0.0.0/0', '::/0'] }]");
        assert!(!nobody.unwrap().allows(None, b"a"), "who denies everybody means them too");
    }

    #[test]
    fn what_is_wrong() {
        for (text, expected) in [
            ("access = [{}]", "f: site.access: does nothing"),
            (
                "access = [{ allow = ['10.0.0.1/8'] }]",
                "f:1: site.access.allow: 10.0.0.1/8 has bits beyond its length: write 10.0.0.0/8 or 10.0.0.1",
            ),
            ("access = [{ deny = ['example.org'] }]", "f:1: site.access.deny: \"example.org\" is no network"),
            ("access = [{ path = 'x', deny = ['::/0'] }]", "f:1: site.access.path: begin it"),
        ] {
            let (_, problems) = build(text);
            assert!(problems.to_string().starts_with(expected), "{text}: {problems}");
        }
        assert!(Access::build(&[], "", &mut Problems::of_arguments()).is_none());
    }
}
