//! A datagram of the kernel's answer about network cards: read without a panic, and no more cards than it has room for.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_ktls::fuzzing::nics_in;

/// struct nlmsghdr, struct genlmsghdr, and two attributes around a name.
const SMALLEST: usize = 16 + 4 + 4 + 4;

fuzz_target!(|datagram: &[u8]| {
    let nics = nics_in(datagram);
    assert!(nics.len() * SMALLEST <= datagram.len(), "{nics:?}");
    for nic in nics {
        assert!(!nic.name.contains('\0'));
    }
});
