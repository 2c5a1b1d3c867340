use super::*;
use crate::values::Problems;

/// A choice among routes, each written as its path, behind two spaces for each route around it.
fn choice(lines: &str) -> (Choice, Vec<String>) {
    let mut candidates: Vec<Candidate> = Vec::new();
    let mut around: Vec<RouteNumber> = Vec::new();
    let mut names = Vec::new();
    for line in lines.lines().filter(|line| !line.trim().is_empty()) {
        let depth = (line.len() - line.trim_start().len()) / 2;
        around.truncate(depth);
        let mut problems = Problems::of_arguments();
        let text = line.trim();
        let path = RoutePath::parse(&text.split(" if ").next().unwrap().to_owned().into(), "path", &mut problems);
        let path = path.unwrap_or_else(|| panic!("{text}: {problems}"));
        candidates.push(Candidate { route: names.len(), path, within: around.last().copied() });
        around.push(names.len());
        names.push(text.to_owned());
    }
    (Choice::new(&candidates).unwrap(), names)
}

/// The route of a path; a route whose text ends in `if x` admits no request, unless `x` is `yes`.
fn found<'a>((choice, names): &'a (Choice, Vec<String>), path: &str) -> &'a str {
    let mut admits = |route: RouteNumber| {
        Ok::<_, ()>(names[route].split_once(" if ").is_none_or(|(_, condition)| condition == "yes"))
    };
    choice.find(path.as_bytes(), &mut admits).unwrap().map_or("", |route| names[route].as_str())
}

fn check(lines: &str, cases: &[(&str, &str)]) {
    let all = choice(lines);
    for (path, expected) in cases {
        assert_eq!(found(&all, path), *expected, "{path} among {lines}");
    }
}

/// The example of nginx' documentation of `location`.
#[test]
fn the_documented_example_of_nginx() {
    check(
        "= /\n/\n/documents/\n^~ /images/\n~* \\.(gif|jpg|jpeg)$",
        &[
            ("/", "= /"),
            ("/index.html", "/"),
            ("/documents/document.html", "/documents/"),
            ("/images/1.gif", "^~ /images/"),
            ("/documents/1.jpg", "~* \\.(gif|jpg|jpeg)$"),
            ("/documents/1.JPG", "~* \\.(gif|jpg|jpeg)$"),
        ],
    );
}

#[test]
fn the_longest_prefix_is_found_among_many() {
    check(
        "/a\n/a/\n/a/b\n/a/b/c/\n/a0\n/b\n/ab\n= /a/b/c",
        &[
            ("/", ""),
            ("/a", "/a"),
            ("/a/", "/a/"),
            ("/a/x", "/a/"),
            ("/a/b", "/a/b"),
            ("/a/bc", "/a/b"),
            ("/a/b/c", "= /a/b/c"),
            ("/a/b/c/", "/a/b/c/"),
            ("/a/b/c/d", "/a/b/c/"),
            ("/a00", "/a0"),
            ("/abc", "/ab"),
            ("/ax", "/a"),
            ("/zz", ""),
            ("/A", ""),
        ],
    );
}

/// As in nginx; a slash at the end bounds the name.
#[test]
fn a_prefix_without_slash_has_every_path_that_begins_so() {
    check(
        "/api\n/app/\n^~ /img",
        &[
            ("/api", "/api"),
            ("/api/", "/api"),
            ("/apix", "/api"),
            ("/api.txt", "/api"),
            ("/ap", ""),
            ("/app", "/app/"),
            ("/appx", ""),
            ("/imgs/x", "^~ /img"),
        ],
    );
}

#[test]
fn a_directory_has_its_path_without_the_slash() {
    check("/api/\n/\n/docs\n/docs/", &[("/api", "/api/"), ("/api/", "/api/"), ("/apis", "/"), ("/docs", "/docs")]);
    check("/docs if no\n/docs/\n/", &[("/docs", "/docs/"), ("/docsx", "/")]);
    check("/api/ if no\n/ap", &[("/api", "/ap"), ("/api/x", "/ap")]);
}

#[test]
fn a_star_behind_the_slash_leaves_the_path_of_the_folder_out() {
    let paths = [("/api", "/"), ("/api/", "/api/*"), ("/api/x", "/api/*"), ("/apix", "/")];
    check("/\n/api/*", &paths);
    check("/api/*\n/api/", &[("/api", "/api/"), ("/api/", "/api/*"), ("/api/x", "/api/*")]);
    // A route without it goes on to the expressions of its level.
    check("/a/\n  /a/b/*\n~ b$", &[("/a/b", "~ b$"), ("/a/b/", "/a/b/*"), ("/a/b/c", "/a/b/*"), ("/a", "/a/")]);
    check("^~ /a/*\n~ a", &[("/a", "~ a"), ("/a/", "^~ /a/*"), ("/a/x", "^~ /a/*")]);
}

#[test]
fn the_first_expression_goes_before_prefixes() {
    check(
        "/p/\n~ \\.php$\n~ ^/p/.*\\.php$\n^~ /static/\n/static/deep/",
        &[
            ("/p/x.php", "~ \\.php$"),
            ("/p/x.txt", "/p/"),
            ("/static/x.php", "^~ /static/"),
            // The longest prefix is not marked.
            ("/static/deep/x.php", "~ \\.php$"),
            ("/x.PHP", ""),
        ],
    );
}

/// As nginx' `find_location`: expressions within a prefix go before expressions beside it, and these before prefixes within it.
#[test]
fn nested_routes_are_chosen_at_each_level() {
    let lines = "
/a/
  = /a/exact
  /a/b/
  ^~ /a/final/
  ~ /a/.*\\.txt$
~ \\.(txt|png)$
  ~ big
  /a/never/
^~ /c/
  /c/d/
  ~ \\.in$
~ \\.in$
= /x
  = /x";
    check(
        lines,
        &[
            ("/a/exact", "= /a/exact"),
            ("/a/b/x", "/a/b/"),
            ("/a/b/x.txt", "~ /a/.*\\.txt$"),
            ("/a/b/x.png", "~ \\.(txt|png)$"),
            ("/a/b/big.png", "~ big"),
            // `^~` counts only on its own level.
            ("/a/final/x.txt", "~ \\.(txt|png)$"),
            ("/a/final/x", "^~ /a/final/"),
            ("/a/final/x.png", "~ \\.(txt|png)$"),
            ("/c/x.in", "~ \\.in$"),
            ("/c/x.txt", "^~ /c/"),
            ("/c/d/x.txt", "/c/d/"),
            ("/z.in", "~ \\.in$"),
            ("/x", "= /x"),
        ],
    );
}

#[test]
fn a_route_that_does_not_admit_the_request_is_passed_over() {
    check(
        "= /a if no\n= /a if yes\n/b/ if no\n/b/\n/b/c/ if no\n~ \\.x$ if no\n~ \\.x$ if yes\n/d/ if no\n  /d/e/",
        &[("/a", "= /a if yes"), ("/b/", "/b/"), ("/b/c/d", "/b/"), ("/b/c/d.x", "~ \\.x$ if yes"), ("/d/e/", "")],
    );
    let (choice, _) = choice("= /a");
    let refused = sealion_http::Status::BAD_REQUEST;
    assert_eq!(choice.find(b"/a", &mut |_| Err(refused)), Err(refused));
}

#[test]
fn expressions_match_bytes_and_case_is_ignored_for_characters_too() {
    check(
        "~ ^/[^/]+\\.key$\n~* ^/admin(/|$)\n~* ^/\u{e9}t\u{e9}$",
        &[
            ("/a.key", "~ ^/[^/]+\\.key$"),
            ("/ADMIN/x", "~* ^/admin(/|$)"),
            ("/admin", "~* ^/admin(/|$)"),
            // Names that applications and file systems take for the same.
            ("/ADM\u{130}N/x", "~* ^/admin(/|$)"),
            ("/admin./x", "~* ^/admin(/|$)"),
            ("/admin ", "~* ^/admin(/|$)"),
            ("/administrator", ""),
            ("/\u{c9}T\u{c9}", "~* ^/\u{e9}t\u{e9}$"),
        ],
    );
    let (choice, _) = choice("~ ^/[^/]+\\.key$");
    assert_eq!(choice.find(b"/\xff.key", &mut |_| Ok::<_, ()>(true)), Ok(Some(0)));
}

/// Numbers that look random, the same in each run.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) as usize) % end
    }

    /// A path of few different bytes, so that many share their beginning.
    fn path(&mut self) -> String {
        let len = self.below(7);
        let inner: String = (0..len).map(|_| ["a", "b", "/", "ab", "a/"][self.below(5)]).collect();
        let mut path = format!("/{inner}");
        while path.contains("//") {
            path = path.replace("//", "/");
        }
        path
    }

    fn route(&mut self) -> RoutePath {
        const EXPRESSIONS: [&str; 5] = ["a$", "^/b", "ab", "/a/.*b", "B/"];
        let bytes = self.path().into_bytes().into();
        match self.below(10) {
            0 | 1 => RoutePath::Exact(bytes),
            2 => {
                RoutePath::Expression { text: EXPRESSIONS[self.below(5)].to_owned(), ignores_case: self.below(2) == 0 }
            }
            3 => RoutePath::LookAround("a(?!b)".to_owned()),
            n => RoutePath::Prefix {
                folder: if n > 7 && bytes.ends_with(b"/") { Folder::Excluded } else { Folder::Included },
                text: bytes,
                is_final: n == 4,
            },
        }
    }
}

/// The rules as they are written, without tree and automaton.
struct Plain<'a> {
    candidates: &'a [Candidate],
    admitted: &'a [bool],
}

impl Plain<'_> {
    fn find(&self, within: Option<RouteNumber>, full: &[u8]) -> Option<(RouteNumber, bool)> {
        let level = || self.candidates.iter().filter(move |one| one.within == within && self.admitted[one.route]);
        let inside = |route| self.find(Some(route), full).unwrap_or((route, false));
        if let Some(exact) = level().find(|one| matches!(&one.path, RoutePath::Exact(text) if **text == *full)) {
            return Some((inside(exact.route).0, true));
        }
        // The path itself, the directory, then others by their length; the first of the file among equal ones.
        let mut prefixes: Vec<(usize, &Candidate, bool)> = Vec::new();
        for one in level() {
            let RoutePath::Prefix { text, is_final, folder } = &one.path else { continue };
            let rank = match text {
                text if **text == *full => 0,
                text if text.strip_suffix(b"/") == Some(full) && *folder == Folder::Included => 1,
                text if full.starts_with(text) => 1000 - text.len(),
                _ => continue,
            };
            prefixes.push((rank, one, *is_final));
        }
        let longest = prefixes.into_iter().min_by_key(|(rank, ..)| *rank);
        let found = longest.map(|(_, one, is_final)| (inside(one.route), is_final));
        match found {
            Some((found, is_final)) if is_final || found.1 => return Some(found),
            _ => {}
        }
        let matches = |one: &&Candidate| match &one.path {
            RoutePath::Expression { text, ignores_case } => {
                let folded = if *ignores_case { "i" } else { "" };
                regex::bytes::Regex::new(&format!("(?s{folded}-u:{text})")).unwrap().is_match(full)
            }
            RoutePath::LookAround(text) => LookAround::new(text).unwrap().is_match(full).unwrap(),
            RoutePath::Exact(_) | RoutePath::Prefix { .. } => false,
        };
        match level().find(matches) {
            Some(expression) => Some((inside(expression.route).0, true)),
            None => found.map(|(found, _)| found),
        }
    }
}

#[test]
fn random_routes_are_chosen_as_the_rules_say() {
    let mut numbers = Numbers(1);
    let (mut chosen, mut nested) = (0, 0);
    for round in 0..300 {
        let count = 1 + numbers.below(30);
        let candidates: Vec<_> = (0..count)
            .map(|route| {
                let within = (route > 0 && numbers.below(3) == 0).then(|| numbers.below(route));
                Candidate { route, path: numbers.route(), within }
            })
            .collect();
        let admitted: Vec<_> = (0..count).map(|_| numbers.below(4) > 0).collect();
        let choice = Choice::new(&candidates).unwrap();
        for _ in 0..60 {
            let path = numbers.path();
            let expected = Plain { candidates: &candidates, admitted: &admitted }.find(None, path.as_bytes());
            let expected = expected.map(|(route, _)| route);
            let found = choice.find::<()>(path.as_bytes(), &mut |route| Ok(admitted[route])).unwrap();
            assert_eq!(found, expected, "{path} in round {round}");
            chosen += usize::from(found.is_some());
            nested += usize::from(found.is_some_and(|route| candidates[route].within.is_some()));
        }
    }
    assert!(chosen > 5_000 && nested > 500, "{chosen} {nested}");
}
