//! The record opener: whatever a peer sends, and whatever is done to a sealed record, it is opened to what was sealed
//! or refused, without a panic.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sealion_tls::Version;
use sealion_tls::record::{Aead, ContentType, Opener, Sealer, TrafficKeys};

const TYPES: [ContentType; 3] = [ContentType::Alert, ContentType::Handshake, ContentType::ApplicationData];

fuzz_target!(|data: &[u8]| {
    let Some((&[choice, sequence, at, flip], bytes)) = data.split_first_chunk::<4>() else { return };
    let version = if choice & 1 == 0 { Version::Tls12 } else { Version::Tls13 };
    let aead = Aead::ALL[usize::from(choice >> 1) % 3];
    let sequence = u64::from(sequence) << (choice >> 3);
    let keys = TrafficKeys::new(version, aead, &[0x5a; 32][..aead.key_len()], &[0xa5; 12]);

    // A record of a peer without the key is refused.
    let mut wild = bytes.to_vec();
    let opener = Opener::new(&keys, sequence);
    if let Ok(Some(len)) = opener.record_len(&wild)
        && len <= wild.len()
    {
        let mut opener = opener;
        assert!(opener.open(&mut wild[..len]).is_err(), "a forged record was opened");
    }

    // A record of the sealer opens to the same.
    let payload = &bytes[..bytes.len().min(1 << 14)];
    let (mut opener, mut another) = (Opener::new(&keys, sequence), Opener::new(&keys, sequence));
    let mut sealer = Sealer::new(keys, sequence, u64::MAX);
    let mut record = vec![0; sealer.sealed_len(payload.len())];
    record[sealer.prefix_len()..][..payload.len()].copy_from_slice(payload);
    let content_type = TYPES[usize::from(choice) % 3];
    sealer.seal(content_type, &mut record).expect("no key is worn out after one record");
    let mut copy = record.clone();
    let opened = opener.open(&mut copy).expect("what was sealed opens");
    assert_eq!(opened.content_type, content_type);
    assert_eq!(&copy[opened.payload], payload);

    // One changed byte is noticed, wherever it is.
    let at = (usize::from(at) * 257 + usize::from(flip)) % record.len();
    record[at] ^= flip | 1;
    let opened = another.open(&mut record);
    assert!(opened.is_err(), "a changed byte {at} was not noticed: {opened:?}");
});
