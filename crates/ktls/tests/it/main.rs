//! What needs no kernel TLS, and the path in user space of what uses it where it is.

#[path = "../stream/mod.rs"]
mod stream;
#[path = "../support/mod.rs"]
mod support;

/// The path of streams: that in user space where the kernel has no TLS layer.
fn path() -> sealion_ktls::stream::SealedBy {
    static LAYER: std::sync::LazyLock<bool> = std::sync::LazyLock::new(|| sealion_ktls::probe::probe().ulp().is_ok());
    if *LAYER { sealion_ktls::stream::SealedBy::Kernel } else { sealion_ktls::stream::SealedBy::UserSpace }
}
