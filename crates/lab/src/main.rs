//! `sealion-lab`.

mod cli;

fn main() -> std::process::ExitCode {
    cli::main()
}
