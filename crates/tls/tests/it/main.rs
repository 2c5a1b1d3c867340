//! The connection with its sending side in user space: `cargo test -p sealion-tls --test it handshake::`.

#[path = "../bodies/mod.rs"]
mod bodies;
mod handshake;
mod plain;
mod sites;
#[path = "../support/mod.rs"]
mod support;

/// Where the server's data is sealed.
const SENDER: sealion_tls::SealedBy = sealion_tls::SealedBy::User;
