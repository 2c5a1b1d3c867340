//! Control messages of recvmsg: the record type found is a byte of one of them.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_ktls::fuzzing::record_type_in;

/// struct cmsghdr: length, level, type.
const HEADER: usize = size_of::<usize>() + 8;

fuzz_target!(|control: &[u8]| {
    if let Some(record_type) = record_type_in(control) {
        assert!(control.get(HEADER..).is_some_and(|rest| rest.contains(&record_type)));
    }
});
