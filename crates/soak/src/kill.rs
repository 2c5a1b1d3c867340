//! A server with a cache that is killed at any moment: under load, while it starts and while it stops.

use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealion_testkit::generations::{Generations, Load};
use sealion_testkit::random::Random;

use super::Outcome;
use super::world::{Config, Place, World, log};

pub(super) fn round(world: &World, until: Instant) -> Outcome {
    let place = Place::new()?;
    let generations = Generations::beneath("/c");
    let _counting = world.figures.counting(&generations);
    let origin = generations.origin();
    // All bodies together are twice as large.
    let config = Config::cached(&origin.url(), &place.path("cache"), "size = '16MB'\nfree = '0B'");
    let (connector, mut random) = (world.connector(), Random::new());
    while Instant::now() < until {
        let mut server = world.start(&place, &config)?;
        let (pid, address) = (Pid::from_raw(server.pid() as i32), server.address());
        let longest = [250, 250, 2500][random.below(3)];
        let time = Duration::from_millis(random.below(longest) as u64);
        // One in three stops in order, and is killed before it is done.
        let stop = (random.below(3) == 0).then(|| Duration::from_millis(random.below(50) as u64));
        let swept = generations.sweep(&connector, address);
        let loaded = swept.and_then(|()| {
            let load = Load::new(&connector, &server, &world.program);
            generations.load_until_killed(&load, &mut server, time, || {
                if let (Some(stop), Some(pid)) = (stop, pid) {
                    let _ = kill_process(pid, Signal::TERM);
                    std::thread::sleep(stop);
                }
            })
        });
        loaded.map_err(|fault| fault.with(&log(&server)))?;
        world.figures.kills.add(1);
    }
    Ok(())
}
