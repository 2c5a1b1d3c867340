//! Container test, 2023: many clients in a closed loop, each response read to 10 kB.

use super::{Cell, KB, MB, Scale, Study, StudyName, both_servers, extent};

pub(super) fn study(scale: Scale) -> Study {
    let (time, rounds) = match scale {
        Scale::Smoke => (0.0, 1),
        Scale::Quick => (2.0, 2),
        Scale::Default => (10.0, 3),
        Scale::Full => (30.0, 3),
    };
    let cells = [(10 * MB, 500), (MB, 500), (512 * KB, 1500)].map(|(size, workers)| {
        let workers = if scale == Scale::Smoke { workers / 50 } else { workers };
        Cell { body_cap: Some(10_000), ..Cell::closed(size, None, workers, extent(scale, time)) }
    });
    Study { name: StudyName::Container, cells: cells.into(), rounds, arms: both_servers(), setup_cost: false }
}
