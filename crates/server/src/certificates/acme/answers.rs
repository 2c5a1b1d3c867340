//! Responses to the authority's validations: a certificate for TLS-ALPN-01, a text for HTTP-01, a record for DNS-01.

use std::collections::HashMap;

use arc_swap::ArcSwap;
use rcgen::CustomExtension;
use sealion_tls::AlpnChallenges;

use super::dns::{Record, Zone};
use super::{address, reverse_name, self_signed};

/// Responses to HTTP-01 validations (RFC 8555 §8.3).
#[derive(Debug, Default)]
pub(crate) struct HttpChallenges(ArcSwap<HashMap<String, String>>);

impl HttpChallenges {
    /// The key authorization for this token, while a validation is pending.
    pub(crate) fn answer(&self, token: &str) -> Option<String> {
        self.0.load().get(token).cloned()
    }

    fn insert(&self, token: &str, answer: &str) {
        self.0.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.insert(token.to_owned(), answer.to_owned());
            all
        });
    }

    fn remove(&self, token: &str) {
        self.0.rcu(|all| {
            let mut all = HashMap::clone(all);
            all.remove(token);
            all
        });
    }
}

/// Responses for one order, withdrawn when it is over.
pub(super) struct Answers<'a> {
    alpn: &'a AlpnChallenges,
    http: &'a HttpChallenges,
    given: Vec<Given>,
}

enum Given {
    Name(String),
    Token(String),
    Record(Zone, Record),
}

impl<'a> Answers<'a> {
    pub(super) fn new(alpn: &'a AlpnChallenges, http: &'a HttpChallenges) -> Self {
        Answers { alpn, http, given: Vec::new() }
    }

    /// Responds with a certificate that contains the digest (RFC 8737 §3).
    pub(super) fn over_tls(&mut self, name: &str, digest: &[u8]) -> Result<(), String> {
        let extension = CustomExtension::new_acme_identifier(digest);
        let (certificate, key) = self_signed(&[name.to_owned()], Some(extension))?;
        // A ClientHello names no address, so that the authority asks for its name in the DNS.
        let asked = address(name).map_or_else(|| name.to_owned(), reverse_name);
        self.alpn.insert(&asked, &certificate, &key).map_err(|e| e.to_string())?;
        self.given.push(Given::Name(asked));
        Ok(())
    }

    pub(super) fn over_http(&mut self, token: &str, answer: &str) {
        self.http.insert(token, answer);
        self.given.push(Given::Token(token.to_owned()));
    }

    pub(super) async fn over_dns(&mut self, zone: &Zone, record: Record) -> Result<(), String> {
        // Recorded first, because a failed call may have set the record.
        self.given.push(Given::Record(zone.clone(), record.clone()));
        let zone = zone.clone();
        in_another_thread(move || zone.present(&record)).await
    }

    pub(super) async fn withdraw(&mut self) {
        for (zone, record) in self.withdraw_own() {
            if let Err(error) = in_another_thread(move || zone.clean_up(&record)).await {
                tracing::warn!("ACME: a record stays in the DNS: {error}");
            }
        }
    }

    /// Withdraws the responses of this process. Returns the records, which are still in the DNS.
    fn withdraw_own(&mut self) -> Vec<(Zone, Record)> {
        let mut records = Vec::new();
        for given in self.given.drain(..) {
            match given {
                Given::Name(name) => self.alpn.remove(&name),
                Given::Token(token) => self.http.remove(&token),
                Given::Record(zone, record) => records.push((zone, record)),
            }
        }
        records
    }
}

/// The process may end or hand over in the middle of an order.
impl Drop for Answers<'_> {
    fn drop(&mut self) {
        for (_, record) in self.withdraw_own() {
            tracing::warn!("ACME: the order was given up: the record {} stays in the DNS: remove it", record.name);
        }
    }
}

/// A program or a server may take a minute; other orders continue meanwhile.
async fn in_another_thread(change: impl FnOnce() -> Result<(), String> + Send + 'static) -> Result<(), String> {
    tokio::task::spawn_blocking(change).await.unwrap_or_else(|error| Err(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_are_there_until_they_are_withdrawn() {
        let (alpn, http) = (AlpnChallenges::default(), HttpChallenges::default());
        let mut answers = Answers::new(&alpn, &http);
        answers.over_http("token", "token.thumb");
        answers.over_tls("a.test", &[7; 32]).unwrap();
        assert_eq!(http.answer("token").as_deref(), Some("token.thumb"));
        assert_eq!(http.answer("other"), None);
        answers.withdraw().await;
        assert_eq!(http.answer("token"), None);
    }
}
