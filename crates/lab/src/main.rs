//! `sealion-lab`.

fn main() -> std::process::ExitCode {
    // The lab is also process 1 of the guests it boots.
    sealion_guest::init_if_process_one();
    sealion_lab::main()
}
