//! A tap on the received bytes: every record header from the start of the connection, including the handshake.

use std::collections::HashSet;

/// A record as seen on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// The type in the header, in plain text.
    pub outer_type: u8,
    /// The length in the header.
    pub len: usize,
    /// The first eight bytes after the header, or zeros if there are fewer. In a protected record of TLS 1.2 GCM this
    /// is the explicit nonce (RFC 5288 §3).
    pub first: [u8; 8],
}

/// Follows the records of one direction. Keeps a few bytes of each.
#[derive(Debug, Default)]
pub struct Tap {
    records: Vec<SeenRecord>,
    /// Header and first bytes of the current record.
    head: Vec<u8>,
    /// Bytes of that record still to come after `head`.
    skip: usize,
}

impl Tap {
    pub(crate) fn pass(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let skipped = self.skip.min(bytes.len());
            self.skip -= skipped;
            bytes = &bytes[skipped..];
            let wanted = match self.head.get(3..5) {
                None => 5,
                Some(len) => 5 + usize::from(u16::from_be_bytes([len[0], len[1]])).min(8),
            };
            let taken = (wanted - self.head.len()).min(bytes.len());
            self.head.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            self.finish_head();
        }
    }

    /// Records whose first bytes have arrived.
    pub fn records(&self) -> &[SeenRecord] {
        &self.records
    }

    /// The explicit nonces of a TLS 1.2 GCM connection: of every record after ChangeCipherSpec, beginning with the
    /// Finished message.
    pub fn explicit_nonces(&self) -> Vec<[u8; 8]> {
        let protected = self.records.iter().skip_while(|record| record.outer_type != 20).skip(1);
        protected.map(|record| record.first).collect()
    }

    /// Asserts that no explicit nonce is repeated, and that there are at least `at_least` of them.
    ///
    /// # Panics
    /// A nonce is repeated, or there are too few.
    #[track_caller]
    pub fn assert_nonces_distinct(&self, at_least: usize) {
        let nonces = self.explicit_nonces();
        assert!(nonces.len() >= at_least, "only {} protected records were seen", nonces.len());
        let mut met = HashSet::new();
        for (at, nonce) in nonces.iter().enumerate() {
            assert!(met.insert(nonce), "protected record {at} repeats the nonce {nonce:02x?}");
        }
    }

    fn finish_head(&mut self) {
        let Some(&[outer_type, _, _, hi, lo]) = self.head.first_chunk::<5>() else { return };
        let len = usize::from(u16::from_be_bytes([hi, lo]));
        let kept = len.min(8);
        if self.head.len() < 5 + kept {
            return;
        }
        let mut first = [0; 8];
        first[..kept].copy_from_slice(&self.head[5..5 + kept]);
        self.records.push(SeenRecord { outer_type, len, first });
        self.skip = len - kept;
        self.head.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_followed_however_the_bytes_are_cut() {
        let mut bytes = Vec::new();
        for (outer_type, len) in [(22u8, 0usize), (20, 1), (22, 8), (23, 9), (23, 300), (21, 26)] {
            bytes.extend([outer_type, 3, 3]);
            bytes.extend((len as u16).to_be_bytes());
            bytes.extend((0..len).map(|i| (len + i) as u8));
        }
        for cut in 1..20 {
            let mut tap = Tap::default();
            bytes.chunks(cut).for_each(|piece| tap.pass(piece));
            let seen: Vec<_> = tap.records().iter().map(|r| (r.outer_type, r.len)).collect();
            assert_eq!(seen, [(22, 0), (20, 1), (22, 8), (23, 9), (23, 300), (21, 26)]);
            assert_eq!(tap.records()[4].first, [44, 45, 46, 47, 48, 49, 50, 51]);
            tap.assert_nonces_distinct(4);
        }
    }

    #[test]
    #[should_panic(expected = "protected record 1 repeats the nonce")]
    fn a_repeated_nonce_is_noticed() {
        let mut tap = Tap::default();
        tap.pass(&[20, 3, 3, 0, 1, 1]);
        tap.pass(&[23, 3, 3, 0, 8, 1, 2, 3, 4, 5, 6, 7, 8].repeat(2));
        tap.assert_nonces_distinct(2);
    }
}
