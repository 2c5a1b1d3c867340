//! The static table (RFC 9204 Appendix A).

/// The entry at `index`, which counts from 0.
#[inline]
pub(crate) fn get(index: usize) -> Option<(&'static str, &'static str)> {
    STATIC_TABLE.get(index).copied()
}

/// An entry with the name of a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Found {
    /// The entry has the value, too.
    Field(usize),
    /// The first entry of this name.
    Name(usize),
}

/// Looks for a field whose name is in lower case.
pub(crate) fn find(name: &str, value: &[u8]) -> Option<Found> {
    let first = BUCKETS[usize::from(hash(name.as_bytes()))];
    if first == NONE || STATIC_TABLE[usize::from(first)].0 != name {
        return None;
    }
    let mut at = first;
    while at != NONE {
        if STATIC_TABLE[usize::from(at)].1.as_bytes() == value {
            return Some(Found::Field(usize::from(at)));
        }
        at = NEXT[usize::from(at)];
    }
    Some(Found::Name(usize::from(first)))
}

/// No entry.
const NONE: u8 = u8::MAX;

/// Distributes the names over 256 slots without a collision, which the compiler checks.
const fn hash(name: &[u8]) -> u8 {
    let length = name.len();
    if length < 3 {
        return 0;
    }
    let parts =
        [length, name[0] as usize, name[length / 2] as usize, name[length - 3] as usize, name[length - 1] as usize];
    let (mut sum, mut at) = (0, 0);
    while at < parts.len() {
        sum += parts[at] * MULTIPLIERS[at];
        at += 1;
    }
    (sum >> 3) as u8
}

const MULTIPLIERS: [usize; 5] = [370, 411, 118, 303, 484];

/// The first entry of each name, by its hash.
static BUCKETS: [u8; 256] = make_buckets();

/// The next entry of the same name.
static NEXT: [u8; STATIC_TABLE.len()] = make_next();

const fn make_buckets() -> [u8; 256] {
    let mut buckets = [NONE; 256];
    // From the end, so that the first entry of a name wins.
    let mut index = STATIC_TABLE.len();
    while index > 0 {
        index -= 1;
        let name = STATIC_TABLE[index].0.as_bytes();
        let bucket = &mut buckets[hash(name) as usize];
        assert!(
            *bucket == NONE || is_same(name, STATIC_TABLE[*bucket as usize].0.as_bytes()),
            "two names in one place"
        );
        *bucket = index as u8;
    }
    buckets
}

const fn make_next() -> [u8; STATIC_TABLE.len()] {
    let mut next = [NONE; STATIC_TABLE.len()];
    let mut index = 0;
    while index < STATIC_TABLE.len() {
        let mut later = index + 1;
        while later < STATIC_TABLE.len() {
            if is_same(STATIC_TABLE[index].0.as_bytes(), STATIC_TABLE[later].0.as_bytes()) {
                next[index] = later as u8;
                break;
            }
            later += 1;
        }
        index += 1;
    }
    next
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

#[rustfmt::skip]
static STATIC_TABLE: [(&str, &str); 99] = [
    (":authority", ""),
    (":path", "/"),
    ("age", "0"),
    ("content-disposition", ""),
    ("content-length", "0"),
    ("cookie", ""),
    ("date", ""),
    ("etag", ""),
    ("if-modified-since", ""),
    ("if-none-match", ""),
    ("last-modified", ""),
    ("link", ""),
    ("location", ""),
    ("referer", ""),
    ("set-cookie", ""),
    (":method", "CONNECT"),
    (":method", "DELETE"),
    (":method", "GET"),
    (":method", "HEAD"),
    (":method", "OPTIONS"),
    (":method", "POST"),
    (":method", "PUT"),
    (":scheme", "http"),
    (":scheme", "https"),
    (":status", "103"),
    (":status", "200"),
    (":status", "304"),
    (":status", "404"),
    (":status", "503"),
    ("accept", "*/*"),
    ("accept", "application/dns-message"),
    ("accept-encoding", "gzip, deflate, br"),
    ("accept-ranges", "bytes"),
    ("access-control-allow-headers", "cache-control"),
    ("access-control-allow-headers", "content-type"),
    ("access-control-allow-origin", "*"),
    ("cache-control", "max-age=0"),
    ("cache-control", "max-age=2592000"),
    ("cache-control", "max-age=604800"),
    ("cache-control", "no-cache"),
    ("cache-control", "no-store"),
    ("cache-control", "public, max-age=31536000"),
    ("content-encoding", "br"),
    ("content-encoding", "gzip"),
    ("content-type", "application/dns-message"),
    ("content-type", "application/javascript"),
    ("content-type", "application/json"),
    ("content-type", "application/x-www-form-urlencoded"),
    ("content-type", "image/gif"),
    ("content-type", "image/jpeg"),
    ("content-type", "image/png"),
    ("content-type", "text/css"),
    ("content-type", "text/html; charset=utf-8"),
    ("content-type", "text/plain"),
    ("content-type", "text/plain;charset=utf-8"),
    ("range", "bytes=0-"),
    ("strict-transport-security", "max-age=31536000"),
    ("strict-transport-security", "max-age=31536000; includesubdomains"),
    ("strict-transport-security", "max-age=31536000; includesubdomains; preload"),
    ("vary", "accept-encoding"),
    ("vary", "origin"),
    ("x-content-type-options", "nosniff"),
    ("x-xss-protection", "1; mode=block"),
    (":status", "100"),
    (":status", "204"),
    (":status", "206"),
    (":status", "302"),
    (":status", "400"),
    (":status", "403"),
    (":status", "421"),
    (":status", "425"),
    (":status", "500"),
    ("accept-language", ""),
    ("access-control-allow-credentials", "FALSE"),
    ("access-control-allow-credentials", "TRUE"),
    ("access-control-allow-headers", "*"),
    ("access-control-allow-methods", "get"),
    ("access-control-allow-methods", "get, post, options"),
    ("access-control-allow-methods", "options"),
    ("access-control-expose-headers", "content-length"),
    ("access-control-request-headers", "content-type"),
    ("access-control-request-method", "get"),
    ("access-control-request-method", "post"),
    ("alt-svc", "clear"),
    ("authorization", ""),
    ("content-security-policy", "script-src 'none'; object-src 'none'; base-uri 'none'"),
    ("early-data", "1"),
    ("expect-ct", ""),
    ("forwarded", ""),
    ("if-range", ""),
    ("origin", ""),
    ("purpose", "prefetch"),
    ("server", ""),
    ("timing-allow-origin", "*"),
    ("upgrade-insecure-requests", "1"),
    ("user-agent", ""),
    ("x-forwarded-for", ""),
    ("x-frame-options", "deny"),
    ("x-frame-options", "sameorigin"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_entry_is_found() {
        for (at, (name, value)) in STATIC_TABLE.iter().enumerate() {
            assert_eq!(find(name, value.as_bytes()), Some(Found::Field(at)), "{name}: {value}");
            let first = STATIC_TABLE.iter().position(|(other, _)| other == name).unwrap();
            assert_eq!(find(name, b"another value"), Some(Found::Name(first)), "{name}");
        }
        for unknown in ["", "x", "accept-", "agE", "te", "host"] {
            assert_eq!(find(unknown, b""), None);
        }
        assert_eq!(
            (get(0), get(98), get(99)),
            (Some((":authority", "")), Some(("x-frame-options", "sameorigin")), None)
        );
    }
}
