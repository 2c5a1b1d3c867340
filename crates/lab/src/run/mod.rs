//! A run: cells × arms, interleaved, each measurement kept at once.

mod plan;

pub use plan::Plan;
