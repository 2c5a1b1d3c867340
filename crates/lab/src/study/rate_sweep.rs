//! Latency over throughput: each arm in open loops at shares of its own rate in a closed loop.

use super::{Cell, KB, Scale, Scene, Study, StudyName, extent};

pub(super) fn study(scale: Scale) -> Study {
    let (sizes, shares, time, rounds): (&[u64], &[u32], f64, u32) = match scale {
        Scale::Smoke => (&[KB], &[50], 0.0, 1),
        Scale::Quick => (&[16 * KB], &[25, 50, 75, 90], 0.5, 5),
        Scale::Default => (&[KB, 16 * KB], &[10, 25, 50, 75, 85, 95], 2.0, 5),
        Scale::Full => (&[KB, 16 * KB, 128 * KB], &[10, 20, 30, 40, 50, 60, 70, 80, 90, 95], 5.0, 7),
    };
    let cell = |size: u64, percent: u32| Cell {
        scene: Scene::Share { percent },
        ..Cell::closed(size, None, CONNECTIONS, extent(scale, time))
    };
    let cells = sizes.iter().flat_map(|&size| shares.iter().map(move |&percent| cell(size, percent))).collect();
    let arms = ["user", "kernel", "nginx", "nginx-ktls"].map(str::to_owned).into();
    Study { name: StudyName::RateSweep, cells, rounds, arms, setup_cost: false }
}

const CONNECTIONS: usize = 64;
