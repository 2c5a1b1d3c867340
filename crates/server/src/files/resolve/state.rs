//! The state of a file, which shows whether the file has changed, and the entity tags that are made of it.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;

use aws_lc_rs::digest::{SHA256, digest};
use rustix::time::{ClockId, clock_gettime};
use sealion_http::etag::EntityTag;

use super::EntityTags;

/// Device, inode, size, modification time and change time, the times in seconds and nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct State(pub(super) [u64; 7]);

impl State {
    pub(super) fn of(metadata: &Metadata) -> Self {
        State([
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.mtime() as u64,
            metadata.mtime_nsec() as u64,
            metadata.ctime() as u64,
            metadata.ctime_nsec() as u64,
        ])
    }

    pub(super) fn len(&self) -> u64 {
        self.0[2]
    }

    pub(super) fn changed(&self) -> [u64; 2] {
        [self.0[5], self.0[6]]
    }

    pub(super) fn modified(&self) -> [u64; 2] {
        [self.0[3], self.0[4]]
    }

    /// Modification time in seconds since 1970; 0 if it was before.
    pub(crate) fn modified_seconds(&self) -> u64 {
        u64::try_from(self.0[3] as i64).unwrap_or(0)
    }

    /// Hashed, so that inode numbers are not disclosed. `now`: the file system's clock before the bytes are read.
    pub(super) fn entity_tag(&self, tags: EntityTags, now: [u64; 2]) -> EntityTag {
        let [seconds, _] = self.modified();
        // Nix, OSTree and reproducible archives set the same date for all files: 0 or 1. It carries no information
        // about the content.
        let (members, time) = match tags {
            EntityTags::Modified if seconds > 1 => (&self.0[2..5], self.modified()),
            EntityTags::Modified | EntityTags::Inode => (&self.0[..], self.changed()),
        };
        let bytes: Vec<u8> = members.iter().flat_map(|member| member.to_le_bytes()).collect();
        let tag = hashed_tag(&bytes);
        if is_past(time, now) { tag } else { tag.weakened() }
    }

    /// Whether the file was modified before `original`.
    ///
    /// Some tools and archives truncate times to whole seconds. Such a time is compared in seconds.
    pub(crate) fn is_older_than(&self, original: &State) -> bool {
        let [(ours, ours_ns), (its, its_ns)] = [self, original].map(|state| (state.0[3] as i64, state.0[4]));
        ours < its || ours == its && ours_ns != 0 && ours_ns < its_ns
    }
}

/// Whether every later change will have a later time stamp. Both times are in seconds and nanoseconds.
pub(super) fn is_past([seconds, nanoseconds]: [u64; 2], now: [u64; 2]) -> bool {
    // Before 1970.
    if seconds as i64 <= 0 {
        return true;
    }
    // Some file systems only store whole seconds.
    let latest = if nanoseconds == 0 { [seconds + 1, 0] } else { [seconds, nanoseconds] };
    latest < now
}

/// The clock of file system time stamps, in seconds and nanoseconds. It advances in ticks.
pub(super) fn file_system_time() -> [u64; 2] {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    [now.tv_sec as u64, now.tv_nsec as u64]
}

/// A strong entity tag: the hash of `bytes`.
pub(super) fn hashed_tag(bytes: &[u8]) -> EntityTag {
    let hash = digest(&SHA256, bytes);
    let mut fingerprint = [0; 8];
    fingerprint.copy_from_slice(&hash.as_ref()[..8]);
    EntityTag::from_fingerprint(fingerprint)
}
