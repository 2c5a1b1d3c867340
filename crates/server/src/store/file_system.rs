//! Whether the file system of a directory answers without a server or a program, so that the threads that serve can look whether a file is in memory.

use std::path::Path;

/// File systems whose requests a server or a program answers (linux/magic.h, `f_type` of statfs(2)).
const REMOTE: &[(i64, &str)] = &[
    (0x6969, "NFS"),
    (0x6573_5546, "FUSE"),
    (0xff53_4d42, "CIFS"),
    (0xfe53_4d42, "SMB2"),
    (0x00c3_6400, "Ceph"),
    (0x0102_1997, "9p"),
    (0x5346_414f, "AFS"),
];

fn remote(kind: i64) -> Option<&'static str> {
    // Some architectures extend the sign of 32 bits.
    REMOTE.iter().find(|(other, _)| *other == kind & 0xffff_ffff).map(|(_, name)| *name)
}

/// A warning about the file system of a directory. `None`: it is a local one.
pub(super) fn warning(directory: &Path) -> Option<String> {
    let kind = rustix::fs::statfs(directory).ok()?.f_type;
    let name = remote(kind)?;
    Some(format!(
        "cache {}: the directory lies on {name}: where that does not answer, requests of all sites wait: name a directory of a local disk",
        directory.display()
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_servers_and_programs_are_told_from_local_ones() {
        for (kind, name) in [(0x6969, Some("NFS")), (i64::from(0xff53_4d42_u32.cast_signed()), Some("CIFS"))] {
            assert_eq!(remote(kind), name);
        }
        for local in [0xef53, 0x5846_5342, 0x0102_1994] {
            assert_eq!(remote(local), None);
        }
        assert_eq!(warning(&std::env::temp_dir()), None);
    }
}
