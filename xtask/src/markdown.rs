//! Links and anchors of Markdown pages, and whether all lead somewhere.

use std::collections::{HashMap, HashSet};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, ensure};

use crate::workspace;

/// A link of a page, or an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) text: String,
    /// Path from the page's directory; empty for the page itself.
    pub(crate) path: String,
    pub(crate) anchor: Option<String>,
}

/// The links of a page that lead into the repository, outside code.
pub(crate) fn links(page: &str) -> Vec<Link> {
    let prose = without_code(page);
    let mut found = Vec::new();
    for (at, _) in prose.match_indices("](") {
        let rest = &prose[at + 2..];
        let target = rest[..rest.find(')').unwrap_or(rest.len())].split_whitespace().next().unwrap_or_default();
        if target.contains(':') {
            continue;
        }
        let text = &prose[..at];
        let text = &text[text.rfind('[').map_or(at, |open| open + 1)..];
        let (path, anchor) = match target.split_once('#') {
            Some((path, anchor)) => (path, Some(anchor.to_owned())),
            None => (target, None),
        };
        found.push(Link { text: text.to_owned(), path: path.to_owned(), anchor });
    }
    found
}

/// The anchors of a page's headings, as forges and mdBook name them.
fn anchors(page: &str) -> HashSet<String> {
    let mut seen: HashMap<String, usize> = HashMap::new();
    let headings = lines_outside_code(page).filter(|line| line.starts_with('#'));
    headings
        .map(|heading| {
            let name = anchor(heading.trim_start_matches('#').trim());
            let times = seen.entry(name.clone()).or_default();
            *times += 1;
            if *times == 1 { name } else { format!("{name}-{}", *times - 1) }
        })
        .collect()
}

fn anchor(heading: &str) -> String {
    let kept = |c: char| match c {
        ' ' => Some('-'),
        '-' | '_' => Some(c),
        _ => c.is_alphanumeric().then(|| c.to_ascii_lowercase()),
    };
    heading.chars().filter_map(kept).collect()
}

fn lines_outside_code(page: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    page.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

/// The page with code replaced by underscores.
fn without_code(page: &str) -> String {
    let prose: Vec<&str> = lines_outside_code(page).collect();
    let pieces = prose.join("\n");
    let pieces = pieces.split('`').enumerate();
    pieces.map(|(n, piece)| if n % 2 == 0 { piece.to_owned() } else { "_".repeat(piece.len()) }).collect()
}

/// Checks the links of all pages of the repository.
///
/// # Errors
/// Each link that leads to no file or to no heading, with its page.
pub(crate) fn check() -> Result<()> {
    let root = workspace::root();
    let mut pages = Vec::new();
    find_pages(root, &mut pages)?;
    let mut broken = Vec::new();
    for page in &pages {
        let text = read(page)?;
        for link in links(&text) {
            let target = if link.path.is_empty() { page.clone() } else { beside(page, &link.path) };
            let leads = match &link.anchor {
                _ if !target.exists() => false,
                Some(anchor) if target.extension().is_some_and(|extension| extension == "md") => {
                    anchors(&read(&target)?).contains(anchor)
                }
                _ => true,
            };
            if !leads {
                let anchor = link.anchor.map(|anchor| format!("#{anchor}")).unwrap_or_default();
                broken.push(format!("{}: {}{anchor}", page.strip_prefix(root)?.display(), link.path));
            }
        }
    }
    ensure!(broken.is_empty(), "these links lead nowhere:\n{}", broken.join("\n"));
    Ok(())
}

/// The path of a link on a page.
pub(crate) fn beside(page: &Path, link: &str) -> PathBuf {
    let mut path = page.parent().unwrap_or(page).to_owned();
    for part in Path::new(link).components() {
        match part {
            Component::ParentDir => {
                path.pop();
            }
            Component::CurDir => {}
            part => path.push(part),
        }
    }
    path
}

pub(crate) fn read(page: &Path) -> Result<String> {
    std::fs::read_to_string(page).with_context(|| format!("cannot read {}", page.display()))
}

fn find_pages(directory: &Path, into: &mut Vec<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory).with_context(|| format!("cannot read {}", directory.display()))? {
        let entry = entry?;
        let (path, name) = (entry.path(), entry.file_name());
        if entry.file_type()?.is_dir() {
            if name != "target" && name != "corpus" && !name.as_encoded_bytes().starts_with(b".") {
                find_pages(&path, into)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "md") {
            into.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_those_into_the_repository_outside_code() {
        let page =
            "[a](b.md) `[c](d.md)` [e](https://f/) ![g](h/i.svg \"j\")\n```\n[k](l.md)\n```\n[m](#n), [o](p.md#q)";
        let found: Vec<_> = links(page).into_iter().map(|link| (link.text, link.path, link.anchor)).collect();
        let link = |text: &str, path: &str, anchor: Option<&str>| (text.into(), path.into(), anchor.map(str::to_owned));
        let expected = [
            link("a", "b.md", None),
            link("g", "h/i.svg", None),
            link("m", "", Some("n")),
            link("o", "p.md", Some("q")),
        ];
        assert_eq!(found, expected);
    }

    #[test]
    fn anchors_are_those_of_forges() {
        let page = "# Why, or not?\n## `[site.log]` and `a_b`\n```sh\n# no heading\n```\n## Why, or not?\n";
        let expected = ["why-or-not", "sitelog-and-a_b", "why-or-not-1"];
        assert_eq!(anchors(page), expected.map(str::to_owned).into());
    }

    #[test]
    fn paths_are_those_beside_the_page() {
        assert_eq!(beside(Path::new("/r/docs/install/a.md"), "../../x/y"), Path::new("/r/x/y"));
        assert_eq!(beside(Path::new("/r/docs/a.md"), "./b.md"), Path::new("/r/docs/b.md"));
    }
}
