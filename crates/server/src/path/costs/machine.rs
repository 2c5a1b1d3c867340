//! The machine that a measurement is valid for.

use serde::{Deserialize, Serialize};

/// Kernel, processor and program version. A change of any of them changes the costs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// The kernel's release, as printed by `uname -r`.
    pub kernel: String,
    /// The processor's model, from `/proc/cpuinfo`.
    pub cpu: String,
    /// The version of the program that measured.
    pub sealion: String,
}

impl Machine {
    /// The machine that this process runs on.
    pub fn this() -> Self {
        let cpuinfo = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        Self {
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            cpu: cpu_model(&cpuinfo),
            sealion: env!("CARGO_PKG_VERSION").to_owned(),
        }
    }

    /// The first difference from `other`, in words.
    pub fn differs_from(&self, other: &Self) -> Option<String> {
        let pairs = [
            ("Linux", &self.kernel, &other.kernel),
            ("the processor", &self.cpu, &other.cpu),
            ("sealion", &self.sealion, &other.sealion),
        ];
        pairs
            .into_iter()
            .find(|(_, here, there)| here != there)
            .map(|(what, here, there)| format!("it was made with {what} {there}, but this machine has {here}"))
    }
}

/// x86 reports a model name. arm64 reports numbers, among which implementer and part identify the model.
fn cpu_model(cpuinfo: &str) -> String {
    let value = |name: &str| {
        cpuinfo.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            (field.trim() == name).then(|| value.trim().to_owned())
        })
    };
    value("model name")
        .or_else(|| Some(format!("implementer {} part {}", value("CPU implementer")?, value("CPU part")?)))
        .unwrap_or_else(|| "unknown".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_have_names() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 17\nmodel name\t: AMD EPYC 9654\n";
        assert_eq!(cpu_model(x86), "AMD EPYC 9654");
        let arm = "processor\t: 0\nCPU implementer\t: 0x41\nCPU architecture: 8\nCPU part\t: 0xd40\n";
        assert_eq!(cpu_model(arm), "implementer 0x41 part 0xd40");
        assert_eq!(cpu_model(""), "unknown");
    }

    #[test]
    fn each_difference_counts() {
        let here = Machine::this();
        assert_eq!(here.differs_from(&here.clone()), None);
        for other in [
            Machine { kernel: "6.1.0-x".to_owned(), ..here.clone() },
            Machine { cpu: "other".to_owned(), ..here.clone() },
            Machine { sealion: "9.9.9".to_owned(), ..here.clone() },
        ] {
            assert!(here.differs_from(&other).is_some(), "{other:?}");
        }
    }
}
