//! The response of a server of uwsgi: the head of HTTP or CGI, and the content behind it.
//!
//! The first byte is the size of the pieces in which the others come.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((size, octets)) = input.split_first() {
        sealion::fuzz::uwsgi(octets, usize::from(*size));
    }
});
