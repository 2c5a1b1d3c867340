//! Processes that take over from each other, and configurations that are read again, under load: no request fails.

use std::thread;
use std::time::{Duration, Instant};

use sealion_testkit::Fault;
use sealion_testkit::generations::{Generations, Load};
use sealion_testkit::random::Random;
use sealion_testkit::service::Service;

use super::world::{Config, Place, World, log};
use super::{Outcome, files, joined};

pub(super) fn round(world: &World, until: Instant) -> Outcome {
    let place = Place::new()?;
    files::make(&place.path("root"));
    let generations = Generations::beneath("/c");
    let _counting = world.figures.counting(&generations);
    let origin = generations.origin();
    let config = Config::cached(&origin.url(), &place.path("cache"), "size = '16MB'\nfree = '0B'");
    let service = Service { first: world.start(&place, &config)? };
    let (connector, address) = (world.connector(), service.first.address());
    // Two processes learn of each other's purges with a delay: a purge says nothing of the next response.
    let load = Load { readers: 3, purges: None, ..Load::new(&connector, &service.first, &world.program) };
    let outcome = generations.load(&load, |course| {
        thread::scope(|scope| {
            let _ends = course.ending();
            let reader = scope.spawn(|| {
                let outcome = files::read(&world.figures, &connector, address, course);
                course.end();
                outcome
            });
            let mut random = Random::new();
            let mut given = Ok(());
            while given.is_ok() && !course.has_ended() && Instant::now() < until {
                given = order(world, &service, random.below(4));
                course.run(Duration::from_millis(random.below(1500) as u64));
            }
            course.end();
            joined(reader).and(given)
        })
    });
    outcome.and_then(|steered| steered).map_err(|fault| fault.with(&log(&service.first)))
}

/// An upgrade by a signal or a command, or a reload.
fn order(world: &World, service: &Service, which: usize) -> Result<(), Fault> {
    let pid = service.newest().as_raw_nonzero().get();
    match which {
        0 => return world.order("reload", pid),
        1 => {
            let before = service.successors().len();
            world.order("upgrade", pid)?;
            service.wait_for_upgrades(before + 1);
        }
        _ => service.upgrade(),
    }
    world.figures.upgrades.add(1);
    Ok(())
}
