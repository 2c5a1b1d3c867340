//! The static table (RFC 7541 Appendix A).

/// The entry at `index`, which counts from 1.
pub(crate) fn get(index: usize) -> Option<(&'static str, &'static str)> {
    STATIC_TABLE.get(index.checked_sub(1)?).copied()
}

/// The first index of a name in lower case.
pub(crate) fn index_of(name: &str) -> Option<usize> {
    let name = name.as_bytes();
    let bucket = BUCKETS[usize::from(hash(name))];
    let at = usize::from(bucket);
    (at != 0 && STATIC_TABLE[at - 1].0.as_bytes() == name).then_some(at)
}

/// Distributes the 52 names over 256 slots without a collision, which the compiler checks.
const fn hash(name: &[u8]) -> u8 {
    if name.is_empty() {
        return 0;
    }
    let (first, middle, last) = (name[0] as u32, name[name.len() / 2] as u32, name[name.len() - 1] as u32);
    ((name.len() as u32 * MULTIPLIERS[0] + first * MULTIPLIERS[1] + middle * MULTIPLIERS[2] + last * MULTIPLIERS[3])
        >> 3) as u8
}

const MULTIPLIERS: [u32; 4] = [375, 350, 293, 253];

static BUCKETS: [u8; 256] = make_buckets();

const fn make_buckets() -> [u8; 256] {
    let mut buckets = [0; 256];
    // From the end, so that the first entry of a name wins.
    let mut index = LAST_STATIC;
    while index > 0 {
        let name = STATIC_TABLE[index - 1].0.as_bytes();
        let bucket = &mut buckets[hash(name) as usize];
        assert!(
            *bucket == 0 || is_same(name, STATIC_TABLE[*bucket as usize - 1].0.as_bytes()),
            "two names in one place"
        );
        *bucket = index as u8;
        index -= 1;
    }
    buckets
}

const fn is_same(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let mut at = 0;
    while at < a.len() {
        if a[at] != b[at] {
            return false;
        }
        at += 1;
    }
    true
}

/// The number of entries; the dynamic table begins after them (RFC 7541 §2.3.3).
pub(crate) const LAST_STATIC: usize = STATIC_TABLE.len();

#[rustfmt::skip]
static STATIC_TABLE: [(&str, &str); 61] = [
    (":authority", ""),
    (":method", "GET"),
    (":method", "POST"),
    (":path", "/"),
    (":path", "/index.html"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "200"),
    (":status", "204"),
    (":status", "206"),
    (":status", "304"),
    (":status", "400"),
    (":status", "404"),
    (":status", "500"),
    ("accept-charset", ""),
    ("accept-encoding", "gzip, deflate"),
    ("accept-language", ""),
    ("accept-ranges", ""),
    ("accept", ""),
    ("access-control-allow-origin", ""),
    ("age", ""),
    ("allow", ""),
    ("authorization", ""),
    ("cache-control", ""),
    ("content-disposition", ""),
    ("content-encoding", ""),
    ("content-language", ""),
    ("content-length", ""),
    ("content-location", ""),
    ("content-range", ""),
    ("content-type", ""),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("expect", ""),
    ("expires", ""),
    ("from", ""),
    ("host", ""),
    ("if-match", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("if-range", ""),
    ("if-unmodified-since", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("max-forwards", ""),
    ("proxy-authenticate", ""),
    ("proxy-authorization", ""),
    ("range", ""),
    ("referer", ""),
    ("refresh", ""),
    ("retry-after", ""),
    ("server", ""),
    ("set-cookie", ""),
    ("strict-transport-security", ""),
    ("transfer-encoding", ""),
    ("user-agent", ""),
    ("vary", ""),
    ("via", ""),
    ("www-authenticate", ""),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_found_at_its_first_index() {
        for (at, (name, _)) in STATIC_TABLE.iter().enumerate() {
            let first = STATIC_TABLE.iter().position(|(other, _)| other == name).unwrap();
            assert_eq!(index_of(name), Some(first + 1), "{name} at {at}");
        }
        for unknown in ["", "x", "alt-svc", "accept-", "agE", "content-security-policy"] {
            assert_eq!(index_of(unknown), None);
        }
        assert_eq!(
            (get(0), get(1), get(61), get(62)),
            (None, Some((":authority", "")), Some(("www-authenticate", "")), None)
        );
    }
}
