//! The kernel's own behaviour, a module a topic: `cargo xtask guest --kernel 6.1 -p sealion-ktls -- errno::`.
//!
//! Tests run one at a time (`--test-threads=1`): the statistics cover the whole network namespace, one test unloads a
//! module, and one stops and continues this process.

#[path = "../support/mod.rs"]
mod support;

mod diag;
mod documented;
mod errno;
mod examples;
mod interop;
mod options;
mod receive;
mod rekey;
mod rustls;
mod send;
#[path = "../stream/mod.rs"]
mod stream;
mod tokio;

/// The path of streams: guests have kernel TLS.
fn path() -> sealion_ktls::stream::SealedBy {
    sealion_ktls::stream::SealedBy::Kernel
}
