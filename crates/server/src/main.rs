//! The `sealion` command.

use std::process::ExitCode;

fn main() -> ExitCode {
    sealion::main()
}
