//! Statistics: summaries and differences like ministat's, the return on investment of the netdev talk, and the size at
//! which two paths cost the same.

mod crossover;
mod difference;
mod roi;
mod student;
mod summary;

pub(crate) use crossover::{Crossover, CrossoverPoint, crossover};
pub(crate) use difference::Difference;
pub(crate) use roi::roi;
pub(crate) use student::quantile as student_quantile;
pub(crate) use summary::Summary;
