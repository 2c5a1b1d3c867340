//! The parts that HTTP/2 and HTTP/3 share: Huffman code and integers of HPACK and QPACK, field sections, priorities, and counters against abuse.

mod abuse;
mod bytes;
mod declare;
mod head;
pub mod huffman;
pub mod integer;
mod priority;
mod resets;
mod section;

pub use abuse::{Budget, Overhead};
pub use head::{HeadBuffer, RequestHead};
pub use priority::Priority;
pub use resets::{By, Resets};
pub use section::{Bomb, FieldSpan, SEPARATOR, Section, SectionKind, SectionLimits, SectionReader};

/// Bytes that HPACK and QPACK cannot decode.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CodingError {
    why: &'static str,
}

impl CodingError {
    /// An error of an encoding.
    pub const fn new(why: &'static str) -> Self {
        CodingError { why }
    }

    /// The reason, for the log.
    pub fn why(self) -> &'static str {
        self.why
    }
}
