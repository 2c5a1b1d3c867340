//! The Debian archive this machine already trusts, read from its own apt configuration (sources.list(5)).

use std::path::Path;

use anyhow::{Context, Result, bail};

/// The default keyring of a source, from Debian's package debian-archive-keyring.
const DEBIAN_KEYRING: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";

/// One source of packages: an archive with its suites.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Source {
    pub(crate) uri: String,
    pub(crate) suites: Vec<String>,
    pub(crate) components: Vec<String>,
    pub(crate) signed_by: Option<String>,
}

impl Source {
    /// The line of sources.list(5) for component `main` of another suite of this archive.
    pub(crate) fn line_for(&self, suite: &str) -> String {
        let keyring = self.signed_by.as_deref().unwrap_or(DEBIAN_KEYRING);
        format!("deb [signed-by={keyring}] {} {suite} main\n", self.uri)
    }
}

/// Finds the Debian archive among the sources under `apt` (`/etc/apt`): the archive that has this system's suite,
/// `codename`.
pub(crate) fn debian_archive(apt: &Path, codename: &str) -> Result<Source> {
    let mut sources = Vec::new();
    let mut files = vec![apt.join("sources.list")];
    if let Ok(entries) = std::fs::read_dir(apt.join("sources.list.d")) {
        files.extend(entries.flatten().map(|entry| entry.path()));
    }
    files.sort();
    for file in files {
        let parse = match file.extension().and_then(|extension| extension.to_str()) {
            Some("sources") => parse_deb822,
            Some("list") => parse_one_line,
            _ => continue,
        };
        match std::fs::read_to_string(&file) {
            Ok(text) => sources.extend(parse(&text)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            Err(error) => {
                return Err(error).with_context(|| format!("cannot read {}", file.display()));
            }
        }
    }
    let archive = sources.into_iter().find(|source| {
        source.suites.iter().any(|suite| suite == codename)
            && source.components.iter().any(|component| component == "main")
    });
    match archive {
        Some(source) => Ok(source),
        None => bail!(
            "no Debian archive with suite {codename} in {}: kernels come from the mirror this machine uses",
            apt.display()
        ),
    }
}

/// The value of `VERSION_CODENAME` in os-release(5).
pub(crate) fn codename(os_release: &str) -> Option<&str> {
    os_release.lines().find_map(|line| line.strip_prefix("VERSION_CODENAME=")).map(|name| name.trim_matches('"'))
}

/// The stanzas of a `.sources` file. Disabled ones and sources without a keyring file (an embedded key) keep only these
/// fields.
fn parse_deb822(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for stanza in text.split("\n\n") {
        let field = |name: &str| -> Vec<String> {
            let mut words = Vec::new();
            let mut inside = false;
            for line in stanza.lines().filter(|line| !line.starts_with('#')) {
                if line.starts_with([' ', '\t']) {
                    if inside {
                        words.extend(line.split_whitespace().map(str::to_owned));
                    }
                } else if let Some((key, value)) = line.split_once(':') {
                    inside = key.eq_ignore_ascii_case(name);
                    if inside {
                        words.extend(value.split_whitespace().map(str::to_owned));
                    }
                }
            }
            words
        };
        let disabled = field("Enabled").first().is_some_and(|value| matches!(value.as_str(), "no" | "false" | "0"));
        if disabled || !field("Types").iter().any(|kind| kind == "deb") {
            continue;
        }
        for uri in field("URIs") {
            sources.push(Source {
                uri,
                suites: field("Suites"),
                components: field("Components"),
                signed_by: field("Signed-By").into_iter().next().filter(|path| path.starts_with('/')),
            });
        }
    }
    sources
}

/// The `deb` lines of a `.list` file.
fn parse_one_line(text: &str) -> Vec<Source> {
    let mut sources = Vec::new();
    for line in text.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let Some(rest) = line.trim().strip_prefix("deb") else {
            continue;
        };
        if !rest.starts_with([' ', '\t']) {
            continue;
        }
        let rest = rest.trim_start();
        let (options, rest) = match rest.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((options, rest)) => (options, rest),
            None => ("", rest),
        };
        let mut words = rest.split_whitespace().map(str::to_owned);
        let (Some(uri), Some(suite)) = (words.next(), words.next()) else {
            continue;
        };
        sources.push(Source {
            uri,
            suites: vec![suite],
            components: words.collect(),
            signed_by: options
                .split_whitespace()
                .find_map(|option| option.strip_prefix("signed-by="))
                .map(str::to_owned),
        });
    }
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    const DEB822: &str = "\
# a comment
Types: deb deb-src
URIs: http://mirror.test/debian
Suites: bookworm bookworm-updates
Components: main
Signed-By: /usr/share/keyrings/debian.gpg

Enabled: no
Types: deb
URIs: http://off.test/debian
Suites: bookworm
Components: main

Types: deb
URIs: http://mirror.test/security
Suites:
 bookworm-security
 other
Components: main contrib
Signed-By:
 -----BEGIN PGP PUBLIC KEY BLOCK-----
";

    #[test]
    fn deb822_stanzas_become_sources() {
        let sources = parse_deb822(DEB822);
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].uri, "http://mirror.test/debian");
        assert_eq!(sources[0].suites, ["bookworm", "bookworm-updates"]);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/usr/share/keyrings/debian.gpg"));
        assert_eq!(sources[1].suites, ["bookworm-security", "other"]);
        assert_eq!(sources[1].components, ["main", "contrib"]);
        assert_eq!(sources[1].signed_by, None);
    }

    #[test]
    fn one_line_sources_keep_their_keyring() {
        let sources = parse_one_line(
            "# deb http://no.test/ x main\ndeb-src http://no.test/ x main\n\
             deb [arch=amd64 signed-by=/k.gpg] http://mirror.test/debian trixie main contrib # end\n\
             deb http://plain.test/debian sid main\n",
        );
        assert_eq!(sources.len(), 2);
        assert_eq!(sources[0].signed_by.as_deref(), Some("/k.gpg"));
        assert_eq!(sources[0].components, ["main", "contrib"]);
        assert_eq!(sources[0].line_for("sid"), "deb [signed-by=/k.gpg] http://mirror.test/debian sid main\n");
        assert_eq!(sources[1].suites, ["sid"]);
        assert!(sources[1].line_for("sid").contains(DEBIAN_KEYRING));
    }

    #[test]
    fn the_archive_is_the_source_with_our_own_suite() {
        let apt = tempfile::tempdir().unwrap();
        std::fs::create_dir(apt.path().join("sources.list.d")).unwrap();
        std::fs::write(
            apt.path().join("sources.list.d/cloud.list"),
            "deb http://cloud.test/apt cloud-sdk-bookworm main\n",
        )
        .unwrap();
        std::fs::write(apt.path().join("sources.list.d/debian.sources"), DEB822).unwrap();
        let archive = debian_archive(apt.path(), "bookworm").unwrap();
        assert_eq!(archive.uri, "http://mirror.test/debian");
        let error = debian_archive(apt.path(), "forky").unwrap_err();
        assert!(error.to_string().contains("forky"), "{error}");
    }

    #[test]
    fn codename_is_read_with_or_without_quotes() {
        assert_eq!(codename("ID=debian\nVERSION_CODENAME=bookworm\n"), Some("bookworm"));
        assert_eq!(codename("VERSION_CODENAME=\"trixie\"\n"), Some("trixie"));
        assert_eq!(codename("ID=arch\n"), None);
    }
}
