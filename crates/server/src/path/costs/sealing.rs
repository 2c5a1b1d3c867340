//! The instructions that seal AES-GCM on each path: the shipped costs differ by them.

use std::fs;

/// The kernel's name of AES-GCM (net/tls/tls_main.c).
pub(crate) const AES_GCM: &str = "gcm(aes)";

/// How the two paths seal AES-GCM on this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sealing {
    /// By AES instructions of the same width.
    Alike,
    /// The processor has no AES instructions.
    WithoutInstructions,
    /// User space uses VAES with AVX-512, four blocks an instruction. The kernel's driver does not.
    WiderInUserSpace,
}

impl Sealing {
    /// As this processor and this kernel do it. The kernel lists a driver once its module is loaded. Without a list, the driver counts as narrow.
    pub(super) fn of_this_machine() -> Self {
        Self::of(Instructions::of_this_processor(), || Drivers::read().best(AES_GCM).map(|driver| driver.name))
    }

    fn of(instructions: Instructions, driver: impl FnOnce() -> Option<String>) -> Self {
        match instructions {
            Instructions::None => Sealing::WithoutInstructions,
            Instructions::Narrow => Sealing::Alike,
            Instructions::Wide if driver().is_some_and(|name| name.contains("vaes")) => Sealing::Alike,
            Instructions::Wide => Sealing::WiderInUserSpace,
        }
    }
}

/// The AES instructions of a processor, as user space uses them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instructions {
    None,
    /// A block an instruction.
    Narrow,
    /// Four blocks an instruction.
    #[cfg_attr(not(target_arch = "x86_64"), allow(dead_code, reason = "64-bit ARM has none"))]
    Wide,
}

impl Instructions {
    #[cfg(target_arch = "x86_64")]
    fn of_this_processor() -> Self {
        use std::arch::is_x86_feature_detected as has;
        // aws-lc's condition for aes_gcm_encrypt_avx512 (crypto/fipsmodule/cpucap).
        let is_wide = has!("vaes") && has!("vpclmulqdq") && has!("avx512f");
        let is_wide = is_wide && has!("avx512dq") && has!("avx512bw") && has!("avx512vl");
        match has!("aes") && has!("pclmulqdq") {
            false => Instructions::None,
            true if is_wide => Instructions::Wide,
            true => Instructions::Narrow,
        }
    }

    #[cfg(target_arch = "aarch64")]
    fn of_this_processor() -> Self {
        let has_aes =
            std::arch::is_aarch64_feature_detected!("aes") && std::arch::is_aarch64_feature_detected!("pmull");
        if has_aes { Instructions::Narrow } else { Instructions::None }
    }

    #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
    fn of_this_processor() -> Self {
        Instructions::None
    }
}

/// The kernel's drivers of algorithms: /proc/crypto.
pub(crate) struct Drivers(String);

/// The kernel's implementation of an algorithm.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Driver {
    pub(crate) name: String,
    pub(crate) priority: u32,
}

impl Drivers {
    /// Empty, where the file cannot be read.
    pub(crate) fn read() -> Self {
        Drivers(fs::read_to_string("/proc/crypto").unwrap_or_default())
    }

    /// The driver with the highest priority, which the kernel uses (Documentation/crypto/architecture.rst).
    pub(crate) fn best(&self, algorithm: &str) -> Option<Driver> {
        let driver = |block: &str| {
            let field = |name: &str| {
                block.lines().find_map(|line| {
                    let (key, value) = line.split_once(':')?;
                    (key.trim() == name).then_some(value.trim())
                })
            };
            // Internal drivers are parts of other drivers and are never chosen on their own.
            (field("name") == Some(algorithm) && field("internal") != Some("yes")).then_some(())?;
            Some(Driver { name: field("driver")?.to_owned(), priority: field("priority")?.parse().ok()? })
        };
        self.0.split("\n\n").filter_map(driver).max_by_key(|driver| driver.priority)
    }
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
        let drivers = Drivers(text.to_owned());
        assert_eq!(drivers.best(AES_GCM), Some(Driver { name: "generic-gcm-vaes-avx512".into(), priority: 800 }));
        assert_eq!(drivers.best("rfc7539(chacha20,poly1305)"), None);
    }

    #[test]
    fn a_kernel_without_wide_instructions_is_behind_user_space_that_has_them() {
        for (instructions, driver, sealing) in [
            (Instructions::None, "gcm_base(ctr(aes-generic),ghash-generic)", Sealing::WithoutInstructions),
            (Instructions::Narrow, "generic-gcm-aesni", Sealing::Alike),
            (Instructions::Wide, "generic-gcm-vaes-avx10_512", Sealing::Alike),
            (Instructions::Wide, "generic-gcm-aesni", Sealing::WiderInUserSpace),
        ] {
            assert_eq!(Sealing::of(instructions, || Some(driver.to_owned())), sealing, "{driver}");
        }
        assert_eq!(Sealing::of(Instructions::Wide, || None), Sealing::WiderInUserSpace);
    }
}
