//! Load: what clients do, and what they saw.

mod outcome;
mod plan;

pub use outcome::{Failures, Outcome};
pub use plan::{Arrival, Extent, LoadPlan, Read, Suite};
