//! A server that is killed at any moment.

use std::time::{Duration, Instant};

use sealion_testkit::Suite;
use sealion_testkit::generations::{Generations, Load};
use sealion_testkit::random::Random;

use super::Cached;
use crate::support::PROGRAM;
use crate::support::often::{progress, times};

/// `SEALION_TIMES_KILLED=1000 cargo test -p sealion --test it cache::kill -- --nocapture` for more of them.
#[test]
fn a_server_that_is_killed_at_random_moments_sends_no_wrong_or_cut_body_and_forgets_no_purge() {
    let kills = times("SEALION_TIMES_KILLED", 20);
    let generations = Generations::new();
    // All bodies together are twice as large.
    let mut cached = Cached::stopped(generations.origin(), "size = '16MB'", "purge_from = ['127.0.0.1']");
    let connector = cached.site.connector(Suite::TLS13);
    let (began, mut random) = (Instant::now(), Random::new());
    for n in 0..kills {
        cached.restart_without_waiting();
        let mut server = cached.server.take().expect("it runs");
        generations.sweep(&connector, server.address()).expect("a sweep");
        let time = Duration::from_millis(random.below(250) as u64);
        let load = Load::new(&connector, &server, PROGRAM.as_ref());
        generations.load_until_killed(&load, &mut server, time, || {}).expect("a load");
        progress(began, n, kills, generations.tally());
    }
    cached.restart_without_waiting();
    generations.sweep(&connector, cached.server().address()).expect("a sweep");
    let tally = generations.tally();
    println!("{kills} kills in {} s: {tally:?}", began.elapsed().as_secs());
    assert!(tally.stored > 5 * kills as u64 && tally.purged > kills as u64, "hardly anything was tried: {tally:?}");
}
