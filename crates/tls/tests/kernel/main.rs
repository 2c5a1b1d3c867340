//! The connection with its sending side in the kernel: `cargo xtask guest --kernel 6.1 -p sealion-tls -- moves::`.

#[path = "../bodies/mod.rs"]
mod bodies;
mod examples;
mod moves;
#[path = "../support/mod.rs"]
mod support;

/// Where the server's data is sealed.
const SENDER: sealion_tls::SealedBy = sealion_tls::SealedBy::Kernel;
