//! Fetches under way: how many may be, and how one ends that is dropped.

use std::sync::Arc;

use tokio::sync::{Semaphore, SemaphorePermit};

use super::super::Store;
use super::super::fill::{End, Failed, Fill};
use super::super::key::is_slice;
use super::super::storing::Whole;
use crate::upstream::Failure;

/// Ends the fill of a fetch that was dropped, with its worker for instance.
pub(in crate::store) struct Guard {
    store: Arc<Store>,
    fill: Arc<Fill>,
    id: u128,
    /// As [`super::super::rule::Rules::page`].
    page: u128,
}

impl Guard {
    /// A fetch is under way. `page`: see [`super::super::rule::Rules::page`].
    fn new(store: &Arc<Store>, fill: &Arc<Fill>, id: u128, page: u128) -> Self {
        store.under_way.begin(page);
        Guard { store: Arc::clone(store), fill: Arc::clone(fill), id, page }
    }

    /// Runs a fetch that is under way from now on, whether its future is polled or not.
    pub(in crate::store) fn run<F: Future<Output = Option<Whole>>>(
        (store, fill): (&Arc<Store>, &Arc<Fill>),
        (id, page): (u128, u128),
        fetch: F,
    ) -> impl Future<Output = ()> + use<F> {
        let guard = Guard::new(store, fill, id, page);
        async move {
            // Requests for it find the fill meanwhile.
            if let Some(whole) = fetch.await {
                let (disk, octets) = (Arc::clone(&whole.disk), whole.octets());
                disk.write_later(octets, move || whole.store(guard));
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let failure = Failure::Broken("the fetch was ended".to_owned());
        self.fill.end(End::Failed(Arc::new(Failed { failure, trace: None })));
        self.store.forget(self.id, &self.fill);
        self.store.under_way.end(self.page, &self.fill);
    }
}

/// Fetches that may begin. Each holds a connection to a server and a file, also after its client has left: the limit on open files bounds them.
static PLACES: Semaphore = Semaphore::const_new(Semaphore::MAX_PERMITS);

/// Bounds the fetches of the process.
pub(crate) fn bound_fetches(most: usize) {
    PLACES.forget_permits(PLACES.available_permits().saturating_sub(most));
}

/// Room for the descriptors of one fetch, until dropped.
pub(in crate::store) struct FetchPlace {
    _permit: Option<SemaphorePermit<'static>>,
}

impl FetchPlace {
    /// Taken before others find the fetch, so that each fetch that requests wait for has a place. `None`: enough fetches run. `key`: of the response.
    pub(in crate::store) fn take(key: &[u8]) -> Option<Self> {
        let permit = PLACES.try_acquire().ok();
        // The descriptors of a response in slices have room already.
        (permit.is_some() || is_slice(key)).then_some(FetchPlace { _permit: permit })
    }
}
