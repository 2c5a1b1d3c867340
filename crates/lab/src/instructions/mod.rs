//! Instructions of a server per request, counted in an emulated guest.
//!
//! Under QEMU's `-icount shift=0` guest time advances 1 ns for an instruction, so that the run time of a thread
//! (schedstat) is its instruction count, kernel work on its behalf included. Counts repeat where times do not.
//!
//! ```text
//! host: Plan ─► guest::run ─► [guest] inside::measure: server ─► client ─► Row, for each arm and cell ─► rows ─► table
//! ```

mod asking;
pub(crate) mod guard;
mod guest;
mod inside;
mod plan;
mod server;
mod server_cost;
mod table;
mod wrk;

pub(crate) use guest::{Counted, run};
pub(crate) use inside::measure;
pub(crate) use plan::{Arm, Cell, Client, Plan};
pub(crate) use table::table;
