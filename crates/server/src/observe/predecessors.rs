//! Processes that upgrades have replaced, for as long as their connections live.
//!
//! The socket pair over which a process passed its service stays open until that process ends. It reports on it how many connections are left, and each upgrade passes
//! the other end on.

use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::MutexGuard;

use rustix::io::Errno;
use rustix::net::{RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg};
use serde::{Deserialize, Serialize};

use crate::values::Mutex;

/// The connections that are left of a process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Left {
    /// The process.
    pub(crate) pid: u32,
    /// Connections with a request, a response or a tunnel under way.
    pub(crate) active: u64,
    /// Other connections.
    pub(crate) idle: u64,
}

/// The longest report, in bytes: three names and numbers.
const MAX_REPORT: usize = 256;

impl Left {
    /// Sends the report to the process that has the service now. A report that it does not take at once is dropped: another one follows.
    pub(crate) fn report(self, to: impl AsFd) {
        let Ok(bytes) = serde_json::to_vec(&self) else { return };
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        let _ = sendmsg(to, &[IoSlice::new(&bytes)], &mut SendAncillaryBuffer::default(), flags);
    }
}

/// The processes before this one that have not ended.
#[derive(Debug, Default)]
pub(crate) struct Predecessors(Mutex<Vec<Living>>);

#[derive(Debug)]
struct Living {
    socket: OwnedFd,
    left: Left,
}

impl Predecessors {
    /// Adds a process by the far end of its socket pair.
    pub(crate) fn add(&self, pid: u32, socket: OwnedFd) {
        let left = Left { pid, ..Left::default() };
        self.0.lock().push(Living { socket, left });
    }

    /// Whether none is known.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// The last report of each process that has not ended.
    pub(crate) fn left(&self) -> Vec<Left> {
        self.living().iter().map(|living| living.left).collect()
    }

    /// The processes with their sockets, for a successor.
    ///
    /// # Errors
    /// No descriptor is free.
    pub(crate) fn to_pass_on(&self) -> std::io::Result<Vec<(u32, OwnedFd)>> {
        self.living().iter().map(|living| Ok((living.left.pid, living.socket.try_clone()?))).collect()
    }

    /// The processes that have not ended, with their last reports.
    fn living(&self) -> MutexGuard<'_, Vec<Living>> {
        let mut living = self.0.lock();
        living.retain_mut(Living::read);
        living
    }
}

impl Living {
    /// Reads the reports that have come. `false`: the process has ended.
    fn read(&mut self) -> bool {
        loop {
            let mut bytes = [0; MAX_REPORT];
            let mut control = RecvAncillaryBuffer::default();
            let received = recvmsg(&self.socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::DONTWAIT);
            match received {
                Ok(received) if received.bytes == 0 => return false,
                // A report of another version is passed over.
                Ok(received) => self.left = serde_json::from_slice(&bytes[..received.bytes]).unwrap_or(self.left),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return true,
                Err(_) => return false,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    use super::*;

    #[test]
    fn a_process_is_known_by_its_last_report_until_it_ends() {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let predecessors = Predecessors::default();
        predecessors.add(7, far);
        assert_eq!(predecessors.left(), [Left { pid: 7, active: 0, idle: 0 }]);
        // The receiver does not read: reports that do not fit are dropped.
        (0..10_000).for_each(|n| Left { pid: 7, active: 1, idle: n }.report(&near));
        let found = predecessors.left();
        assert!(found[0].idle < 9_999, "{found:?}");
        let last = Left { pid: 7, active: 1, idle: 2 };
        last.report(&near);
        let passed_on = predecessors.to_pass_on().unwrap();
        assert_eq!((passed_on.len(), passed_on[0].0, predecessors.left()), (1, 7, vec![last]));
        drop(near);
        assert_eq!(predecessors.left(), []);
    }
}
