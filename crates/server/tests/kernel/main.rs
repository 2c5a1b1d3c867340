//! The program on a kernel that promises kernel TLS, a module a feature:
//! `cargo xtask guest --kernel 6.1 -p sealion -- bodies::`.
//!
//! Tests run one at a time (`--test-threads=1`), because the counters in /proc/net/tls_stat belong to the network
//! namespace. A test that unloads a module, sets the clock or changes a sysctl puts it back before the next one begins.

#[path = "../support/mod.rs"]
mod support;

mod accel;
mod awkward;
mod bodies;
mod cache;
mod cache_disk;
mod calibrate;
mod doctor;
mod http2;
mod module;
mod nginx;
mod piped;
mod privileges;
mod slow_disk;
mod strace;
mod upgrade;
