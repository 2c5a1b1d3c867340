//! The configuration: read from a file, overridden by the environment and the command line, checked as a whole.

mod problems;
mod values;

pub use problems::Problems;
pub use values::{At, Size, Time};
