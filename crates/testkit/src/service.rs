//! A service: a server, and the processes that took over from it.

use rustix::process::{Pid, kill_process};

use crate::server::{Server, Signal};

/// The processes of a service. All are killed on drop.
pub struct Service {
    /// The process that the test started.
    pub first: Server,
}

impl Service {
    /// Processes that have taken over, in order.
    pub fn successors(&self) -> Vec<i32> {
        let taken_over = |text: &str| text.split_once("process ")?.1.strip_suffix(" has taken over")?.parse().ok();
        self.first.lines().iter().filter_map(|line| taken_over(&line.text)).collect()
    }

    /// The newest process.
    pub fn newest(&self) -> Pid {
        let first = self.first.pid() as i32;
        Pid::from_raw(self.successors().last().copied().unwrap_or(first)).expect("a process has a number")
    }

    /// Sends a signal to the newest process.
    ///
    /// # Panics
    /// It has ended.
    #[track_caller]
    pub fn signal(&self, signal: Signal) {
        kill_process(self.newest(), signal).expect("the newest process runs");
    }

    /// Makes another process take over by SIGUSR2, and waits for it.
    ///
    /// # Panics
    /// No process takes over.
    #[track_caller]
    pub fn upgrade(&self) {
        let before = self.successors().len();
        self.signal(Signal::USR2);
        self.wait_for_upgrades(before + 1);
    }

    /// Waits until the log names the processes that have taken over: a command may return before the log is read.
    ///
    /// # Panics
    /// It does not name `count` processes.
    #[track_caller]
    pub fn wait_for_upgrades(&self, count: usize) {
        self.first.wait_for_lines(count, "word of an upgrade", |line| line.text.ends_with(" has taken over"));
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        for pid in self.successors().into_iter().filter_map(Pid::from_raw) {
            // Most processes have already ended.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
