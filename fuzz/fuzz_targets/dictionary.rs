//! The fields by which a client names its dictionary: Available-Dictionary in the first line, Accept-Encoding behind it. The rest is the beginning of a
//! compressed file.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let mut parts = input.splitn(3, |byte| *byte == b'\n');
    let mut next = || parts.next().unwrap_or_default();
    sealion::fuzz::dictionary(next(), next(), next());
});
