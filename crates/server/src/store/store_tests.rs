use std::io::{Read, Write};

use http::HeaderMap;
use rustix::fs::{CWD, FileType, FlockOperation, Mode, flock, mknodat};
use rustix::pipe::fcntl_setpipe_size;
use rustix::thread::gettid;
use sealion_cache::Lifetime;
use sealion_http::{ExtraFields, Status};

use super::disk::Times;
use super::fill::Joined;
use super::key::NUMBER;
use super::object::Head;
use super::*;
use crate::files::resolve::{Content, SiteFile};

fn opened(directories: &[PathBuf]) -> Arc<Store> {
    let config = CacheConfig { directories: directories.to_vec().into(), ..CacheConfig::default() };
    let store = Store::build(&config, MOST_OPEN, None, &mut Problems::of_arguments()).unwrap();
    store.open().unwrap();
    store
}

#[test]
fn what_hangs_is_left_behind_when_its_time_is_over() {
    let (release, hangs) = std::sync::mpsc::channel::<()>();
    let hangs = Mutex::new(hangs);
    let work = |n: usize, hangs: Option<Mutex<std::sync::mpsc::Receiver<()>>>| {
        move || {
            if let Some(hangs) = hangs {
                let _ = hangs.lock().recv();
            }
            assert!(n < 3);
        }
    };
    let works = [work(0, None), work(1, Some(hangs)), work(2, None)];
    assert_eq!(finish_until(Instant::now() + Duration::from_secs(2), works), [1]);
    drop(release);
    assert!(finish_until(Instant::now() + Duration::from_secs(60), [|| (), || ()]).is_empty());
}

/// The test holds the lock of a file, so that its disk seems to hang.
#[test]
fn a_disk_that_hangs_keeps_no_purge_from_the_others() {
    let scratch = tempfile::tempdir().unwrap();
    let store = opened(&["a", "b"].map(|name| scratch.path().join(name)));
    let disks: Vec<_> = store.disks().collect();
    let [hanging, healthy] = disks[..] else { panic!("two disks") };
    let held = std::fs::File::create(hanging.directory.path.join("purges")).unwrap();
    flock(&held, FlockOperation::LockExclusive).unwrap();
    store.start().unwrap();
    // The first waits as long as a disk has; the next ones know.
    for tag in ["first", "second"] {
        let error = store.purge(Target::Tag(tag.to_owned()), false).unwrap_err();
        let path = hanging.directory.path.display().to_string();
        assert_eq!(error.to_string(), format!("{path}: the disk does not answer"));
        let written = std::fs::read_to_string(healthy.directory.path.join("purges")).unwrap();
        assert!(written.contains(tag), "{written}");
    }
    drop(held);
    store.close(true, Instant::now() + Duration::from_secs(20));
    // The file that the disk has now has all.
    let again = opened(std::slice::from_ref(&hanging.directory.path));
    for tag in ["first", "second"] {
        assert_eq!(again.purges().verdict(b"k", &[tag.into()], &[], 1), Verdict::Gone, "{tag}");
    }
}

const RULES: [u8; NUMBER] = [0; NUMBER];
const KEY: &[u8] = b"https://example.org/\n@=app";

/// A response that was asked for at this time.
fn object(store: &Store, asked: u64) -> Object {
    let head = Head {
        status: Status::OK,
        fields: HeaderMap::new(),
        lines: ExtraFields::default(),
        lifetime: Lifetime::from_bytes([0; Lifetime::LENGTH]).unwrap(),
        tags: Box::default(),
        groups: Box::default(),
        sliced: None,
    };
    let body = SiteFile::of_content(Content::Memory([].into()), 0);
    Object::new(KEY.into(), store.hash(KEY), Times { made: asked, asked }, head, body, 0)
}

/// The list of the variants of a URL may lie on the disk that hung, and the variant on another.
#[test]
fn responses_of_all_disks_are_doubted_when_one_answers_again_and_after_a_restart() {
    let scratch = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| scratch.path().join(name));
    let store = opened(&paths);
    assert!(store.disks().all(|disk| disk.directory.try_own().unwrap()));
    let asked = now_ms();
    let verdict = |store: &Store, asked| store.verdict(&object(store, asked));
    let healthy = store.disk(store.hash(KEY));
    let hanging = store.disks().find(|disk| !Arc::ptr_eq(disk, healthy)).unwrap();
    hanging.begin_to_hang();
    healthy.write_doubt();
    assert_eq!(verdict(&store, asked), Verdict::Valid);
    assert_eq!(verdict(&opened(&paths), asked), Verdict::Doubtful, "if the process were killed now");
    hanging.try_again();
    assert!(!hanging.hangs());
    assert_eq!(verdict(&store, asked), Verdict::Doubtful);
    let later = store.changes.doubted_until() + 1;
    store.disks().for_each(|disk| disk.close(true));
    for paths in
        [&paths[..], std::slice::from_ref(&hanging.directory.path), std::slice::from_ref(&healthy.directory.path)]
    {
        let again = opened(paths);
        assert_eq!((verdict(&again, asked), verdict(&again, later)), (Verdict::Doubtful, Verdict::Valid));
    }
}

/// A pipe in the place of the file that is written holds the write. Sleeps: the thread waits for that, or for the disk.
#[test]
fn responses_of_the_time_in_which_a_disk_begins_to_answer_are_doubted() {
    let scratch = tempfile::tempdir().unwrap();
    let store = opened(&[scratch.path().to_owned()]);
    let disk = Arc::clone(store.disks().next().unwrap());
    assert!(disk.directory.try_own().unwrap());
    disk.begin_to_hang();
    let path = scratch.path().join("doubted.next");
    mknodat(CWD, &path, FileType::Fifo, Mode::RWXU, 0).unwrap();
    let mut pipe = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    let size = fcntl_setpipe_size(&pipe, 4096).unwrap();
    pipe.write_all(&vec![0; size]).unwrap();
    let (begun, has_begun) = std::sync::mpsc::channel();
    let again = {
        let disk = Arc::clone(&disk);
        std::thread::spawn(move || {
            begun.send(gettid()).unwrap();
            disk.try_again();
        })
    };
    let stat = format!("/proc/self/task/{}/stat", has_begun.recv().unwrap().as_raw_nonzero());
    while !std::fs::read_to_string(&stat).unwrap().contains(") S ") {
        std::thread::yield_now();
    }
    // A response that is asked for now, and withdrawn.
    let asked = now_ms() + 1;
    assert!(disk.hangs());
    while now_ms() <= asked {
        std::thread::yield_now();
    }
    pipe.read_exact(&mut vec![0; size]).unwrap();
    again.join().unwrap();
    assert!(!disk.hangs());
    assert_eq!(store.verdict(&object(&store, asked)), Verdict::Doubtful);
}

/// A pipe in the place of a file holds whatever reads it.
#[test]
fn a_disk_whose_small_files_cannot_be_read_is_left_out_of_the_start() {
    for name in ["salt", "purges"] {
        let scratch = tempfile::tempdir().unwrap();
        let paths = ["a", "b"].map(|name| scratch.path().join(name));
        drop(opened(&paths));
        let file = paths[0].join(name);
        let _ = std::fs::remove_file(&file);
        mknodat(CWD, &file, FileType::Fifo, Mode::RWXU, 0).unwrap();
        let (sender, started) = std::sync::mpsc::channel();
        let start = move || drop(sender.send(opened(&paths)));
        assert!(finish_until(Instant::now() + Duration::from_secs(60), [start]).is_empty(), "{name}");
        let store = started.recv().unwrap();
        let troubles: Vec<_> = store.opened().slots.iter().map(|slot| slot.trouble().is_some()).collect();
        assert_eq!(troubles, [true, false], "{name}");
        // Lets the reader of the file go on.
        drop(std::fs::File::options().read(true).write(true).open(&file));
    }
}

/// Between the look for an object and the request for its fill, a fetch of it may have ended: it is not fetched twice.
#[test]
fn a_fetch_that_ended_since_the_look_is_not_begun_again() {
    let scratch = tempfile::tempdir().unwrap();
    let store = opened(&[scratch.path().to_owned()]);
    let key = KEY;
    let id = store.hash(key);
    let failed = || {
        let failure = crate::upstream::Failure::Broken("the test".to_owned());
        fill::End::Failed(Arc::new(fill::Failed { failure, trace: None }))
    };
    let looked = Some(store.epoch(id));
    let Joined::New(fill, _) = store.join(id, key, RULES, false, looked) else { panic!("nothing is under way") };
    assert!(matches!(store.join(id, key, RULES, false, looked), Joined::Shared(shared) if Arc::ptr_eq(&shared, &fill)));
    // Its object is being written.
    fill.end(failed());
    assert!(matches!(store.join(id, key, RULES, false, looked), Joined::Ended));
    // It is written.
    store.changed(id);
    store.forget(id, &fill);
    assert!(matches!(store.join(id, key, RULES, false, looked), Joined::Ended));
    // A caller that has looked since, or that needs a fetch, begins a new one.
    let Joined::New(fill, _) = store.join(id, key, RULES, false, Some(store.epoch(id))) else { panic!("it looked") };
    fill.end(failed());
    assert!(matches!(store.join(id, key, RULES, false, None), Joined::New(..)));
}

/// Two fetches of one URL. The second turns out to be of a variant.
#[test]
fn a_fill_that_ends_gives_back_the_place_that_it_took_and_no_other() {
    let scratch = tempfile::tempdir().unwrap();
    let store = opened(&[scratch.path().to_owned()]);
    let (id, variant) = (store.hash(KEY), store.hash(b"of a variant"));
    let join = || match store.join(id, KEY, RULES, false, None) {
        Joined::New(fill, _) => fill,
        _ => panic!("none is under way"),
    };
    let first = join();
    let failure = crate::upstream::Failure::Broken("the test".to_owned());
    // Its object may be waiting to be written.
    first.end(fill::End::Failed(Arc::new(fill::Failed { failure, trace: None })));
    let second = join();
    store.also_found_by(id, variant, &second);
    store.forget(id, &second);
    let fills = store.fills.lock();
    assert!(fills.get(&id).is_some_and(|found| Arc::ptr_eq(found, &first)));
    assert!(!fills.contains_key(&variant));
}

/// A worker that ends drops tasks that it never ran.
#[test]
fn a_fetch_that_is_dropped_before_it_runs_gives_back_its_place() {
    let scratch = tempfile::tempdir().unwrap();
    let store = opened(&[scratch.path().to_owned()]);
    let id = store.hash(KEY);
    let Joined::New(fill, _) = store.join(id, KEY, RULES, false, None) else { panic!("none is under way") };
    drop(fetch::Guard::run((&store, &fill), (id, id), async { panic!("it is not polled") }));
    assert!(fill.has_ended() && store.fills.lock().is_empty());
    assert!(matches!(store.join(id, KEY, RULES, false, None), Joined::New(..)));
}

/// A response that was requested before a fetch began says nothing of the fetch's response.
#[test]
fn only_what_was_asked_for_before_is_withdrawn() {
    let scratch = tempfile::tempdir().unwrap();
    let store = opened(&[scratch.path().to_owned()]);
    let id = store.hash(KEY);
    let Joined::New(fill, _) = store.join(id, KEY, RULES, false, None) else { panic!("none is under way") };
    let request = fetch::FetchRequest::of_fields(b"");
    let fetching = |asked| under_way::Fetching {
        key: KEY.into(),
        names: Vec::new(),
        variant: request.variant(&[]),
        asked,
        id,
        fill: Arc::clone(&fill),
    };
    let withdrawal = |at| replaced::Withdrawal { key: KEY, id, page: id, request: &request, at, fill: None };
    store.under_way.begin(id);
    assert!(store.under_way.flows(id, fetching(fill.began + 5)));
    assert!(store.under_way.withdraw(&withdrawal(fill.began + 4)).is_empty());
    assert_eq!(store.under_way.withdraw(&withdrawal(fill.began + 5)).len(), 1);
    store.hide_older(id, fill.began - 1, None);
    assert!(matches!(store.join(id, KEY, RULES, false, None), Joined::Shared(_)));
    store.hide_older(id, fill.began, None);
    assert!(matches!(store.join(id, KEY, RULES, false, None), Joined::New(..)));
}

#[test]
fn keys_have_the_same_hashes_and_disks_whichever_directory_is_replaced_or_comes_first() {
    let scratch = tempfile::tempdir().unwrap();
    let [a, b, c] = ["a", "b", "c"].map(|name| scratch.path().join(name));
    let key = KEY;
    let store = opened(&[a.clone(), b.clone(), c.clone()]);
    let before = store.hash(key);
    let disk = store.disk(before).directory.path.clone();
    let replaced = if disk == a { b.clone() } else { a.clone() };
    std::fs::remove_dir_all(replaced).unwrap();
    for order in [[&a, &b, &c], [&b, &a, &c], [&c, &b, &a]] {
        let store = opened(&order.map(Clone::clone));
        assert_eq!(store.hash(key), before);
    }
    // A directory that is opened alone knows it too.
    for directory in [a, b, c] {
        assert_eq!(opened(&[directory]).hash(key), before);
    }
}
