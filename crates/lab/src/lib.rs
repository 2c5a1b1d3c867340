//! A benchmark lab for TLS file servers: it loads them, measures their cost, proves which path they took, and repeats
//! published studies with this project's server and any other.
//!
//! ```text
//! study ─► cells ─► run ─► arm (a server, started or given) ─► load ─► Outcome ┐
//!                     └──► measure (by pid), proof (kernel counters) ───────────┴► Row ─► raw.csv ─► statistics ─► report
//! ```
//!
//! A study declares cells; a run measures each cell on each arm, interleaved, and appends a [`row::Row`] for each
//! measurement; a report is made from the rows and [`run_info::RunInfo`] alone, now or later.

#![deny(unsafe_code)]

pub mod advise;
pub mod agent;
pub mod arm;
mod cli;
mod flame;
mod handshake_cost;
pub mod histogram;
mod instructions;
pub mod load;
mod measure;
mod network;
mod preflight;
mod proof;
pub mod report;
pub mod row;
mod run;
pub mod run_info;
pub mod setup_cost;
mod splitmix;
mod statistics;
pub mod study;
mod units;

pub use cli::main;
