//! The shared libraries a program needs, by ldd(1).

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

/// The shared libraries of `program` and the dynamic loader; empty for a static program. `library_path` is searched
/// first: directories, as LD_LIBRARY_PATH lists them.
pub(crate) fn closure(program: &Path, library_path: Option<&OsStr>) -> Result<Vec<PathBuf>> {
    let mut command = Command::new("ldd");
    command.arg(program).env("LC_ALL", "C");
    match library_path {
        Some(path) => command.env("LD_LIBRARY_PATH", path),
        // Cargo sets it for its children, to directories that guests do not have.
        None => command.env_remove("LD_LIBRARY_PATH"),
    };
    let output = command.output().context("cannot run ldd")?;
    if !output.status.success() {
        if String::from_utf8_lossy(&output.stderr).contains("not a dynamic executable") {
            return Ok(Vec::new());
        }
        bail!("ldd cannot read {}: {}", program.display(), String::from_utf8_lossy(&output.stderr).trim());
    }
    parse(&String::from_utf8_lossy(&output.stdout)).with_context(|| format!("{} cannot run", program.display()))
}

fn parse(ldd: &str) -> Result<Vec<PathBuf>> {
    let mut libraries = Vec::new();
    for line in ldd.lines().map(str::trim) {
        let file = match line.split_once(" => ") {
            Some((name, "not found")) => bail!("its library {name} is not installed"),
            Some((_, file)) => file,
            None => line,
        };
        // The rest is linux-vdso, which has no file, and "statically linked".
        if file.starts_with('/') {
            let end = file.find(" (").unwrap_or(file.len());
            libraries.push(PathBuf::from(&file[..end]));
        }
    }
    Ok(libraries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_and_loader_are_found() {
        let ldd = "\tlinux-vdso.so.1 (0x00007ffd)\n\
                   \tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f00)\n\
                   \t/lib64/ld-linux-x86-64.so.2 (0x00007f01)\n";
        assert_eq!(
            parse(ldd).unwrap(),
            [Path::new("/lib/x86_64-linux-gnu/libc.so.6"), Path::new("/lib64/ld-linux-x86-64.so.2")]
        );
        assert!(parse("\tstatically linked\n").unwrap().is_empty());
    }

    #[test]
    fn a_missing_library_is_named() {
        let error = parse("\tlibpcre2-8.so.0 => not found\n").unwrap_err();
        assert!(error.to_string().contains("libpcre2-8.so.0"));
    }
}
