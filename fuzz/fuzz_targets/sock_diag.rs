//! A datagram of the kernel's socket diagnosis: read without a panic, and no more sockets than it has room for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_ktls::fuzzing::sockets_in;

/// struct nlmsghdr and struct inet_diag_msg.
const SMALLEST: usize = 16 + 72;

fuzz_target!(|datagram: &[u8]| {
    let sockets = sockets_in(datagram);
    assert!(sockets.len() * SMALLEST <= datagram.len(), "{sockets:?}");
});
