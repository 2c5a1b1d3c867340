//! A cache on a disk that is full: responses are right, stored ones change with the requests, and a purge makes room.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::Signal;
use sealion_testkit::generations::{Generations, Load, Purges};
use sealion_testkit::random::Random;
use sealion_testkit::{Course, Fault};

use super::Outcome;
use super::disks::Disk;
use super::world::{Config, Place, World, log};

/// Half of all bodies fit.
const SIZE: u64 = 16 << 20;

/// Purged files are removed at a bounded rate.
const TIME_TO_REMOVE: Duration = Duration::from_secs(60);

pub(super) fn round(world: &World, until: Instant) -> Outcome {
    let place = Place::new()?;
    let disk = Disk::in_memory(&place.path("disk"), &SIZE.to_string())?;
    let generations = Generations::beneath("/c");
    let _counting = world.figures.counting(&generations);
    let origin = generations.origin();
    // More than there is.
    let config = Config::cached(&origin.url(), &place.path("disk/cache"), "size = '100MB'\nfree = '0B'");
    let (connector, mut random) = (world.connector(), Random::new());
    while Instant::now() < until {
        let mut server = world.start(&place, &config)?;
        let purges = || Purges { program: &world.program, pid: server.pid(), may_be_refused: true };
        let load = Load { purges: Some(purges()), ..Load::new(&connector, &server, &world.program) };
        let mut phase = || -> Outcome {
            generations.sweep(&connector, server.address())?;
            let before = generations.tally().stored;
            // A file of others takes room for a while.
            let foreign = place.path("disk/foreign");
            if random.below(2) == 0 {
                // As much as there is.
                let _ = fs::write(&foreign, vec![1; 1 << random.below(23)]);
            }
            generations.load(&load, |course| course.run(Duration::from_secs(8)))?;
            let _ = fs::remove_file(&foreign);
            if generations.tally().stored == before {
                return Err(Fault::Broken("no stored response in 8 s of load on a full disk".to_owned()));
            }
            if random.below(2) == 0 {
                has_room(&generations, &purges(), &disk)?;
                let before = generations.tally().stored;
                generations.load(&load, |course| course.run(Duration::from_secs(4)))?;
                if generations.tally().stored == before {
                    return Err(Fault::Broken("no stored response in 4 s of load after purge --all".to_owned()));
                }
            }
            Ok(())
        };
        phase().map_err(|fault| fault.with(&log(&server)))?;
        server.signal(Signal::TERM);
        server.wait();
    }
    Ok(())
}

/// Purges everything and waits until the files are gone.
fn has_room(generations: &Generations, purges: &Purges<'_>, disk: &Disk) -> Outcome {
    if !generations.purge_all(purges, &Course::default()) {
        return Err(Fault::Broken("sealion purge --all failed on a full disk".to_owned()));
    }
    let deadline = Instant::now() + TIME_TO_REMOVE;
    while disk.used()? > SIZE / 2 {
        if Instant::now() > deadline {
            let used = disk.used()?;
            let text = format!("{used} of {SIZE} bytes in use {} s after purge --all", TIME_TO_REMOVE.as_secs());
            return Err(Fault::Broken(text));
        }
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}
