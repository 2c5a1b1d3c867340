//! The kernel modules a guest needs, and the order to load them in.

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// Modules of kernel TLS and its ciphers, and modules for tests. A module without a file is built in or missing in that
/// kernel.
const WANTED: &[&str] = &[
    "aesni_intel",
    "ghash_clmulni_intel",
    "ghash_generic",
    "gcm",
    "ctr",
    "cmac",
    "ccm",
    "chacha_x86_64",
    "chacha_generic",
    "chacha",
    "poly1305_x86_64",
    "poly1305_generic",
    "chacha20poly1305",
    "sm4_aesni_avx2_x86_64",
    "sm4_aesni_avx_x86_64",
    "sm4_generic",
    "aria_aesni_avx_x86_64",
    "aria_generic",
    "tls",
    // Slow and lossy networks between namespaces.
    "veth",
    "sch_netem",
    "sch_tbf",
    "sch_fq",
    "tcp_bbr",
    // sock_diag(7), for its tests and for `ss`.
    "tcp_diag",
    // A disk that can be suspended, for tests of slow reads, and a disk that loses writes.
    "loop",
    "dm_mod",
    "dm_flakey",
    "ext4",
    "crc32c_generic",
    "crc32c_intel",
];

/// A hash of the list, part of the cached directory's name, so that a changed list makes a new cache entry.
pub(crate) fn list_id() -> String {
    let mut hasher = DefaultHasher::new();
    WANTED.hash(&mut hasher);
    format!("{:08x}", hasher.finish() as u32)
}

/// Copies the wanted modules and their dependencies from the kernel tree `from` to `into`, decompressed, as `name.ko`.
/// Returns their names in load order.
pub(crate) fn collect(from: &Path, into: &Path) -> Result<Vec<String>> {
    let mut files = BTreeMap::new();
    find(from, &mut files)?;
    ensure!(files.contains_key("tls"), "no module tls below {}", from.display());
    let mut dependencies = BTreeMap::new();
    let mut pending: Vec<String> =
        WANTED.iter().map(|&name| name.to_owned()).filter(|name| files.contains_key(name)).collect();
    let wanted = pending.clone();
    while let Some(name) = pending.pop() {
        if dependencies.contains_key(&name) {
            continue;
        }
        let file =
            files.get(&name).with_context(|| format!("module {name} is needed but not below {}", from.display()))?;
        let module = decompressed(file)?;
        std::fs::write(into.join(format!("{name}.ko")), &module)?;
        let needs = depends(&module);
        pending.extend(needs.iter().cloned());
        dependencies.insert(name, needs);
    }
    load_order(&wanted, &dependencies)
}

/// The modules of `wanted`, each after its dependencies.
fn load_order(wanted: &[String], dependencies: &BTreeMap<String, Vec<String>>) -> Result<Vec<String>> {
    fn visit(
        name: &str,
        dependencies: &BTreeMap<String, Vec<String>>,
        path: &mut BTreeSet<String>,
        order: &mut Vec<String>,
    ) -> Result<()> {
        if order.iter().any(|loaded| loaded == name) {
            return Ok(());
        }
        if !path.insert(name.to_owned()) {
            bail!("module {name} depends on itself");
        }
        for needed in dependencies.get(name).into_iter().flatten() {
            visit(needed, dependencies, path, order)?;
        }
        path.remove(name);
        order.push(name.to_owned());
        Ok(())
    }
    let mut order = Vec::new();
    for name in wanted {
        visit(name, dependencies, &mut BTreeSet::new(), &mut order)?;
    }
    Ok(order)
}

/// The `depends=` entry of a module's `.modinfo` section: names separated by commas. Packages hold no modules.dep,
/// which depmod(8) makes from these entries.
fn depends(module: &[u8]) -> Vec<String> {
    const KEY: &[u8] = b"\0depends=";
    let Some(start) = module.windows(KEY.len()).position(|window| window == KEY) else {
        return Vec::new();
    };
    let value = &module[start + KEY.len()..];
    let end = value.iter().position(|&byte| byte == 0).unwrap_or(0);
    String::from_utf8_lossy(&value[..end]).split(',').filter(|name| !name.is_empty()).map(canonical).collect()
}

fn find(directory: &Path, files: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    let entries = std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))?;
    for entry in entries {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            find(&entry.path(), files)?;
        } else if let Some((name, "" | ".xz" | ".zst")) = entry.file_name().to_string_lossy().split_once(".ko") {
            files.insert(canonical(name), entry.path());
        }
    }
    Ok(())
}

fn decompressed(file: &Path) -> Result<Vec<u8>> {
    let program = match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => "xz",
        Some("zst") => "zstd",
        _ => return std::fs::read(file).with_context(|| format!("cannot read {}", file.display())),
    };
    let output = Command::new(program)
        .arg("-dc")
        .arg(file)
        .output()
        .with_context(|| format!("cannot run {program} to decompress {}", file.display()))?;
    ensure!(output.status.success(), "{program} cannot decompress {}", file.display());
    Ok(output.stdout)
}

/// modprobe(8): underscores and dashes in module names are the same.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|&name| name.to_owned()).collect()
    }

    #[test]
    fn a_module_comes_after_what_it_needs() {
        let dependencies = BTreeMap::from([
            ("aesni_intel".into(), names(&["crypto_simd", "cryptd"])),
            ("crypto_simd".into(), names(&["cryptd"])),
            ("tls".into(), names(&[])),
        ]);
        assert_eq!(
            load_order(&names(&["aesni_intel", "tls", "cryptd"]), &dependencies).unwrap(),
            ["cryptd", "crypto_simd", "aesni_intel", "tls"]
        );
    }

    #[test]
    fn a_circle_of_modules_is_an_error() {
        let dependencies = BTreeMap::from([("a".into(), names(&["b"])), ("b".into(), names(&["a"]))]);
        assert!(load_order(&names(&["a"]), &dependencies).is_err());
    }

    #[test]
    fn depends_is_read_from_modinfo() {
        assert_eq!(depends(b"\x7fELF..\0license=GPL\0depends=crypto-simd,cryptd\0name=x\0"), ["crypto_simd", "cryptd"]);
        assert!(depends(b"\x7fELF..\0depends=\0name=x\0").is_empty());
        assert!(depends(b"\x7fELF").is_empty());
    }
}
