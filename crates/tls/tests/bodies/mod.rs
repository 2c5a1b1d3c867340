//! Tests for both paths. A test program names its path in `SENDER` and runs all of them.

mod abort;
mod broken_records;
mod close;
mod duplex;
mod freeze;
mod key_limit;
mod key_update;
mod lengths;
mod record_boundaries;
mod session;
mod stall;
mod traits;
