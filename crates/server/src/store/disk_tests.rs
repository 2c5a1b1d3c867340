use super::super::format::Kind;
use super::super::snapshot::SNAPSHOT;
use super::*;

const ONCE: Times = Times { made: 1, asked: 1 };

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

fn processor_time() -> Duration {
    rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime).try_into().unwrap()
}

fn open(path: &Path, objects: u64) -> Arc<Disk> {
    // Twice the room: the shards of an index do not fill evenly.
    Disk::open(path, objects * 2 * 4096, objects * 2, 0, &Arc::default()).unwrap()
}

fn wait_until_loaded(disk: &Disk, mut meanwhile: impl FnMut()) {
    while !disk.is_loaded.load(Ordering::Acquire) {
        meanwhile();
    }
}

/// Begins with an object that is on the disk; there are `objects` with it. Returns the memory of the index by that.
fn all_come_back_with_the_snapshot(objects: u64) -> u64 {
    let scratch = tempfile::tempdir().unwrap();
    let key = b"https://example.org/";
    let metadata = Metadata { key: key.to_vec(), kind: Kind::Variants { names: Vec::new(), hashes: Vec::new() } };
    let hash_of = |n: u64| u128::from(n + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835);
    let before = resident();
    let disk = open(scratch.path(), objects);
    disk.start().unwrap();
    wait_until_loaded(&disk, || ());
    disk.write(b"body", &metadata, hash_of(0), ONCE).unwrap();
    for n in 1..objects {
        disk.index.insert(hash_of(n), Blocks::of(4096));
    }
    assert_eq!(disk.index.len(), objects);
    // Other tests of this process may free memory meanwhile.
    let memory = resident().saturating_sub(before);
    let began = Instant::now();
    disk.close(true);
    println!("{objects} objects: {} octets each; the snapshot took {:?}", memory / objects, began.elapsed());
    drop(disk);

    let (began, spent) = (Instant::now(), processor_time());
    let disk = open(scratch.path(), objects);
    // Before anything is loaded, an object is found by its name.
    assert!(matches!(disk.lookup(hash_of(0)), Lookup::Unknown));
    assert!(disk.open_object(hash_of(0), key, Wait::Yes).unwrap().is_some());
    disk.start().unwrap();
    let mut found = 1;
    wait_until_loaded(&disk, || {
        assert!(disk.open_object(hash_of(0), key, Wait::Yes).unwrap().is_some());
        found += 1;
        std::thread::sleep(Duration::from_millis(1));
    });
    println!(
        "all are loaded after {:?}, {:?} of a processor; meanwhile {found} lookups by name",
        began.elapsed(),
        processor_time() - spent
    );
    assert_eq!(disk.index.len(), objects);
    assert!(matches!(disk.lookup(hash_of(objects - 1)), Lookup::Found(_)));
    assert!(matches!(disk.lookup(hash_of(objects)), Lookup::None));
    assert!(!scratch.path().join(SNAPSHOT).exists());
    memory
}

#[test]
fn objects_are_found_by_name_until_the_snapshot_is_loaded() {
    all_come_back_with_the_snapshot(10_000);
}

#[test]
#[ignore = "takes a gigabyte of memory: cargo test -p sealion --lib ten_million -- --ignored --nocapture"]
fn ten_million_objects_take_at_most_80_octets_each_and_come_back_with_the_snapshot() {
    const OBJECTS: u64 = 10_000_000;
    let memory = all_come_back_with_the_snapshot(OBJECTS);
    assert!(memory <= 80 * OBJECTS, "{} octets an object", memory / OBJECTS);
}

#[test]
fn what_is_removed_while_the_index_is_loaded_stays_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let key = b"https://example.org/";
    let metadata = Metadata { key: key.to_vec(), kind: Kind::Variants { names: Vec::new(), hashes: Vec::new() } };
    let disk = open(scratch.path(), 10);
    disk.start().unwrap();
    wait_until_loaded(&disk, || ());
    disk.write(b"body", &metadata, 1, ONCE).unwrap();
    disk.close(true);
    drop(disk);
    // Nothing is loaded or unlinked before it is started.
    let disk = open(scratch.path(), 10);
    assert!(disk.directory.try_own().unwrap());
    let is_found = || disk.open_object(1, key, Wait::Yes).unwrap().is_some();
    assert!(is_found());
    for _ in 0..3 {
        disk.remove(1);
        assert!(!is_found());
    }
    assert_eq!(disk.removals.lock().hashes, [1]);
    // It is stored again.
    disk.add(1, 4096);
    assert!(is_found());
}

#[test]
fn without_a_whole_snapshot_the_directory_is_read() {
    for damage in [|bytes: &mut Vec<u8>| bytes[3] ^= 1, |bytes| bytes.truncate(bytes.len() - 1), |bytes| bytes.clear()]
        as [fn(&mut Vec<u8>); 3]
    {
        let scratch = tempfile::tempdir().unwrap();
        let metadata = Metadata { key: b"k".to_vec(), kind: Kind::Variants { names: Vec::new(), hashes: Vec::new() } };
        let disk = open(scratch.path(), 100);
        disk.start().unwrap();
        wait_until_loaded(&disk, || ());
        disk.write(b"body", &metadata, 7, ONCE).unwrap();
        disk.close(true);
        drop(disk);
        let snapshot = scratch.path().join(SNAPSHOT);
        let mut bytes = std::fs::read(&snapshot).unwrap();
        damage(&mut bytes);
        std::fs::write(&snapshot, bytes).unwrap();
        let disk = open(scratch.path(), 100);
        disk.start().unwrap();
        wait_until_loaded(&disk, || ());
        assert!(matches!(disk.lookup(7), Lookup::Found(_)) && disk.index.len() == 1);
    }
}

#[test]
fn a_directory_that_was_not_read_to_its_end_has_no_snapshot() {
    let metadata = Metadata { key: b"k".to_vec(), kind: Kind::Variants { names: Vec::new(), hashes: Vec::new() } };
    let stop: fn(&Disk, &Path) = |disk, _| disk.removals.lock().is_stopping = true;
    let fail: fn(&Disk, &Path) = |_, path| std::fs::write(path.join("fff"), "no directory").unwrap();
    for prevent in [stop, fail] {
        let scratch = tempfile::tempdir().unwrap();
        let disk = open(scratch.path(), 100);
        assert!(disk.directory.try_own().unwrap());
        for hash in 0..3 {
            disk.write(b"body", &metadata, hash << 120, ONCE).unwrap();
        }
        disk.index.clear();
        prevent(&disk, scratch.path());
        disk.load();
        assert!(!disk.is_loaded.load(Ordering::Acquire));
        assert!(matches!(disk.lookup(9), Lookup::Unknown));
        disk.removals.lock().is_stopping = false;
        disk.close(true);
        assert!(!scratch.path().join(SNAPSHOT).exists());
    }
}

#[tokio::test]
async fn a_disk_that_does_not_keep_up_counts_what_it_drops_and_stores_the_next() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = open(scratch.path(), 100);
    assert!(disk.directory.try_own().unwrap());
    let (may_end, turn) = std::sync::mpsc::channel::<()>();
    disk.write_later(usize::MAX / 2, move || turn.recv().unwrap());
    for _ in 0..3 {
        disk.write_later(1, || unreachable!("it does not fit"));
    }
    assert_eq!((disk.state().dropped, disk.state().failures), (3, 0));
    assert!(disk.may_store(None).await && disk.state().is_up);
    disk.writer.start().unwrap();
    may_end.send(()).unwrap();
    let (ended, written) = std::sync::mpsc::channel();
    // A job that fits again is written at once.
    while written.try_recv().is_err() {
        let ended = ended.clone();
        disk.write_later(1, move || _ = ended.send(()));
        std::thread::yield_now();
    }
    disk.close(true);
}

#[test]
fn only_an_object_that_was_asked_for_before_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let key = b"https://example.org/";
    let metadata = Metadata { key: key.to_vec(), kind: Kind::Variants { names: Vec::new(), hashes: Vec::new() } };
    let disk = open(scratch.path(), 10);
    assert!(disk.directory.try_own().unwrap());
    disk.write(b"body", &metadata, 1, Times { made: 5, asked: 5 }).unwrap();
    disk.remove_older(1, 4);
    assert!(disk.version(1).is_some());
    disk.remove_older(1, 5);
    assert!(disk.version(1).is_none());
}

/// Only they may wait for the file system, whose disk may hang.
#[tokio::test]
async fn the_threads_of_the_disk_are_asked_whether_a_large_body_has_room() {
    let scratch = tempfile::tempdir().unwrap();
    let disk = open(scratch.path(), 10_000);
    assert!(disk.directory.try_own().unwrap());
    let (release, held) = std::sync::mpsc::channel::<()>();
    let held = Arc::new(Mutex::new(held));
    for _ in 0..crate::files::disk_threads::MOST_THREADS {
        let held = Arc::clone(&held);
        disk.directory.threads.run_later(move || _ = held.lock().recv());
    }
    assert!(disk.may_store(Some(LARGE - 1)).await);
    let mut large = std::pin::pin!(disk.may_store(Some(LARGE)));
    assert!(std::future::poll_fn(|cx| std::task::Poll::Ready(large.as_mut().poll(cx).is_pending())).await);
    drop(release);
    assert!(large.await);
}
