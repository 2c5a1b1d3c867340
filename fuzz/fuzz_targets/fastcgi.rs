//! The bytes of a FastCGI server: records, and the head of a script's answer in them.
//!
//! The first byte is the size of the pieces in which the others come.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((size, octets)) = input.split_first() {
        sealion::fuzz::fastcgi(octets, usize::from(*size));
    }
});
