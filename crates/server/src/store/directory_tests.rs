use std::io::Write;

use super::super::format::Kind;
use super::*;

fn write(directory: &Arc<Directory>, hash: u128, body: &[u8]) {
    let mut temporary = directory.create().unwrap();
    let kind = Kind::Variants { names: vec!["a".to_owned()], hashes: Vec::new() };
    let metadata = Metadata { key: b"k".to_vec(), kind }.to_bytes().unwrap();
    let footer = Footer {
        metadata: metadata.len() as u32,
        body: body.len() as u64,
        stored: 1,
        hash,
        boot: boot(),
        body_checksum: crc32c::crc32c(body),
        metadata_checksum: crc32c::crc32c(&metadata),
    };
    for part in [body, &metadata, &footer.to_bytes()] {
        temporary.file.write_all(part).unwrap();
    }
    temporary.publish(hash).unwrap();
}

#[test]
fn an_object_is_found_by_its_hash_and_by_a_scan_until_it_is_removed() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(scratch.path()).unwrap());
    assert!(directory.try_own().unwrap());
    let hashes = [0, 1, u128::MAX, 0xabcd_ef00_0000_0000_0000_0000_0000_0001];
    for hash in hashes {
        write(&directory, hash, b"body");
        let found = directory.find(hash, Wait::Yes).unwrap().unwrap();
        assert_eq!((found.footer.body, found.metadata.key.as_slice()), (4, &b"k"[..]));
    }
    let mut seen = Vec::new();
    directory
        .scan(|hash, length| {
            seen.push(hash);
            length > 64
        })
        .unwrap();
    seen.sort_unstable();
    let mut all = hashes;
    all.sort_unstable();
    assert_eq!(seen, all);
    for hash in hashes {
        directory.owned().unwrap().remove(hash).unwrap();
        directory.owned().unwrap().remove(hash).unwrap();
        assert!(directory.find(hash, Wait::Yes).unwrap().is_none());
    }
}

#[test]
fn a_file_cut_at_any_octet_is_no_object() {
    let scratch = tempfile::tempdir().unwrap();
    let directory = Arc::new(Directory::open(scratch.path()).unwrap());
    assert!(directory.try_own().unwrap());
    write(&directory, 7, b"body");
    let path = scratch.path().join(name(7));
    let whole = std::fs::read(&path).unwrap();
    for length in 0..whole.len() {
        std::fs::write(&path, &whole[..length]).unwrap();
        assert!(directory.find(7, Wait::Yes).unwrap().is_none(), "{length} octets");
    }
    std::fs::write(&path, &whole).unwrap();
    assert!(directory.find(7, Wait::Yes).unwrap().is_some());
}

#[test]
fn one_process_owns_a_directory_and_the_next_removes_what_it_left() {
    let scratch = tempfile::tempdir().unwrap();
    let first = Arc::new(Directory::open(scratch.path()).unwrap());
    let second = Arc::new(Directory::open(scratch.path()).unwrap());
    assert_eq!(first.number, second.number);
    assert!(first.try_own().unwrap());
    assert!(!second.try_own().unwrap());
    assert!(second.create().is_err() && second.owned().is_none());
    std::mem::forget(first.create().unwrap());
    first.disown(true).unwrap();
    assert!(second.try_own().unwrap());
    assert_eq!(std::fs::read_dir(scratch.path().join(TEMPORARY)).unwrap().count(), 0);
}
