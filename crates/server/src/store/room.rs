//! The room of a disk: what `free` leaves for others, and which objects go for it.
//!
//! ```text
//! enough room ──────► less free than cache.free, or a write found none ─► the index' bound is lowered: the objects worth least go
//!      ▲                                                                        │ none is left
//!      └── much more than that is free: the bound is raised ◄───────────────────┴─► nothing is stored until there is room
//! ```
//!
//! The bound of the index stays lowered, so that each object that comes has another one go, as on a disk that has the configured size.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use super::disk::Disk;

/// The room as the thread of the disk knows it.
#[derive(Debug)]
pub(super) struct Room {
    /// Bytes to leave free on the file system.
    reserve: u64,
    /// Whether the file system has more than that.
    is_enough: AtomicBool,
    /// Bytes that a response needs beyond the free space.
    wanted: AtomicU64,
    /// Whether a write found no room since the thread looked.
    is_full: AtomicBool,
    /// Until when the files of objects that went may be open, and take room still, in milliseconds since the disk was opened. 0: none went.
    settles_at: AtomicU64,
    /// Whether the log says that objects go for room.
    is_told: AtomicBool,
    /// Whether the log says that nothing is left to go.
    is_refused: AtomicBool,
}

impl Room {
    pub(super) fn new(reserve: u64) -> Self {
        Room {
            reserve,
            is_enough: AtomicBool::new(true),
            wanted: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            settles_at: AtomicU64::new(0),
            is_told: AtomicBool::new(false),
            is_refused: AtomicBool::new(false),
        }
    }

    /// Whether more is free than is to stay free.
    pub(super) fn is_enough(&self) -> bool {
        self.is_enough.load(Ordering::Relaxed)
    }

    fn swap_refused(&self, is_refused: bool) -> bool {
        self.is_refused.swap(is_refused, Ordering::Relaxed)
    }
}

impl Disk {
    /// Whether there is room for a body. `length`: if it is known. Has room made for a large one, so that it is stored when it is fetched again.
    pub(super) async fn has_room_for(self: &Arc<Self>, length: Option<u64>) -> bool {
        if !self.room.is_enough() || length.is_some_and(|length| length > self.index.largest()) {
            return false;
        }
        // For small ones, the result of the last turn counts.
        let Some(length) = length.filter(|length| *length >= LARGE) else { return true };
        let free = self.run("learn the free space", |disk| Ok(disk.directory.free().ok())).await;
        let Some((free, inodes)) = free.flatten() else { return false };
        let needed = length.saturating_add(self.room.reserve);
        if free < needed && free.saturating_add(self.index.octets()) >= needed {
            self.room.wanted.fetch_max(length, Ordering::Relaxed);
            self.wake();
        }
        free >= needed && inodes > 0
    }

    /// A write found no room. `false`: no object is left that could make any.
    pub(super) fn is_full(&self, error: &io::Error) -> bool {
        let is_full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        if !is_full || !self.may_have_objects() {
            return false;
        }
        self.room.is_full.store(true, Ordering::Relaxed);
        self.wake();
        true
    }

    /// One look at the file system, while no file waits to be removed: has objects go for room, or allows for more of them.
    pub(super) fn keep_room(&self) {
        let Room { reserve, .. } = self.room;
        let (free, inodes) = match self.directory.free() {
            Ok(free) => free,
            Err(_) => return self.refuse_for("does not say its free space"),
        };
        let margin = (self.index.octets() / 16).clamp(LEAST_MARGIN, MOST_MARGIN);
        let lacks = match inodes {
            0 => Some("has no inode left"),
            _ if free <= reserve => Some("has less free than cache.free"),
            _ => None,
        };
        self.room.is_enough.store(lacks.is_none(), Ordering::Relaxed);
        // Before all objects are known, too many would go.
        let is_ready = self.directory.is_owner() && self.is_loaded();
        if !is_ready || self.now() < self.room.settles_at.load(Ordering::Relaxed) {
            return;
        }
        let has_settled = self.room.settles_at.swap(0, Ordering::Relaxed) > 0;
        let mut wanted = self.room.wanted.swap(0, Ordering::Relaxed);
        let mut is_full = self.room.is_full.swap(false, Ordering::Relaxed);
        if has_settled {
            // It was missed before the last files went: a response that misses it still asks again.
            (wanted, is_full) = (0, false);
        }
        let short = reserve.saturating_add(wanted).saturating_add(margin).saturating_sub(free);
        let needed = match lacks {
            Some(_) => short.max(margin),
            None if is_full => short.max(margin),
            None if wanted > 0 => short,
            None => 0,
        };
        if needed > 0 {
            self.make_room(needed, lacks.unwrap_or("is full"));
        } else if self.index.is_shrunk() && free > reserve.saturating_add(4 * margin) {
            self.index.grow(free - reserve - 2 * margin);
            self.room.is_told.store(self.index.is_shrunk(), Ordering::Relaxed);
        }
        match lacks {
            Some(lacks) if !self.may_have_objects() => self.refuse_for(lacks),
            Some(_) => {}
            None => _ = self.room.swap_refused(false),
        }
    }

    /// Whether objects are left that could go.
    fn may_have_objects(&self) -> bool {
        self.index.len() > 0 || !self.is_loaded()
    }

    /// Has objects of so many bytes go.
    fn make_room(&self, bytes: u64, lacks: &str) {
        let gone = self.index.shrink(bytes);
        if gone.is_empty() {
            return;
        }
        self.room.settles_at.store(self.now() + SETTLES.as_millis() as u64, Ordering::Relaxed);
        if !self.room.is_told.swap(true, Ordering::Relaxed) {
            tracing::warn!(
                "cache {}: its file system {lacks}: the responses that are worth least are removed, and fewer are stored than cache.size allows; \
                 make room, or lower cache.size",
                self.directory.path.display()
            );
        }
        self.counts.evicted.fetch_add(gone.len() as u64, Ordering::Relaxed);
        self.remove_later(gone);
    }

    /// Nothing can be removed for room: says so once.
    fn refuse_for(&self, lacks: &str) {
        self.room.is_enough.store(false, Ordering::Relaxed);
        if !self.room.swap_refused(true) {
            let path = self.directory.path.display();
            tracing::warn!(
                "cache {path}: its file system {lacks}; responses pass without being stored until there is more"
            );
        }
    }
}

/// Body that gets its room before it is written.
pub(super) const LARGE: u64 = 1 << 20;

/// Bytes that are freed beyond the need: room for responses until the thread looks again. A sixteenth of all objects, between these bounds. GUESS
const LEAST_MARGIN: u64 = 256 << 10;
const MOST_MARGIN: u64 = 256 << 20;

/// Time until workers have closed files that were removed ([`super::SWEEP`]), unless they send them still.
const SETTLES: Duration = Duration::from_secs(2);
