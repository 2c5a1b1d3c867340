//! Counters against clients that cause more work than they do (RFC 9113 §10.5, RFC 9114 §10.5).

use serde::{Deserialize, Serialize};

/// A remaining allowance. It refills up to its initial value.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Budget {
    left: u32,
    max: u32,
}

impl Budget {
    /// A full one.
    pub const fn new(max: u32) -> Self {
        Budget { left: max, max }
    }

    /// Takes `count`. `None`: less is left, and nothing was taken.
    #[inline]
    pub fn spend(&mut self, count: u32) -> Option<()> {
        self.left = self.left.checked_sub(count)?;
        Some(())
    }

    /// Gives `by` back, up to the initial value.
    #[inline]
    pub fn refill(&mut self, by: u32) {
        self.left = self.left.saturating_add(by).min(self.max);
    }

    /// Adds `by`, without a bound.
    #[inline]
    pub fn extend(&mut self, by: u32) {
        self.left = self.left.saturating_add(by);
    }
}

/// The bytes that a client sent, compared with the useful ones: (all bytes) / 8 > payload + 1 MiB ends a connection.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Overhead {
    received: u64,
    payload: u64,
}

/// The bytes that frames may take for each byte of payload, beyond [`FREE_OVERHEAD`]. INHERITED: nginx.
const OVERHEAD_RATIO: u64 = 8;

/// INHERITED: nginx.
const FREE_OVERHEAD: u64 = 1 << 20;

impl Overhead {
    /// `bytes` arrived. `None`: too many without use.
    #[inline]
    pub fn received(&mut self, bytes: usize) -> Option<()> {
        self.received += bytes as u64;
        (self.received / OVERHEAD_RATIO <= self.payload + FREE_OVERHEAD).then_some(())
    }

    /// `bytes` of fields were decoded, or of content received or sent.
    #[inline]
    pub fn useful(&mut self, bytes: u64) {
        self.payload += bytes;
    }

    /// Useful bytes so far.
    pub fn payload(&self) -> u64 {
        self.payload
    }
}
