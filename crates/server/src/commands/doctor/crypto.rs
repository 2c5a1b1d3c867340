//! The kernel's implementation of each AEAD.

use super::{Finding, State};
use crate::path::costs::sealing::{AES_GCM, Drivers};

/// Algorithm names that the kernel's TLS layer requests (net/tls/tls_main.c), with display names.
const AEADS: [(&str, &str); 3] =
    [(AES_GCM, "AES-GCM"), ("rfc7539(chacha20,poly1305)", "CHACHA20-POLY1305"), ("ccm(aes)", "AES-CCM")];

/// Parts of driver names that indicate accelerated code; the `lib` drivers of Linux 6.16 and later select it at run
/// time.
const FAST: [&str; 8] = ["aesni", "vaes", "avx", "simd", "neon", "-ce", "lib", "p8"];

/// A finding per instantiated AEAD; the preceding probes made the kernel instantiate them.
pub(super) fn drivers() -> Vec<Finding> {
    let drivers = Drivers::read();
    AEADS
        .iter()
        .filter_map(|&(template, name)| {
            let driver = drivers.best(template)?;
            let found = format!("{name}: {} (priority {})", driver.name, driver.priority);
            Some(if !FAST.iter().any(|part| driver.name.contains(part)) {
                Finding::new("driver", State::Warning, found, "plain C code, several times slower than user space")
                    .remedy("modprobe -a aesni_intel chacha_x86_64 (or the modules of this processor)")
            } else {
                Finding::new("driver", State::Good, found, "")
            })
        })
        .collect()
}
