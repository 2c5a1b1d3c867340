//! The process that this one replaces.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, SystemTime};
use std::{env, fmt};

use rustix::net::{SocketType, sockopt};
use sealion_quic::Secrets;
use sealion_tls::{OwnTicketKeys, TicketSecret};

use super::channel::{ChannelError, LONGEST_MESSAGE, Message, Secret, receive, send};
use super::{LONGEST_START, PREDECESSOR};
use crate::listen::{Datagrams, Held, Inherited};
use crate::observe::Predecessors;
use crate::process::privileges::Confinement;

/// The server that this process replaces.
#[derive(Debug)]
pub(crate) struct Predecessor {
    pub(super) socket: OwnedFd,
    pub(super) pid: u32,
    /// Processes before it that have not ended.
    pub(super) older: Vec<(u32, OwnedFd)>,
    /// The keys of its session tickets, if they are its own.
    pub tickets: Option<OwnTicketKeys>,
    /// The confinement that this process inherits.
    pub confinement: Confinement,
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
        let confinement = loop {
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
                Some((Message::All { confinement }, None)) => break confinement,
                other => return Err(broken(&format_args!("unexpected message {other:?}"))),
            }
        };
        let pid = rustix::process::getppid().map_or(0, |pid| pid.as_raw_nonzero().get().unsigned_abs());
        let inherited = Inherited::from_predecessor(held)?.with_datagrams(datagrams, pid);
        Ok(Some((Self { socket, pid, older, tickets, confinement }, inherited)))
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
        let Self { socket, pid, older, tickets: _, confinement: _ } = self;
        older.into_iter().chain([(pid, socket)]).for_each(|(pid, socket)| predecessors.add(pid, socket));
        channel.map(|channel| Connections { channel, pid })
    }

    pub(super) fn take_over(&self, patience: Duration) -> Result<Option<OwnedFd>, NotHandedOver> {
        let socket = self.socket.as_fd();
        for timeout in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(socket, timeout, Some(patience)).map_err(ChannelError::from)?;
        }
        send(socket, &Message::Serving, None, patience)?;
        match receive(socket, patience)? {
            Some((Message::Yours, channel)) => Ok(channel),
            Some((other, _)) => Err(NotHandedOver::Unexpected(other)),
            None => Err(NotHandedOver::Ended),
        }
    }
}

/// Why the predecessor did not hand over its service.
#[derive(Debug, thiserror::Error)]
pub(super) enum NotHandedOver {
    #[error("the server to be replaced has ended already")]
    Ended,
    #[error("the server to be replaced sent an unexpected message: {0:?}")]
    Unexpected(Message),
    /// No message came, or none could be sent.
    #[error("the server to be replaced does not answer: {0}")]
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

/// Time for the predecessor to hand over the service. It does so at once, unless it is stopped or hangs.
const LONGEST_HANDOVER: Duration = Duration::from_secs(10);
