//! Expressions for the paths of a prefix that no other location takes. Rules have no exceptions, and the regex crate has no look-around, so
//! that the exceptions are written out character by character.

use std::collections::BTreeMap;

use crate::convert::values;

/// The paths that other locations take.
#[derive(Debug, Default)]
pub(super) struct Without {
    pub(super) exact: Vec<String>,
    pub(super) prefixes: Vec<String>,
    /// Ends of file names, and whether case is ignored.
    pub(super) ends: Vec<(String, bool)>,
}

impl Without {
    fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.prefixes.is_empty() && self.ends.is_empty()
    }

    fn texts(&self) -> impl Iterator<Item = &String> {
        self.exact.iter().chain(&self.prefixes).chain(self.ends.iter().map(|(end, _)| end))
    }
}

/// An expression for the paths with this prefix `without` those of others, which begin with the prefix too. `None`: it cannot be written, or it
/// would be long.
pub(super) fn remainder(prefix: &str, without: &Without) -> Option<String> {
    let start = format!("^{}", values::literally(prefix));
    if without.is_empty() {
        return Some(start);
    }
    // An octet that is no character has no place in a bracket class.
    if without.texts().any(|text| !text.is_ascii() || text.len() > LONGEST) {
        return None;
    }
    let relative = |texts: &[String]| -> Option<Vec<String>> {
        texts.iter().map(|text| text.strip_prefix(prefix).map(str::to_owned)).collect()
    };
    let (exact, prefixes) = (relative(&without.exact)?, relative(&without.prefixes)?);
    if without.ends.is_empty() {
        let mut tree = Tree::default();
        prefixes.iter().for_each(|text| tree.add(text.chars(), End::Prefix));
        exact.iter().for_each(|text| tree.add(text.chars(), End::Exact));
        return Some(start + &tree.not_taken()?);
    }
    // The end of a path lies in its file name, a prefix in its directories: neither overlaps the other.
    let is_covered = |path: &String| without.ends.iter().any(|(end, _)| path.ends_with(end.as_str()));
    let is_directory = |path: &String| path.ends_with('/');
    if !prefix.ends_with('/') || !prefixes.iter().all(is_directory) || !exact.iter().all(is_covered) {
        return None;
    }
    let mut directories = Tree::default();
    prefixes.iter().for_each(|text| directories.add(text.chars(), End::Prefix));
    let mut names = Tree::default();
    for (end, ignores_case) in &without.ends {
        let spelled = end.chars().rev().map(|c| if *ignores_case { c.to_ascii_lowercase() } else { c });
        names.add(spelled, End::Prefix);
    }
    // An end that ignores case makes all do: only `.css` and `.CSS` in separate locations would differ.
    let ignores_case = match without.ends.iter().filter(|(_, ignores_case)| *ignores_case).count() {
        0 => false,
        all if all == without.ends.len() => true,
        _ => return None,
    };
    Some(format!("{start}{}{}$", directories.other_directories(true)?, names.other_names(ignores_case)))
}

/// Octets of a location that is written out.
const LONGEST: usize = 100;

/// Texts by their characters.
#[derive(Debug, Default)]
struct Tree {
    next: BTreeMap<char, Tree>,
    end: Option<End>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Exact,
    /// With all that follows.
    Prefix,
}

impl Tree {
    fn add(&mut self, text: impl IntoIterator<Item = char>, end: End) {
        let mut node = self;
        for c in text {
            node = node.next.entry(c).or_default();
        }
        node.end = node.end.max(Some(end));
    }

    /// An expression for the rests of paths that are not taken. `None`: there are none.
    fn not_taken(&self) -> Option<String> {
        if self.end == Some(End::Prefix) {
            return None;
        }
        let mut branches = Vec::new();
        if self.end.is_none() {
            branches.push("$".to_owned());
        }
        branches.push(if self.next.is_empty() { ".".to_owned() } else { self.other("") });
        branches.extend(self.next.iter().filter_map(|(c, tree)| Some(literal(*c) + &tree.not_taken()?)));
        Some(format!("(?:{})", branches.join("|")))
    }

    /// An expression for directories, with a slash at the end of each, that do not begin with one of the tree. `None`: all do.
    fn other_directories(&self, is_directory: bool) -> Option<String> {
        if self.end.is_some() {
            return None;
        }
        let mut branches = Vec::new();
        if is_directory {
            branches.push(String::new());
        }
        branches.push(format!("{}.*/", self.other("/")));
        if !self.next.contains_key(&'/') {
            branches.push("/(?:.*/)?".to_owned());
        }
        let deeper = self.next.iter().filter_map(|(c, tree)| Some(literal(*c) + &tree.other_directories(*c == '/')?));
        branches.extend(deeper);
        Some(format!("(?:{})", branches.join("|")))
    }

    /// An expression for names that do not end with a text of the tree, which is in reverse.
    fn other_names(&self, ignores_case: bool) -> String {
        let mut branches = vec![format!("(?:[^/]*{})?", self.other_in("/", ignores_case))];
        for (c, tree) in self.next.iter().filter(|(_, tree)| tree.end.is_none()) {
            branches.push(tree.other_names(ignores_case) + &one_of(&[*c], ignores_case));
        }
        format!("(?:{})", branches.join("|"))
    }

    /// A character that does not continue a text of the tree, and is none of `more`.
    fn other(&self, more: &str) -> String {
        self.other_in(more, false)
    }

    fn other_in(&self, more: &str, ignores_case: bool) -> String {
        let all: Vec<char> =
            self.next.keys().copied().chain(more.chars().filter(|c| !self.next.contains_key(c))).collect();
        format!("[^{}", &one_of_many(&all, ignores_case)[1..])
    }
}

fn literal(c: char) -> String {
    values::literally(c.encode_utf8(&mut [0; 4]))
}

fn one_of(characters: &[char], ignores_case: bool) -> String {
    match characters {
        [c] if !(ignores_case && c.is_ascii_alphabetic()) => literal(*c),
        many => one_of_many(many, ignores_case),
    }
}

fn one_of_many(characters: &[char], ignores_case: bool) -> String {
    let mut class = String::from("[");
    for c in characters {
        if c.is_ascii_punctuation() && *c != '/' {
            class.push('\\');
        }
        class.push(*c);
        if ignores_case && c.is_ascii_lowercase() {
            class.push(c.to_ascii_uppercase());
        }
    }
    class + "]"
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every path of up to five of these characters, and some longer ones.
    fn paths() -> Vec<String> {
        let mut paths = vec!["/".to_owned()];
        let mut last = paths.clone();
        for _ in 0..5 {
            last = last.iter().flat_map(|path| ["s", "t", "/", ".", "C"].map(|c| format!("{path}{c}"))).collect();
            paths.extend(last.iter().filter(|path| !path.contains("//")).cloned());
        }
        paths.extend(["/st/a.css", "/static/x.css", "/a/b/c.st", "/a\n.sC", "/\n/x", "/st/\u{e9}"].map(str::to_owned));
        paths
    }

    #[test]
    fn it_matches_what_no_other_location_takes_and_nothing_else() {
        type Case = (&'static str, &'static [&'static str], &'static [&'static str], &'static [(&'static str, bool)]);
        let cases: &[Case] = &[
            ("/", &[], &[], &[]),
            ("/", &[], &["/st/"], &[]),
            ("/", &["/st"], &["/st/", "/ts"], &[]),
            ("/", &["/", "/s.C"], &[], &[]),
            ("/s", &["/st"], &["/ss/"], &[]),
            ("/", &[], &[], &[(".st", false)]),
            ("/", &[], &[], &[(".sc", true), (".t", true)]),
            ("/", &["/t.s"], &["/st/", "/s/t/"], &[(".s", false), (".ts", false)]),
            ("/s/", &[], &["/s/t/"], &[(".s", false), ("C", false)]),
        ];
        for (prefix, exact, prefixes, ends) in cases {
            let own = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
            let without = Without {
                exact: own(exact),
                prefixes: own(prefixes),
                ends: ends.iter().map(|(end, ignores_case)| ((*end).to_owned(), *ignores_case)).collect(),
            };
            let regex = remainder(prefix, &without).unwrap();
            // As the rules of a site build it.
            let built =
                regex::bytes::RegexBuilder::new(&regex).unicode(false).dot_matches_new_line(true).build().unwrap();
            for path in paths() {
                let ends_so = |(end, ignores_case): &(&str, bool)| match ignores_case {
                    true => path.to_ascii_lowercase().ends_with(end),
                    false => path.ends_with(end),
                };
                let is_taken = exact.contains(&path.as_str())
                    || prefixes.iter().any(|prefix| path.starts_with(prefix))
                    || ends.iter().any(ends_so);
                let expected = path.starts_with(prefix) && !is_taken;
                assert_eq!(built.is_match(path.as_bytes()), expected, "{prefix} {without:?} {path:?}: {regex}");
            }
        }
    }

    #[test]
    fn what_cannot_be_written_is_not() {
        let prefix = |text: &str| Without { prefixes: vec![text.to_owned()], ..Without::default() };
        let end = || vec![(".css".to_owned(), false)];
        for without in [
            prefix("/caf\u{e9}/"),
            prefix("/"),
            prefix(&format!("/{}/", "a".repeat(100))),
            Without { ends: end(), ..prefix("/st") },
            Without { exact: vec!["/robots.txt".to_owned()], ends: end(), ..Without::default() },
            Without { ends: vec![(".a".to_owned(), true), (".b".to_owned(), false)], ..Without::default() },
        ] {
            assert_eq!(remainder("/", &without), None, "{without:?}");
        }
        assert_eq!(remainder("/a", &Without { ends: end(), ..Without::default() }), None);
    }
}
