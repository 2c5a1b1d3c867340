//! Where the user-space and the kernel path cost the same: sizes in steps of two, for each suite and number of requests
//! per connection.

use super::{Cell, KB, Scale, Study, StudyName, extent};
use crate::load::Suite;

pub(super) fn study(scale: Scale) -> Study {
    const ALL_SUITES: [Suite; 5] =
        [Suite::Aes128Gcm, Suite::Aes256Gcm, Suite::Chacha20Poly1305, Suite::Tls12Aes128Gcm, Suite::Tls12Aes256Gcm];
    let (suites, calls, steps, time, rounds): (&[Suite], &[Option<u64>], &[u64], f64, u32) = match scale {
        Scale::Smoke => (&ALL_SUITES[..1], &[Some(1)], &[4, 64], 0.0, 1),
        Scale::Quick => (&ALL_SUITES[..1], &[Some(1), None], &[4, 16, 64, 256], 0.5, 3),
        Scale::Default => (&ALL_SUITES[..3], &[Some(1), Some(10), None], &[1, 4, 8, 16, 32, 64, 128, 512], 1.0, 5),
        Scale::Full => {
            (&ALL_SUITES, &[Some(1), Some(10), Some(100), None], &[1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024], 3.0, 7)
        }
    };
    let mut cells = Vec::new();
    for &suite in suites {
        for &calls in calls {
            cells.extend(steps.iter().map(|kb| Cell { suite, ..Cell::closed(kb * KB, calls, 4, extent(scale, time)) }));
        }
    }
    let arms = ["user", "kernel", "user-h3", "nginx-h3"].map(str::to_owned).into();
    Study { name: StudyName::Crossover, cells, rounds, arms, setup_cost: true }
}
