//! Headers of tar archives: ustar, with pax records (POSIX.1-2017, pax) for values that do not fit.

/// Length of a block: headers are one, and contents are filled up to whole ones.
const BLOCK: u64 = 512;

/// Bytes of zeros that end an archive.
pub(super) const END: usize = 2 * BLOCK as usize;

/// Appends the header of a member. `name`: a relative path, which ends in a slash for a directory. `modified`: seconds since 1970.
pub(super) fn write_header(out: &mut Vec<u8>, name: &[u8], len: u64, modified: u64) {
    let is_directory = name.ends_with(b"/");
    let (prefix, rest) = split(name).unwrap_or((b"", &name[..SHORT_NAME.min(name.len())]));
    let is_cut = split(name).is_none();
    let mut records = Vec::new();
    if is_cut || (!name.is_ascii() && std::str::from_utf8(name).is_ok()) {
        if std::str::from_utf8(name).is_err() {
            write_record(&mut records, b"hdrcharset", b"BINARY");
        }
        write_record(&mut records, b"path", name);
    }
    if len > LARGEST_OCTAL {
        write_record(&mut records, b"size", len.to_string().as_bytes());
    }
    if !records.is_empty() {
        write_block(out, (b"", b"pax_header"), b'x', records.len() as u64, modified);
        out.extend_from_slice(&records);
        fill_up(out, records.len() as u64);
    }
    write_block(out, (prefix, rest), if is_directory { b'5' } else { b'0' }, len, modified);
}

/// Appends the zeros that follow content of `len` bytes.
pub(super) fn fill_up(out: &mut Vec<u8>, len: u64) {
    out.resize(out.len() + (padded(len) - len) as usize, 0);
}

/// `len` filled up to whole blocks.
pub(super) fn padded(len: u64) -> u64 {
    len.next_multiple_of(BLOCK)
}

/// Prefix and name of a ustar header. `None`: they are too long for it.
fn split(name: &[u8]) -> Option<(&[u8], &[u8])> {
    if name.len() <= SHORT_NAME {
        return Some((b"", name));
    }
    let fits =
        |slash: &usize| (1..=LONGEST_PREFIX).contains(slash) && (2..=SHORT_NAME + 1).contains(&(name.len() - slash));
    let slash = (0..name.len()).filter(|at| name[*at] == b'/').find(fits)?;
    Some((&name[..slash], &name[slash + 1..]))
}

/// A pax record begins with its own length in decimal digits, which count too.
fn write_record(out: &mut Vec<u8>, key: &[u8], value: &[u8]) {
    let rest = key.len() + value.len() + 3;
    let mut len = rest + 1;
    while len != rest + len.to_string().len() {
        len = rest + len.to_string().len();
    }
    out.extend_from_slice(len.to_string().as_bytes());
    out.push(b' ');
    out.extend_from_slice(key);
    out.push(b'=');
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn write_block(out: &mut Vec<u8>, (prefix, name): (&[u8], &[u8]), kind: u8, len: u64, modified: u64) {
    let mut block = [0; BLOCK as usize];
    let mut put = |at: usize, bytes: &[u8]| block[at..at + bytes.len()].copy_from_slice(bytes);
    put(0, name);
    put(100, if kind == b'5' { b"0000755" } else { b"0000644" });
    put(108, b"0000000");
    put(116, b"0000000");
    put(124, format!("{:011o}", len.min(LARGEST_OCTAL)).as_bytes());
    put(136, format!("{:011o}", modified.min(LARGEST_OCTAL)).as_bytes());
    // The checksum is made with spaces in its own place.
    put(148, b"        ");
    put(156, &[kind]);
    put(257, b"ustar\x0000");
    put(345, prefix);
    let sum: u32 = block.iter().map(|octet| u32::from(*octet)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    out.extend_from_slice(&block);
}

const SHORT_NAME: usize = 100;
const LONGEST_PREFIX: usize = 155;

/// The largest number of eleven octal digits: 8 GiB without a byte.
const LARGEST_OCTAL: u64 = 0o77_777_777_777;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_a_header_or_get_a_record() {
        let header = |name: &[u8], len: u64| {
            let mut out = Vec::new();
            write_header(&mut out, name, len, 784_111_777);
            out
        };
        let deep = [vec![b'd'; 90], b"/".to_vec(), vec![b'f'; 100]].concat();
        assert_eq!(split(&deep), Some((&deep[..90], &deep[91..])));
        assert_eq!(header(b"short", 3).len(), 512);
        assert_eq!(header(&deep, 3).len(), 512);
        // No slash lies where both parts are short enough.
        let long = vec![b'x'; 101];
        let with_record = header(&long, 3);
        assert_eq!(with_record.len(), 3 * 512);
        assert!(with_record[512..].starts_with(&[b"111 path=", &*long, b"\n"].concat()));
        assert!(header("ü".as_bytes(), 3)[512..].starts_with("11 path=ü\n".as_bytes()));
        // The bytes themselves are the name, in any locale.
        assert_eq!(header(b"\xff", 3).len(), 512);
        let binary = [&b"\xff"[..], &long].concat();
        assert!(header(&binary, 3)[512..].starts_with(b"21 hdrcharset=BINARY\n112 path=\xff"));
        assert!(header(b"big", LARGEST_OCTAL + 1)[512..].starts_with(b"19 size=8589934592\n"));
        assert_eq!(header(b"big", LARGEST_OCTAL).len(), 512);
        // A name that ends the header with a slash would leave nothing behind it.
        let directory = [vec![b'a'; 100], b"/".to_vec()].concat();
        assert_eq!(split(&directory), None);
    }

    #[test]
    fn lengths_of_records_count_their_own_digits() {
        for value in [0, 1, 80, 90, 91, 92, 93, 94, 95, 96, 990, 991, 992, 993] {
            let mut out = Vec::new();
            write_record(&mut out, b"path", &vec![b'x'; value]);
            let digits = out.iter().position(|octet| *octet == b' ').unwrap();
            assert_eq!(std::str::from_utf8(&out[..digits]).unwrap().parse(), Ok(out.len()), "{value}");
        }
    }
}
