//! Programs of this machine that boot guests or are copied into guests.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::apt::Apt;
use crate::cache::Cache;
use crate::initramfs::Initramfs;

/// The emulator that boots guests.
pub const QEMU: &str = "qemu-system-x86_64";

/// A program and the Debian package that contains it.
pub type Tool = (&'static str, &'static str);

/// Programs that every guest needs.
pub const FOR_GUESTS: &[Tool] =
    &[(QEMU, "qemu-system-x86"), ("busybox", "busybox-static"), ("xz", "xz-utils"), ("setpriv", "util-linux")];

/// Installs missing programs if run as root. Otherwise the error names the command.
///
/// # Errors
/// A program is missing and cannot be installed.
pub fn ensure(tools: &[Tool]) -> Result<()> {
    let missing: Vec<&str> =
        tools.iter().filter(|(program, _)| find(program).is_none()).map(|(_, package)| *package).collect();
    if missing.is_empty() {
        return Ok(());
    }
    let packages = missing.join(" ");
    if !rustix::process::geteuid().is_root() {
        bail!("programs are missing; install them with: sudo apt-get install --no-install-recommends {packages}");
    }
    eprintln!("guest: installing {packages}");
    for arguments in [&["update"][..], &[&["install", "--yes", "--no-install-recommends"][..], &missing].concat()] {
        crate::cache::output(
            Command::new("apt-get")
                // Seconds to wait for another apt.
                .args(["--quiet", "-o", "DPkg::Lock::Timeout=300"])
                .args(arguments)
                .env("DEBIAN_FRONTEND", "noninteractive"),
        )?;
    }
    Ok(())
}

/// Downloads nginx into the cache, for tests on this machine.
///
/// # Errors
/// It cannot be downloaded.
pub fn ensure_nginx() -> Result<()> {
    nginx(&Cache::open()?).map(drop)
}

/// Installs php-fpm, whose program name contains its version.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_php_fpm() -> Result<()> {
    let directories = ["/usr/sbin", "/usr/bin", "/usr/local/sbin"].iter();
    let mut names = directories.filter_map(|directory| std::fs::read_dir(directory).ok()).flatten().flatten();
    match names.any(|entry| entry.file_name().to_string_lossy().starts_with("php-fpm")) {
        true => Ok(()),
        false => ensure(&[("php-fpm", "php-fpm")]),
    }
}

/// uwsgi and its plugin for Python, which are packages of their own.
///
/// # Errors
/// As [`ensure`].
pub fn ensure_uwsgi() -> Result<()> {
    let tools: &[Tool] = match Path::new("/usr/lib/uwsgi/plugins/python3_plugin.so").is_file() {
        true => &[("uwsgi-core", "uwsgi-core")],
        false => &[("uwsgi-core", "uwsgi-core"), ("no plugin of uwsgi", "uwsgi-plugin-python3")],
    };
    ensure(tools)
}

/// Pebble, an ACME server for tests, in the cache; built from its source by Go, through Go's module proxy.
///
/// # Errors
/// It cannot be built.
pub fn pebble() -> Result<PathBuf> {
    from_go("pebble", |go| format!("github.com/letsencrypt/pebble/v2/cmd/pebble@{}", pebble_version(go)))
}

/// h2spec, which tests HTTP/2 servers frame by frame, in the cache; built as Pebble is.
///
/// # Errors
/// It cannot be built.
pub fn h2spec() -> Result<PathBuf> {
    from_go("h2spec", |_| "github.com/summerwind/h2spec/cmd/h2spec@v2.2.1+incompatible".to_owned())
}

/// Helm, which renders the chart in packaging/helm, in the cache; built as Pebble is. It needs Go 1.21 or later.
///
/// # Errors
/// It cannot be built.
pub fn helm() -> Result<PathBuf> {
    from_go("helm", |_| "helm.sh/helm/v3/cmd/helm@v3.22.0".to_owned())
}

/// vegeta, a load generator in Go, in the cache; built as Pebble is. `None`: this Go is older than 1.21, as in Debian 12, and cannot build it.
///
/// # Errors
/// It cannot be built.
pub fn vegeta() -> Result<Option<PathBuf>> {
    ensure(&[("go", "golang-go")])?;
    let go = crate::cache::output(Command::new("go").args(["env", "GOVERSION"]))?;
    if is_before_toolchains(go.trim()) {
        return Ok(None);
    }
    from_go("vegeta", |_| "github.com/tsenart/vegeta/v12@v12.13.0".to_owned()).map(Some)
}

/// mdBook, which makes the documentation a site, in the cache; built by cargo, without its server.
///
/// # Errors
/// It cannot be built.
pub fn mdbook() -> Result<PathBuf> {
    let built = Cache::open()?.directory("mdbook", |into| {
        eprintln!("guest: building {MDBOOK}");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["install", "--quiet", "--locked", "--debug", "--no-default-features", "--features", "search"]);
        crate::cache::output(cargo.args(["--root"]).arg(into).arg(MDBOOK)).map(drop)
    });
    Ok(built.context("cannot get mdbook")?.join("bin/mdbook"))
}

const MDBOOK: &str = "mdbook@0.4.52";

/// A program that Go builds from source. `package`: returns the package and its version for a version of Go.
fn from_go(program: &str, package: impl FnOnce(&str) -> String) -> Result<PathBuf> {
    let built = Cache::open()?.directory(program, |into| {
        ensure(&[("go", "golang-go")])?;
        let go = crate::cache::output(Command::new("go").args(["env", "GOVERSION"]))?;
        let package = package(go.trim());
        eprintln!("guest: building {package}");
        crate::cache::output(
            Command::new("go").args(["install", &package]).env("GOBIN", into).env_remove("GOOS").env_remove("GOARCH"),
        )
        .map(drop)
    });
    Ok(built.with_context(|| format!("cannot get {program}"))?.join(program))
}

/// From Go 1.21 on, `go` downloads the toolchain that a module requires. Debian 12's Go is older and builds an older
/// Pebble.
fn pebble_version(go: &str) -> &'static str {
    if is_before_toolchains(go) { "v2.4.0" } else { "v2.10.1" }
}

/// Whether a version of Go does not fetch a later one that a module asks for: those before 1.21.
fn is_before_toolchains(go: &str) -> bool {
    let minor = go.strip_prefix("go1.").and_then(|rest| rest.split('.').next()).and_then(|minor| minor.parse().ok());
    minor.is_some_and(|minor: u32| minor < 21)
}

/// A Python package and its dependencies, in a directory of the cache for PYTHONPATH. `requirement`: a pip requirement
/// with a version.
///
/// # Errors
/// It cannot be downloaded.
pub fn python_package(requirement: &str) -> Result<PathBuf> {
    let cache = Cache::open()?;
    cache
        .directory(&format!("python/{requirement}"), |into| {
            if crate::cache::output(Command::new("python3").args(["-m", "pip", "--version"])).is_err() {
                ensure(&[("pip3", "python3-pip")])?;
            }
            eprintln!("guest: downloading {requirement}");
            crate::cache::output(
                Command::new("python3")
                    .args(["-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target"])
                    .arg(into)
                    .arg(requirement),
            )
            .map(drop)
        })
        .with_context(|| format!("cannot get {requirement}"))
}

/// A package of npm and its dependencies: the directory of the cache that contains them. `package`: a name with its
/// version. Scripts of the packages do not run.
///
/// # Errors
/// It cannot be downloaded.
pub fn npm_package(package: &str) -> Result<PathBuf> {
    let installed = Cache::open()?.directory(&format!("npm/{package}"), |into| {
        ensure(&[("node", "nodejs"), ("npm", "npm")])?;
        eprintln!("guest: downloading {package}");
        crate::cache::output(
            Command::new("npm")
                .args(["install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock", "--prefix"])
                .arg(into)
                .arg(package),
        )
        .map(drop)
    });
    Ok(installed.with_context(|| format!("cannot get {package}"))?.join("node_modules"))
}

/// The headers of musl for 64-bit ARM, from Debian's package musl-dev: a directory of the cache for `-isystem` of a cross compiler.
///
/// # Errors
/// They cannot be downloaded.
pub fn musl_headers_for_arm64() -> Result<PathBuf> {
    let cache = Cache::open()?;
    let unpacked = cache.directory("musl-arm64", |into| {
        eprintln!("guest: downloading musl's headers for arm64 from this machine's Debian mirror");
        let apt = Apt::update_for(Some("arm64"), cache.root.join("apt/musl-arm64"), &["bookworm"])?;
        apt.unpack(&["musl-dev".to_owned()], into)?;
        anyhow::ensure!(into.join(MUSL_HEADERS).join("stdio.h").is_file(), "musl-dev holds no {MUSL_HEADERS}/stdio.h");
        Ok(())
    });
    Ok(unpacked.context("cannot get musl's headers")?.join(MUSL_HEADERS))
}

/// The headers in musl-dev for arm64.
const MUSL_HEADERS: &str = "usr/include/aarch64-linux-musl";

/// Versions that `crates/server/tests/support/program.rs` looks for.
const WS: &str = "ws@8.18.3";
const GRPCIO: &str = "grpcio==1.76.0";

/// Packages of other languages that the server's tests use: WebSocket for Node, and gRPC for Python.
///
/// # Errors
/// One of them cannot be downloaded.
pub fn packages() -> Result<()> {
    npm_package(WS)?;
    python_package(GRPCIO).map(drop)
}

/// Debian 12's nginx with its libraries, unpacked in the cache and never installed, so that no server starts here.
pub(crate) fn nginx(cache: &Cache) -> Result<PathBuf> {
    // Earlier versions of this code left out packages that were installed on this machine.
    let complete = |directory: &Path| [NGINX, MIME_TYPES].iter().all(|file| directory.join(file).is_file());
    let cached = cache.root.join("nginx");
    if cached.is_dir() && !complete(&cached) {
        std::fs::remove_dir_all(&cached).with_context(|| format!("cannot remove {}", cached.display()))?;
    }
    cache
        .directory("nginx", |into| {
            eprintln!("guest: downloading nginx from this machine's Debian mirror");
            let apt = Apt::update(cache.root.join("apt/nginx"), &["bookworm"])?;
            apt.unpack(&apt.with_dependencies("nginx")?, into)?;
            anyhow::ensure!(complete(into), "its packages hold no {NGINX} or no {MIME_TYPES}");
            Ok(())
        })
        .context("cannot get nginx")
}

/// The program in nginx's packages.
const NGINX: &str = "usr/sbin/nginx";

/// The media types by file extension in nginx's packages.
const MIME_TYPES: &str = "etc/nginx/mime.types";

/// Adds busybox, nginx, and the configuration that programs expect.
pub(crate) fn add(root: &mut Initramfs, nginx: &Path) -> Result<()> {
    let busybox = found("busybox")?;
    root.program(&busybox)?;
    root.file_at(Path::new(crate::protocol::TOOLS_PATH).join("busybox"), &busybox);
    root.symlink("/bin/sh", "/tools/busybox");
    root.tree(Path::new("/etc/ssl/openssl.cnf"))?;
    root.tree(Path::new("/usr/lib/ssl/openssl.cnf"))?;

    root.program_below(nginx, &Path::new("/").join(NGINX))?;
    root.file_at(Path::new("/").join(MIME_TYPES), nginx.join(MIME_TYPES));
    root.directory("/var/lib/nginx");
    root.directory("/var/log/nginx");

    root.directory("/root");
    root.bytes("/etc/passwd", PASSWD, 0o644);
    root.bytes("/etc/group", GROUP, 0o644);
    root.bytes("/etc/hosts", "127.0.0.1 localhost guest\n::1 localhost\n", 0o644);
    root.bytes("/etc/nsswitch.conf", "hosts: files\n", 0o644);
    Ok(())
}

const PASSWD: &str = "\
root:x:0:0:root:/root:/bin/sh
www-data:x:33:33:www-data:/var/www:/bin/false
nobody:x:65534:65534:nobody:/nonexistent:/bin/false
";

const GROUP: &str = "\
root:x:0:
www-data:x:33:
nogroup:x:65534:
";

pub(crate) fn found(program: &str) -> Result<PathBuf> {
    find(program).with_context(|| format!("{program} is not installed"))
}

fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        // A user's PATH may lack root's directories.
        .chain(["/usr/sbin", "/sbin", "/usr/bin", "/bin"].map(PathBuf::from))
        .map(|directory| directory.join(program))
        .find(|candidate| candidate.is_file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tests_of_the_server_look_for_the_packages_that_are_downloaded() {
        let program = include_str!("../../server/tests/support/program.rs");
        for directory in [format!("\"npm/{WS}/"), format!("\"python/{GRPCIO}\"")] {
            assert!(program.contains(&directory), "program.rs lacks {directory}");
        }
    }
}
