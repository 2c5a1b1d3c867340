//! Puts a response into the store that is fetched: into a file while it comes, and into its place once it is whole.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use bytes::Bytes;
use http::HeaderName;

use super::directory::Temporary;
use super::disk::{Disk, Times};
use super::fetch::Guard;
use super::fill::Fill;
use super::format::Metadata;
use super::object::Object;
use super::purge::Verdict;
use super::replaced::Superseded;
use super::rule::Rules;
use crate::files::disk_threads::progress;
use crate::files::resolve::{Content, SiteFile};

/// Where a body goes while it comes.
pub(super) enum Storing {
    InMemory,
    InFile(InFile),
    /// It is passed on, and not stored.
    Failed,
}

/// The file that a body is written to.
pub(super) struct InFile {
    /// `None`: it has its place.
    temporary: Option<Temporary>,
    pub(super) file: Arc<SiteFile>,
    disk: Arc<Disk>,
}

impl Storing {
    /// Begins a file with room for a body of this length.
    pub(super) async fn begin(disk: &Arc<Disk>, length: Option<u64>) -> Self {
        let own = Arc::clone(disk);
        let begun = disk.run(WHAT, move |disk| {
            let temporary = disk.create(length)?;
            let file = own.directory.threads.site_file(Arc::new(temporary.file.try_clone()?), u64::MAX);
            Ok(InFile { temporary: Some(temporary), file, disk: own })
        });
        begun.await.map_or(Storing::Failed, Storing::InFile)
    }
}

impl InFile {
    /// Writes the bytes that a fill has only in memory. `false`: the disk failed, and the fill still has them.
    pub(super) async fn write_unwritten(&mut self, fill: &Fill) -> bool {
        let Some(temporary) = &self.temporary else { return false };
        let (pieces, at) = fill.unwritten();
        let count = pieces.len();
        let written = match temporary.file.try_clone() {
            Ok(file) => self.disk.run(WHAT, move |_| write_pieces(&file, &pieces, at)).await,
            Err(error) => {
                self.disk.failed(WHAT, &error);
                None
            }
        };
        if written.is_some() {
            fill.wrote(&self.file, count);
        }
        written.is_some()
    }

    /// Ends the file of a body that is written, and adds it to the index. Returns its version. `None`: the disk failed, or has a newer one.
    pub(super) async fn finish(
        &mut self,
        metadata: Metadata,
        hash: u128,
        times: Times,
        body: (u64, u32),
    ) -> Option<u32> {
        let temporary = self.temporary.take()?;
        self.disk.run(WHAT, move |disk| disk.finish(temporary, &metadata, hash, times, body)).await.flatten()
    }
}

/// A response that came whole, and goes into the store: a short body lies in memory still, a long one in its file.
pub(super) struct Whole {
    pub(super) rules: Arc<Rules>,
    pub(super) disk: Arc<Disk>,
    pub(super) object: Arc<Object>,
    pub(super) times: Times,
    /// The key without variant.
    pub(super) key: Vec<u8>,
    /// The request fields that select among the variants of the URL.
    pub(super) names: Vec<HeaderName>,
    /// The stored response that it takes the place of.
    pub(super) replaced: Option<Superseded>,
}

impl Whole {
    /// Bytes of memory that wait with it.
    pub(super) fn octets(&self) -> usize {
        self.object.memory() + self.key.len() + OF_FILL
    }

    /// Writes the unwritten rest, for the writer of its disk. `found`: until it is dropped, requests find the fill.
    pub(super) fn store(self, found: Guard) {
        let Whole { rules, disk, object, times, .. } = &self;
        let store = &rules.store;
        if store.verdict(object) == Verdict::Gone {
            // Only this process may know a purge of the time when it was fetched: if it were written, the response would be back after a restart.
            disk.remove(object.hash);
            return store.changed(object.hash);
        }
        if let Content::Memory(bytes) = &object.body.content {
            match disk.write(bytes, &object.metadata(), object.hash, *times) {
                Ok(Some(version)) => object.set_version(version),
                // There is a newer one: workers that keep this one are to notice.
                Ok(None) => return store.changed(object.hash),
                Err(error) => {
                    disk.failed(WHAT, &error);
                    return store.changed(object.hash);
                }
            }
        }
        if self.names.is_empty() {
            return self.end();
        }
        let list = store.hash(&self.key);
        let of_list = Arc::clone(store.disk(list));
        if Arc::ptr_eq(&of_list, disk) {
            return self.add_to_list(list, &of_list);
        }
        // The list lies on another disk, which this thread must not wait for.
        let own = Arc::clone(&of_list);
        of_list.write_later(self.octets(), move || {
            self.add_to_list(list, &own);
            drop(found);
        });
    }

    /// Adds it to the list of the variants of its URL, for the writer of the list's disk.
    fn add_to_list(mut self, list: u128, disk: &Disk) {
        let store = &self.rules.store;
        let names = self.names.iter().map(|name| name.as_str().to_owned()).collect();
        let key = std::mem::take(&mut self.key);
        match store.add_to_variants(disk, (key, names), self.object.hash, self.times, self.rules.variants) {
            Ok(true) => store.changed(list),
            Ok(false) => {}
            Err(error) => disk.failed(WHAT, &error),
        }
        self.end();
    }

    fn end(self) {
        if let Some(old) = self.replaced {
            old.by(&self.object);
        }
        self.rules.store.stored(&self.object);
    }
}

/// The operation, in messages.
const WHAT: &str = "store a response";

/// GUESS: bytes of the fill of a response that waits to be written, and of its allocations. MEASURED: 6.5 to 8.5 kB of memory with its object, 2026-11-22.
const OF_FILL: usize = 6 << 10;

/// Writes pieces at an offset.
fn write_pieces(file: &File, pieces: &[Bytes], mut at: u64) -> io::Result<()> {
    for piece in pieces {
        file.write_all_at(piece, at)?;
        progress();
        at += piece.len() as u64;
    }
    Ok(())
}
