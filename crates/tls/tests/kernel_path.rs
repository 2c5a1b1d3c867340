//! Everything, with the sending side in the kernel.

mod bodies;
mod support;

/// Who seals what the server sends.
const SENDER: sealion_tls::Path = sealion_tls::Path::Kernel;
