//! The index of a disk as an orderly stop leaves it: a row for each object, and a checksum of all.

use std::io::{self, BufReader, Read};
use std::os::unix::fs::FileExt;

use super::directory::Directory;
use super::object::checksum;

/// Writes a snapshot of these objects: their hashes and blocks.
pub(super) fn write(directory: &Directory, count: u64, objects: impl Iterator<Item = (u128, u32)>) -> io::Result<()> {
    let mut rows = Vec::with_capacity(count as usize * ROW + 4);
    for (hash, blocks) in objects {
        rows.extend_from_slice(&hash.to_le_bytes());
        rows.extend_from_slice(&blocks.to_le_bytes());
    }
    let checksum = crc32c::crc32c(&rows);
    rows.extend_from_slice(&checksum.to_le_bytes());
    directory.write_file(SNAPSHOT, &rows)
}

/// Reads the snapshot and removes it. `reserve` gets the number of objects, `add` each of them. `Ok(false)`: it is missing or damaged.
pub(super) fn read(
    directory: &Directory,
    reserve: impl FnOnce(u64),
    mut add: impl FnMut(u128, u32),
) -> io::Result<bool> {
    let Ok(file) = directory.open_file(SNAPSHOT) else { return Ok(false) };
    // It lacks later objects: after a crash, the directory is read.
    let _ = directory.remove_file(SNAPSHOT);
    let rows = file.metadata()?.len().saturating_sub(4) / ROW as u64;
    let mut expected = [0; 4];
    file.read_exact_at(&mut expected, rows * ROW as u64)?;
    // Nothing of it counts unless all of it is right: it is read twice.
    if rows == 0 || checksum(&file, rows * ROW as u64, |_| ())?.to_le_bytes() != expected {
        return Ok(false);
    }
    reserve(rows);
    let mut reader = BufReader::with_capacity(1 << 18, &file);
    let mut row = [0; ROW];
    for _ in 0..rows {
        reader.read_exact(&mut row)?;
        let (hash, blocks) = row.split_first_chunk().expect("a row begins with a hash");
        let blocks = blocks.try_into().expect("four octets are left");
        add(u128::from_le_bytes(*hash), u32::from_le_bytes(blocks));
    }
    Ok(true)
}

/// Bytes of an object.
const ROW: usize = 20;

pub(super) const SNAPSHOT: &str = "index";
