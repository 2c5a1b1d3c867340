//! Expressions for paths, and spellings of paths that are the same in some eyes.

use std::ops::Range;

use regex::bytes::Regex;
use regex_syntax::ParserBuilder;
use regex_syntax::hir::{Class, Hir, HirKind, Look};
use sealion_http::Coding;
use sealion_http::dictionary::DictionaryCoding;

use super::image_formats;
use crate::placeholders::in_bytes;
use crate::values::Problems;

/// A path whose spellings that differ only in case are all the same, whether an application maps characters or whole texts to upper or lower case.
/// Characters beyond ASCII that such a mapping turns into ASCII letters, such as the Kelvin sign and the dotted capital I, become these letters. Dots and
/// spaces at the end of a name do not count: file systems that ignore case drop them (FAT, NTFS).
pub(super) fn fold(path: &[u8]) -> Vec<u8> {
    let folded = if path.is_ascii() { path.to_ascii_lowercase() } else { fold_characters(path) };
    let is_dropped = |byte: &&u8| matches!(byte, b'.' | b' ');
    let name = |segment: &'_ [u8]| segment.len() - segment.iter().rev().take_while(is_dropped).count();
    let names: Vec<_> = folded.split(|byte| *byte == b'/').map(|segment| &segment[..name(segment)]).collect();
    names.join(&b'/')
}

fn fold_characters(path: &[u8]) -> Vec<u8> {
    /// The dot of an `i` that a capital letter had.
    const DOT_ABOVE: char = '\u{307}';
    let mut folded = Vec::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        // The lower case of some characters has an upper case that they do not have themselves.
        let upper = chunk.valid().chars().flat_map(char::to_lowercase).flat_map(char::to_uppercase);
        let lower = upper.flat_map(char::to_lowercase).filter(|character| *character != DOT_ABOVE);
        folded.extend_from_slice(lower.collect::<String>().as_bytes());
        folded.extend_from_slice(chunk.invalid());
    }
    folded
}

/// The name of the file whose sibling `name` would be: compressed, or an image in another format.
pub(super) fn original_of(name: &[u8]) -> Option<&[u8]> {
    // Nearly no name ends so.
    if !matches!(name, [.., b'r' | b't' | b'z' | b'b' | b'f' | b'p']) {
        return None;
    }
    let compressed = Coding::ALL.into_iter().find_map(|coding| name.strip_suffix(coding.suffix().as_bytes()));
    let by_dictionary =
        || DictionaryCoding::ALL.into_iter().find_map(|coding| name.strip_suffix(coding.suffix().as_bytes()));
    compressed.or_else(by_dictionary).or_else(|| image_formats::original_of(name))
}

/// Parses a regular expression for decoded paths with their leading slash, and adds errors to `problems`. An expression with a branch
/// that matches no path is an error: the files that it should protect would be open.
///
/// It matches as [`in_bytes`] says.
pub(super) fn build_regex(text: &str, span: &Range<usize>, key: &str, problems: &mut Problems) -> Option<Regex> {
    let what = match in_bytes(text) {
        Ok(regex) if !misses_the_slash(text) => return Some(regex),
        Ok(_) => {
            let corrected = text.replacen('^', "^/", 1);
            let is_clear = !text.contains('|') && !misses_the_slash(&corrected);
            let example = if is_clear { &*corrected } else { "^/in/" };
            format!("never matches, because a path begins with a slash: write for instance {example}")
        }
        Err(error) if error.contains("look-around") => {
            format!("is not a regular expression: {error}: write ~~ before an expression with look-around")
        }
        Err(error) => format!("is not a regular expression: {error}"),
    };
    problems.add(span, key, what);
    None
}

/// Whether a branch of the expression demands something else than a slash at the beginning of the path.
fn misses_the_slash(text: &str) -> bool {
    let parsed = ParserBuilder::new().unicode(false).utf8(false).dot_matches_new_line(true).build().parse(text);
    // The compiler refuses invalid expressions.
    parsed.is_ok_and(|expression| excludes_slash(&expression, &[], false))
}

/// Whether a branch of `first`, followed by `rest` (the next one last), excludes a slash at the beginning of the path. `anchored`: a `^`
/// came before.
fn excludes_slash(first: &Hir, rest: &[&Hir], anchored: bool) -> bool {
    let next = |anchored| rest.split_last().is_some_and(|(first, rest)| excludes_slash(first, rest, anchored));
    match first.kind() {
        HirKind::Empty => next(anchored),
        HirKind::Look(Look::Start) => next(true),
        HirKind::Look(Look::End) => anchored,
        HirKind::Look(_) => next(anchored),
        HirKind::Literal(literal) => anchored && literal.0.first() != Some(&b'/'),
        HirKind::Class(Class::Bytes(class)) => {
            anchored && !class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&b'/'))
        }
        HirKind::Class(Class::Unicode(class)) => {
            anchored && !class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&'/'))
        }
        HirKind::Repetition(repeated) if repeated.min == 0 => {
            anchored && excludes_slash(&repeated.sub, &[], true) && next(true)
        }
        HirKind::Repetition(repeated) => excludes_slash(&repeated.sub, rest, anchored),
        HirKind::Capture(group) => excludes_slash(&group.sub, rest, anchored),
        HirKind::Concat(parts) => {
            let all: Vec<&Hir> = rest.iter().copied().chain(parts.iter().rev()).collect();
            all.split_last().is_some_and(|(first, rest)| excludes_slash(first, rest, anchored))
        }
        HirKind::Alternation(branches) => {
            // In `(^|/)name` the other branch has the slash.
            let mut branches = branches.iter().filter(|branch| !matches!(branch.kind(), HirKind::Look(Look::Start)));
            branches.any(|branch| excludes_slash(branch, rest, anchored))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_sibling_has_its_original() {
        let codings = Coding::ALL.into_iter().map(Coding::suffix);
        let suffixes = codings.chain(DictionaryCoding::ALL.into_iter().map(DictionaryCoding::suffix));
        for suffix in suffixes.chain([".avif", ".webp"]) {
            let name = format!("a/b.png{suffix}");
            assert_eq!(original_of(name.as_bytes()), Some(b"a/b.png".as_slice()), "{name}");
        }
        assert_eq!(original_of(b"a/b.png"), None);
        assert_eq!(original_of(b""), None);
    }

    /// Java's `equalsIgnoreCase` takes `\u{130}` for `i`, `toUpperCase` makes `SS` of a sharp s.
    #[test]
    fn no_mapping_of_case_changes_what_is_folded() {
        for character in '\0'..=char::MAX {
            let (lower, upper) = (character.to_lowercase(), character.to_uppercase());
            if lower.clone().eq([character]) && upper.clone().eq([character]) {
                continue;
            }
            let folded = fold(character.to_string().as_bytes());
            assert_eq!(folded, fold(lower.to_string().as_bytes()), "{character:?}");
            assert_eq!(folded, fold(upper.to_string().as_bytes()), "{character:?}");
            assert_eq!(folded, fold(&folded), "{character:?}");
        }
        for (own, other) in
            [("\u{130}", "i"), ("\u{131}", "i"), ("\u{17f}", "s"), ("\u{212a}", "k"), ("\u{1e9e}", "ss")]
        {
            assert_eq!(fold(own.as_bytes()), other.as_bytes(), "{own}");
        }
    }

    #[test]
    fn expressions_match_octets() {
        for (regex, full, matches) in [
            (r"\.html$", &b"/a.html"[..], true),
            (r"\.html$", b"/a.html.bak", false),
            (r"^/p/.*\.bak$", b"/p/caf\xe9.bak", true),
            (r"^/p/[^/]+$", b"/p/\xff", true),
            ("^/caf\u{e9}", "/caf\u{e9}/x".as_bytes(), true),
            ("(?iu)^/CAF\u{c9}", "/caf\u{e9}/x".as_bytes(), true),
            ("^/$", b"/", true),
            ("^/$", b"/x", false),
            ("^/private/$", b"/private/", true),
            ("^/a.b$", b"/a\nb", true),
            (r"^/\d$", "/\u{664}".as_bytes(), false),
        ] {
            let mut problems = Problems::of_arguments();
            let built = build_regex(regex, &(0..0), "regex", &mut problems).unwrap();
            assert_eq!(built.is_match(full), matches, "{regex} {}", full.escape_ascii());
        }
    }

    #[test]
    fn an_original_is_known_by_the_name_of_its_sibling() {
        for (name, original) in [
            ("a.html.br", Some("a.html")),
            ("a.html.zst", Some("a.html")),
            ("a.html.dcb", Some("a.html")),
            ("a.html.dcz", Some("a.html")),
            ("a.jpg.avif", Some("a.jpg")),
            ("a.avif", None),
            ("a.html.bak", None),
        ] {
            assert_eq!(original_of(name.as_bytes()), original.map(str::as_bytes), "{name}");
        }
    }

    #[test]
    fn an_expression_with_a_branch_that_matches_no_path_is_refused() {
        for (regex, correct) in [
            ("^in/", "^/in/"),
            (r"^\.well-known/", r"^/\.well-known/"),
            ("(?i)^in/", "(?i)^/in/"),
            ("(^in/)", "(^/in/)"),
            ("^(in|out)/", "^/in/"),
            ("^(in/|/out/)", "^/in/"),
            ("^[a-z]+/", "^/[a-z]+/"),
            ("^(?:in)?$", "^/(?:in)?$"),
            ("/x|^in/", "^/in/"),
            (r"\Ain/", "^/in/"),
            ("^$", "^/$"),
            ("^caf\u{e9}", "^/caf\u{e9}"),
        ] {
            let mut problems = Problems::of_arguments();
            assert!(build_regex(regex, &(0..0), "regex", &mut problems).is_none(), "{regex}");
            let what = format!("never matches, because a path begins with a slash: write for instance {correct}");
            assert_eq!(problems.to_string(), what, "{regex}");
        }
        for regex in [
            "",
            "^",
            "in/",
            "^/",
            "^/?in/",
            "^.in",
            "^(/in)?",
            "^[^a]",
            r"^\W",
            "(?m)^in",
            "(?iu)^(/a|/b)",
            "(^|/)in/",
            "^.*in",
        ] {
            let mut problems = Problems::of_arguments();
            assert!(build_regex(regex, &(0..0), "regex", &mut problems).is_some(), "{regex}: {problems}");
        }
        let mut problems = Problems::of_arguments();
        assert!(build_regex("^/(?!a)", &(0..0), "regex", &mut problems).is_none());
        assert!(problems.to_string().contains("is not a regular expression: error: look-around"), "{problems}");
    }
}
