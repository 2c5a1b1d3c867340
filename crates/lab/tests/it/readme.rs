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
fn the_drawings_of_the_pages_are_made_from_the_committed_run() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the tree's root");
    let made = report::drawings(&root.join("bench/deployed")).expect("a report");
    let directory = root.join("docs/pictures/deployed");
    for (name, svg) in &made {
        let is = std::fs::read_to_string(directory.join(name)).unwrap_or_default();
        let remedy = "write it again with `sealion-lab report bench/deployed --drawings docs/pictures/deployed`";
        assert!(is == *svg, "docs/pictures/deployed/{name}: {remedy}");
    }
    assert_eq!(std::fs::read_dir(&directory).map_or(0, Iterator::count), made.len(), "a drawing of no report");
    let page = std::fs::read_to_string(root.join("BENCHMARKING.md")).expect("a page");
    for link in page.split("](docs/pictures/deployed/").skip(1).filter_map(|text| text.split(')').next()) {
        assert!(made.iter().any(|(name, _)| name == link), "{link} is no drawing of the run");
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
