//! The cost of a measurement: the server's, by process id, and each core's.

mod cores;
mod counters;
mod kernel_threads;
mod process;

use std::time::Duration;

pub(crate) use cores::Cores;
pub(crate) use counters::Counters;
pub(crate) use kernel_threads::KernelThreads;
pub(crate) use process::{Cost, memory, ticks, with_children};

/// A tick of /proc/stat and /proc/PID/stat: `USER_HZ` is 100 on all of Linux's architectures, proc(5).
pub(crate) const TICK: Duration = Duration::from_millis(10);
