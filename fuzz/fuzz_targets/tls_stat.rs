//! The text of /proc/net/tls_stat: what is read is what is written there, and reads the same again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_ktls::stat::TlsStat;

fuzz_target!(|text: &str| {
    let stat = TlsStat::parse(text);
    let mut again = String::new();
    for (name, value) in stat.iter() {
        assert!(!name.contains(|c: char| c.is_ascii_whitespace()) && text.contains(name), "{name:?}");
        again.push_str(&format!("{name:<32}\t{value}\n"));
    }
    assert!(stat.iter().count() <= text.lines().count());
    assert_eq!(TlsStat::parse(&again), stat);
});
