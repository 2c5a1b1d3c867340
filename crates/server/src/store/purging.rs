//! Purges and invalidations, as they are ordered: they hold in memory at once, are written on all disks, and reach the process that took over and other nodes.

use std::sync::{Arc, LazyLock};

use tokio::task::spawn_blocking;

use super::disk::Disk;
use super::purge::{Purge, Target};
use super::purge_file::Durable;
use super::{Store, key, now_ms};

impl Store {
    /// Purges. Later requests see it at once, and so do the process that took over and the next one; where there is a purge stream, other nodes see it when
    /// they read it. May block.
    pub(crate) fn purge(&self, target: Target, soft: bool) -> std::io::Result<()> {
        let purge = Purge { target: target.normal(), soft, at: now_ms() };
        let written = self.apply(&purge, Durable::Yes);
        let written = written.and(self.missing()).and(self.successor.forward(&purge));
        self.publish(&purge)?;
        written
    }

    /// Has the other nodes purge, where there is a purge stream. May block.
    pub(super) fn publish(&self, purge: &Purge) -> std::io::Result<()> {
        let Some(stream) = &self.stream else { return Ok(()) };
        stream.publish(purge, self.node()).map_err(|error| {
            let server = stream.server();
            std::io::Error::other(format!(
                "it holds only here, as the purge stream at {server} did not take it: {error}: order it again"
            ))
        })
    }

    /// The name of this process in the purge stream: directories may be copied from one node to another.
    pub(super) fn node(&self) -> &str {
        static NAME: LazyLock<String> = LazyLock::new(|| {
            let mut number = [0; 16];
            aws_lc_rs::rand::fill(&mut number).expect("the system has random numbers");
            format!("{:032x}", u128::from_le_bytes(number))
        });
        &NAME
    }

    /// As [`Self::purge`], by a request. It holds when this returns; the future ends when it is written down and published.
    pub(super) fn purge_by_request(
        self: &Arc<Self>,
        target: Target,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let purge = self.purge_here(&Purge { target, soft: false, at: now_ms() });
        let written = self.opened().purge_files.begin_order(&purge, Durable::Yes);
        let store = Arc::clone(self);
        async move {
            let written = written.wait().await;
            let written = written.and(store.missing()).and(store.forward(purge.clone()).await);
            if store.stream.is_none() {
                return written;
            }
            let published = spawn_blocking(move || store.publish(&purge)).await;
            published.map_err(std::io::Error::other)??;
            written
        }
    }

    /// Purges the URLs that a response of the origin invalidates. The purge holds when this returns; the future ends when it is written down. A loss of
    /// power may undo it, as it may undo the request's own effect. `upstream`: of the request.
    pub(super) fn invalidate(
        self: &Arc<Self>,
        target: Target,
        upstream: &str,
    ) -> impl Future<Output = std::io::Result<()>> + Send + 'static {
        let hash = match &target {
            // Files under another spelling, or with further parts of the key, go when they are asked for.
            Target::Invalidated(url) if self.has_disk() && self.may_have(url, upstream) => {
                Some(self.hash(&plain_key(url, upstream)))
            }
            _ => None,
        };
        let purge = self.purge_here(&Purge { target: target.hashed(), soft: false, at: now_ms() });
        let written = self.opened().purge_files.begin_order(&purge, Durable::No);
        let store = Arc::clone(self);
        async move {
            if let Some(hash) = hash {
                // The next such request finds nothing to purge.
                for variant in store.listed_variants(hash).await.into_iter().chain([hash]) {
                    let remove = move |disk: &Disk| {
                        disk.remove_named(variant);
                        Ok(())
                    };
                    store.disk(variant).run("remove an object", remove).await;
                }
            }
            written.wait().await.and(store.forward(purge).await)
        }
    }

    pub(super) fn apply(&self, purge: &Purge, durable: Durable) -> std::io::Result<()> {
        // It holds even if it cannot be written down.
        self.opened().purge_files.order(&self.purge_here(purge), durable)
    }

    /// Purges, until the process ends. Returns the purge in the spelling that purges compare.
    pub(super) fn purge_here(&self, purge: &Purge) -> Purge {
        let purge = Purge { target: purge.target.clone().normal(), ..*purge };
        self.purges().add(&purge);
        // Responses that are on their way were made before the purge.
        self.fills.lock().retain(|_, fill| !purge.target.may_cover(&fill.url));
        self.all_changed();
        purge
    }

    /// Workers compare all that they keep.
    pub(super) fn all_changed(&self) {
        self.changes.add_all();
    }

    /// Whether something may be stored for a URL whose keys have no further parts, or is on its way.
    pub(super) fn may_have(&self, url: &str, upstream: &str) -> bool {
        let hash = self.hash(&plain_key(url, upstream));
        let disk = self.disk(hash);
        // Another process may have stored it since it took over. A disk that hangs has files whose removal waits.
        !disk.directory.is_owner() || disk.hangs() || disk.may_have(hash) || self.fills.lock().contains_key(&hash)
    }
}

/// The key of a URL, without further parts and variant.
pub(super) fn plain_key(url: &str, upstream: &str) -> Vec<u8> {
    let mut key = url.as_bytes().to_vec();
    key::add_upstream(&mut key, upstream);
    key
}
