//! What a measurement cost: the server by its pid, and each core.

mod cores;
mod process;

use std::time::Duration;

pub(crate) use cores::Cores;
pub(crate) use process::{Cost, memory, with_children};

/// Time of a tick of /proc/stat and /proc/PID/stat: `USER_HZ` is 100 on every Linux there is, proc(5).
pub(crate) const TICK: Duration = Duration::from_millis(10);
