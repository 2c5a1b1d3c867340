//! Purges for the process that takes over from this one: it reads only the purge files of its own directories, which may be others.
//!
//! ```text
//! none ─► starting ─► took over        purges are kept while it starts, and forwarded when it has taken over
//!   ▲─────────┘ it failed
//! ```

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use tokio::task::spawn_blocking;

use super::Store;
use super::purge::{Purge, Purges, Target};
use super::purge_file::Durable;
use crate::values::Mutex;

/// Has the process that took over apply purges. May block.
///
/// # Errors
/// A line: it did not.
pub(crate) type Forward = Arc<dyn Fn(&[Purge]) -> Result<(), String> + Send + Sync>;

/// The process that takes over.
#[derive(Default)]
pub(super) struct Successor(Mutex<State>);

#[derive(Default)]
enum State {
    #[default]
    None,
    /// The purges since then. The purge table bounds their memory.
    Starting(Box<Purges>),
    TookOver(Forward),
}

impl Successor {
    /// Has the successor apply a purge that holds here, now or when it takes over. May block.
    ///
    /// # Errors
    /// A line: it did not.
    pub(super) fn forward(&self, purge: &Purge) -> io::Result<()> {
        self.keep(purge).map_or(Ok(()), |forward| forward(std::slice::from_ref(purge)).map_err(io::Error::other))
    }

    /// Keeps a purge for a successor that has not taken over yet. Returns how to forward it if the successor has taken over.
    fn keep(&self, purge: &Purge) -> Option<Forward> {
        match &*self.0.lock() {
            State::None => None,
            State::Starting(purges) => {
                purges.add(purge);
                None
            }
            State::TookOver(forward) => Some(Arc::clone(forward)),
        }
    }

    fn change(&self, state: State) -> State {
        std::mem::replace(&mut *self.0.lock(), state)
    }
}

impl fmt::Debug for Successor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Successor")
    }
}

impl Store {
    /// As [`Successor::forward`], without blocking.
    pub(super) async fn forward(&self, purge: Purge) -> io::Result<()> {
        let Some(forward) = self.successor.keep(&purge) else { return Ok(()) };
        let forwarded = spawn_blocking(move || forward(std::slice::from_ref(&purge))).await;
        forwarded.map_err(io::Error::other)?.map_err(io::Error::other)
    }

    /// Where it stores.
    pub(crate) fn directories(&self) -> &[PathBuf] {
        &self.paths
    }

    /// A process starts that may take over.
    pub(crate) fn successor_starts(&self) {
        self.successor.change(State::Starting(Box::default()));
    }

    /// It does not take over.
    pub(crate) fn successor_failed(&self) {
        self.successor.change(State::None);
    }

    /// It took over, and later purges are forwarded. Returns the purges since its start.
    pub(crate) fn successor_took_over(&self, forward: Forward) -> Vec<Purge> {
        let mut since = Vec::new();
        if let State::Starting(purges) = self.successor.change(State::TookOver(forward)) {
            purges.for_each(|purge| since.push(purge));
        }
        since
    }

    /// Applies purges of the process before, which has published them if there is a purge stream. `spellings`: the spellings of a URL in the rules of this
    /// process. May block.
    ///
    /// # Errors
    /// The first that cannot be written down. All hold in memory.
    pub(crate) fn apply_forwarded<I: IntoIterator<Item = String>>(
        &self,
        purges: Vec<Purge>,
        spellings: impl Fn(String) -> I,
    ) -> io::Result<()> {
        let mut all = Vec::with_capacity(purges.len());
        for Purge { target, soft, at } in purges {
            match target {
                Target::Url(url) => {
                    all.extend(spellings(url).into_iter().map(|url| Purge { target: Target::Url(url), soft, at }));
                }
                target => all.push(Purge { target, soft, at }),
            }
        }
        let mut applied = Ok(());
        for (n, purge) in all.iter().enumerate() {
            // The file is the same for all: the last line takes the lines before with it to the disk.
            let durable = if n + 1 == all.len() { Durable::Yes } else { Durable::No };
            applied = applied.and(self.apply(purge, durable)).and(self.successor.forward(purge));
        }
        applied
    }
}
