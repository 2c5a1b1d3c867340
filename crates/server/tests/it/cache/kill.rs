//! A server that is killed at any moment.

use std::time::{Duration, Instant};

use super::Cached;
use crate::support::generations::{Generations, Random, progress, times};

/// `SEALION_TIMES_KILLED=1000 cargo test -p sealion --test it cache::kill -- --nocapture` for more of them.
#[test]
fn a_server_that_is_killed_at_random_moments_sends_no_wrong_or_cut_body_and_forgets_no_purge() {
    let kills = times("SEALION_TIMES_KILLED", 20);
    let generations = Generations::new();
    // All bodies together are twice as large.
    let mut cached = Cached::stopped(generations.origin(), "size = '16MB'", "purge_from = ['127.0.0.1']");
    let (began, mut random) = (Instant::now(), Random::new());
    for n in 0..kills {
        cached.restart_without_waiting();
        let mut server = cached.server.take().expect("it runs");
        generations.sweep(&cached.site, &server);
        let time = Duration::from_millis(random.below(250) as u64);
        generations.load(&cached.site, &mut server, time, |_| {});
        progress(began, n, kills, generations.tally());
    }
    cached.restart_without_waiting();
    generations.sweep(&cached.site, cached.server());
    let tally = generations.tally();
    println!("{kills} kills in {} s: {tally:?}", began.elapsed().as_secs());
    assert!(tally.stored > 5 * kills && tally.purged > kills, "hardly anything was tried: {tally:?}");
}
