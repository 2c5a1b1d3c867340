//! Which path a response takes, user space or the kernel: what each costs, what the kernel offers, and the decision.

pub mod costs;
pub mod offer;
pub mod policy;
