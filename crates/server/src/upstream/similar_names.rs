//! A quick answer for most fields: their names are not in a list.

/// The names of lists, by their first letter and length. Few fields of usual messages have both in common with a name of a list.
pub(super) struct SimilarNames {
    /// For the last five bits of a first letter, which are the same in both cases: a bit for each length.
    lengths: [u32; 32],
}

impl SimilarNames {
    /// The names must be shorter than 32 bytes.
    pub(super) const fn of(lists: &[&[&str]]) -> Self {
        let mut lengths = [0; 32];
        let mut list = 0;
        while list < lists.len() {
            let mut at = 0;
            while at < lists[list].len() {
                let name = lists[list][at].as_bytes();
                lengths[(name[0] & 31) as usize] |= 1 << name.len();
                at += 1;
            }
            list += 1;
        }
        SimilarNames { lengths }
    }

    /// Whether a name, in any case, has to be compared with those of the lists. Names that differ in other bytes than the first are similar too.
    #[inline]
    pub(super) fn has(&self, name: &[u8]) -> bool {
        let lengths = name.first().map_or(0, |first| self.lengths[usize::from(first & 31)]);
        name.len() < 32 && lengths >> name.len() & 1 == 1
    }
}
