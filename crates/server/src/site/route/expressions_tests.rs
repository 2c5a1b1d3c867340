use super::*;

fn pattern(text: &str, ignores_case: bool) -> Source {
    Source::Pattern { text: text.to_owned(), ignores_case }
}

fn expressions(sources: Vec<Source>, mut room: usize) -> Expressions {
    Expressions::new(sources.into_iter().enumerate().collect(), &mut room).unwrap()
}

fn is_automaton(expressions: &Expressions) -> bool {
    matches!(expressions.patterns, Some(Patterns::Automaton(_)))
}

const TEXTS: [&str; 12] = [
    r"\.php$",
    r"^/old[0-9]+/.*\.(php|asp)$",
    "a+b",
    "^/$",
    "",
    r"\bx\b",
    "/i(m|n)g/",
    r"[^a-z/]",
    "(?i)ADMIN",
    "^/a.c",
    r"(^|/)\.",
    "é",
];

const PATHS: [&[u8]; 16] = [
    b"/",
    b"/x.php",
    b"/x.php5",
    b"/old7/y.asp",
    b"/old7/y.aspx",
    b"/old/y.asp",
    b"/aab",
    b"/a/b",
    b"/x",
    b"/xx",
    b"/img/",
    b"/admin",
    b"/ADMIN./",
    b"/a\nc",
    "/\u{c9}/adm\u{130}n".as_bytes(),
    b"/\xff/.env",
];

#[test]
fn the_automaton_and_the_set_find_the_same() {
    for ignores_case in [false, true] {
        // Automata have no Unicode word boundaries.
        let texts = || {
            TEXTS.iter().filter(|text| !(ignores_case && text.contains(r"\b"))).map(|text| pattern(text, ignores_case))
        };
        let automaton = expressions(texts().collect(), AUTOMATA_SIZE);
        let set = expressions(texts().collect(), 0);
        assert!(is_automaton(&automaton) && !is_automaton(&set));
        for path in PATHS {
            let found = automaton.candidates(path);
            assert_eq!(found, set.candidates(path), "{} {ignores_case}", path.escape_ascii());
            assert!(found.iter().count() > 0, "{}: the empty expression matches every path", path.escape_ascii());
        }
    }
}

#[test]
fn expressions_that_no_automaton_has_are_matched_by_a_set() {
    let word = expressions(vec![pattern(r"\bx\b", true)], AUTOMATA_SIZE);
    assert!(!is_automaton(&word));
    assert_eq!(
        [&b"/x/"[..], b"/X", b"/xx"].map(|path| word.candidates(path).map_or(0, |found| found.iter().count())),
        [1, 1, 0]
    );
    // Each of them doubles the states of an automaton.
    let large = expressions((0..30).map(|n| pattern(&format!("/{n}/.*x"), false)).collect(), AUTOMATA_SIZE);
    assert!(!is_automaton(&large));
    assert_eq!(large.candidates(b"/7/2/x").unwrap().iter().collect::<Vec<_>>(), [2, 7]);
}

#[test]
fn the_automata_of_a_site_share_their_room() {
    let mut room = AUTOMATA_SIZE;
    let source = || vec![(0, pattern("^/a.*b$", false))];
    Expressions::new(source(), &mut room).unwrap();
    assert!(room < AUTOMATA_SIZE);
    let mut left = 10;
    assert!(!is_automaton(&Expressions::new(source(), &mut left).unwrap()));
    assert_eq!(left, 10);
}

#[test]
fn look_around_is_asked_in_its_place_in_the_file() {
    let look_around = |text| Source::LookAround(LookAround::new(text).unwrap());
    let sources = vec![look_around("(?!x)y"), pattern("y", false), look_around("z(?=y)"), pattern("n", false)];
    let all = expressions(sources, AUTOMATA_SIZE);
    assert_eq!(all.candidates(b"/y").unwrap().iter().collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!([0, 1, 2].map(|candidate| all.route_of(candidate, b"/y")), [Ok(Some(0)), Ok(Some(1)), Ok(None)]);
    assert_eq!(all.candidates(b"/").unwrap().iter().collect::<Vec<_>>(), [0, 2]);
}

#[test]
fn a_set_has_any_number() {
    let mut set = Set::default();
    assert_eq!(set.iter().count(), 0);
    let numbers = [0, 1, 63, 64, 255, 256, 400, 1000];
    numbers.iter().rev().for_each(|number| set.insert(*number));
    assert_eq!(set.iter().collect::<Vec<_>>(), numbers);
}
