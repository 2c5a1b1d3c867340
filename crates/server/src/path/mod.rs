//! The choice of path for each response, user space or kernel: costs, kernel support, decision.

pub mod costs;
pub mod offer;
pub mod policy;
