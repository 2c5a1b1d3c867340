//! Names of a release's files: pages of docs/ name these files and no others.

use super::programs::Architecture;

const VERSION: &str = env!("CARGO_PKG_VERSION");

/// A Debian package. `architecture`: as Debian calls it.
pub(super) fn deb(package: &str, architecture: &str) -> String {
    format!("{package}_{VERSION}_{architecture}.deb")
}

/// The static programs.
pub(super) fn archive(architecture: Architecture) -> String {
    format!("{}.tar.gz", tree(architecture))
}

/// The directory in the archive of static programs.
pub(super) fn tree(architecture: Architecture) -> String {
    format!("sealion-{VERSION}-{}-linux", architecture.name())
}

/// A container image.
pub(super) fn image(architecture: Architecture) -> String {
    format!("sealion-{VERSION}-{}-image.tar", architecture.debian())
}

/// A bill of materials.
pub(super) fn bill(package: &str) -> String {
    format!("{package}-{VERSION}.cdx.json")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    /// The names of all files but the crates and the sums.
    fn all() -> Vec<String> {
        let architectures = [Architecture::X86_64, Architecture::Aarch64];
        let each = architectures.into_iter().flat_map(|architecture| {
            let debs = ["sealion", "sealion-lab"].map(|package| deb(package, architecture.debian()));
            debs.into_iter().chain([archive(architecture), image(architecture)])
        });
        each.chain(["sealion", "sealion-lab"].map(bill)).collect()
    }

    /// The words of a page that look like a file of a release. A page may write VERSION for its number.
    fn mentioned(page: &str) -> Vec<String> {
        let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let words = page.split(|c| !is_of_name(c)).map(|word| word.trim_matches('.').replace("VERSION", VERSION));
        let ends = [".deb", "-linux.tar.gz", "-image.tar", ".cdx.json"];
        words.filter(|word| word.starts_with("sealion") && ends.iter().any(|end| word.ends_with(end))).collect()
    }

    #[test]
    fn pages_name_files_that_a_release_has() {
        let (root, all) = (workspace::root(), all());
        let install = std::fs::read_dir(root.join("docs/install")).unwrap().map(|page| page.unwrap().path());
        let pages = ["README.md", "docs/release.md", "packaging/README.md"].map(|page| root.join(page));
        let mut found = Vec::new();
        for page in install.chain(pages) {
            let text = std::fs::read_to_string(&page).unwrap();
            for name in mentioned(&text) {
                assert!(all.contains(&name), "{}: {name} is not among {all:#?}", page.display());
                found.push(name);
            }
        }
        let missing: Vec<_> = all.iter().filter(|name| !found.contains(name)).collect();
        assert!(missing.is_empty(), "no page says how to get {missing:?}");
    }

    #[test]
    fn names_are_found_in_text() {
        let page = "Get `sealion-0.0.0-x86_64-linux.tar.gz`, ./sealion_VERSION_amd64.deb. sealion.toml stays.";
        let expected = ["sealion-0.0.0-x86_64-linux.tar.gz".to_owned(), deb("sealion", "amd64")];
        assert_eq!(mentioned(page), expected);
    }
}
