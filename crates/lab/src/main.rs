//! `sealion-lab`.

fn main() {}
