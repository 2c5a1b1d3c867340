//! CPU affinity: one processor for the sender, the others for all other threads.

use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// The processors that this process may use.
#[derive(Clone)]
pub(super) struct Cpus {
    /// All processors except the sender's; `None` if that is the only one.
    others: Option<CpuSet>,
}

impl Cpus {
    /// Pins the calling thread to its current processor.
    pub(super) fn pin_sender() -> Self {
        let here = sched_getcpu();
        let Ok(mut others) = sched_getaffinity(None) else { return Self { others: None } };
        let mut only = CpuSet::new();
        only.set(here);
        // Without permission to pin, the measurement is noisier but still valid.
        let _ = sched_setaffinity(None, &only);
        others.unset(here);
        Self { others: (others.count() > 0).then_some(others) }
    }

    /// Moves the calling thread off the sender's processor, if there is another.
    pub(super) fn leave_to_sender(&self) {
        if let Some(others) = &self.others {
            let _ = sched_setaffinity(None, others);
        }
    }
}

/// CPU time of the calling thread in nanoseconds, user and system.
pub(super) fn thread_nanoseconds() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_work_counts() {
        let began = thread_nanoseconds();
        let sum: u64 = std::hint::black_box((0..1_000_000_u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
        let worked = thread_nanoseconds();
        assert!(sum < u64::MAX && worked > began);
    }

    #[test]
    fn sender_and_others_share_no_processor() {
        std::thread::spawn(|| {
            let cpus = Cpus::pin_sender();
            let mine = sched_getaffinity(None).unwrap();
            assert_eq!(mine.count(), 1);
            cpus.leave_to_sender();
            let then = sched_getaffinity(None).unwrap();
            let shared = (0..CpuSet::MAX_CPU).any(|cpu| mine.is_set(cpu) && then.is_set(cpu));
            assert_eq!(shared, cpus.others.is_none());
        })
        .join()
        .unwrap();
    }
}
