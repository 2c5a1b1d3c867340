//! Objects of releases that gave them other names.

use std::ffi::CString;
use std::io;

use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Dir, Mode, openat, unlinkat};

use super::directory::{DIRECTORY, Owned, hex};

impl Owned<'_> {
    /// Removes the objects of builds before 2026-11-22, which named them `ab/cd/…`: no lookup finds that name. `pause` is called between two
    /// directories; it returns `false` to end early.
    pub(super) fn remove_former(&self, mut pause: impl FnMut() -> bool) -> io::Result<u64> {
        let place = self.0.place.load();
        let mut removed = 0;
        let below = |directory: &OwnedFd, digits: usize| -> io::Result<Vec<CString>> {
            let names = Dir::read_from(directory)?.map(|entry| Ok(entry?.file_name().to_owned()));
            let names = names.collect::<io::Result<Vec<_>>>()?;
            Ok(names.into_iter().filter(|name| hex(name.to_bytes(), digits).is_some()).collect())
        };
        for first in below(&place.root, 2)? {
            let outer = openat(&place.root, &first, DIRECTORY, Mode::empty());
            let Ok(outer) = outer else { continue };
            for second in below(&outer, 2)? {
                let Ok(inner) = openat(&outer, &second, DIRECTORY, Mode::empty()) else { continue };
                for name in below(&inner, 28)? {
                    unlinkat(&inner, &name, AtFlags::empty())?;
                    removed += 1;
                }
                // Other files stay.
                let _ = unlinkat(&outer, &second, AtFlags::REMOVEDIR);
                if !pause() {
                    return Ok(removed);
                }
            }
            let _ = unlinkat(&place.root, &first, AtFlags::REMOVEDIR);
        }
        Ok(removed)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::directory::Directory;

    #[test]
    fn objects_of_the_former_layout_are_removed_and_nothing_else() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = Arc::new(Directory::open(scratch.path()).unwrap());
        assert!(directory.try_own().unwrap());
        let add = |name: &str| {
            let path = scratch.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, "content").unwrap();
        };
        let rest = "0123456789abcdef0123456789ab";
        for name in [format!("ab/cd/{rest}"), format!("ab/ce/{rest}"), format!("00/ff/{rest}")] {
            add(&name);
        }
        add("000/00000000000000000000000000007");
        add("ab/cd/of-somebody-else");
        add("ba/of-somebody-else");
        assert_eq!(directory.owned().unwrap().remove_former(|| false).unwrap(), 1);
        assert_eq!(directory.owned().unwrap().remove_former(|| true).unwrap(), 2);
        assert_eq!(directory.owned().unwrap().remove_former(|| true).unwrap(), 0);
        let is_there = |name: &str| scratch.path().join(name).exists();
        assert!(is_there("ab/cd/of-somebody-else") && is_there("ba/of-somebody-else"));
        assert!(!is_there("ab/ce") && !is_there("00"));
        assert!(is_there("000/00000000000000000000000000007"));
    }
}
