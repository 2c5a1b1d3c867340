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

use std::ffi::OsString;
use std::io::{IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};
use std::{env, fmt, io};

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair, sockopt,
};
use rustix::process::{Pid, Signal, kill_process};
use sealion_quic::Secrets;
use sealion_tls::{OwnTicketKeys, TicketKeys, TicketSecret};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::listen::{Address, Datagrams, Held, Inherited, Purpose, Share};
use crate::observe::{Left, Predecessors};
use crate::process::privileges::Confinement;

/// Environment variable of a successor: the id of the process that it replaces.
const PREDECESSOR: &str = "SEALION_PREDECESSOR";

/// Time for a successor to start serving. Self-check and certificates take a second on a slow machine; a name server that does not
/// answer takes half a minute; this is twice that.
const LONGEST_START: Duration = Duration::from_secs(60);

/// Time for the predecessor to hand over the service. It does so at once, unless it is stopped or hangs.
const LONGEST_HANDOVER: Duration = Duration::from_secs(10);

/// The longest message. The path of a Unix socket is the longest regular content, with 108 bytes; error messages are cut to fit.
const LONGEST_MESSAGE: usize = 4096;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Message {
    /// Old to new; the socket is attached.
    Socket { purpose: Purpose, wanted: Address },
    /// Old to new: a process before has not ended; the far end of its socket pair is attached.
    Predecessor { pid: u32 },
    /// Old to new: the keys of its session tickets, if they are its own. `until`: seconds since 1970.
    Tickets { sealing: Secret, others: Vec<Secret>, until: u64 },
    /// Old to new: its share of the UDP sockets, those of the processes before it, and the secrets of its connections: for stateless resets and for tokens.
    Datagrams { share: Option<Share>, older: Vec<(u32, Share)>, reset: QuicSecret, token: QuicSecret },
    /// Old to new: end of the sockets; and the confinement that the new process inherits. `passes`: connections at rest can pass.
    All {
        confinement: Confinement,
        #[serde(default)]
        passes: bool,
    },
    /// New to old: connections are accepted.
    Serving,
    /// New to old, if connections can pass: they are accepted, and taken.
    ServingAndTaking,
    /// New to old: it cannot serve.
    Failed { why: String },
    /// Old to new: the service is handed over. If connections pass, the socket pair for them is attached.
    Yours,
}

/// A secret of QUIC. It is not printed, and wiped on drop.
#[derive(Serialize, Deserialize)]
struct QuicSecret(Zeroizing<[u8; 32]>);

impl fmt::Debug for QuicSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("QuicSecret(..)")
    }
}

/// A secret of ticket keys. It is not printed, and wiped on drop.
#[derive(Serialize, Deserialize)]
struct Secret(Zeroizing<[u8; TicketSecret::LEN]>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl From<&TicketSecret> for Secret {
    fn from(secret: &TicketSecret) -> Self {
        Self(Zeroizing::new(*secret.bytes()))
    }
}

/// The server that this process replaces.
#[derive(Debug)]
pub(crate) struct Predecessor {
    socket: OwnedFd,
    pid: u32,
    /// Processes before it that have not ended.
    older: Vec<(u32, OwnedFd)>,
    /// The keys of its session tickets, if they are its own.
    pub tickets: Option<OwnTicketKeys>,
    /// The confinement that this process inherits.
    pub confinement: Confinement,
    /// Whether its connections can pass to this process.
    passes: bool,
}

/// Where connections of the predecessor come from.
pub(crate) struct Connections {
    pub(crate) channel: OwnedFd,
    pub(crate) pid: u32,
}

impl Predecessor {
    /// The predecessor and its listening sockets; `None` if no server started this process.
    ///
    /// # Errors
    /// A line: the sockets did not arrive.
    pub(crate) fn find() -> Result<Option<(Self, Inherited)>, String> {
        let Some(socket) = channel() else { return Ok(None) };
        let broken =
            |reason: &dyn fmt::Display| format!("the server to be replaced did not pass its sockets: {reason}");
        let socket = socket.try_clone_to_owned().map_err(|e| broken(&e))?;
        sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(LONGEST_START)).map_err(|e| broken(&e))?;
        let (mut held, mut older, mut tickets, mut datagrams) = (Vec::new(), Vec::new(), None, None);
        let (confinement, passes) = loop {
            match receive(socket.as_fd(), LONGEST_START).map_err(|e| broken(&e))? {
                Some((Message::Socket { purpose, wanted }, Some(socket))) => {
                    held.push(Held { purpose, wanted, socket })
                }
                Some((Message::Predecessor { pid }, Some(socket))) => older.push((pid, socket)),
                Some((Message::Tickets { sealing, others, until }, None)) => {
                    let secret = |Secret(bytes): &Secret| TicketSecret::from_bytes(&**bytes);
                    let until = SystemTime::UNIX_EPOCH + Duration::from_secs(until);
                    let others = others.iter().filter_map(secret).collect();
                    tickets = secret(&sealing).map(|sealing| OwnTicketKeys { sealing, others, until });
                }
                Some((Message::Datagrams { share, older, reset, token }, None)) => {
                    let secrets = Secrets { reset: *reset.0, token: *token.0 };
                    datagrams = Some(Datagrams { share, older, secrets });
                }
                Some((Message::All { confinement, passes }, None)) => break (confinement, passes),
                other => return Err(broken(&format_args!("unexpected message {other:?}"))),
            }
        };
        let pid = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        let inherited = Inherited::from_predecessor(held)?.with_datagrams(datagrams, pid);
        Ok(Some((Self { socket, pid, older, tickets, confinement, passes }, inherited)))
    }

    /// Reports that this process serves, and waits for the predecessor to hand over the service. Logs and goes on if the predecessor is
    /// gone by then. `predecessors` learns of all processes that have not ended.
    /// Returns where its connections come from, if they pass.
    pub(crate) fn replace(self, predecessors: &Predecessors) -> Option<Connections> {
        let channel = self.take_over(LONGEST_HANDOVER).unwrap_or_else(|problem| {
            tracing::warn!("{problem}: this process serves all the same");
            None
        });
        // Standard input was the socket pair; nothing is read from it again.
        if let Ok(null) = std::fs::File::open("/dev/null") {
            let _ = rustix::stdio::dup2_stdin(&null);
        }
        let Self { socket, pid, older, tickets: _, confinement: _, passes: _ } = self;
        older.into_iter().chain([(pid, socket)]).for_each(|(pid, socket)| predecessors.add(pid, socket));
        channel.map(|channel| Connections { channel, pid })
    }

    fn take_over(&self, patience: Duration) -> Result<Option<OwnedFd>, NotHandedOver> {
        let socket = self.socket.as_fd();
        for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(socket, timeout, Some(patience)).map_err(ChannelError::from)?;
        }
        let serving = if self.passes { Message::ServingAndTaking } else { Message::Serving };
        send(socket, &serving, None, patience)?;
        match receive(socket, patience)? {
            Some((Message::Yours, channel)) => Ok(channel),
            Some((other, _)) => Err(NotHandedOver::Unexpected(other)),
            None => Err(NotHandedOver::Ended),
        }
    }
}

/// Why the predecessor did not hand over its service.
#[derive(Debug)]
enum NotHandedOver {
    /// It has ended.
    Ended,
    /// It sent another message.
    Unexpected(Message),
    /// No message came, or none could be sent.
    Channel(ChannelError),
}

impl From<ChannelError> for NotHandedOver {
    fn from(error: ChannelError) -> Self {
        match error {
            ChannelError::Closed => NotHandedOver::Ended,
            error => NotHandedOver::Channel(error),
        }
    }
}

impl fmt::Display for NotHandedOver {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotHandedOver::Ended => f.write_str("the server to be replaced has ended already"),
            NotHandedOver::Unexpected(other) => {
                write!(f, "the server to be replaced sent an unexpected message: {other:?}")
            }
            NotHandedOver::Channel(error) => write!(f, "the server to be replaced does not answer: {error}"),
        }
    }
}

/// Reports to the predecessor, if any, why this process cannot replace it.
pub(crate) fn report_failure(reason: &str) {
    if let Some(socket) = channel() {
        let reason = reason.chars().take(LONGEST_MESSAGE / 8).collect();
        // If this fails, the predecessor still notices that this process ends.
        let _ = send(socket, &Message::Failed { why: reason }, None, LONGEST_START);
    }
}

/// Standard input, if it is the socket pair of a predecessor.
fn channel() -> Option<BorrowedFd<'static>> {
    let parent = rustix::process::getppid()?.as_raw_nonzero().to_string();
    // A grandchild may inherit the variable; only a child of that very process is its successor.
    if env::var_os(PREDECESSOR)? != *parent {
        return None;
    }
    let stdin = rustix::stdio::stdin();
    (sockopt::socket_type(stdin) == Ok(SocketType::SEQPACKET)).then_some(stdin)
}

/// The command line of this process, so that an upgrade can start a replaced binary in the same way.
#[derive(Debug, Clone)]
pub(crate) struct Program {
    path: PathBuf,
    name: OsString,
    arguments: Vec<OsString>,
}

impl Program {
    /// Call it at the start, before the binary may be replaced. Symbolic links in the path are kept, so that an upgrade follows a link
    /// that has changed.
    pub(crate) fn of_this_process() -> Self {
        let mut arguments = env::args_os();
        let name = arguments.next().unwrap_or_default();
        Self { path: find_program(&name), name, arguments: arguments.collect() }
    }

    /// The binary that an upgrade starts.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// The file of this process by the name it was started with, so that links are kept; else from /proc. Without /proc, as in a bare
/// chroot, the name is not checked.
fn find_program(name: &OsString) -> PathBuf {
    let running = std::fs::metadata("/proc/self/exe").ok().map(|running| (running.dev(), running.ino()));
    let is_this = |path: &PathBuf| {
        std::fs::metadata(path).is_ok_and(|found| running.is_none_or(|running| running == (found.dev(), found.ino())))
    };
    let named = if Path::new(name).components().count() > 1 {
        std::path::absolute(name).ok().filter(is_this)
    } else {
        let directories = env::var_os("PATH").unwrap_or_default();
        env::split_paths(&directories).map(|directory| directory.join(name)).find(is_this)
    };
    named.or_else(|| env::current_exe().ok()).unwrap_or_else(|| name.into())
}

/// What a successor inherits.
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
    takes: Takes,
}

/// Whether a successor takes connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Takes {
    Sockets,
    SocketsAndConnections,
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
        if let Start::Process(pid) = std::mem::replace(&mut *self.lock(), Start::Cancelled) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::TERM);
        }
    }

    /// Starts the process of a successor. `None`: none is to start any more.
    fn spawn(&self, command: &mut Command) -> io::Result<Option<Child>> {
        // Held meanwhile, so that no process is missed.
        let mut start = self.lock();
        if matches!(*start, Start::Cancelled) {
            return Ok(None);
        }
        let child = command.spawn()?;
        *start = Start::Process(Pid::from_child(&child));
        Ok(Some(child))
    }

    /// The successor serves, or has failed.
    fn is_over(&self) {
        let mut start = self.lock();
        if matches!(*start, Start::Process(_)) {
            *start = Start::Idle;
        }
    }

    fn lock(&self) -> MutexGuard<'_, Start> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            Ok(takes) => Ok(Self { pid: Pid::from_child(&child), socket: near, has_service: false, takes }),
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

    /// Hands over the service. Call it after the service manager was notified. Returns where connections go that pass, if the successor takes them.
    ///
    /// # Errors
    /// The successor has ended, or does not take it. It gets SIGTERM when it is dropped.
    pub(crate) fn hand_over(&mut self) -> Result<Option<OwnedFd>, ChannelError> {
        let (near, far) = match self.takes {
            Takes::Sockets => (None, None),
            Takes::SocketsAndConnections => {
                let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
                (Some(pair.0), Some(pair.1))
            }
        };
        send(self.socket.as_fd(), &Message::Yours, far.as_ref().map(AsFd::as_fd), LONGEST_START)?;
        self.has_service = true;
        Ok(near)
    }

    /// Reports what is left of this process, which has handed over its service.
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
fn greet(to: BorrowedFd<'_>, service: &Service) -> Result<Takes, NotServing> {
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
        let [reset, token] = [reset, token].map(|secret| QuicSecret(Zeroizing::new(*secret)));
        let lives = |(pid, _): &&(u32, Share)| older.iter().any(|(other, _)| other == pid);
        let older = shares.iter().filter(lives).copied().collect();
        send(to, &Message::Datagrams { share: *share, older, reset, token }, None, LONGEST_START)?;
    }
    send(to, &Message::All { confinement: service.confinement, passes: true }, None, LONGEST_START)?;
    match receive(to, LONGEST_START)? {
        Some((Message::Serving, _)) => Ok(Takes::Sockets),
        Some((Message::ServingAndTaking, _)) => Ok(Takes::SocketsAndConnections),
        Some((Message::Failed { why }, _)) => Err(NotServing::Failed(why)),
        Some((other, _)) => Err(NotServing::Unexpected(other)),
        None => Err(NotServing::Ended),
    }
}

/// Why a message was not sent or received.
#[derive(Debug)]
pub(crate) enum ChannelError {
    /// The other end is closed.
    Closed,
    /// The other process took or sent nothing for this long.
    Silent(Duration),
    /// A descriptor or bytes of a message were lost.
    Truncated,
    /// A message of another version, or none that can be written.
    Unknown(serde_json::Error),
    /// The socket failed.
    Socket(Errno),
}

impl From<Errno> for ChannelError {
    fn from(errno: Errno) -> Self {
        match errno {
            Errno::CONNRESET | Errno::PIPE => ChannelError::Closed,
            errno => ChannelError::Socket(errno),
        }
    }
}

impl fmt::Display for ChannelError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ChannelError::Closed => f.write_str("it has ended"),
            ChannelError::Silent(patience) => write!(f, "no message within {} s", patience.as_secs_f32()),
            ChannelError::Truncated => {
                f.write_str("a message was truncated: the limit on open files (LimitNOFILE=) may be too low")
            }
            ChannelError::Unknown(error) => write!(f, "unknown message: {error}"),
            ChannelError::Socket(errno) => errno.fmt(f),
        }
    }
}

/// `patience`: the timeout of the socket, for the error.
fn send(
    to: BorrowedFd<'_>,
    message: &Message,
    socket: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> Result<(), ChannelError> {
    // A vector that grows leaves copies of secrets behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_MESSAGE));
    serde_json::to_writer(&mut *bytes, message).map_err(ChannelError::Unknown)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let sockets: Vec<_> = socket.into_iter().collect();
    if !sockets.is_empty() {
        control.push(SendAncillaryMessage::ScmRights(&sockets));
    }
    loop {
        match sendmsg(to, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL) {
            Ok(_) => return Ok(()),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Err(ChannelError::Silent(patience)),
            Err(errno) => return Err(errno.into()),
        }
    }
}

/// `None`: the other end is closed. `patience`: the timeout of the socket, for the message.
fn receive(from: BorrowedFd<'_>, patience: Duration) -> Result<Option<(Message, Option<OwnedFd>)>, ChannelError> {
    let mut bytes = Zeroizing::new([0; LONGEST_MESSAGE]);
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        match recvmsg(from, &mut [IoSliceMut::new(&mut *bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::CONNRESET) => return Ok(None),
            Err(Errno::AGAIN) => return Err(ChannelError::Silent(patience)),
            Err(errno) => return Err(errno.into()),
        }
    };
    if received.flags.intersects(ReturnFlags::TRUNC | ReturnFlags::CTRUNC) {
        return Err(ChannelError::Truncated);
    }
    if received.bytes == 0 {
        return Ok(None);
    }
    let mut sockets = control.drain().flat_map(|message| match message {
        RecvAncillaryMessage::ScmRights(sockets) => sockets.collect::<Vec<_>>(),
        _ => Vec::new(),
    });
    let socket = sockets.next();
    let message = serde_json::from_slice(&bytes[..received.bytes]).map_err(ChannelError::Unknown)?;
    Ok(Some((message, socket)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(script: &str) -> Program {
        Program { path: "/bin/sh".into(), name: "sh".into(), arguments: vec!["-c".into(), script.into()] }
    }

    #[test]
    fn a_program_that_ends_or_says_nothing_of_use_is_no_successor() {
        let starting = Starting::default();
        let refused = Successor::start(&program("exit 7"), &Service::default(), &starting).unwrap_err();
        assert!(refused.starts_with("/bin/sh: it ended with exit status: 7"), "{refused}");
        assert!(matches!(*starting.lock(), Start::Idle));
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
        let all = Message::All { confinement: Confinement::default(), passes: true };
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
        let predecessor = Predecessor {
            socket: far,
            pid: 0,
            older: Vec::new(),
            tickets: None,
            confinement: Confinement::default(),
            passes: false,
        };
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
