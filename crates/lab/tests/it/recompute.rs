//! Published figures, recomputed from the raw data by a program that shares no code with the lab.

use std::path::Path;
use std::process::Command;

#[test]
fn an_independent_program_finds_the_published_figures_in_the_raw_data() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = here.ancestors().nth(2).expect("the tree's root");
    let mut command = Command::new("python3");
    let output = command.arg(here.join("tests/recompute.py")).arg(root).output().expect("python3 is needed");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success(), "{said}");
    let agree: u32 = said.split_whitespace().next().and_then(|word| word.parse().ok()).expect("a number");
    assert!(agree >= 50, "{said}");
}
