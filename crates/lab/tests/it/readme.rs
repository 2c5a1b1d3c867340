//! The README's figures match the committed runs.

use std::path::Path;

use sealion_lab::report;

#[test]
fn the_tables_of_the_readme_are_made_from_the_committed_runs() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the tree's root");
    let text = std::fs::read_to_string(root.join("README.md")).expect("a README");
    for mark in ["<!-- peers: bench/peers -->", "<!-- instructions: bench/guard -->"] {
        assert_eq!(text.matches(mark).count(), 1, "{mark}");
    }
    let made = report::updated(&text, root, None, "nginx").expect("every table can be made");
    for (number, (made, is)) in made.lines().zip(text.lines()).enumerate() {
        let line = number + 1;
        assert_eq!(
            is, made,
            "README.md, line {line}: write it anew with `sealion-lab report DIRECTORY --readme --update README.md`"
        );
    }
    assert_eq!(made, text);
}

#[test]
fn committed_runs_tell_of_no_user_and_no_host() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("the tree's root");
    let info = std::fs::read_to_string(root.join("bench/peers/run.json")).expect("run.json");
    for private in ["/home/", "/root/", "/work/", "/tmp/sealion-lab"] {
        assert!(!info.contains(private), "bench/peers/run.json holds {private}");
    }
}
