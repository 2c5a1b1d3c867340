//! The figures of the pages match the committed runs.

use std::path::Path;

use sealion_lab::report;

/// Pages with a table that is made from a run, and the mark of the table.
const PAGES: [(&str, &str); 2] =
    [("README.md", "<!-- peers: bench/peers -->"), ("docs/benchmarks.md", "<!-- instructions: ../bench/guard -->")];

#[test]
fn the_tables_of_the_pages_are_made_from_the_committed_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the tree's root");
    for (page, mark) in PAGES {
        let path = root.join(page);
        let text = std::fs::read_to_string(&path).expect("a page");
        assert_eq!(text.matches(mark).count(), 1, "{page}: {mark}");
        let base = path.parent().expect("a file lies in a directory");
        let made = report::updated(&text, base, None, "nginx").expect("every table can be made");
        for (number, (made, is)) in made.lines().zip(text.lines()).enumerate() {
            let line = number + 1;
            assert_eq!(
                is, made,
                "{page}, line {line}: write it again with `sealion-lab report DIRECTORY --readme --update {page}`"
            );
        }
        assert_eq!(made, text);
    }
}

#[test]
fn committed_runs_tell_of_no_user_and_no_host() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the tree's root");
    let info = std::fs::read_to_string(root.join("bench/peers/run.json")).expect("run.json");
    for private in ["/home/", "/root/", "/work/", "/tmp/sealion-lab"] {
        assert!(!info.contains(private), "bench/peers/run.json holds {private}");
    }
}
