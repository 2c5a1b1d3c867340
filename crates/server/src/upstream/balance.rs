//! Choosing a server, and leaving out servers that fail.
//!
//! ```text
//!           ─max_fails in a row, or a health check─►
//!   in use                                             left out for fail_time, or until a check succeeds
//!           ◄──── slow start ─── asked again ─────────
//! ```

use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::config::{AdminState, Balance};
use crate::values::write_address;

/// A server as the choice sees it.
#[derive(Debug)]
pub(super) struct Load {
    weight: u32,
    backup: bool,
    /// Whether it gets no new clients.
    drains: AtomicBool,
    /// The time to the head of its responses.
    time: ResponseTime,
    /// Requests in progress.
    active: AtomicUsize,
    /// Failures since the last success.
    failures: AtomicU32,
    /// Until when the server is left out, in milliseconds of [`Clock`]; 0: it is not.
    out_until: AtomicU64,
    /// Its health checks fail.
    is_unhealthy: AtomicBool,
    /// When the server came back, in milliseconds of [`Clock`]; 0: it has its full share.
    back_since: AtomicU64,
}

impl Load {
    fn is_out(&self, now: u64) -> bool {
        self.out_until.load(Ordering::Relaxed) > now || self.is_unhealthy.load(Ordering::Relaxed)
    }

    fn state(&self) -> AdminState {
        if self.drains.load(Ordering::Relaxed) { AdminState::Drain } else { AdminState::Ready }
    }
}

/// A moving average of times. It halves with each [`HALF_LIFE`] without a measurement, so that a server that was slow is asked again.
#[derive(Debug, Default)]
struct ResponseTime {
    microseconds: AtomicU64,
    /// In milliseconds of [`Clock`].
    measured: AtomicU64,
}

impl ResponseTime {
    /// 0: it is not known.
    fn at(&self, now: u64) -> u64 {
        let halves = now.saturating_sub(self.measured.load(Ordering::Relaxed)) / HALF_LIFE.as_millis() as u64;
        self.microseconds.load(Ordering::Relaxed).checked_shr(u32::try_from(halves).unwrap_or(u32::MAX)).unwrap_or(0)
    }

    /// Two workers that measure at once may lose one of the measurements.
    fn add(&self, took: Duration, now: u64) {
        let took = u64::try_from(took.as_micros()).unwrap_or(u64::MAX / 8).max(1);
        let before = self.at(now);
        let average = if before == 0 { took } else { before - before / 8 + took / 8 };
        self.microseconds.store(average.max(1), Ordering::Relaxed);
        self.measured.store(now, Ordering::Relaxed);
    }
}

// GUESS: long enough to be right under load, short enough to see that a server is fast again.
const HALF_LIFE: Duration = Duration::from_secs(10);

/// Milliseconds since the upstream was made.
#[derive(Debug)]
struct Clock(Instant);

impl Clock {
    /// Never 0, which means "never".
    fn now(&self) -> u64 {
        1 + u64::try_from(self.0.elapsed().as_millis()).unwrap_or(u64::MAX - 1)
    }
}

/// When a server is left out.
#[derive(Debug, Clone, Copy)]
pub(super) struct FailureRule {
    pub(super) max_fails: u32,
    pub(super) fail_time: Duration,
    /// How long the share of a server that came back grows to its weight.
    pub(super) slow_start: Duration,
}

/// The choice among the servers of an upstream, for all workers.
#[derive(Debug)]
pub(super) struct Balancer {
    rule: Balance,
    failure: FailureRule,
    servers: Box<[Load]>,
    next: AtomicUsize,
    clock: Clock,
}

/// The facts that a choice may depend on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Key<'a> {
    /// The client's address.
    pub(super) address: Option<IpAddr>,
    /// Path and query.
    pub(super) uri: &'a [u8],
    /// The index of the server that the client's cookie names.
    pub(super) sticky: Option<usize>,
}

impl Balancer {
    /// `servers`: weight, whether the server is a backup, and its state.
    pub(super) fn new(
        rule: Balance,
        failure: FailureRule,
        servers: impl Iterator<Item = (u32, bool, AdminState)>,
    ) -> Self {
        let load = |(weight, backup, state)| Load {
            weight,
            backup,
            drains: AtomicBool::new(state == AdminState::Drain),
            time: ResponseTime::default(),
            active: AtomicUsize::new(0),
            failures: AtomicU32::new(0),
            out_until: AtomicU64::new(0),
            is_unhealthy: AtomicBool::new(false),
            back_since: AtomicU64::new(0),
        };
        Balancer {
            rule,
            failure,
            servers: servers.map(load).collect(),
            next: AtomicUsize::new(0),
            clock: Clock(Instant::now()),
        }
    }

    /// The index of the server for a request that `tried` did not answer. Servers that were tried or are left out come last. The request
    /// counts as being in progress until [`Self::ended`].
    pub(super) fn choose(&self, key: Key<'_>, tried: &[usize]) -> usize {
        let chosen = self.pick(key, tried);
        self.servers[chosen].active.fetch_add(1, Ordering::Relaxed);
        chosen
    }

    fn pick(&self, key: Key<'_>, tried: &[usize]) -> usize {
        if self.servers.len() == 1 {
            return 0;
        }
        let now = self.clock.now();
        let answers = |index: usize| !self.servers[index].is_out(now) && !tried.contains(&index);
        if let Some(own) = key.sticky.filter(|own| answers(*own)) {
            return own;
        }
        let turn = self.next.load(Ordering::Relaxed);
        for (backup, state, spares_cold) in [
            (false, AdminState::Ready, true),
            (false, AdminState::Ready, false),
            (true, AdminState::Ready, false),
            (false, AdminState::Drain, false),
            (true, AdminState::Drain, false),
        ] {
            let usable = |index: usize| {
                let server = &self.servers[index];
                let is_spared = spares_cold && self.is_cold(server, now, turn);
                server.backup == backup && server.state() == state && answers(index) && !is_spared
            };
            if let Some(index) = self.pick_of(key, usable) {
                return index;
            }
        }
        // All are left out or were tried: the one that may come back first is chosen.
        let oldest = |index: &usize| {
            let server = &self.servers[*index];
            let until = server.out_until.load(Ordering::Relaxed);
            (tried.contains(index), server.is_unhealthy.load(Ordering::Relaxed), until)
        };
        (0..self.servers.len()).min_by_key(oldest).unwrap_or(0)
    }

    /// Whether a server that came back is spared this request: its share grows with time.
    fn is_cold(&self, server: &Load, now: u64, turn: usize) -> bool {
        let back = server.back_since.load(Ordering::Relaxed);
        let all = self.failure.slow_start.as_millis() as u64;
        if back == 0 || all == 0 {
            return false;
        }
        let gone = now.saturating_sub(back);
        if gone >= all {
            server.back_since.store(0, Ordering::Relaxed);
            return false;
        }
        mix(turn as u64) % all >= gone
    }

    fn pick_of(&self, key: Key<'_>, usable: impl Fn(usize) -> bool) -> Option<usize> {
        let all = || (0..self.servers.len()).filter(|index| usable(*index));
        let total: usize = all().map(|index| self.servers[index].weight as usize).sum();
        if total == 0 {
            return None;
        }
        // A request for each unit of weight, spread by a stride that has no divisor with the total.
        let weighted = |turn: usize| {
            let mut left = turn % total;
            all().find(|index| {
                let weight = self.servers[*index].weight as usize;
                let found = left < weight;
                left = left.saturating_sub(weight);
                found
            })
        };
        match self.rule {
            Balance::First => all().next(),
            Balance::RoundRobin => weighted(self.turn().wrapping_mul(stride(total))),
            Balance::LeastConnections => {
                // Equal ones take turns.
                let turn = self.turn();
                let count = self.servers.len();
                let from_turn = (0..count).map(|n| (turn + n) % count).filter(|index| usable(*index));
                from_turn.min_by(|a, b| self.busier(*a, *b))
            }
            Balance::LeastTime => {
                // Equal ones take turns.
                let (turn, count, now) = (self.turn(), self.servers.len(), self.clock.now());
                let from_turn = (0..count).map(|n| (turn + n) % count).filter(|index| usable(*index));
                from_turn.min_by(|a, b| self.expected_time(*a, now).total_cmp(&self.expected_time(*b, now)))
            }
            Balance::TwoChoices => {
                let random = mix(self.turn() as u64);
                let two = [weighted(random as usize), weighted((random >> 32) as usize)];
                two.into_iter().flatten().min_by(|a, b| self.busier(*a, *b))
            }
            Balance::HashAddress => {
                let mut text = Vec::new();
                key.address.inspect(|address| write_address(&mut text, *address));
                self.by_hash(&text, usable)
            }
            Balance::HashUri => self.by_hash(key.uri, usable),
        }
    }

    /// The time that one more request would take, by weight.
    fn expected_time(&self, index: usize, now: u64) -> f64 {
        let server = &self.servers[index];
        let requests = server.active.load(Ordering::Relaxed) + 1;
        server.time.at(now) as f64 * requests as f64 / f64::from(server.weight)
    }

    /// The server took so long to the head of its response.
    pub(super) fn took(&self, server: usize, took: Duration) {
        if self.rule == Balance::LeastTime {
            self.servers[server].time.add(took, self.clock.now());
        }
    }

    /// The state that an operator gave the server.
    pub(super) fn admin_state(&self, server: usize) -> AdminState {
        self.servers[server].state()
    }

    /// Gives a server a state. `false`: no server would get new clients.
    pub(super) fn set_admin_state(&self, server: usize, state: AdminState) -> bool {
        let is_ready = |(index, other): (usize, &Load)| index != server && other.state() == AdminState::Ready;
        if state == AdminState::Drain && !self.servers.iter().enumerate().any(is_ready) {
            return false;
        }
        self.servers[server].drains.store(state == AdminState::Drain, Ordering::Relaxed);
        true
    }

    fn turn(&self) -> usize {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// Compares requests in progress by weight: a / weight a with b / weight b.
    fn busier(&self, a: usize, b: usize) -> std::cmp::Ordering {
        let share = |this: usize, other: usize| {
            self.servers[this].active.load(Ordering::Relaxed) as u64 * u64::from(self.servers[other].weight)
        };
        share(a, b).cmp(&share(b, a))
    }

    /// Rendezvous hashing: a server that leaves or joins moves only its own share.
    fn by_hash(&self, key: &[u8], usable: impl Fn(usize) -> bool) -> Option<usize> {
        let key = key
            .iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash: u64, octet| (hash ^ u64::from(*octet)).wrapping_mul(0x0100_0000_01b3));
        let score = |index: usize| {
            let hash = mix(key ^ mix(index as u64 + 1));
            // -weight / ln(hash): a weight of 2 wins twice as often.
            let unit = ((hash >> 11) as f64 + 0.5) / (1u64 << 53) as f64;
            -f64::from(self.servers[index].weight) / unit.ln()
        };
        let scored = (0..self.servers.len()).filter(|index| usable(*index)).map(|index| (index, score(index)));
        scored.max_by(|(_, a), (_, b)| a.total_cmp(b)).map(|(index, _)| index)
    }

    /// A request to the server has ended.
    pub(super) fn ended(&self, server: usize) {
        self.servers[server].active.fetch_sub(1, Ordering::Relaxed);
    }

    /// The server has answered. `true`: it had been left out.
    pub(super) fn succeeded(&self, server: usize) -> bool {
        let server = &self.servers[server];
        // Only read where nothing changes: workers share the line.
        if server.failures.load(Ordering::Relaxed) > 0 {
            server.failures.store(0, Ordering::Relaxed);
        }
        let was_out = server.out_until.load(Ordering::Relaxed) > 0 && server.out_until.swap(0, Ordering::Relaxed) > 0;
        if was_out {
            server.back_since.store(self.clock.now(), Ordering::Relaxed);
        }
        was_out
    }

    /// The outcome of health checks. `true`: it has changed.
    pub(super) fn checked(&self, server: usize, is_healthy: bool) -> bool {
        let server = &self.servers[server];
        let has_changed = server.is_unhealthy.swap(!is_healthy, Ordering::Relaxed) == is_healthy;
        if has_changed && is_healthy {
            server.out_until.store(0, Ordering::Relaxed);
            server.failures.store(0, Ordering::Relaxed);
            server.back_since.store(self.clock.now(), Ordering::Relaxed);
        }
        has_changed
    }

    /// The server could not be reached, or did not answer. `true`: it is left out from now on.
    pub(super) fn failed(&self, server: usize) -> bool {
        let server = &self.servers[server];
        let failures = server.failures.fetch_add(1, Ordering::Relaxed) + 1;
        if failures < self.failure.max_fails {
            return false;
        }
        let until = self.clock.now() + u64::try_from(self.failure.fail_time.as_millis()).unwrap_or(u64::MAX / 2);
        server.out_until.swap(until, Ordering::Relaxed) == 0
    }

    /// Requests in progress at a server, and whether it is not left out.
    pub(super) fn state(&self, server: usize) -> (usize, bool) {
        let server = &self.servers[server];
        (server.active.load(Ordering::Relaxed), !server.is_out(self.clock.now()))
    }

    #[cfg(test)]
    fn active(&self, server: usize) -> usize {
        self.state(server).0
    }
}

/// A stride near the golden ratio of `total` without a common divisor.
fn stride(total: usize) -> usize {
    let gcd = |mut a: usize, mut b: usize| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let near = (total as f64 * 0.618) as usize;
    (near..=total).chain(0..near).find(|stride| *stride > 0 && gcd(*stride, total) == 1).unwrap_or(1)
}

/// Spreads a number over 64 bits (the finalizer of SplitMix64).
fn mix(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (number ^ (number >> 31)).wrapping_add(0x9e37_79b9_7f4a_7c15)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    fn balancer(rule: Balance, servers: &[(u32, bool)]) -> Balancer {
        let failure = FailureRule { max_fails: 2, fail_time: Duration::from_secs(1000), slow_start: Duration::ZERO };
        let servers = servers.iter().map(|(weight, backup)| (*weight, *backup, AdminState::Ready));
        Balancer::new(rule, failure, servers)
    }

    fn key(uri: &str) -> Key<'_> {
        Key { address: None, uri: uri.as_bytes(), sticky: None }
    }

    fn counts(balancer: &Balancer, requests: usize) -> Vec<usize> {
        let mut counts = vec![0; balancer.servers.len()];
        for n in 0..requests {
            let server = balancer.choose(key(&n.to_string()), &[]);
            balancer.ended(server);
            counts[server] += 1;
        }
        counts
    }

    #[test]
    fn weights_share_the_requests_exactly_in_turns() {
        assert_eq!(counts(&balancer(Balance::RoundRobin, &[(1, false), (1, false), (1, false)]), 300), [100, 100, 100]);
        assert_eq!(counts(&balancer(Balance::RoundRobin, &[(5, false), (1, false)]), 600), [500, 100]);
        let balancer = balancer(Balance::RoundRobin, &[(2, false), (1, false)]);
        let first: Vec<_> = (0..6).map(|_| balancer.choose(key(""), &[])).collect();
        assert_eq!(first.iter().filter(|server| **server == 0).count(), 4);
    }

    #[test]
    fn hashing_shares_by_weight_and_moves_only_the_share_of_a_server_that_is_left_out() {
        let balancer = balancer(Balance::HashUri, &[(1, false), (1, false), (2, false)]);
        let found = counts(&balancer, 4000);
        assert!(found[0].abs_diff(1000) < 150 && found[1].abs_diff(1000) < 150, "{found:?}");
        let choices =
            |balancer: &Balancer| (0..1000).map(|n| balancer.pick(key(&n.to_string()), &[])).collect::<Vec<_>>();
        let before = choices(&balancer);
        balancer.failed(1);
        assert!(balancer.failed(1));
        for (before, after) in before.into_iter().zip(choices(&balancer)) {
            assert!(after != 1 && (before == 1 || before == after));
        }
    }

    #[test]
    fn the_fastest_server_is_chosen_and_a_slow_one_is_asked_again() {
        let balancer = balancer(Balance::LeastTime, &[(1, false), (1, false)]);
        assert_eq!(counts(&balancer, 10), [5, 5], "nothing is known");
        balancer.took(0, Duration::from_millis(40));
        balancer.took(1, Duration::from_millis(10));
        assert_eq!(counts(&balancer, 10), [0, 10]);
        // Four requests in progress take as long as one of the other.
        let chosen: Vec<_> = (0..5).map(|_| balancer.choose(key("/"), &[])).collect();
        assert_eq!(chosen.iter().filter(|index| **index == 0).count(), 1, "{chosen:?}");
        chosen.iter().for_each(|index| balancer.ended(*index));
        for _ in 0..100 {
            balancer.took(1, Duration::from_millis(90));
        }
        assert_eq!(counts(&balancer, 10), [10, 0]);
        let time = ResponseTime::default();
        time.add(Duration::from_millis(64), 1);
        let half_life = HALF_LIFE.as_millis() as u64;
        assert_eq!([1, half_life + 1, 100 * half_life].map(|now| time.at(now)), [64_000, 32_000, 0]);
    }

    #[test]
    fn a_server_drains_by_order_unless_it_is_the_last_one() {
        let balancer = balancer(Balance::RoundRobin, &[(1, false), (1, false)]);
        assert!(balancer.set_admin_state(0, AdminState::Drain));
        assert_eq!(counts(&balancer, 10), [0, 10]);
        let sticky = Key { sticky: Some(0), ..key("/") };
        assert_eq!(balancer.choose(sticky, &[]), 0, "its sessions go on");
        assert!(!balancer.set_admin_state(1, AdminState::Drain));
        assert!(balancer.set_admin_state(0, AdminState::Ready));
        assert_eq!(counts(&balancer, 10), [5, 5]);
    }

    #[test]
    fn the_least_busy_server_is_chosen_by_weight() {
        let balancer = balancer(Balance::LeastConnections, &[(1, false), (3, false)]);
        for _ in 0..8 {
            balancer.choose(key(""), &[]);
        }
        assert_eq!([balancer.active(0), balancer.active(1)], [2, 6]);
        balancer.ended(0);
        balancer.ended(0);
        assert_eq!(balancer.choose(key(""), &[]), 0);
    }

    #[test]
    fn servers_that_fail_are_left_out_and_backups_asked_only_then() {
        let balancer = balancer(Balance::First, &[(1, false), (1, false), (1, true)]);
        assert_eq!(balancer.choose(key(""), &[]), 0);
        assert!(!balancer.failed(0));
        assert!(balancer.failed(0) && !balancer.failed(0));
        assert_eq!(balancer.choose(key(""), &[]), 1);
        assert_eq!(balancer.choose(key(""), &[1]), 2);
        assert!(!balancer.failed(1) && balancer.failed(1));
        assert_eq!(balancer.choose(key(""), &[]), 2);
        assert!(!balancer.failed(2) && balancer.failed(2));
        assert_eq!(balancer.choose(key(""), &[]), 0, "all are left out: the one whose failure is oldest");
        assert!(balancer.succeeded(0) && !balancer.succeeded(0));
        assert_eq!(balancer.choose(key(""), &[]), 0);
    }

    #[test]
    fn a_success_begins_the_count_of_failures_anew() {
        let balancer = balancer(Balance::First, &[(1, false), (1, false)]);
        for _ in 0..5 {
            assert!(!balancer.failed(0));
            assert!(!balancer.succeeded(0));
        }
        assert_eq!(balancer.choose(key(""), &[]), 0);
    }

    #[test]
    fn a_server_is_left_out_as_long_as_its_checks_fail() {
        let balancer = balancer(Balance::First, &[(1, false), (1, false)]);
        assert!(balancer.checked(0, false) && !balancer.checked(0, false));
        assert_eq!(balancer.choose(key(""), &[]), 1);
        assert!(!balancer.succeeded(0), "an answer to a request of before changes nothing");
        assert_eq!(balancer.choose(key(""), &[]), 1);
        assert!(balancer.checked(0, true) && !balancer.checked(0, true));
        assert_eq!(balancer.choose(key(""), &[]), 0);
    }

    #[test]
    fn a_server_that_comes_back_begins_with_a_small_share() {
        let failure = FailureRule { max_fails: 1, fail_time: Duration::ZERO, slow_start: Duration::from_secs(1000) };
        let balancer = Balancer::new(Balance::RoundRobin, failure, [(1, false, AdminState::Ready); 2].into_iter());
        balancer.checked(0, false);
        balancer.checked(0, true);
        let found = counts(&balancer, 1000);
        assert!(found[0] < 50, "{found:?}");
        assert_eq!(balancer.choose(key(""), &[1]), 0, "it is asked where no other can be");
    }

    #[test]
    fn each_address_has_its_server() {
        let balancer = balancer(Balance::HashAddress, &[(1, false), (1, false), (1, false)]);
        let choose = |address: IpAddr| {
            let server = balancer.choose(Key { address: Some(address), uri: b"", sticky: None }, &[]);
            balancer.ended(server);
            server
        };
        let addresses = (0..300u32).map(|n| Ipv4Addr::from_bits(0x0a00_0000 + n));
        let mut counts = [0; 3];
        for address in addresses {
            let server = choose(address.into());
            assert_eq!(choose(address.into()), server);
            counts[server] += 1;
        }
        assert!(counts.iter().all(|count| (60..=140).contains(count)), "{counts:?}");
    }

    #[test]
    fn a_client_stays_with_its_server_while_that_answers() {
        let balancer = balancer(Balance::First, &[(1, false), (1, false), (1, true)]);
        let own = |sticky| Key { sticky: Some(sticky), ..key("") };
        for server in 0..3 {
            assert_eq!(balancer.choose(own(server), &[]), server);
        }
        assert_eq!(balancer.choose(own(1), &[1]), 0);
        assert!(!balancer.failed(1) && balancer.failed(1));
        assert_eq!(balancer.choose(own(1), &[]), 0);
        assert!(balancer.succeeded(1));
        assert_eq!(balancer.choose(own(1), &[]), 1, "a server that came back has its clients at once");
    }

    #[test]
    fn a_server_that_drains_has_its_own_clients_alone_while_others_answer() {
        let failure = FailureRule { max_fails: 1, fail_time: Duration::from_secs(1000), slow_start: Duration::ZERO };
        let servers = [(9, false, AdminState::Drain), (1, false, AdminState::Ready), (1, true, AdminState::Ready)];
        for rule in [Balance::RoundRobin, Balance::First, Balance::TwoChoices, Balance::HashUri] {
            let balancer = Balancer::new(rule, failure, servers.into_iter());
            assert_eq!(counts(&balancer, 100), [0, 100, 0], "{rule:?}");
            assert_eq!(balancer.choose(Key { sticky: Some(0), ..key("") }, &[]), 0);
            assert!(balancer.failed(1));
            assert_eq!(counts(&balancer, 10), [0, 0, 10], "{rule:?}");
            assert!(balancer.failed(2));
            assert_eq!(counts(&balancer, 10), [10, 0, 0], "{rule:?}: nothing else answers");
        }
    }

    #[test]
    fn a_single_server_is_asked_however_often_it_failed() {
        for rule in [Balance::RoundRobin, Balance::TwoChoices, Balance::LeastConnections, Balance::HashAddress] {
            let balancer = balancer(rule, &[(1, false)]);
            balancer.failed(0);
            balancer.failed(0);
            assert_eq!(balancer.choose(key("a"), &[0]), 0);
        }
    }
}
