//! The documentation as a site. docs/README.md is its only index: the table of contents is made of it.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};
use clap::Args;
use sealion_guest::output;

use crate::markdown::{self, Link};
use crate::{binaries, workspace};

/// Make the documentation as a site, with a search, and check the links of its pages
///
/// The site lies in target/site. mdBook, which makes it, is built by cargo at the first time.
#[derive(Args)]
pub(crate) struct Book {
    /// Only check the index and the links of the sources, which needs no mdBook
    #[arg(long)]
    check: bool,
}

impl Book {
    pub(crate) fn run(&self) -> Result<()> {
        check()?;
        if self.check {
            return Ok(());
        }
        let mdbook = sealion_guest::tools::mdbook()?;
        let site: PathBuf = binaries::metadata()?.target_directory.join("site").into();
        let scratch = tempfile::tempdir()?;
        let pages = Pages::find()?;
        pages.lay_out(&scratch.path().join("src"))?;
        std::fs::write(scratch.path().join("src/SUMMARY.md"), pages.summary()?)?;
        std::fs::write(scratch.path().join("book.toml"), SETTINGS)?;
        output(Command::new(mdbook).arg("build").arg(scratch.path()).arg("--dest-dir").arg(&site))?;
        let checked = check_site(&site)?;
        println!("{}: {checked} links lead to a page", site.join("index.html").display());
        Ok(())
    }
}

/// Checks that the index leads to each page of docs/, and the links of all pages.
///
/// # Errors
/// What is missing.
pub(crate) fn check() -> Result<()> {
    markdown::check()?;
    let pages = Pages::find()?;
    let mut all = BTreeSet::new();
    pages_of(&workspace::root().join("docs"), &mut all)?;
    let lost: Vec<_> = all.difference(&pages.files).map(|page| page.display().to_string()).collect();
    ensure!(lost.is_empty(), "no link leads to these pages from {INDEX}:\n{}", lost.join("\n"));
    pages.summary().map(drop)
}

const INDEX: &str = "docs/README.md";

const SETTINGS: &str = r#"[book]
title = "Sealion"
language = "en"
[output.html]
no-section-label = true
"#;

/// The title of the pages that the index reaches by other pages.
const LAST_PART: &str = "Project";

/// The files that the index leads to, by links of links.
struct Pages {
    /// From the root of the repository.
    files: BTreeSet<PathBuf>,
    directories: BTreeSet<PathBuf>,
}

impl Pages {
    fn find() -> Result<Self> {
        let root = workspace::root();
        let mut pages = Pages { files: BTreeSet::new(), directories: BTreeSet::new() };
        let mut open = vec![PathBuf::from(INDEX)];
        while let Some(file) = open.pop() {
            if root.join(&file).is_dir() {
                pages.directories.insert(file);
            } else if pages.files.insert(file.clone()) && is_page(&file) {
                let text = markdown::read(&root.join(&file))?;
                let paths = markdown::links(&text).into_iter().map(|link| link.path).filter(|path| !path.is_empty());
                open.extend(paths.map(|path| markdown::beside(&file, &path)));
            }
        }
        Ok(pages)
    }

    /// Copies the files to the same places below `to`, so that links stay right. A directory gets a page with its files.
    fn lay_out(&self, to: &Path) -> Result<()> {
        let root = workspace::root();
        let write = |file: &Path, content: &[u8]| -> Result<()> {
            let path = to.join(file);
            std::fs::create_dir_all(path.parent().expect("a file lies in a directory"))?;
            std::fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))
        };
        for file in &self.files {
            let content = std::fs::read(root.join(file)).with_context(|| format!("cannot read {}", file.display()))?;
            write(file, &content)?;
        }
        for directory in &self.directories {
            write(&directory.join("README.md"), of_directory(&root.join(directory), directory)?.as_bytes())?;
        }
        Ok(())
    }

    /// The table of contents in mdBook's format.
    fn summary(&self) -> Result<String> {
        let index = markdown::read(&workspace::root().join(INDEX))?;
        let mut summary = format!("# Summary\n\n[Documentation]({INDEX})\n");
        let mut named = BTreeSet::from([PathBuf::from(INDEX)]);
        for line in index.lines() {
            if let Some(title) = title(line) {
                write!(summary, "\n# {title}\n\n")?;
            }
            for Link { text, path, anchor } in markdown::links(line) {
                let file = self.page_of(&markdown::beside(Path::new(INDEX), &path));
                if anchor.is_none() && is_page(&file) && named.insert(file.clone()) {
                    writeln!(summary, "- [{}]({})", capital(&text), file.display())?;
                }
            }
        }
        let directories = self.directories.iter().map(|directory| directory.join("README.md"));
        let others: Vec<_> = self.files.iter().cloned().chain(directories).filter(|file| is_page(file)).collect();
        write!(summary, "\n# {LAST_PART}\n\n")?;
        for page in others.into_iter().filter(|page| !named.contains(page)) {
            let title = match std::fs::read_to_string(workspace::root().join(&page)) {
                Ok(text) => text.lines().find_map(|line| line.strip_prefix("# ").map(str::to_owned)),
                Err(_) => page.parent().map(|directory| directory.display().to_string()),
            };
            let title = title.with_context(|| format!("{} has no title", page.display()))?;
            writeln!(summary, "- [{title}]({})", page.display())?;
        }
        Ok(summary)
    }

    /// The page itself, or the page of a directory.
    fn page_of(&self, path: &Path) -> PathBuf {
        if self.directories.contains(path) { path.join("README.md") } else { path.to_owned() }
    }
}

/// `## Guides`
fn title(line: &str) -> Option<&str> {
    line.strip_prefix("## ")
}

fn capital(text: &str) -> String {
    let mut characters = text.chars();
    characters.next().map(|first| first.to_uppercase().chain(characters).collect()).unwrap_or_default()
}

fn is_page(file: &Path) -> bool {
    file.extension().is_some_and(|extension| extension == "md")
}

/// A page with the text files of a directory.
fn of_directory(directory: &Path, name: &Path) -> Result<String> {
    let mut files: Vec<PathBuf> = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        files.extend(path.is_file().then_some(path));
    }
    files.sort();
    let mut page = format!("# {}\n", name.display());
    for file in files {
        let name = file.file_name().unwrap_or_default().display().to_string();
        let kind = file.extension().unwrap_or_default().display().to_string();
        write!(page, "\n## {name}\n\n````{kind}\n{}\n````\n", markdown::read(&file)?.trim_end())?;
    }
    Ok(page)
}

fn pages_of(directory: &Path, into: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            pages_of(&path, into)?;
        } else if is_page(&path) {
            into.insert(path.strip_prefix(workspace::root())?.to_owned());
        }
    }
    Ok(())
}

/// Checks that the links of the finished site lead to existing files and ids. Returns their number.
fn check_site(site: &Path) -> Result<usize> {
    let mut pages = BTreeSet::new();
    html_of(site, &mut pages)?;
    let (mut checked, mut broken) = (0, Vec::new());
    for page in &pages {
        // The page for unknown paths names a base of its own; the one to print repeats all others.
        if page.ends_with("404.html") || page.ends_with("print.html") || page.ends_with("toc.html") {
            continue;
        }
        let text = markdown::read(page)?;
        for link in text.split("<a ").skip(1).filter_map(|rest| value(rest, "href")) {
            if link.contains(':') {
                continue;
            }
            let (path, id) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { page.clone() } else { markdown::beside(page, path) };
            let target = if target.is_dir() { target.join("index.html") } else { target };
            let has_id = || -> Result<bool> { Ok(markdown::read(&target)?.contains(&format!("id=\"{id}\""))) };
            if !target.is_file() || !id.is_empty() && !has_id()? {
                broken.push(format!("{}: {link}", page.strip_prefix(site)?.display()));
            }
            checked += 1;
        }
    }
    ensure!(checked > 0, "the site has no links");
    ensure!(broken.is_empty(), "these links of the site lead nowhere:\n{}", broken.join("\n"));
    Ok(checked)
}

/// The value of an attribute of a tag whose text begins here.
fn value<'a>(tag: &'a str, name: &str) -> Option<&'a str> {
    let tag = &tag[..tag.find('>')?];
    tag.split_once(&format!("{name}=\""))?.1.split('"').next()
}

fn html_of(directory: &Path, into: &mut BTreeSet<PathBuf>) -> Result<()> {
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        if path.is_dir() {
            html_of(&path, into)?;
        } else if path.extension().is_some_and(|extension| extension == "html") {
            into.insert(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_are_those_of_the_index() {
        let summary = Pages::find().unwrap().summary().unwrap();
        for line in ["# Guides", "- [Tutorial](docs/tutorial.md)", "- [Debian](docs/install/debian.md)", "# Reference"]
        {
            assert_eq!(summary.lines().filter(|other| *other == line).count(), 1, "{line}:\n{summary}");
        }
        // Each page once.
        let pages: Vec<_> = summary.lines().filter_map(|line| line.split_once("](")).map(|(_, page)| page).collect();
        assert_eq!(pages.iter().collect::<BTreeSet<_>>().len(), pages.len(), "{summary}");
    }

    #[test]
    fn attributes_are_those_of_the_tag() {
        assert_eq!(value(r#"class="x" href="a.html#b">c</a>"#, "href"), Some("a.html#b"));
        assert_eq!(value(r#"name="x">href="y""#, "href"), None);
    }
}
