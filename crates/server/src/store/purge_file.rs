//! The file `purges` of each directory: a line for each purge, so that a restart does not bring back purged objects.
//!
//! Each disk has a thread that writes its file and reads it (`purge_orders.rs`), so that a disk that hangs holds up no other. While one process takes over
//! from another, both append, and each reads the other's lines. Only the owner of the directory replaces the file, without superseded purges.
//!
//! A process holds flock(2) on the file while it appends to it or replaces it: no line gets into a file that is being replaced.

use std::fs::File;
use std::io::{self, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;

use super::Store;
use super::directory::Directory;
use super::disk::TURN;
use super::purge::{Purge, Purges, Target};
use super::purge_orders::Work;

/// Whether a purge survives a loss of power.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Durable {
    No,
    Yes,
}

/// The file of a directory.
#[derive(Debug)]
pub(super) struct PurgeFile {
    pub(super) directory: Arc<Directory>,
    /// The inode that was read or written; 0: there was no file.
    inode: u64,
    /// Bytes of it.
    octets: u64,
    /// Whether purges of another process were read since [`Self::catch_up`] said so.
    has_news: bool,
    /// Whether a damaged or missing line makes a new file necessary.
    is_damaged: bool,
    /// How many lines had been left out when it was replaced last.
    left_out: u64,
    /// Whether the log says that it cannot be read.
    is_unreadable: bool,
    /// How often it could not be written, since the log says so.
    not_written: u64,
    /// When it could not be written last.
    failed_at: Option<Instant>,
}

impl PurgeFile {
    pub(super) fn load(directory: Arc<Directory>, purges: &Purges) -> Self {
        let mut file = PurgeFile {
            directory,
            inode: 0,
            octets: 0,
            has_news: false,
            is_damaged: false,
            left_out: 0,
            is_unreadable: false,
            not_written: 0,
            failed_at: None,
        };
        file.read(purges);
        // Nothing was found before.
        file.has_news = false;
        file
    }

    /// The loop of its thread, until the store is gone.
    pub(super) fn work(&mut self, store: &Weak<Store>, queue: &Receiver<Work>, hangs: &AtomicBool) {
        loop {
            let first = match queue.recv_timeout(TURN) {
                Ok(work) => Some(work),
                Err(RecvTimeoutError::Timeout) => None,
                Err(RecvTimeoutError::Disconnected) => return,
            };
            let Some(store) = store.upgrade() else { return };
            let purges = store.purges();
            // The directory may be new. Or the process before was of a release that replaced the file without regard to appended lines.
            if self.directory.take_owned()
                && let Err(error) = self.replace(purges)
            {
                // The next purge tries again, and says so.
                tracing::debug!("cache: cannot write the purges again: {error}");
            }
            if first.is_none() && self.failed_at.is_some_and(|failed| failed.elapsed() > RETRY) {
                self.write_again(purges);
            }
            // Orders that wait share one write.
            let (mut lines, mut durable, mut is_last, mut waiting) = (Vec::new(), Durable::No, false, Vec::new());
            for work in first.into_iter().chain(queue.try_iter()) {
                waiting.push(match work {
                    Work::Append { line, durable: wanted, done } => {
                        lines.extend_from_slice(&line);
                        durable = durable.max(wanted);
                        done
                    }
                    Work::Complete { done } => {
                        is_last = true;
                        done
                    }
                });
            }
            let mut outcome = if lines.is_empty() { Ok(()) } else { self.append(&lines, durable, purges) };
            if is_last {
                outcome = outcome.and(self.complete(purges));
            }
            if hangs.swap(false, Ordering::Relaxed) {
                // Not all lines may have found a place in the queue.
                self.is_damaged = true;
                tracing::info!("cache {}: the disk writes purges again", self.directory.path.display());
            }
            for done in waiting {
                let outcome = outcome.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()));
                done(outcome.copied());
            }
            if self.directory.awaits_purges() {
                // An order of the meantime sets it again.
                self.directory.set_awaits_purges(false);
                if self.replace(purges).is_err() {
                    self.directory.set_awaits_purges(true);
                }
            }
            if self.catch_up(purges) {
                // Responses that are on their way may have been made before the purge.
                store.fills.lock().clear();
                store.all_changed();
            }
            if let Some(disk) = store.disks().find(|disk| Arc::ptr_eq(&disk.directory, &self.directory)) {
                store.sweep_purged(disk);
            }
        }
    }

    /// Reads the file again after another process has written it. A file that is being written is read at the next turn: it may end within a line. Returns
    /// whether purges of another process were read since the last call, here or when the file was replaced.
    fn catch_up(&mut self, purges: &Purges) -> bool {
        let (inode, octets) = (self.inode, self.octets);
        if self.is_new() {
            let held = self.directory.open_file(PURGES);
            let is_being_written =
                |file: &File| flock(file, FlockOperation::NonBlockingLockShared) == Err(Errno::WOULDBLOCK);
            if !held.as_ref().is_ok_and(is_being_written) {
                self.read(purges);
            }
        }
        // Other processes only append to the file. If it is gone, shorter or replaced, it was removed, and purges with it.
        let is_lost = inode != 0 && (self.inode != inode || self.octets < octets);
        if is_lost && let Err(error) = self.replace(purges) {
            // The next purge says so.
            tracing::debug!("cache: cannot write the purges again: {error}");
        }
        std::mem::take(&mut self.has_news)
    }

    /// Whether the file has changed since it was last read or written.
    fn is_new(&self) -> bool {
        self.directory.state_of(PURGES).is_ok_and(|state| state != (self.inode, self.octets))
    }

    fn read(&mut self, purges: &Purges) {
        let mut failure = None;
        let mut damaged = |what: &str, error: &dyn std::error::Error| {
            failure.get_or_insert_with(|| format!("{what} cannot be read, all objects are validated: {error}"));
            // Once: objects would be validated at each turn if the file cannot be read.
            if !self.is_unreadable {
                purges.add(&Purge { target: Target::Everything, soft: true, at: super::now_ms() });
            }
            self.is_damaged = true;
        };
        let read = || -> io::Result<(u64, Vec<u8>)> {
            let mut file = self.directory.open_file(PURGES)?;
            let mut lines = Vec::new();
            file.read_to_end(&mut lines)?;
            Ok((file.metadata()?.ino(), lines))
        };
        let (inode, lines) = match read() {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => (0, Vec::new()),
            Err(error) => {
                damaged("the purges", &error);
                (0, Vec::new())
            }
        };
        for line in lines.split(|octet| *octet == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Purge>(line) {
                // An older release may have written it, which compared other spellings.
                Ok(purge) if purge.at < LATEST => purges.add(&Purge { target: purge.target.normal(), ..purge }),
                Ok(_) => damaged("a purge", &io::Error::other("its time is not of this age")),
                // The end of a line may be missing after a loss of power: its purge is not known.
                Err(error) => damaged("a purge", &error),
            }
        }
        (self.inode, self.octets) = (inode, lines.len() as u64);
        self.has_news |= !lines.is_empty() || (failure.is_some() && !self.is_unreadable);
        match failure {
            Some(_) if self.is_unreadable => {}
            Some(what) => {
                tracing::warn!("{}: {what}", self.directory.path.join(PURGES).display());
                self.is_unreadable = true;
            }
            None => self.can_be_read(),
        }
    }

    /// Says so, where the log says that it cannot.
    fn can_be_read(&mut self) {
        if std::mem::take(&mut self.is_unreadable) {
            tracing::info!("{}: the purges can be read again", self.directory.path.join(PURGES).display());
        }
    }

    /// Appends lines. Replaces the file where it is damaged or long.
    fn append(&mut self, lines: &[u8], durable: Durable, purges: &Purges) -> io::Result<()> {
        let appended = self.append_lines(lines, durable);
        self.note_written(appended.as_ref());
        // It holds in memory: the next purge that can be written brings it along, or the end of the process.
        self.is_damaged |= appended.is_err();
        appended?;
        if self.is_damaged || self.octets > MOST_OCTETS { self.replace(purges) } else { Ok(()) }
    }

    /// Says once that it cannot be written, and once that it is again.
    fn note_written(&mut self, written: Result<&(), &io::Error>) {
        let path = self.directory.path.display();
        match (written, self.not_written) {
            (Err(error), 0) => {
                tracing::warn!(
                    "cache {path}: cannot write purges: {error}: {NOT_LASTING}: make room, or repair the disk"
                );
            }
            (Ok(()), 1..) => {
                let failures = self.not_written;
                tracing::info!("cache {path}: purges are written again; {failures} writes had failed");
            }
            _ => {}
        }
        self.not_written = if written.is_ok() { 0 } else { self.not_written + 1 };
        self.failed_at = written.is_err().then(Instant::now);
    }

    fn append_lines(&mut self, lines: &[u8], durable: Durable) -> io::Result<()> {
        let mut file = self.locked()?;
        let before = file.metadata()?;
        if self.octets == 0 {
            self.inode = before.ino();
        }
        if let Err(error) = file.write_all(lines) {
            // A part of a line does not tell its purge.
            let _ = file.set_len(before.len());
            return Err(error);
        }
        self.octets += lines.len() as u64;
        if durable == Durable::Yes { file.sync_data() } else { Ok(()) }
    }

    /// Tries once more to write the purges that could not be written: a full disk may have room by now. The owner replaces the file.
    fn write_again(&mut self, purges: &Purges) {
        if self.directory.is_owner() {
            let replaced = self.replace(purges);
            self.note_written(replaced.as_ref());
        }
    }

    /// Writes the purges that have no line. The last chance before the directory is left to another process.
    fn complete(&mut self, purges: &Purges) -> io::Result<()> {
        if self.is_damaged || self.left_out != purges.left_out() { self.replace(purges) } else { Ok(()) }
    }

    /// Replaces the file by one with a line for each purge. The file of another process stays as it is: that process reads the appended lines.
    fn replace(&mut self, purges: &Purges) -> io::Result<()> {
        let directory = Arc::clone(&self.directory);
        let Some(_owned) = directory.keep() else { return Ok(()) };
        self.is_damaged = true;
        // A file that cannot be opened is replaced, too.
        let _locked = self.locked();
        if self.is_new() {
            self.read(purges);
        }
        let left_out = purges.left_out();
        let lines = purges.to_lines();
        directory.write_file(PURGES, &lines)?;
        self.inode = directory.state_of(PURGES)?.0;
        (self.octets, self.left_out, self.is_damaged) = (lines.len() as u64, left_out, false);
        self.can_be_read();
        Ok(())
    }

    /// The file, locked: no other process appends to it or replaces it.
    fn locked(&self) -> io::Result<File> {
        loop {
            let file = self.directory.append(PURGES)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // It may have been replaced before the lock was taken.
            if self.directory.state_of(PURGES)?.0 == file.metadata()?.ino() {
                return Ok(file);
            }
        }
    }
}

pub(super) const PURGES: &str = "purges";

/// No purge is as late, in milliseconds since 1970: a stored response has to be later than all of them.
const LATEST: u64 = 1 << 50;

/// The consequence of purges that are not written, for the operator.
pub(super) const NOT_LASTING: &str = "they hold until this process ends, and longer only if another directory has them";

/// Time after which purges that could not be written are written again, without another order.
const RETRY: Duration = Duration::from_secs(5);

/// Bytes above which the file is replaced by one without superseded purges.
const MOST_OCTETS: u64 = 128 << 20;

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::invalidated::MOST_INVALIDATED;
    use super::super::purge::Verdict;
    use super::*;

    fn file(path: &Path, purges: &Purges) -> PurgeFile {
        PurgeFile::load(Arc::new(Directory::open(path).unwrap()), purges)
    }

    fn owned(path: &Path, purges: &Purges) -> PurgeFile {
        let file = file(path, purges);
        assert!(file.directory.try_own().unwrap());
        file
    }

    /// The purges that a start reads.
    fn read(path: &Path) -> Purges {
        let purges = Purges::default();
        file(path, &purges);
        purges
    }

    /// Purges a tag, as a store does.
    fn order(tag: &str, at: u64, purges: &Purges, file: &mut PurgeFile) -> io::Result<()> {
        let purge = Purge { target: Target::Tag(tag.to_owned()), soft: false, at };
        purges.add(&purge);
        let line = format!("\n{}\n", serde_json::to_string(&purge).unwrap());
        file.append(line.as_bytes(), Durable::Yes, purges)
    }

    fn verdict(purges: &Purges, tag: &str, stored: u64) -> Verdict {
        purges.verdict(b"k", &[tag.into()], &[], stored)
    }

    #[test]
    fn clients_that_invalidate_very_many_urls_purge_no_others() {
        const ALL: usize = MOST_INVALIDATED + 10_000;
        let url = |n: usize| format!("https://a.example/{n}");
        let purges = Purges::default();
        for n in 0..ALL {
            purges.add(&Purge { target: Target::Invalidated(url(n)), soft: false, at: 10 });
        }
        let scratch = tempfile::tempdir().unwrap();
        let mut file = owned(scratch.path(), &purges);
        purges.leave_out_line();
        file.complete(&purges).unwrap();
        let again = read(scratch.path());
        for purges in [purges, again] {
            let is_gone = |n: usize| purges.verdict(url(n).as_bytes(), &[], &[], 5) == Verdict::Gone;
            assert!((0..ALL).all(is_gone));
            let others = (ALL..ALL + 10_000).filter(|n| is_gone(*n)).count();
            assert!(others < 600, "{others} of 10,000 others");
            assert_eq!(purges.verdict(url(0).as_bytes(), &[], &[], 11), Verdict::Valid);
        }
    }

    #[test]
    fn purges_survive_a_restart_and_a_damaged_line_makes_everything_stale() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let purges = Purges::default();
        let mut first = owned(path, &purges);
        order("news", 1000, &purges, &mut first).unwrap();
        let again = read(path);
        assert_eq!(verdict(&again, "news", 1000), Verdict::Gone);
        assert_eq!(verdict(&again, "other", 1000), Verdict::Valid);
        drop(first);
        let mut end = std::fs::OpenOptions::new().append(true).open(path.join(PURGES)).unwrap();
        end.write_all(b"{\"kind\"").unwrap();
        let again = Purges::default();
        let mut second = owned(path, &again);
        assert_eq!(verdict(&again, "other", 1000), Verdict::Stale);
        // The next purge is read, and the damaged line is gone.
        order("other", 3000, &again, &mut second).unwrap();
        for line in
            std::fs::read(path.join(PURGES)).unwrap().split(|octet| *octet == b'\n').filter(|line| !line.is_empty())
        {
            assert!(serde_json::from_slice::<Purge>(line).is_ok(), "{}", line.escape_ascii());
        }
        let again = read(path);
        assert_eq!(verdict(&again, "other", 3000), Verdict::Gone);
        assert_eq!(verdict(&again, "news", 1000), Verdict::Gone);
    }

    #[test]
    fn what_cannot_be_appended_is_written_with_the_next_purge_or_at_the_end() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let purges = Purges::default();
        let mut own = owned(path, &purges);
        for (lost, with) in [("a", Some("b")), ("c", None)] {
            let _ = std::fs::remove_file(path.join(PURGES));
            // Nothing can be appended to a directory.
            std::fs::create_dir(path.join(PURGES)).unwrap();
            order(lost, 1000, &purges, &mut own).unwrap_err();
            std::fs::remove_dir(path.join(PURGES)).unwrap();
            match with {
                Some(with) => order(with, 1000, &purges, &mut own).unwrap(),
                None => own.complete(&purges).unwrap(),
            }
            for tag in [Some(lost), with].into_iter().flatten() {
                assert_eq!(verdict(&read(path), tag, 1000), Verdict::Gone, "{tag}");
            }
        }
    }

    /// The new process appends before it owns the directory, and the old one replaces the file at its end.
    #[test]
    fn two_processes_read_what_the_other_wrote_and_lose_nothing() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let (old_purges, new_purges) = (Purges::default(), Purges::default());
        let mut old = owned(path, &old_purges);
        let mut new = file(path, &new_purges);
        order("by-new", 1000, &new_purges, &mut new).unwrap();
        assert!(old.catch_up(&old_purges) && !new.catch_up(&new_purges));
        assert_eq!(verdict(&old_purges, "by-new", 1000), Verdict::Gone);
        order("by-new-again", 1000, &new_purges, &mut new).unwrap();
        old_purges.leave_out_line();
        old.complete(&old_purges).unwrap();
        assert_eq!(verdict(&read(path), "by-new-again", 1000), Verdict::Gone);
        // It was read then, and is said once.
        assert!(old.catch_up(&old_purges) && !old.catch_up(&old_purges));
        // Lines that another process is writing are read once it has finished.
        order("by-old", 1000, &old_purges, &mut old).unwrap();
        let writing = old.locked().unwrap();
        assert!(!new.catch_up(&new_purges));
        drop(writing);
        assert!(new.catch_up(&new_purges));
        // The file is the owner's: another process replaces nothing.
        new.is_damaged = true;
        let before = std::fs::read(path.join(PURGES)).unwrap();
        new.complete(&new_purges).unwrap();
        assert_eq!(std::fs::read(path.join(PURGES)).unwrap(), before);
        // A file of the same length, but another file.
        std::fs::write(path.join("other"), String::from_utf8(before).unwrap().replace("by-new-again", "by-old-again"))
            .unwrap();
        std::fs::rename(path.join("other"), path.join(PURGES)).unwrap();
        assert!(new.catch_up(&new_purges) && !new.catch_up(&new_purges));
        assert_eq!(verdict(&new_purges, "by-old-again", 1000), Verdict::Gone);
    }

    #[test]
    fn a_file_that_somebody_removes_empties_or_replaces_is_written_again() {
        type Harm = fn(&Path);
        let harms: [Harm; 4] = [
            |file| std::fs::remove_file(file).unwrap(),
            |file| std::fs::write(file, "").unwrap(),
            |file| {
                std::fs::remove_file(file).unwrap();
                std::os::unix::fs::symlink("nowhere", file).unwrap();
            },
            |file| {
                std::fs::write(file.with_extension("new"), "{}\n").unwrap();
                std::fs::rename(file.with_extension("new"), file).unwrap();
            },
        ];
        for (number, harm) in harms.into_iter().enumerate() {
            let scratch = tempfile::tempdir().unwrap();
            let path = scratch.path();
            let purges = Purges::default();
            let mut own = owned(path, &purges);
            order("lost", 1000, &purges, &mut own).unwrap();
            harm(&path.join(PURGES));
            own.catch_up(&purges);
            assert_eq!(verdict(&read(path), "lost", 1000), Verdict::Gone, "{number}");
            assert!(!own.catch_up(&purges), "{number}");
        }
    }

    /// A stored response has to be later than each purge.
    #[test]
    fn a_purge_of_another_age_is_a_damaged_line() {
        let scratch = tempfile::tempdir().unwrap();
        drop(Directory::open(scratch.path()).unwrap());
        let line = serde_json::to_vec(&Purge { target: Target::Everything, soft: false, at: u64::MAX }).unwrap();
        std::fs::write(scratch.path().join(PURGES), line).unwrap();
        assert_eq!(verdict(&read(scratch.path()), "a", super::super::now_ms() + 10_000), Verdict::Valid);
    }

    /// Each of four processes appends while the owner replaces the file again and again.
    #[test]
    fn no_line_gets_into_a_file_that_is_being_replaced() {
        let scratch = tempfile::tempdir().unwrap();
        let path = scratch.path();
        let purges = Purges::default();
        let mut own = owned(path, &purges);
        std::thread::scope(|scope| {
            let others = std::array::from_fn::<_, 4, _>(|process| {
                scope.spawn(move || {
                    let purges = Purges::default();
                    let mut other = file(path, &purges);
                    for n in 0..25 {
                        order(&format!("{process}-{n}"), 1000, &purges, &mut other).unwrap();
                    }
                })
            });
            while others.iter().any(|other| !other.is_finished()) {
                own.replace(&purges).unwrap();
            }
        });
        let written = read(path);
        for (process, n) in (0..4).flat_map(|process| (0..25).map(move |n| (process, n))) {
            assert_eq!(verdict(&written, &format!("{process}-{n}"), 1000), Verdict::Gone, "{process}-{n}");
        }
    }
}
