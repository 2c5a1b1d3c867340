//! The sealion command.
fn main() {}
