//! First and last byte of a response over slow and lossy networks, in an emulated guest.
//!
//! Server and client are in two network namespaces, joined by veth(4). tc-netem(8) on both ends delays, limits and
//! loses packets. Under `-icount sleep=off` an idle guest skips to its next timer, so that waiting costs nothing, and
//! times without loss repeat.
//!
//! ```text
//! host: Plan ─► run ─► [guest] inside::measure: path ─► arm ─► page × visit ─► `sealion-lab load` in the namespace ─► Row
//! ```

mod inside;
mod plan;
mod run;
mod table;

pub(crate) use inside::measure;
pub(crate) use plan::{Path, Plan, Visit};
pub(crate) use run::run;
pub(crate) use table::table;
