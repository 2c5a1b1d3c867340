//! The text of nginx' configuration: refused with a message, or converted to a file that the server reads.

#![no_main]

use std::path::PathBuf;
use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;

/// The same file for every input: a process fuzzes one input at a time.
fn file() -> &'static PathBuf {
    static DIRECTORY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, file) = DIRECTORY.get_or_init(|| {
        let directory = tempfile::tempdir().expect("a directory");
        let file = directory.path().join("nginx.conf");
        (directory, file)
    });
    file
}

fuzz_target!(|text: &str| {
    // It would read files of this machine.
    if text.contains("include") {
        return;
    }
    std::fs::write(file(), text).expect("it is written");
    match sealion_import_nginx::convert(file(), |_| false) {
        Err(message) => assert!(!message.is_empty()),
        Ok(conversion) => {
            sealion::fuzz::converted(&conversion.text());
            for directive in conversion.unconverted {
                assert!(!directive.to_string().is_empty());
            }
        }
    }
});
