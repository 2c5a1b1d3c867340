//! Tests that need no kernel TLS, and streams on the path in user space.

#[path = "../stream/mod.rs"]
mod stream;
#[path = "../support/mod.rs"]
mod support;

/// The path of streams: in user space if the kernel has no TLS layer.
fn path() -> sealion_ktls::stream::SealedBy {
    static LAYER: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| sealion_ktls::probe::probe().ulp().is_ok());
    if *LAYER { sealion_ktls::stream::SealedBy::Kernel } else { sealion_ktls::stream::SealedBy::UserSpace }
}
