//! The lab on this machine: `cargo test -p sealion-lab --test it report::`.

#[path = "../process/mod.rs"]
mod process;
#[path = "../scripted/mod.rs"]
mod scripted;
#[path = "../support/mod.rs"]
mod support;

mod advise;
mod agent;
mod diff;
mod http3;
mod load;
mod load_failures;
mod readme;
mod recompute;
mod report;
mod runs;
mod studies;
