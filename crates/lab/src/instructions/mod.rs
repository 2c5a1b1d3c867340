//! Instructions of a server per request, counted in an emulated guest.
//!
//! Under QEMU's `-icount shift=0` guest time advances 1 ns per instruction, so that the run time of a thread
//! (schedstat) is its instruction count, including kernel work on its behalf. Counts repeat better than times.
//!
//! ```text
//! host: Plan ─► guest::run ─► [guest] inside::measure: arm ─► client ─► Row, for each arm and cell ─► rows ─► table
//! ```
//!
//! Servers, files and loads are the same as in every other study (`arm/`, `run/`, `study/`). `asking.rs` counts the
//! difference of two short runs, so that a cell takes dozens of requests, not seconds.
//!
//! Each load is counted twice. The server's schedstat misses kernel work in other threads: a kworker of the record
//! layer, softirqs in the client's context. The run time of all threads on the only core misses only interrupts while
//! the core idles. It includes the client, which is the same for all servers, so its differences compare servers.

mod asking;
mod floor;
pub(crate) mod guard;
mod guest;
mod h2load;
mod inside;
mod plan;
mod table;
mod wrk;

pub(crate) use guest::{Counted, run};
pub(crate) use inside::measure;
pub(crate) use plan::{Client, Plan, cell, label};
pub(crate) use table::tables;
