//! Numbers that differ from run to run.

use std::time::SystemTime;

/// A generator, seeded by the time.
pub struct Random(u64);

impl Random {
    /// Seeds a generator.
    #[expect(clippy::new_without_default, reason = "two of them differ")]
    pub fn new() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970");
        Self(now.as_nanos() as u64 | 1)
    }

    /// A number from 0 to `end` - 1.
    pub fn below(&mut self, end: usize) -> usize {
        // xorshift64 (Marsaglia, 2003).
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as usize % end
    }
}
