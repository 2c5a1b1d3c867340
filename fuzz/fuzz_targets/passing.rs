//! The offer that a process gets when it takes over from another one, and the packets of a relay between them.
//!
//! The first byte is the number of files that came along, or 255 for a packet.

#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    match input.split_first() {
        Some((255, content)) => sealion::fuzz::packet(content),
        Some((files, content)) => sealion::fuzz::offer(content, usize::from(files % 4)),
        None => {}
    }
});
