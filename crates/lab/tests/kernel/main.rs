//! The lab on a kernel with kernel TLS: `cargo xtask guest --kernel 6.1 -p sealion-lab -- setup_cost::`.

#[path = "../process/mod.rs"]
mod process;

mod lab;
mod setup_cost;
