//! Upgrade without a refused connection: the old process starts the new binary, passes it the listening sockets, and drains once the
//! new process serves.
//!
//! ```text
//! old   SIGUSR2 ─► spawn ─► sockets, one a packet (SCM_RIGHTS) ─► wait ───────────► MAINPID= ─► "yours" ─► drain ─► end
//! new                └─► configuration, certificates, workers ─────► "serving" ─┘                  └─► READY=1
//! ```
//!
//! Both processes hold the same sockets, not two sockets bound to the same address: a connection that waits in a queue is accepted by one
//! or the other. If the new process fails, it reports why, and the old one continues unchanged.
//!
//! They talk over a Unix socket pair. Its far end is the new process's standard input, so that no descriptor is inherited by number.

mod channel;
mod predecessor;
mod program;

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair, sockopt};
use rustix::process::{Pid, Signal, kill_process};
use sealion_quic::Secrets;
use sealion_tls::{OwnTicketKeys, TicketKeys};
use zeroize::Zeroizing;

use crate::listen::{Datagrams, Held, Share};
use crate::observe::{Left, Predecessors};
use crate::process::privileges::Confinement;
use crate::values::Mutex;
use channel::{ChannelError, Message, Secret, receive, send};

pub(crate) use predecessor::{Connections, Predecessor, report_failure};
pub(crate) use program::Program;

/// Environment variable of a successor: the id of the process that it replaces.
const PREDECESSOR: &str = "SEALION_PREDECESSOR";

/// Time for a successor to start serving. Self-check and certificates take a second on a slow machine; a name server that does not
/// answer takes half a minute; this is twice that.
const LONGEST_START: Duration = Duration::from_secs(60);

/// The state that a successor inherits.
#[derive(Debug, Default)]
pub(crate) struct Service {
    /// The listening sockets.
    pub held: Vec<Held>,
    pub confinement: Confinement,
    pub predecessors: Arc<Predecessors>,
    /// The keys of session tickets.
    pub tickets: Option<Arc<TicketKeys>>,
    /// How this process serves UDP.
    pub datagrams: Option<Datagrams>,
}

/// A new process that serves and does not own the service yet. If dropped before [`Self::hand_over`], it gets SIGTERM, because it has
/// the sockets and would go on serving.
#[derive(Debug)]
pub(crate) struct Successor {
    pid: Pid,
    socket: OwnedFd,
    has_service: bool,
}

/// Whether a successor is starting.
#[derive(Debug, Clone, Default)]
pub(crate) struct Starting(Arc<Mutex<Start>>);

#[derive(Debug, Default, Clone, Copy)]
enum Start {
    /// None is.
    #[default]
    Idle,
    /// This process.
    Process(Pid),
    /// None is to start any more.
    Cancelled,
}

impl Starting {
    /// Stops a successor that is starting, and keeps others from it, because this process stops.
    pub(crate) fn cancel(&self) {
        if let Start::Process(pid) = std::mem::replace(&mut *self.0.lock(), Start::Cancelled) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Starts the process of a successor. `None`: none is to start any more.
    fn spawn(&self, command: &mut Command) -> io::Result<Option<Child>> {
        // The lock is held meanwhile, so that no process is missed.
        let mut start = self.0.lock();
        if matches!(*start, Start::Cancelled) {
            return Ok(None);
        }
        let child = command.spawn()?;
        *start = Start::Process(Pid::from_child(&child));
        Ok(Some(child))
    }

    /// The successor serves, or has failed.
    fn is_over(&self) {
        let mut start = self.0.lock();
        if matches!(*start, Start::Process(_)) {
            *start = Start::Idle;
        }
    }
}

impl Successor {
    /// Starts `program`, passes it the sockets, and waits until it serves. Blocks.
    ///
    /// # Errors
    /// A line: the failure that the new process reported, or its exit status. It has ended then.
    pub(crate) fn start(program: &Program, service: &Service, starting: &Starting) -> Result<Self, String> {
        let failed = |reason: &dyn std::fmt::Display| format!("{}: {reason}", program.path.display());
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .map_err(|e| failed(&e))?;
        for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&near, timeout, Some(LONGEST_START)).map_err(|e| failed(&e))?;
        }
        let mut command = Command::new(&program.path);
        command.arg0(&program.name).args(&program.arguments).stdin(Stdio::from(far));
        command.env(PREDECESSOR, std::process::id().to_string());
        for name in ["LISTEN_FDS", "LISTEN_PID", "LISTEN_FDNAMES"] {
            command.env_remove(name);
        }
        let child = starting.spawn(&mut command).map_err(|e| failed(&e))?;
        let mut child = child.ok_or_else(|| failed(&"this process stops"))?;
        // Closes our copy of the far end: otherwise the end of the new process would not close the pair.
        drop(command);
        let served = greet(near.as_fd(), service);
        starting.is_over();
        match served {
            Ok(()) => Ok(Self { pid: Pid::from_child(&child), socket: near, has_service: false }),
            Err(reason) => {
                let _ = child.kill();
                let ended = child.wait();
                Err(match (reason, ended) {
                    (NotServing::Ended, Ok(status)) => {
                        failed(&format_args!("it ended with {status}; its standard error says why"))
                    }
                    (NotServing::Ended, Err(error)) => failed(&format_args!("it ended: {error}")),
                    (NotServing::Failed(why), _) => failed(&why),
                    (NotServing::Unexpected(other), _) => failed(&format_args!("unexpected message {other:?}")),
                    (NotServing::Channel(error), _) => failed(&error),
                })
            }
        }
    }

    /// The process id of the successor.
    pub(crate) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().unsigned_abs()
    }

    /// Hands over the service. Call it after the service manager was notified. Returns where connections go that pass.
    ///
    /// # Errors
    /// The successor has ended, or does not take it. It gets SIGTERM when it is dropped.
    pub(crate) fn hand_over(&mut self) -> Result<OwnedFd, ChannelError> {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        send(self.socket.as_fd(), &Message::Yours, Some(far.as_fd()), LONGEST_START)?;
        self.has_service = true;
        Ok(near)
    }

    /// Reports the remaining connections of this process, which has handed over its service.
    pub(crate) fn report(&self, left: Left) {
        left.report(&self.socket);
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if !self.has_service {
            // A child that was not waited for: its id is not reused, even if it has ended.
            let _ = kill_process(self.pid, Signal::TERM);
        }
    }
}

/// Why a new process does not replace this one.
#[derive(Debug)]
enum NotServing {
    /// It ended without a message.
    Ended,
    /// It reported a failure.
    Failed(String),
    /// It sent another message.
    Unexpected(Message),
    /// No message came, or none could be sent.
    Channel(ChannelError),
}

impl From<ChannelError> for NotServing {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed => NotServing::Ended,
            error => NotServing::Channel(error),
        }
    }
}

/// Passes the sockets, and waits until the new process serves.
fn greet(to: BorrowedFd<'_>, service: &Service) -> Result<(), NotServing> {
    for Held { purpose, wanted, socket } in &service.held {
        let message = Message::Socket { purpose: *purpose, wanted: wanted.clone() };
        send(to, &message, Some(socket.as_fd()), LONGEST_START)?;
    }
    let older = service.predecessors.to_pass_on().map_err(|error| {
        NotServing::Channel(ChannelError::Socket(Errno::from_io_error(&error).unwrap_or(Errno::MFILE)))
    })?;
    for (pid, socket) in &older {
        send(to, &Message::Predecessor { pid: *pid }, Some(socket.as_fd()), LONGEST_START)?;
    }
    if let Some(OwnTicketKeys { sealing, others, until }) = service.tickets.as_ref().and_then(|keys| keys.own()) {
        let until = until.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs();
        let others = others.iter().map(Secret::from).collect();
        send(to, &Message::Tickets { sealing: Secret::from(&sealing), others, until }, None, LONGEST_START)?;
    }
    if let Some(Datagrams { share, older: shares, secrets: Secrets { reset, token } }) = &service.datagrams {
        let [reset, token] = [reset, token].map(|secret| Secret(Zeroizing::new(*secret)));
        let lives = |(pid, _): &&(u32, Share)| older.iter().any(|(other, _)| other == pid);
        let older = shares.iter().filter(lives).copied().collect();
        send(to, &Message::Datagrams { share: *share, older, reset, token }, None, LONGEST_START)?;
    }
    send(to, &Message::All { confinement: service.confinement }, None, LONGEST_START)?;
    match receive(to, LONGEST_START)? {
        Some((Message::Serving, _)) => Ok(()),
        Some((Message::Failed { why }, _)) => Err(NotServing::Failed(why)),
        Some((other, _)) => Err(NotServing::Unexpected(other)),
        None => Err(NotServing::Ended),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::predecessor::NotHandedOver;
    use super::*;
    use crate::listen::{Address, Purpose};

    fn program(script: &str) -> Program {
        Program { path: "/bin/sh".into(), name: "sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn a_program_that_ends_or_says_nothing_of_use_is_no_successor() {
        let starting = Starting::default();
        let refused = Successor::start(&program("exit 7"), &Service::default(), &starting).unwrap_err();
        assert!(refused.starts_with("/bin/sh: it ended with exit status: 7"), "{refused}");
        assert!(matches!(*starting.0.lock(), Start::Idle));
        starting.cancel();
        let refused = Successor::start(&program("exit 7"), &Service::default(), &starting).unwrap_err();
        assert_eq!(refused, "/bin/sh: this process stops");
        let starting = Starting::default();
        let missing = Program { path: "/nonexistent/sealion".into(), ..program("") };
        let refused = Successor::start(&missing, &Service::default(), &starting).unwrap_err();
        assert!(refused.contains("No such file"), "{refused}");
    }

    #[test]
    fn a_successor_that_does_not_get_the_service_is_stopped() {
        let starting = Starting::default();
        // It reports at once that it serves, and ends only by a signal.
        let serving = "printf '\"serving\"' >&0; exec sleep 1000";
        let successor = Successor::start(&program(serving), &Service::default(), &starting).unwrap();
        let pid = successor.pid;
        drop(successor);
        let (_, ended) = rustix::process::waitpid(Some(pid), rustix::process::WaitOptions::empty()).unwrap().unwrap();
        assert_eq!(ended.terminating_signal(), Some(Signal::TERM.as_raw()));
    }

    #[test]
    fn sockets_travel_with_the_words_that_asked_for_them() {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let wanted = Address::Tcp("127.0.0.1:0".parse().unwrap());
        let message = Message::Socket { purpose: Purpose::Metrics, wanted: wanted.clone() };
        send(near.as_fd(), &message, Some(listener.as_fd()), LONGEST_START).unwrap();
        let all = Message::All { confinement: Confinement::default() };
        send(near.as_fd(), &all, None, LONGEST_START).unwrap();
        drop(near);
        let Ok(Some((Message::Socket { purpose, wanted: told }, Some(socket)))) = receive(far.as_fd(), LONGEST_START)
        else {
            panic!()
        };
        assert_eq!((purpose, told), (Purpose::Metrics, wanted));
        let socket = std::net::TcpListener::from(socket);
        assert_eq!(socket.local_addr().unwrap(), listener.local_addr().unwrap());
        assert!(matches!(receive(far.as_fd(), LONGEST_START), Ok(Some((Message::All { .. }, None)))));
        assert!(matches!(receive(far.as_fd(), LONGEST_START), Ok(None)));
    }

    #[test]
    fn a_predecessor_that_hangs_is_not_waited_for() {
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let predecessor =
            Predecessor { socket: far, pid: 0, older: Vec::new(), tickets: None, confinement: Confinement::default() };
        let refused = predecessor.take_over(Duration::from_millis(50)).unwrap_err();
        assert!(matches!(refused, NotHandedOver::Channel(ChannelError::Silent(_))), "{refused}");
        assert_eq!(refused.to_string(), "the server to be replaced does not answer: no message within 0.05 s");
        send(near.as_fd(), &Message::Yours, None, LONGEST_START).unwrap();
        predecessor.take_over(Duration::from_secs(60)).unwrap();
        drop(near);
        assert!(matches!(predecessor.take_over(Duration::from_secs(60)), Err(NotHandedOver::Ended)));
    }

    #[test]
    fn the_file_of_this_process_is_found() {
        let program = Program::of_this_process();
        let found = std::fs::metadata(program.path()).unwrap();
        let running = std::fs::metadata("/proc/self/exe").unwrap();
        assert_eq!((found.dev(), found.ino()), (running.dev(), running.ino()));
    }
}
