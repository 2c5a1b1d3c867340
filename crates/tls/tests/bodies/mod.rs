//! Tests that hold on either path. A test program names the path in `SENDER` and runs all of them.

mod abort;
mod broken_records;
mod close;
mod duplex;
mod key_limit;
mod key_update;
mod lengths;
mod record_boundaries;
mod session;
mod stall;
mod traits;
