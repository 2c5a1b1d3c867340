//! Answers "should I turn kernel TLS on?" for a site's own traffic.
//!
//! ```text
//! access log ─► log: Entry ─► mix: Mix ─► study `mix`, one cell for each class of sizes ─► raw.csv ─┬─► verdict: Advice
//! counts of a named kernel, where this one has no kernel TLS ─► estimate ───────────────────────────┘
//! ```

pub mod estimate;
pub mod log;
pub mod mix;
pub mod root;
pub mod verdict;
