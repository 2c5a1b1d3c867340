//! Fetches whose responses are not stored yet, whether requests find them or not: where a later response withdraws a page, theirs are withdrawn too.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use http::HeaderName;

use super::fetch::FetchRequest;
use super::fill::Fill;
use super::replaced::Withdrawal;
use crate::values::Mutex;

/// By the hashes of pages, see [`super::rule::Rules::page`].
#[derive(Debug, Default)]
pub(super) struct UnderWay(Mutex<HashMap<u128, OfPage>>);

#[derive(Debug, Default)]
struct OfPage {
    fetches: usize,
    /// Fetches whose responses are to be stored, as their heads say.
    stored: Vec<Fetching>,
    /// The latest requests whose responses withdrew the page, and when each was made: they count for responses whose heads come later.
    withdrawn: VecDeque<(u64, FetchRequest)>,
    /// The latest time of a withdrawal that is no longer in `withdrawn`: responses that were asked for until then are not stored, whatever their variant.
    withdrawn_until: Option<u64>,
}

/// A fetch whose response is to be stored.
#[derive(Debug, Clone)]
pub(super) struct Fetching {
    /// The key of the response, its variant included.
    pub(super) key: Box<[u8]>,
    /// The request fields that select among the variants of the URL.
    pub(super) names: Vec<HeaderName>,
    /// The variant that these fields selected.
    pub(super) variant: Vec<u8>,
    /// When the response was asked for.
    pub(super) asked: u64,
    /// The hash under which requests find the fill.
    pub(super) id: u128,
    pub(super) fill: Arc<Fill>,
}

impl UnderWay {
    pub(super) fn begin(&self, page: u128) {
        self.0.lock().entry(page).or_default().fetches += 1;
    }

    pub(super) fn end(&self, page: u128, fill: &Arc<Fill>) {
        let mut all = self.0.lock();
        if let Some(own) = all.get_mut(&page) {
            own.fetches -= 1;
            own.stored.retain(|fetching| !Arc::ptr_eq(&fetching.fill, fill));
            if own.fetches == 0 {
                all.remove(&page);
            }
        }
    }

    /// The head came of a response that is to be stored. `false`: it was withdrawn meanwhile.
    pub(super) fn flows(&self, page: u128, fetching: Fetching) -> bool {
        let mut all = self.0.lock();
        let Some(own) = all.get_mut(&page) else { return true };
        let is_withdrawn =
            |(at, by): &(u64, FetchRequest)| fetching.asked <= *at && by.variant(&fetching.names) == fetching.variant;
        if own.withdrawn_until >= Some(fetching.asked) || own.withdrawn.iter().any(is_withdrawn) {
            return false;
        }
        own.stored.push(fetching);
        true
    }

    /// A response withdrew the page. Returns the other responses that were to be stored, and were asked for before it.
    pub(super) fn withdraw(&self, withdrawal: &Withdrawal<'_>) -> Vec<Fetching> {
        let Withdrawal { page, request, at, fill, .. } = *withdrawal;
        let mut all = self.0.lock();
        let Some(own) = all.get_mut(&page) else { return Vec::new() };
        if own.fetches > usize::from(fill.is_some()) {
            let dropped = own.withdrawn.drain(own.withdrawn.len().min(MAX_WITHDRAWN - 1)..).map(|(at, _)| at);
            own.withdrawn_until = own.withdrawn_until.max(dropped.max());
            own.withdrawn.push_front((at, request.clone()));
        }
        let is_own = |other: &Fetching| fill.is_some_and(|fill| Arc::ptr_eq(&other.fill, fill));
        let others = own.stored.iter().filter(|other| !is_own(other) && other.asked <= at);
        others.filter(|other| request.variant(&other.names) == other.variant).cloned().collect()
    }
}

/// Pages that are private to each client have no end of such responses.
const MAX_WITHDRAWN: usize = 16;

#[cfg(test)]
mod tests {
    use super::super::key::NUMBER;
    use super::*;

    fn fetching(asked: u64, variant: &[u8]) -> Fetching {
        let names = vec![HeaderName::from_static("cookie")];
        let variant = FetchRequest::of_fields(variant).variant(&names);
        Fetching {
            key: Box::default(),
            names,
            variant,
            asked,
            id: 0,
            fill: Fill::new(b"https://example.org/", [0; NUMBER]),
        }
    }

    #[test]
    fn withdrawals_beyond_the_bound_count_for_all_variants() {
        let under_way = UnderWay::default();
        under_way.begin(1);
        for n in 0..=MAX_WITHDRAWN as u64 {
            let request = FetchRequest::of_fields(format!("cookie: {n}\r\n").as_bytes());
            let withdrawal = Withdrawal { key: b"", id: 0, page: 1, request: &request, at: 10 + n, fill: None };
            assert!(under_way.withdraw(&withdrawal).is_empty());
        }
        assert!(!under_way.flows(1, fetching(10, b"cookie: 0\r\n")), "the withdrawal was dropped");
        assert!(!under_way.flows(1, fetching(11, b"cookie: 1\r\n")), "the withdrawal is kept");
        assert!(under_way.flows(1, fetching(11, b"cookie: 0\r\n")), "it was asked for after the withdrawal");
    }
}
