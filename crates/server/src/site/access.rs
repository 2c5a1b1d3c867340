//! Access control by client network.

use std::net::IpAddr;

use ipnet::IpNet;
use schemars::JsonSchema;
use sealion_http::path::SitePath;
use serde::{Deserialize, Serialize};

use super::pattern::{Case, Guarded, PathRegex, Prefix};
use crate::values::{At, Problems, parse_network};

/// Access by client network. Other clients get 403. Every rule that covers a path must allow the request.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessConfig {
    /// Path to protect, with everything beneath it [default: `/`, unless `regex` is given]
    pub path: Option<At<String>>,
    /// Regular expression for the decoded paths to protect, instead of `path`. It matches octets, anywhere in the path; anchor it with
    /// `^` and `$`. The file that is sent must pass too: an index, a rewritten path, the fallback, a compressed sibling.
    pub regex: Option<At<String>>,
    /// Whether case is ignored, for applications and file systems that do: `/admin/` then covers `/ADMIN/` too.
    pub ignore_case: bool,
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

/// The access rules of a site. Every rule whose path covers a request must allow it.
#[derive(Debug)]
pub(crate) struct Access {
    by_prefix: Vec<(Prefix, Networks)>,
    by_regex: Vec<(PathRegex, Networks)>,
}

#[derive(Debug)]
struct Networks {
    allow: Vec<IpNet>,
    deny: Vec<IpNet>,
}

impl Access {
    /// Validates paths and networks. `None`: there are no rules.
    pub(crate) fn build(configs: &[AccessConfig], key: &str, problems: &mut Problems) -> Option<Self> {
        let mut access = Access { by_prefix: Vec::new(), by_regex: Vec::new() };
        for config in configs {
            let case = Case::from_key(config.ignore_case);
            let paths = Guarded::build(config.path.as_ref(), config.regex.as_ref(), case, key, problems);
            let mut networks = |named: &[At<String>], which| {
                let key = format!("{key}.{which}");
                named.iter().filter_map(|text| network(text, &key, problems)).collect::<Vec<_>>()
            };
            let networks = Networks { allow: networks(&config.allow, "allow"), deny: networks(&config.deny, "deny") };
            if config.allow.is_empty() && config.deny.is_empty() {
                let span = config.path.as_ref().or(config.regex.as_ref()).map_or(0..0, |text| text.span.clone());
                problems.add(&span, key, "has no effect: add allow = [\"10.0.0.0/8\"] or deny");
            }
            match paths {
                Some(Guarded::Beneath(prefix)) => access.by_prefix.push((prefix, networks)),
                Some(Guarded::Matching(regex)) => access.by_regex.push((regex, networks)),
                None => {}
            }
        }
        (!configs.is_empty()).then_some(access)
    }

    /// Whether a rule names its paths by an expression.
    pub(super) fn has_expressions(&self) -> bool {
        !self.by_regex.is_empty()
    }

    /// Whether a client may access a path. `None`: a client on a Unix socket, without an address; it matches only `0.0.0.0/0` and
    /// `::/0`.
    pub(crate) fn allows(&self, client: Option<IpAddr>, path: &SitePath<'_>) -> bool {
        // On a dual-stack socket, IPv4 clients have IPv4-mapped addresses.
        let client = client.map(|address| address.to_canonical());
        let name = path.as_bytes();
        if !self.by_prefix.iter().all(|(prefix, networks)| !prefix.guards(name) || networks.allow(client)) {
            return false;
        }
        if self.by_regex.is_empty() {
            return true;
        }
        let full = path.full();
        self.by_regex.iter().all(|(regex, networks)| networks.allow(client) || !regex.guards(&full))
    }
}

impl Networks {
    fn allow(&self, client: Option<IpAddr>) -> bool {
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

    #[derive(Deserialize)]
    struct File {
        access: Vec<AccessConfig>,
    }

    fn build(text: &str) -> (Option<Access>, Problems) {
        let mut problems = Problems::of_file("f".as_ref(), text);
        let file: File = toml::from_str(text).unwrap();
        (Access::build(&file.access, "site.access", &mut problems), problems)
    }

    fn site_path(name: &str) -> SitePath<'static> {
        SitePath::parse("/", false).unwrap().child(name)
    }

    #[test]
    fn a_rule_by_regex_is_added_to_those_by_path() {
        let (access, problems) = build(
            "access = [{ path = '/in/', allow = ['10.0.0.0/8'] },\n\
             { regex = '\\.pdf$', allow = ['10.1.0.0/16', '192.0.2.1'] }]",
        );
        assert!(problems.is_empty(), "{problems}");
        let access = access.unwrap();
        for (client, path, allowed) in [
            ("10.1.0.1", "in/a.pdf", true),
            ("10.2.0.1", "in/a.pdf", false),
            ("192.0.2.1", "in/a.pdf", false),
            ("192.0.2.1", "a.pdf", true),
            ("192.0.2.1", "a.pdf.gz", true),
            ("10.2.0.1", "a.pdf.gz", false),
            ("10.2.0.1", "in/a.txt", true),
        ] {
            assert_eq!(access.allows(client.parse().ok(), &site_path(path)), allowed, "{client} {path}");
        }
    }

    #[test]
    fn every_covering_rule_must_allow() {
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
            assert_eq!(access.allows(client.parse().ok(), &site_path(path)), allowed, "{client} {path}");
        }
        assert!(access.allows(None, &site_path("a")) && !access.allows(None, &site_path("admin")));
        let (closed, _) = build("access = [{ deny = ['0.0.0.0/0', '::/0'] }]");
        assert!(
            !closed.unwrap().allows(None, &site_path("a")),
            "a rule that denies all networks covers Unix sockets too"
        );
    }

    #[test]
    fn configuration_errors() {
        for (text, expected) in [
            ("access = [{}]", "f: site.access: has no effect"),
            (
                "access = [{ allow = ['10.0.0.1/8'] }]",
                "f:1: site.access.allow: 10.0.0.1/8 has bits beyond its prefix length: write 10.0.0.0/8 or 10.0.0.1",
            ),
            ("access = [{ deny = ['example.org'] }]", "f:1: site.access.deny: \"example.org\" is not a network"),
            ("access = [{ path = 'x', deny = ['::/0'] }]", "f:1: site.access.path: begin it"),
        ] {
            let (_, problems) = build(text);
            assert!(problems.to_string().starts_with(expected), "{text}: {problems}");
        }
        assert!(Access::build(&[], "", &mut Problems::of_arguments()).is_none());
    }
}
