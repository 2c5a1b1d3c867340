//! What measurements say, and how sure one may be: summaries and differences like ministat's, the return on investment
//! of the netdev talk, and the size at which two paths cost the same.

mod crossover;
mod difference;
mod roi;
mod student;
mod summary;

pub use crossover::{Crossover, CrossoverPoint, crossover};
pub use difference::{Difference, Estimate};
pub use roi::{ROI_EXPONENT, roi};
pub use student::quantile as student_quantile;
pub use summary::Summary;
