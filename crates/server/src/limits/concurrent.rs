//! Requests in progress at a time, by client or by a value of the request.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::IpAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{ClientNetwork, Refusal};
use crate::placeholders::{Known, Template};
use crate::values::{At, Bounded, Mutex, Problems};

/// A limit of requests in progress.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ConcurrentConfig {
    /// Requests in progress at a time, from the end of their heads to the end of their responses. Further requests get 503
    pub requests: Bounded<1, 4_294_967_295>,
    /// Value that requests are counted by in place of the client, with placeholders: `{host}`, `{header.x-api-key}`; a text without placeholders counts all.
    /// Requests with an empty value are not counted [default: the client]
    #[serde(default)]
    pub key: Option<At<String>>,
    /// Name of a count that routes and sites share: those with one name and one `key` count their requests together [default: a count of its own]
    #[serde(default)]
    pub zone: Option<At<String>>,
}

/// The client or the value that a request is counted by.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Holder {
    Client(ClientNetwork),
    Value(Box<[u8]>),
}

/// The requests in progress of each holder that has any.
type Counts = Mutex<HashMap<Holder, u64>>;

/// The counts that limits share, by the names of their zones and the texts of their keys.
#[derive(Debug, Default)]
pub(super) struct ConcurrentZones(HashMap<(String, Option<String>), Arc<Counts>>);

/// A limit of requests in progress, with its count.
#[derive(Debug)]
pub(super) struct Concurrent {
    most: u64,
    /// `None`: requests are counted by client.
    key: Option<Template>,
    counts: Arc<Counts>,
}

/// A request in progress, until dropped.
#[derive(Debug)]
pub(crate) struct Place {
    counts: Arc<Counts>,
    holder: Holder,
}

impl ConcurrentConfig {
    /// `key`: the name of this table in the configuration.
    pub(super) fn build(
        &self,
        known: Known<'_>,
        key: &str,
        zones: &mut ConcurrentZones,
        problems: &mut Problems,
    ) -> Concurrent {
        let by = self.key.as_ref();
        let own_key = by.and_then(|by| Template::parse(by, known, &format!("{key}.key"), problems));
        let counts = match &self.zone {
            None => Arc::default(),
            Some(zone) => Arc::clone(zones.0.entry((zone.to_string(), by.map(|by| by.to_string()))).or_default()),
        };
        Concurrent { most: self.requests.get(), key: own_key, counts }
    }
}

impl Concurrent {
    /// Counts a request of this client until the place is dropped. `None`: it is not counted. `value`: renders a key.
    ///
    /// # Errors
    /// All places are taken.
    pub(super) fn enter(
        &self,
        client: Option<IpAddr>,
        value: impl FnOnce(&Template) -> Option<Vec<u8>>,
    ) -> Result<Option<Place>, Refusal> {
        let holder = match self.key.as_ref().and_then(value) {
            Some(value) if value.is_empty() => None,
            Some(value) => Some(Holder::Value(value.into())),
            None => client.map(|client| Holder::Client(ClientNetwork::of(client))),
        };
        let Some(holder) = holder else { return Ok(None) };
        let mut counts = self.counts.lock();
        let count = counts.entry(holder.clone()).or_default();
        if *count >= self.most {
            // It was there, since the limit is above 0.
            return Err(Refusal::NoPlace);
        }
        *count += 1;
        Ok(Some(Place { counts: Arc::clone(&self.counts), holder }))
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Entry::Occupied(mut count) = counts.entry(self.holder.clone()) {
            *count.get_mut() -= 1;
            if *count.get() == 0 {
                count.remove();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn built(texts: &[&str]) -> Vec<Concurrent> {
        let (tables, mut zones) = (crate::placeholders::Tables::default(), ConcurrentZones::default());
        let known = Known::of_request(None, &tables);
        let build = |text: &&str| {
            let mut problems = Problems::of_file(Path::new("x.toml"), text);
            let config: ConcurrentConfig = toml::from_str(text).unwrap();
            let own = config.build(known, "site.limits.concurrent", &mut zones, &mut problems);
            assert!(problems.is_empty(), "{problems}");
            own
        };
        texts.iter().map(build).collect()
    }

    fn enter(limit: &Concurrent, client: &str, value: &str) -> Result<Option<Place>, Refusal> {
        limit.enter(client.parse().ok(), |_| Some(value.as_bytes().to_vec()))
    }

    #[test]
    fn a_request_holds_a_place_until_it_ends() {
        let limits = built(&["requests = 2"]);
        let first = enter(&limits[0], "192.0.2.1", "").unwrap();
        let second = enter(&limits[0], "192.0.2.1", "").unwrap();
        assert!(first.is_some() && second.is_some());
        assert_eq!(enter(&limits[0], "192.0.2.1", "").unwrap_err(), Refusal::NoPlace);
        assert!(enter(&limits[0], "192.0.2.2", "").unwrap().is_some(), "another client");
        assert!(enter(&limits[0], "none", "").unwrap().is_none(), "a Unix socket has no address");
        drop(first);
        let third = enter(&limits[0], "192.0.2.1", "").unwrap();
        drop((second, third));
        assert!(limits[0].counts.lock().is_empty(), "nothing is kept of clients without requests");
    }

    #[test]
    fn requests_are_counted_by_key_and_with_their_zone() {
        let limits = built(&[
            "requests = 1\nkey = '{host}'\nzone = 'a'",
            "requests = 2\nkey = '{host}'\nzone = 'a'",
            "requests = 1\nzone = 'a'",
        ]);
        let of_host = enter(&limits[0], "192.0.2.1", "x").unwrap();
        assert!(enter(&limits[0], "192.0.2.2", "x").is_err());
        assert!(enter(&limits[0], "192.0.2.2", "").unwrap().is_none(), "an empty value is not counted");
        let of_zone = enter(&limits[1], "192.0.2.2", "x").unwrap();
        assert!(enter(&limits[1], "192.0.2.2", "x").is_err(), "both count in one zone");
        let of_client = enter(&limits[2], "192.0.2.1", "").unwrap();
        assert!(of_host.is_some() && of_zone.is_some() && of_client.is_some(), "another key is another count");
    }
}
