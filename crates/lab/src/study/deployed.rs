//! Sealion and nginx in user space in typical deployments: access logs, metrics, several sites with features, more
//! files than the caches hold, half the load, large files.

use super::{Cell, KB, MB, Scale, Scene, Study, StudyName, extent};

pub(super) fn study(scale: Scale) -> Study {
    let (time, rounds) = match scale {
        Scale::Smoke => (0.0, 1),
        Scale::Quick => (1.0, 1),
        Scale::Default => (2.0, 7),
        Scale::Full => (5.0, 9),
    };
    let (files, large) = if scale == Scale::Smoke { (100, 4 * MB) } else { (100_000, 64 * MB) };
    let cell = |size, connections| Cell::closed(size, None, connections, extent(scale, time));
    let cells = vec![
        cell(KB, CONNECTIONS),
        cell(16 * KB, CONNECTIONS),
        Cell { scene: Scene::Many { files }, ..cell(4 * KB, CONNECTIONS) },
        Cell { scene: Scene::HalfLoad, ..cell(KB, CONNECTIONS) },
        Cell { scene: Scene::HalfLoad, ..cell(16 * KB, CONNECTIONS) },
        cell(MB, 2),
        cell(large, 2),
    ];
    let arms = ["user", "user-log", "user-metrics", "user-sites", "user-two", "nginx-files", "nginx", "nginx-log"];
    Study { name: StudyName::Deployed, cells, rounds, arms: arms.map(str::to_owned).into(), setup_cost: false }
}

const CONNECTIONS: usize = 64;
