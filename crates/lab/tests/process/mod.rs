//! The lab as a process, and its results.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use sealion_lab::row::Row;

/// `sealion-lab run` with the options that a debug build on a busy machine needs. Tests and runs share files.
pub(crate) fn lab(arguments: &[&str], out: &Path) -> Command {
    let program = Path::new(env!("CARGO_BIN_EXE_sealion-lab"));
    let sealion = program.with_file_name("sealion");
    assert!(sealion.is_file(), "there is no {}: cargo build -p sealion", sealion.display());
    let mut command = Command::new(program);
    command.arg("run").args(arguments).args(["--allow-debug", "--yes"]).arg("--out").arg(out);
    command.arg("--files").arg(files());
    command
}

/// The directory of the served files.
pub(crate) fn files() -> PathBuf {
    std::env::temp_dir().join("sealion-lab-test-files")
}

/// Runs it to its end.
pub(crate) fn run(mut command: Command) -> (Output, String) {
    let output = command.output().expect("the lab runs");
    let said = [output.stdout.as_slice(), &output.stderr].concat();
    (output, String::from_utf8_lossy(&said).into_owned())
}

/// Its measurements.
pub(crate) fn rows(out: &Path) -> Vec<Row> {
    let reader = csv::Reader::from_path(out.join("raw.csv")).expect("raw.csv");
    reader.into_deserialize().collect::<Result<_, _>>().expect("rows")
}
