//! Container test, 2023: many clients in a closed loop. vegeta's `-max-body` bounds the bytes that it keeps of a body;
//! it reads the rest, and the connection stays open.

use super::{Cell, KB, MB, Scale, Study, StudyName, both_servers_and, extent};
use crate::load::Read;

pub(super) fn study(scale: Scale) -> Study {
    let (time, rounds) = match scale {
        Scale::Smoke => (0.0, 1),
        Scale::Quick => (1.0, 5),
        Scale::Default => (10.0, 5),
        Scale::Full => (30.0, 5),
    };
    let cells = [(10 * MB, 500), (MB, 500), (512 * KB, 1500)].map(|(size, workers)| {
        let workers = match scale {
            Scale::Smoke => workers / 50,
            // In a guest with one emulated core it takes minutes until each of 500 connections has read 10 MB.
            Scale::Quick => workers / 10,
            Scale::Default | Scale::Full => workers,
        };
        Cell { read: Read::Decrypt, ..Cell::closed(size, None, workers, extent(scale, time)) }
    });
    Study {
        name: StudyName::Container,
        cells: cells.into(),
        rounds,
        arms: both_servers_and(&OTHERS),
        setup_cost: false,
    }
}

/// The source's other settings: limits of processors and memory, and its own client.
const OTHERS: [&str; 8] = [
    "user-limited",
    "kernel-limited",
    "nginx-limited",
    "nginx-ktls-limited",
    "user-vegeta",
    "kernel-vegeta",
    "nginx-vegeta",
    "nginx-ktls-vegeta",
];
