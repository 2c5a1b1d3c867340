//! A mix of sizes, as a site of pages, pictures and a few downloads has them; `sealion-lab advise` replaces it by the mix
//! of an access log.

use super::{Cell, KB, MB, Scale, Study, StudyName, both_servers, extent};

pub(super) fn study(scale: Scale) -> Study {
    let (time, rounds) = match scale {
        Scale::Smoke => (0.0, 1),
        Scale::Quick => (0.5, 5),
        Scale::Default => (2.0, 5),
        Scale::Full => (5.0, 9),
    };
    let sizes = [2 * KB, 16 * KB, 100 * KB, MB];
    let cells = sizes.map(|size| Cell::closed(size, Some(CALLS), CONNECTIONS, extent(scale, time)));
    Study { name: StudyName::Mix, cells: cells.into(), rounds, arms: both_servers(), setup_cost: false }
}

/// Requests of a page on one connection.
const CALLS: u64 = 20;

const CONNECTIONS: usize = 4;
