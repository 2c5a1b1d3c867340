//! Sealion and nginx, both sealing in user space: the source of the README's table.

use super::{Cell, KB, MB, Scale, Scene, Study, StudyName, extent};

pub(super) fn study(scale: Scale) -> Study {
    let (time, rounds) = match scale {
        Scale::Smoke => (0.0, 1),
        Scale::Quick => (1.2, 1),
        Scale::Default => (2.0, 7),
        Scale::Full => (5.0, 9),
    };
    let (large, idle) = if scale == Scale::Smoke { (4 * MB, 100) } else { (64 * MB, 1000) };
    let cell = |size, calls| Cell::closed(size, calls, CONNECTIONS, extent(scale, time));
    let mut cells: Vec<Cell> = [KB, 16 * KB, 64 * KB, 128 * KB, MB].map(|size| cell(size, None)).into();
    // Latency at the same rate for both: in a closed loop the faster server also gets more requests.
    cells.extend([KB, 16 * KB].map(|size| Cell { scene: Scene::HalfLoad, ..cell(size, None) }));
    cells.push(cell(KB, Some(1)));
    cells.push(Cell { resume: true, ..cell(KB, Some(1)) });
    cells.push(Cell { scene: Scene::Beside { size: large, connections: 1 }, ..cell(KB, None) });
    cells.push(Cell {
        scene: Scene::Idle,
        ..Cell::closed(KB, Some(1), idle, crate::load::Extent::Requests(idle as u64))
    });
    let arms = ["user", "nginx", "user-h3", "nginx-h3"].map(str::to_owned).into();
    Study { name: StudyName::Peers, cells, rounds, arms, setup_cost: false }
}

const CONNECTIONS: usize = 64;
