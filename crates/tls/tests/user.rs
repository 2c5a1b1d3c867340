//! Everything, with the sending side in user space.

mod bodies;
mod support;

/// Who seals what the server sends.
const SENDER: sealion_tls::Path = sealion_tls::Path::User;
