//! The kernel's implementation of each AEAD, from /proc/crypto.

use std::fs;

use super::{Finding, State};

/// Algorithm names that the kernel's TLS layer requests (net/tls/tls_main.c), with display names.
const AEADS: [(&str, &str); 3] =
    [("gcm(aes)", "AES-GCM"), ("rfc7539(chacha20,poly1305)", "CHACHA20-POLY1305"), ("ccm(aes)", "AES-CCM")];

/// Parts of driver names that indicate accelerated code; the `lib` drivers of Linux 6.16 and later select it at run
/// time.
const FAST: [&str; 8] = ["aesni", "vaes", "avx", "simd", "neon", "-ce", "lib", "p8"];

/// A finding per instantiated AEAD; the preceding probes made the kernel instantiate them.
pub(super) fn drivers() -> Vec<Finding> {
    let text = fs::read_to_string("/proc/crypto").unwrap_or_default();
    AEADS
        .iter()
        .filter_map(|&(template, name)| {
            let driver = best(&text, template)?;
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

#[derive(Debug, PartialEq, Eq)]
struct Driver {
    name: String,
    priority: u32,
}

/// The driver with the highest priority, which the kernel uses (Documentation/crypto/architecture.rst).
fn best(text: &str, template: &str) -> Option<Driver> {
    text.split("\n\n")
        .filter_map(|block| {
            let field = |name: &str| {
                block.lines().find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    (key.trim() == name).then_some(value.trim())
                })
            };
            // Internal drivers are parts of other drivers and are never chosen on their own.
            (field("name") == Some(template) && field("internal") != Some("yes")).then_some(())?;
            Some(Driver { name: field("driver")?.to_owned(), priority: field("priority")?.parse().ok()? })
        })
        .max_by_key(|driver| driver.priority)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_takes_the_highest_priority() {
        let text = "name         : gcm(aes)\ndriver       : generic-gcm-aesni\npriority     : 400\ninternal     : no\n\n\
                    name         : gcm(aes)\ndriver       : generic-gcm-vaes-avx512\npriority     : 800\ninternal     : no\n\n\
                    name         : gcm(aes)\ndriver       : __generic-gcm-aesni\npriority     : 900\ninternal     : yes\n\n\
                    name         : ccm(aes)\ndriver       : ccm_base\npriority     : 100\n";
        assert_eq!(best(text, "gcm(aes)"), Some(Driver { name: "generic-gcm-vaes-avx512".into(), priority: 800 }));
        assert_eq!(best(text, "rfc7539(chacha20,poly1305)"), None);
    }
}
