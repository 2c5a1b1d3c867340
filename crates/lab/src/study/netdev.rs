//! netdev talk, 2022: TLS 1.2 with AES-128-GCM, 2 connections, 1 KB to 1 GB, K requests per connection, 25 s. The talk's three
//! rounds are five here, so that differences may be claimed.

use super::{Cell, GB, KB, MB, Scale, Study, StudyName, both_servers, extent};
use crate::load::Suite;

pub(super) fn study(scale: Scale) -> Study {
    // K is 1000 for all sizes. For the sizes in `swept` it varies, which shows the cost of handshake and set-up.
    let (sizes, swept, time, rounds): (&[u64], &[u64], f64, u32) = match scale {
        Scale::Smoke => (&[KB, 128 * KB], &[KB], 0.0, 1),
        Scale::Quick => (&[KB, 2 * KB, 4 * KB, 8 * KB, 16 * KB, 128 * KB, MB], &[128 * KB], 0.3, 5),
        Scale::Default => (&DEFAULT_SIZES, &SWEPT, 3.0, 5),
        Scale::Full => (&FULL_SIZES, &SWEPT, 25.0, 5),
    };
    let calls: &[Option<u64>] = match scale {
        Scale::Smoke | Scale::Quick => &[Some(1), Some(10), Some(100)],
        Scale::Default | Scale::Full => &[Some(1), Some(10), Some(100), Some(10_000), None],
    };
    let sweep = swept.iter().flat_map(|&size| calls.iter().map(move |&k| (size, k)));
    let cells = sizes.iter().map(|&size| (size, Some(1000))).chain(sweep).map(|(size, k)| Cell {
        threads: 2,
        suite: Suite::Tls12Aes128Gcm,
        ..Cell::closed(size, k, 2, extent(scale, time))
    });
    Study { name: StudyName::Netdev, cells: cells.collect(), rounds, arms: both_servers(), setup_cost: true }
}

const DEFAULT_SIZES: [u64; 11] =
    [KB, 2 * KB, 4 * KB, 8 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, MB, 16 * MB];

/// The talk's sizes with 2k and 8k, between which and their neighbours the paths cross.
const FULL_SIZES: [u64; 14] =
    [KB, 2 * KB, 4 * KB, 8 * KB, 16 * KB, 32 * KB, 64 * KB, 128 * KB, 256 * KB, MB, 4 * MB, 16 * MB, 128 * MB, GB];

const SWEPT: [u64; 3] = [KB, 16 * KB, 128 * KB];
