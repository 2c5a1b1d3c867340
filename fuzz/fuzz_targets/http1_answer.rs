//! The bytes of an HTTP/1.1 server: the head, and the content in its framing.
//!
//! The first byte is the size of the pieces in which the others come.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((size, octets)) = input.split_first() {
        sealion::fuzz::http1_answer(octets, usize::from(*size));
    }
});
