//! Random identifiers.

use std::cell::RefCell;
use std::ops::Range;

/// 128 random bits. `None`: the system provides none.
pub(crate) fn random_bits() -> Option<[u8; 16]> {
    RANDOM.with_borrow_mut(|random| {
        if random.left.is_empty() && aws_lc_rs::rand::fill(&mut random.bits).is_ok() {
            random.left = 0..AT_A_TIME;
        }
        let next = random.left.next()?;
        random.bits[next * 16..][..16].try_into().ok()
    })
}

/// The number of identifiers drawn at a time: drawing many costs the same.
const AT_A_TIME: usize = 32;

struct Random {
    bits: [u8; AT_A_TIME * 16],
    /// Identifiers that were not used yet.
    left: Range<usize>,
}

thread_local! {
    static RANDOM: RefCell<Random> = const { RefCell::new(Random { bits: [0; AT_A_TIME * 16], left: 0..0 }) };
}
