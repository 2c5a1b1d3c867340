//! The offer that a process gets when it takes over from another one.
//!
//! The first byte is the number of files that came along.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    if let Some((files, content)) = input.split_first() {
        sealion::fuzz::offer(content, usize::from(files % 4));
    }
});
