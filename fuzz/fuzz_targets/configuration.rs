//! The text of a configuration file: refused with a message, or printed it says the same again.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|text: &str| {
    let _ = sealion::fuzz::configuration(text);
});
