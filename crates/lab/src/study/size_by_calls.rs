//! File size × requests per connection, 2023: 4 threads, 4 connections, 10 s each.

use super::{Cell, KB, MB, Scale, Study, StudyName, both_servers_and, extent};
use crate::load::Suite;

pub(super) fn study(scale: Scale) -> Study {
    let (sizes, calls, time, rounds): (&[u64], &[Option<u64>], f64, u32) = match scale {
        Scale::Smoke => (&[KB, 128 * KB], &[Some(2), None], 0.0, 1),
        Scale::Quick => (&[KB, 64 * KB, MB], &[Some(1), Some(20)], 0.5, 5),
        Scale::Default => (&ALL_SIZES, &[Some(1), Some(10), Some(20), None], 2.0, 5),
        Scale::Full => {
            let calls = &[Some(1), Some(10), Some(20), Some(50), Some(100), Some(500), Some(2000), None];
            (&ALL_SIZES, calls, 10.0, 5)
        }
    };
    let cells = sizes.iter().flat_map(|&size| {
        calls.iter().map(move |&calls| Cell {
            threads: 4,
            suite: Suite::Aes256Gcm,
            ..Cell::closed(size, calls, 4, extent(scale, time))
        })
    });
    // The source's nginx has an access log.
    let arms = both_servers_and(&["nginx-log", "nginx-log-ktls"]);
    Study { name: StudyName::SizeByCalls, cells: cells.collect(), rounds, arms, setup_cost: false }
}

const ALL_SIZES: [u64; 7] = [KB, 8 * KB, 64 * KB, 128 * KB, MB, 8 * MB, 64 * MB];
