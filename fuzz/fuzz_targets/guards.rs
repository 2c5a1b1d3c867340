//! Path rules: no target of a request gets a closed file, and a path that is refused is refused in every spelling.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Ok(path) = std::str::from_utf8(input) {
        sealion::fuzz::target(path);
    }
    if let [which, how @ ..] = input {
        sealion::fuzz::spelling(*which, how);
    }
});
