//! The figures of a run, and its faults.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use sealion_testkit::Fault;
use sealion_testkit::generations::Generations;

/// Counters of all servers together, and peaks of one server.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) requests: Count,
    pub(super) bytes: Count,
    pub(super) kills: Count,
    pub(super) upgrades: Count,
    pub(super) cuts: Count,
    wrong: Count,
    failed: Count,
    descriptors: Count,
    memory: Count,
    faults: Mutex<Vec<String>>,
}

#[derive(Default)]
pub(super) struct Count(AtomicU64);

impl Count {
    pub(super) fn add(&self, more: u64) {
        self.0.fetch_add(more, Ordering::Relaxed);
    }

    fn raise_to(&self, value: u64) {
        self.0.fetch_max(value, Ordering::Relaxed);
    }

    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

impl Figures {
    /// A response whose body was right.
    pub(super) fn verified(&self, bytes: usize) {
        self.requests.add(1);
        self.bytes.add(bytes as u64);
    }

    /// Adds the tally of `generations` when the result is dropped.
    pub(super) fn counting<'a>(&'a self, generations: &'a Generations) -> Counting<'a> {
        Counting { figures: self, generations }
    }

    /// Descriptors and bytes of memory of one server at some moment.
    pub(super) fn server_holds(&self, descriptors: u64, memory: u64) {
        self.descriptors.raise_to(descriptors);
        self.memory.raise_to(memory);
    }

    /// Counts and shows a fault that `scenario` has found.
    pub(super) fn note(&self, scenario: &str, fault: &Fault) {
        match fault {
            Fault::Wrong(_) => self.wrong.add(1),
            Fault::Failed(_) => self.failed.add(1),
            Fault::Broken(_) => {}
        }
        let text = format!("{scenario}: {fault}");
        eprintln!("soak: {text}");
        self.faults.lock().expect("no panic").push(text);
    }

    /// All faults, the first one found first.
    pub(super) fn faults(&self) -> Vec<String> {
        self.faults.lock().expect("no panic").clone()
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { requests, bytes, kills, upgrades, cuts, wrong, failed, descriptors, memory, .. } = self;
        write!(f, "{} requests, {} bytes verified, ", requests.get(), bytes.get())?;
        write!(f, "{} kills, {} upgrades, {} cuts, ", kills.get(), upgrades.get(), cuts.get())?;
        write!(f, "{} wrong bodies, {} failed requests, ", wrong.get(), failed.get())?;
        write!(f, "peak of one server {} descriptors and {} MiB", descriptors.get(), memory.get() >> 20)
    }
}

/// Made by [`Figures::counting`].
pub(super) struct Counting<'a> {
    figures: &'a Figures,
    generations: &'a Generations,
}

impl Drop for Counting<'_> {
    fn drop(&mut self) {
        let tally = self.generations.tally();
        self.figures.requests.add(tally.checked);
        self.figures.bytes.add(tally.bytes);
        self.figures.cuts.add(tally.cut);
    }
}
