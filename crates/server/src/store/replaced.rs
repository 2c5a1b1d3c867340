//! Stored responses that a newer response takes the place of, although that one is not stored (RFC 9111 §4.3.3).
//!
//! The stored response is purged by its key: neither the workers' memory, nor another process, nor a file that is written late brings it back.

use std::sync::Arc;

use sealion_cache::NotStored;

use super::Store;
use super::fetch::{Fetch, Requested};
use super::object::Object;
use super::purge::{Purge, Target};
use super::purge_file::Durable;
use crate::upstream::Reply;

impl Store {
    /// A response that is not stored took the place of a stored one. It was asked for at `at`.
    pub(super) fn supersede(self: &Arc<Self>, old: &Arc<Object>, at: u64) {
        let purge = self.supersede_here(old, at);
        let written = self.opened().purge_files.begin_order(&purge, Durable::No);
        let (store, old) = (Arc::clone(self), Arc::clone(old));
        drop(tokio::spawn(async move {
            if old.head.sliced.is_some() {
                // There may be a hundred thousand.
                let store = Arc::clone(&store);
                let _ = tokio::task::spawn_blocking(move || store.remove_slices_of(&old)).await;
            }
            let written = written.wait().await;
            if let Err(error) = written.and(store.forward(purge).await) {
                // The log says it once for each directory, and for the process that took over.
                tracing::debug!("cache: cannot write down that a response was superseded: {error}");
            }
        }));
    }

    fn supersede_here(&self, old: &Object, at: u64) -> Purge {
        let purge = Purge { target: Target::of_key(&old.key), soft: false, at };
        self.purges().add(&purge);
        let disk = self.disk(old.hash);
        // A newer one may have its name already.
        if old.version().is_some_and(|own| disk.version(old.hash) == Some(own)) {
            disk.remove(old.hash);
        }
        self.changed(old.hash);
        purge
    }

    /// Removes the files of its slices, which are purged with it.
    fn remove_slices_of(&self, old: &Object) {
        if let Some(sliced) = &old.head.sliced {
            self.remove_sliced(&old.key, sliced);
        }
    }
}

/// A stored response whose successor came whole. Dropped, the stored one is gone.
pub(super) struct Superseded {
    store: Arc<Store>,
    /// `None`: the file of the successor has the name of the old one.
    old: Option<Arc<Object>>,
    /// When the successor was asked for.
    at: u64,
}

impl Superseded {
    pub(super) fn new(store: &Arc<Store>, old: &Arc<Object>, at: u64) -> Self {
        Superseded { store: Arc::clone(store), old: Some(Arc::clone(old)), at }
    }

    /// The successor is stored.
    pub(super) fn by(mut self, new: &Object) {
        if let Some(old) = self.old.take_if(|old| old.hash == new.hash) {
            self.store.remove_replaced(&old, &new.head);
        }
    }
}

impl Drop for Superseded {
    fn drop(&mut self) {
        let Some(old) = self.old.take() else { return };
        self.store.supersede_here(&old, self.at);
        // The disk may be at fault: the line is written at the end of the process.
        self.store.purges().leave_out_line();
        self.store.remove_slices_of(&old);
    }
}

impl Fetch {
    /// Whether a response that is not stored takes the place of the stored one. `false`: the request alone is the reason, or the response tells of the
    /// request or of a failure: a client must not remove what all have.
    pub(super) fn supersedes(&self, reply: &Reply, requested: Requested, received: u64) -> bool {
        let code = reply.status.code();
        // They are about the credentials of this request.
        let is_of_credentials = self.request.has_authorization() && matches!(code, 401 | 403 | 407);
        !is_of_credentials
            && sealion_cache::replaces_stored(code)
            && self.may_store(&self.request.of_anybody(), reply, requested.second, received).is_err()
    }
}

/// Why a response is for one request only.
#[derive(Debug, Clone, Copy)]
pub(super) enum Unstored {
    ByRule(NotStored),
    /// The request names a user, and neither the origin nor the rule says that the response is for all.
    Cookie,
    NoLength,
    TooLarge,
}

impl Unstored {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Unstored::ByRule(why) => why.as_str(),
            Unstored::Cookie => "cookie",
            Unstored::NoLength => "no-length",
            Unstored::TooLarge => "too-large",
        }
    }

    /// Whether the request is the reason: the response to another may be stored.
    pub(super) fn is_of_request(self) -> bool {
        match self {
            Unstored::ByRule(why) => why.is_of_request(),
            Unstored::Cookie => true,
            Unstored::NoLength | Unstored::TooLarge => false,
        }
    }

    /// Whether the reason is that the request names a user: the responses to all other requests of users are like this one.
    pub(super) fn is_of_user(self) -> bool {
        matches!(self, Unstored::Cookie | Unstored::ByRule(NotStored::Authorization))
    }
}
