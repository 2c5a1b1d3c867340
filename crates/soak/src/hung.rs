//! A cache on a disk that hangs: responses go on without it, other parts of the site do not notice, and it is used again when it is back.

use std::fs;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use sealion_testkit::generations::{Generations, Load, Purges};
use sealion_testkit::random::Random;
use sealion_testkit::{Connector, Course, Fault, PATIENCE, content, http};

use super::disks::Disk;
use super::files::{self, failed};
use super::world::{Config, Place, World, log};
use super::{Outcome, joined};

/// A disk that failed is tried again after ten seconds.
const TIME_TO_STORE_AGAIN: Duration = Duration::from_secs(60);

/// `ada:right` and `ada:wrong`.
const RIGHT: &str = "Basic YWRhOnJpZ2h0";
const WRONG: &str = "Basic YWRhOndyb25n";

/// Made with cost 4, the least.
const USERS: &str = "ada:$2y$04$abcdefghijklmnopqrstuuFmEfrkTQnczNzw475xE2VhDrK1uwJiC\n";

pub(super) fn round(world: &World, until: Instant) -> Outcome {
    let place = Place::new()?;
    files::make(&place.path("root"));
    fs::create_dir(place.path("root/in"))?;
    content::write(&place.path("root/in/100"), 100);
    fs::write(place.path("users"), USERS)?;
    let disk = Disk::in_file(&place.path("disk"), &place.path("image"))?;
    let generations = Generations::beneath("/c");
    let _counting = world.figures.counting(&generations);
    let origin = generations.origin();
    let config = Config {
        site: "route = [{ path = '/c/', proxy = { to = 'app', cache = { purge_from = ['127.0.0.1'] } } }, \
               { path = '/in/', basic_auth = { realm = 'in', users = 'users' } }]\n",
        ..Config::cached(&origin.url(), &place.path("disk/cache"), "size = '24MB'\nfree = '0B'")
    };
    // Behind the disk: a server that hangs ends when the disk is thawed.
    let server = world.start(&place, &config)?;
    let connector = world.connector();
    let purges = Purges { program: &world.program, pid: server.pid(), may_be_refused: true };
    // A response from a disk that fails may be cut.
    let load = Load { purges: Some(purges), may_cut: true, ..Load::new(&connector, &server, &world.program) };
    let outcome = generations.load(&load, |course| -> Outcome {
        thread::scope(|scope| {
            let _ends = course.ending();
            let (address, connector) = (server.address(), &connector);
            let guarded = |client: fn(&World, &Connector, SocketAddr, &Course) -> Result<(), Fault>| {
                scope.spawn(move || {
                    let outcome = client(world, connector, address, course);
                    course.end();
                    outcome
                })
            };
            let reader =
                guarded(|world, connector, address, course| files::read(&world.figures, connector, address, course));
            let user = guarded(passwords);
            let steered = hang(&disk, &generations, course, until);
            course.end();
            joined(reader).and(joined(user))?;
            steered
        })
    });
    outcome.and_then(|steered| steered).map_err(|fault| fault.with(&log(&server)))
}

/// Freezes and thaws the disk until the round or the course ends.
fn hang(disk: &Disk, generations: &Generations, course: &Course, until: Instant) -> Outcome {
    let mut random = Random::new();
    // A request that waits for the disk fails before that is thawed. Behind the first time, the disk is often back earlier.
    let long = PATIENCE + Duration::from_secs(10);
    let mut time = long;
    while !course.has_ended() && Instant::now() < until {
        course.run(Duration::from_secs(3));
        let frozen = disk.freeze()?;
        course.run(time);
        drop(frozen);
        time = if random.below(3) == 0 { long } else { Duration::from_millis(1000 + random.below(20_000) as u64) };
        let (before, deadline) = (generations.tally().stored, Instant::now() + TIME_TO_STORE_AGAIN);
        while generations.tally().stored < before + 20 && !course.has_ended() {
            if Instant::now() > deadline {
                let text = "hardly a stored response in 60 s after the disk was thawed".to_owned();
                return Err(Fault::Broken(text));
            }
            course.run(Duration::from_millis(100));
        }
    }
    Ok(())
}

/// Asks with right and wrong passwords until the course ends: each wrong one is verified, on a thread that may block.
fn passwords(world: &World, connector: &Connector, address: SocketAddr, course: &Course) -> Result<(), Fault> {
    let target = "/in/100";
    while !course.has_ended() {
        let mut client = connector.try_connect(address).map_err(|error| failed("a connection", &error))?;
        for (credentials, status) in [(RIGHT, 200), (WRONG, 401)] {
            let fields = [("Authorization", credentials)];
            let response = http::request(&mut client, "GET", target, &fields).map_err(|e| failed(target, &e))?;
            if response.status != status {
                let text = format!("{target}: status {} where {status} is right", response.status);
                return Err(Fault::Failed(text));
            }
            if status == 200 {
                files::check(target, &response, 100)?;
            }
            world.figures.verified(response.body.len());
        }
        course.run(Duration::from_millis(50));
    }
    Ok(())
}
