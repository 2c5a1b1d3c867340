//! A private apt, which downloads and verifies Debian packages without touching this machine's package state.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{cache, sources};

/// An apt with its own directory for state, cache and sources.
pub(crate) struct Apt {
    root: PathBuf,
    /// Debian's name of the architecture, if it differs from this machine's.
    architecture: Option<&'static str>,
}

impl Apt {
    /// Creates an apt under `root` and downloads the package lists of Debian's `suites`, verified with this machine's
    /// Debian keyring.
    pub(crate) fn update(root: PathBuf, suites: &[&str]) -> Result<Self> {
        Self::update_for(None, root, suites)
    }

    /// As [`Self::update`], for packages of another architecture.
    pub(crate) fn update_for(architecture: Option<&'static str>, root: PathBuf, suites: &[&str]) -> Result<Self> {
        let os_release = std::fs::read_to_string("/etc/os-release").context("cannot read /etc/os-release")?;
        let codename = sources::codename(&os_release)
            .context("/etc/os-release names no VERSION_CODENAME: guest kernels need a Debian machine")?;
        let archive = sources::debian_archive(Path::new("/etc/apt"), codename)?;
        for directory in ["state/lists/partial", "cache/archives/partial"] {
            std::fs::create_dir_all(root.join(directory))
                .with_context(|| format!("cannot write below {}", root.display()))?;
        }
        let lines: String = suites.iter().map(|suite| archive.line_for(suite)).collect();
        std::fs::write(root.join("sources.list"), lines)?;
        let apt = Self { root, architecture };
        cache::output(
            apt.command("apt-get")
                // By default, a suite that cannot be fetched or verified is only a warning.
                .args(["-o", "APT::Update::Error-Mode=any", "update"]),
        )
        .with_context(|| {
            format!(
                "cannot read Debian's {} (if a key is unknown or expired, debian-archive-keyring is too old)",
                suites.join(", ")
            )
        })?;
        Ok(apt)
    }

    /// The packages whose names match `pattern` (a regular expression), each with its newest version, oldest version
    /// first.
    pub(crate) fn search(&self, pattern: &str) -> Result<Vec<(String, String)>> {
        let found = cache::output(self.command("apt-cache").args(["search", "--names-only", pattern]))?;
        let mut packages = Vec::new();
        for name in found.lines().filter_map(|line| line.split_whitespace().next()) {
            let version =
                self.field(name, "Version")?.with_context(|| format!("apt knows {name} but not its version"))?;
            packages.push((name.to_owned(), version));
        }
        let mut failure = None;
        packages.sort_by(|(_, left), (_, right)| {
            compare_versions(left, right).unwrap_or_else(|error| {
                failure = Some(error);
                std::cmp::Ordering::Equal
            })
        });
        match failure {
            Some(error) => Err(error),
            None => Ok(packages),
        }
    }

    /// The packages `name` depends on in the same version.
    pub(crate) fn parts(&self, name: &str) -> Result<Vec<String>> {
        let depends = self.field(name, "Depends")?.unwrap_or_default();
        Ok(same_version_dependencies(&depends))
    }

    /// `name` and everything it depends on, as an empty machine would install them. Packages installed on this machine
    /// must not matter: guests take files from the unpacked packages only.
    pub(crate) fn with_dependencies(&self, name: &str) -> Result<Vec<String>> {
        let plan = cache::output(&mut self.simulated_install(name))
            .with_context(|| format!("apt cannot resolve the dependencies of {name}"))?;
        Ok(installed_by(&plan))
    }

    fn simulated_install(&self, name: &str) -> Command {
        let mut command = self.command("apt-get");
        command.args(["--simulate", "--no-install-recommends", "install", name]);
        command
    }

    /// Downloads `packages`, verifies them against the signed lists, and unpacks their files into `into`. Installs
    /// nothing.
    pub(crate) fn unpack(&self, packages: &[String], into: &Path) -> Result<()> {
        let downloads = tempfile::tempdir_in(&self.root)?;
        cache::output(self.command("apt-get").current_dir(downloads.path()).arg("download").args(packages))?;
        for entry in std::fs::read_dir(downloads.path())? {
            cache::output(Command::new("dpkg-deb").arg("--extract").arg(entry?.path()).arg(into))?;
        }
        Ok(())
    }

    fn field(&self, package: &str, field: &str) -> Result<Option<String>> {
        let record = cache::output(self.command("apt-cache").args(["show", "--no-all-versions", package]))?;
        Ok(record.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(": ")).map(str::to_owned))
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        let mut option = |name: &str, value: &Path| {
            let mut setting = std::ffi::OsString::from(format!("{name}="));
            setting.push(value);
            command.arg("-o").arg(setting);
        };
        option("Dir::State", &self.root.join("state"));
        option("Dir::State::status", Path::new("/dev/null"));
        option("Dir::Cache", &self.root.join("cache"));
        option("Dir::Etc::sourcelist", &self.root.join("sources.list"));
        option("Dir::Etc::sourceparts", Path::new("/dev/null"));
        // apt's download user cannot read files below a home directory.
        option("APT::Sandbox::User", Path::new("root"));
        option("Acquire::Languages", Path::new("none"));
        for target in ["deb::DEP-11", "deb::DEP-11-icons", "deb::CNF"] {
            option(&format!("Acquire::IndexTargets::{target}::DefaultEnabled"), Path::new("false"));
        }
        if let Some(architecture) = self.architecture {
            command.arg("-o").arg(format!("APT::Architecture={architecture}"));
            command.arg("-o").arg(format!("APT::Architectures::={architecture}"));
        }
        command.arg("--quiet").env("LC_ALL", "C");
        command
    }
}

/// The packages that a `Depends` field pins by `(= version)`.
fn same_version_dependencies(depends: &str) -> Vec<String> {
    depends
        .split(',')
        .filter(|dependency| dependency.contains("(= "))
        .filter_map(|dependency| dependency.split_whitespace().next())
        .map(str::to_owned)
        .collect()
}

/// The packages that the output of `apt-get --simulate install` would install.
fn installed_by(plan: &str) -> Vec<String> {
    let packages = plan.lines().filter_map(|line| line.strip_prefix("Inst ")?.split_whitespace().next());
    packages.map(str::to_owned).collect()
}

fn compare_versions(left: &str, right: &str) -> Result<std::cmp::Ordering> {
    let holds = |relation: &str| -> Result<bool> {
        Ok(Command::new("dpkg")
            .args(["--compare-versions", left, relation, right])
            .status()
            .context("cannot run dpkg")?
            .success())
    };
    Ok(if holds("lt")? {
        std::cmp::Ordering::Less
    } else if holds("gt")? {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Equal
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_pinned_dependencies_are_parts() {
        assert_eq!(
            same_version_dependencies(
                "dracut | initramfs-tools (>= 0.120), linux-binary-7.2 (= 7.2.13-1), linux-modules-7.2 (= 7.2.13-1)"
            ),
            ["linux-binary-7.2", "linux-modules-7.2"]
        );
        assert!(same_version_dependencies("kmod, linux-base (>= 4.3~)").is_empty());
    }

    #[test]
    fn installed_packages_of_this_machine_do_not_count() {
        let apt = Apt { root: "/cache/apt/nginx".into(), architecture: None };
        let command = apt.simulated_install("nginx");
        let arguments: Vec<&str> = command.get_args().filter_map(|argument| argument.to_str()).collect();
        let states: Vec<&&str> = arguments.iter().filter(|argument| argument.contains("State::status=")).collect();
        assert_eq!(states, [&"Dir::State::status=/dev/null"]);
        assert!(arguments.ends_with(&["install", "nginx"]));
    }

    #[test]
    fn a_simulated_installation_names_its_packages() {
        let plan = "Reading package lists...\n\
            Inst nginx-common (1.22.1-9 Debian:12 [all])\n\
            Inst nginx (1.22.1-9 Debian:12 [amd64])\n\
            Conf nginx-common (1.22.1-9 Debian:12 [all])\n";
        assert_eq!(installed_by(plan), ["nginx-common", "nginx"]);
        assert!(installed_by("nginx is already the newest version.\n").is_empty());
    }
}
