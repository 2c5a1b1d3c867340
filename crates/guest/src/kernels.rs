//! The guest kernels: Debian's cloud packages, downloaded once and cached.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use clap::ValueEnum;

use crate::apt::Apt;
use crate::cache::Cache;
use crate::modules;

/// A series of Debian's kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Series {
    /// Debian 12
    #[value(name = "6.1")]
    V6_1,
    /// Debian 13
    #[value(name = "6.12")]
    V6_12,
    /// Debian 13 backports or sid
    #[value(name = "7.2")]
    V7_2,
}

impl Series {
    /// The series as on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::V6_1 => "6.1",
            Self::V6_12 => "6.12",
            Self::V7_2 => "7.2",
        }
    }

    fn suites(self) -> &'static [&'static str] {
        match self {
            Self::V6_1 => &["bookworm"],
            Self::V6_12 => &["trixie"],
            Self::V7_2 => &["trixie-backports", "sid"],
        }
    }
}

/// A kernel ready to boot.
pub(crate) struct Kernel {
    pub(crate) series: Series,
    directory: PathBuf,
}

impl Kernel {
    /// The kernel from the cache, downloaded the first time.
    pub(crate) fn ensure(cache: &Cache, series: Series) -> Result<Self> {
        let name = series.name();
        let directory = cache
            .directory(&format!("kernels/{name}-{}", modules::list_id()), |directory| fetch(cache, series, directory))
            .with_context(|| format!("cannot get kernel {name}"))?;
        Ok(Self { series, directory })
    }

    pub(crate) fn image(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// The directory of modules, with their load order in the file `order`.
    pub(crate) fn modules(&self) -> PathBuf {
        self.directory.join("modules")
    }
}

fn fetch(cache: &Cache, series: Series, into: &Path) -> Result<()> {
    let name = series.name();
    eprintln!("guest: downloading kernel {name} from this machine's Debian mirror");
    let apt = Apt::update(cache.root.join(format!("apt/{name}")), series.suites())?;
    let pattern = format!(r"^linux-image-{}\..*-cloud-amd64$", name.replace('.', r"\."));
    let Some((package, version)) = apt.search(&pattern)?.pop() else {
        bail!("no package linux-image-{name}.*-cloud-amd64 in Debian's {}", series.suites().join(", "));
    };
    // From 7.2 on, the image package is empty and depends on two others.
    let mut packages = apt.parts(&package)?;
    packages.push(package);
    let unpacked = into.join("unpacked");
    apt.unpack(&packages, &unpacked)?;
    let image = first_match(&unpacked, "vmlinuz")?;
    std::fs::rename(image, into.join("vmlinuz"))?;
    let modules = into.join("modules");
    std::fs::create_dir(&modules)?;
    let order = modules::collect(&unpacked, &modules)?;
    std::fs::write(modules.join("order"), order.join("\n") + "\n")?;
    std::fs::write(into.join("version"), version + "\n")?;
    std::fs::remove_dir_all(unpacked)?;
    Ok(())
}

/// A file below `directory` whose name begins with `prefix`.
fn first_match(directory: &Path, prefix: &str) -> Result<PathBuf> {
    let mut pending = vec![directory.to_owned()];
    while let Some(next) = pending.pop() {
        for entry in std::fs::read_dir(&next)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                pending.push(entry.path());
            } else if entry.file_type()?.is_file() && entry.file_name().to_string_lossy().starts_with(prefix) {
                return Ok(entry.path());
            }
        }
    }
    bail!("no {prefix} in the kernel package");
}
