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

/// As nginx' `find_location`: expressions within a prefix go before those beside it, and these before prefixes within it.
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
            // `^~` counts on its own level alone.
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
