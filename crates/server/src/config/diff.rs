//! Changes between two configurations.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde_json::Value;

use super::Config;

/// A key whose value changes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Change {
    /// The dotted key. A site is named by its first host name: `site[example.org].root`.
    pub key: String,
    /// `None`: the key was absent.
    pub before: Option<String>,
    /// `None`: the key is removed.
    pub after: Option<String>,
}

impl Change {
    /// Whether the value is or contains a secret.
    #[cfg(any(test, fuzzing))]
    pub(crate) fn is_secret(&self) -> bool {
        [&self.before, &self.after].into_iter().flatten().any(|value| value.contains(crate::values::SECRET_MARK))
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let side = |side: &Option<String>| side.clone().unwrap_or_else(|| "nothing".to_owned());
        write!(f, "{}: {} becomes {}", self.key, side(&self.before), side(&self.after))
    }
}

/// All changes, by key.
pub(crate) fn changes(before: &Config, after: &Config) -> Vec<Change> {
    let (before, after) = (leaves(before), leaves(after));
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    keys.into_iter()
        .map(|key| Change { key: key.clone(), before: before.get(key).cloned(), after: after.get(key).cloned() })
        .filter(|change| change.before != change.after)
        .collect()
}

/// Whether a running process cannot change this key.
pub(crate) fn needs_new_process(key: &str) -> bool {
    let is_log_of_site = key.starts_with("site[") && key.contains("].log.");
    let is_fixed = FIXED
        .iter()
        .any(|fixed| key.strip_prefix(fixed).is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '['])));
    is_fixed || is_log_of_site
}

/// Keys applied before the first connection: sockets, threads, privileges, process-wide limits.
const FIXED: [&str; 16] = [
    "server.workers",
    "server.calibration",
    "server.self_check_every",
    "server.file_cache_age",
    "server.file_cache_memory",
    "server.cache_memory",
    "server.log",
    "server.log_format",
    "limits.max_connections",
    "http3",
    "listen",
    "access_log",
    "privileges",
    "metrics",
    "otlp",
    "cache",
];

fn leaves(config: &Config) -> BTreeMap<String, String> {
    let mut leaves = BTreeMap::new();
    // Every configuration value has a JSON form.
    let value = serde_json::to_value(config).unwrap_or_default();
    collect(&mut leaves, String::new(), &value);
    leaves
}

fn collect(leaves: &mut BTreeMap<String, String>, key: String, value: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                let key = if key.is_empty() { name.clone() } else { format!("{key}.{name}") };
                collect(leaves, key, value);
            }
        }
        Value::Array(values) if values.iter().any(Value::is_object) => {
            for (n, value) in values.iter().enumerate() {
                let name = name_of(value);
                // Sites of different listeners may have one name.
                let earlier = values[..n].iter().filter(|other| name.is_some() && name_of(other) == name).count();
                let label = match (name, earlier) {
                    (None, _) => n.to_string(),
                    (Some(name), 0) => name.to_owned(),
                    (Some(name), earlier) => format!("{name} {}", earlier + 1),
                };
                collect(leaves, format!("{key}[{label}]"), value);
            }
        }
        Value::Null => {}
        value => {
            leaves.insert(key, value.to_string());
        }
    }
}

/// The first name of a site, or the address of a listener.
fn name_of(value: &Value) -> Option<&str> {
    value.pointer("/names/0").or(value.get("address")).and_then(Value::as_str)
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn config(text: &str) -> Config {
        Config::parse(Path::new("x.toml"), text).unwrap().0
    }

    #[test]
    fn what_changes_is_named() {
        let before = config("[server]\nktls = \"auto\"\n[[site]]\nnames = [\"a.example\"]\nroot = \"/a\"\n");
        let after = config(
            "[server]\nworkers = 3\n[[site]]\nnames = [\"b.example\"]\nroot = \"/b\"\n\
             [[site]]\nnames = [\"a.example\"]\nroot = \"/c\"\n",
        );
        assert_eq!(changes(&before, &before), []);
        let told: Vec<String> = changes(&before, &after).iter().map(ToString::to_string).collect();
        assert!(told.contains(&"server.workers: nothing becomes 3".to_owned()), "{told:?}");
        assert!(told.contains(&"site[a.example].root: \"/a\" becomes \"/c\"".to_owned()), "{told:?}");
        assert!(told.contains(&"site[b.example].root: nothing becomes \"/b\"".to_owned()), "{told:?}");
        let two = |root: &str| {
            config(&format!(
                "[[site]]\nnames = ['a']\nroot = '{root}'\n[[site]]\nnames = ['a']\nlisten = ['x']\nroot = '/b'\n"
            ))
        };
        let told: Vec<String> = changes(&two("/b"), &two("/c")).iter().map(ToString::to_string).collect();
        assert_eq!(told, ["site[a].root: \"/b\" becomes \"/c\""]);
    }

    #[test]
    fn a_change_of_a_secret_is_named_and_the_secret_is_not() {
        let with = |secret: &str| {
            config(&format!(
                "[otlp]\nheaders = {{ A = '{secret}' }}\n\
                 [cache]\npurge_stream = 'redis://:{secret}@h/k'\n\
                 [tls.acme]\ndirectory = 'https://h/?{secret}'\n\
                 external_account = {{ key_id = '{secret}', hmac_key = 'f' }}\n\
                 [[upstream]]\nname = 'a'\nservers = []\nhealth = {{ path = '/h?{secret}' }}\n\
                 [[site]]\nproxy = {{ to = 'a', request_headers = [{{ name = 'A', value = '{secret}' }}] }}\n\
                 acme_on_demand = {{ ask = 'http://h/?{secret}' }}\n"
            ))
        };
        let (before, after) = (with("hunter2"), with("hunter3"));
        assert_eq!(changes(&before, &with("hunter2")), []);
        let told = changes(&before, &after);
        assert_eq!(told.len(), 7, "{told:?}");
        for change in told {
            assert!(change.is_secret() && !change.to_string().contains("hunter"), "{change}");
        }
        for config in [before, after] {
            assert!(!format!("{config:?}").contains("hunter"));
        }
    }

    #[test]
    fn keys_that_need_a_new_process() {
        for (key, needs) in [
            ("listen[0.0.0.0:443].address", true),
            ("server.workers", true),
            ("server.ktls", false),
            ("limits.max_connections", true),
            ("limits.max_connections_per_address", false),
            ("site[a].root", false),
            ("site[a].access_log", false),
            ("site[a].log.to", true),
        ] {
            assert_eq!(needs_new_process(key), needs, "{key}");
        }
    }

    /// A new key of these tables must be classified here. Every other table applies entirely either to the process or
    /// to requests.
    #[test]
    fn every_key_of_the_process_and_its_limits_is_decided_on() {
        let taken_over = [
            "server.ktls",
            "limits.max_connections_per_address",
            "limits.handshake_timeout",
            "limits.request_timeout",
            "limits.idle_timeout",
            "limits.stall_timeout",
            "limits.min_receive_rate",
            "limits.min_send_rate",
            "limits.min_send_rate_window",
            "limits.linger_timeout",
            "limits.grace",
            "limits.upgrade_grace",
            "limits.max_requests",
            "limits.max_request_line",
            "limits.max_head",
            "limits.max_fields",
            "limits.max_discarded_body",
            "limits.max_buffered",
            "limits.max_buffered_per_address",
            "limits.max_ranges",
            "limits.max_records_per_key",
        ];
        let config = serde_json::to_value(Config::default()).unwrap();
        for table in ["server", "limits"] {
            for name in config[table].as_object().unwrap().keys() {
                let key = format!("{table}.{name}");
                assert_ne!(taken_over.contains(&key.as_str()), needs_new_process(&key), "{key}");
            }
        }
        let tables: Vec<&String> = config.as_object().unwrap().keys().collect();
        let known = [
            "access_log",
            "http2",
            "http3",
            "import",
            "include",
            "limits",
            "listen",
            "map",
            "metrics",
            "otlp",
            "privileges",
            "cache",
            "server",
            "site",
            "split",
            "tls",
            "upstream",
        ];
        assert!(
            tables.len() == known.len() && tables.iter().all(|table| known.contains(&table.as_str())),
            "{tables:?}"
        );
    }
}
