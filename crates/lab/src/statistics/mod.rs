//! Statistics: summaries and differences like ministat's, the return on investment of the netdev talk, and the size at
//! which two paths cost the same.

mod comparisons;
mod crossover;
mod difference;
mod roi;
mod student;
mod summary;

pub(crate) use comparisons::holm;
pub(crate) use crossover::{Crossover, CrossoverPoint, Interval, Rounds, crossover, interval};
pub(crate) use difference::{CLAIM_ROUNDS, Difference, Ratio, Spread, percent};
pub(crate) use roi::roi;
pub(crate) use student::quantile as student_quantile;
pub(crate) use summary::Summary;
