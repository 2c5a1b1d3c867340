//! The messages between the two processes, and the socket pair that carries them.

use std::fmt;
use std::io::IoSlice;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::io::Errno;
use sealion_tls::TicketSecret;
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use crate::listen::{Address, Purpose, Share};
use crate::passing::packets;
use crate::process::privileges::Confinement;

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Message {
    /// Old to new; the socket is attached.
    Socket { purpose: Purpose, wanted: Address },
    /// Old to new: a process before has not ended; the far end of its socket pair is attached.
    Predecessor { pid: u32 },
    /// Old to new: the keys of its session tickets, if they are its own. `until`: seconds since 1970.
    Tickets { sealing: Secret, others: Vec<Secret>, until: u64 },
    /// Old to new: its share of the UDP sockets, the shares of the processes before it, and the secrets of its connections: for stateless resets and for
    /// tokens.
    Datagrams { share: Option<Share>, older: Vec<(u32, Share)>, reset: Secret, token: Secret },
    /// Old to new: end of the sockets; and the confinement that the new process inherits.
    All { confinement: Confinement },
    /// New to old: it accepts connections, and takes the old process's connections.
    Serving,
    /// New to old: it cannot serve.
    Failed { why: String },
    /// Old to new: the service is handed over. The socket pair for connections that pass is attached.
    Yours,
}

/// A secret of ticket keys or of QUIC. It is not printed, and wiped on drop.
#[derive(Serialize, Deserialize)]
pub(super) struct Secret(pub(super) Zeroizing<[u8; 32]>);

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

/// Why a message was not sent or received.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChannelError {
    /// The other end is closed.
    #[error("it has ended")]
    Closed,
    /// The other process took or sent nothing for this long.
    #[error("no message within {} s", .0.as_secs_f32())]
    Silent(Duration),
    /// A descriptor or bytes of a message were lost.
    #[error("a message was truncated: the limit on open files (LimitNOFILE=) may be too low")]
    Truncated,
    /// A message of another version, or a message that cannot be written.
    #[error("unknown message: {0}")]
    Unknown(serde_json::Error),
    /// The socket failed.
    #[error(transparent)]
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

/// `patience`: the timeout of the socket, for the error.
pub(super) fn send(
    to: BorrowedFd<'_>,
    message: &Message,
    socket: Option<BorrowedFd<'_>>,
    patience: Duration,
) -> Result<(), ChannelError> {
    // A vector that grows leaves copies of secrets behind.
    let mut bytes = Zeroizing::new(Vec::with_capacity(LONGEST_MESSAGE));
    serde_json::to_writer(&mut *bytes, message).map_err(ChannelError::Unknown)?;
    match packets::send(to, &[IoSlice::new(&bytes)], socket.as_slice()) {
        Err(Errno::AGAIN) => Err(ChannelError::Silent(patience)),
        sent => Ok(sent?),
    }
}

/// `None`: the other end is closed. `patience`: the timeout of the socket, for the message.
pub(super) fn receive(
    from: BorrowedFd<'_>,
    patience: Duration,
) -> Result<Option<(Message, Option<OwnedFd>)>, ChannelError> {
    let mut bytes = Zeroizing::new([0; LONGEST_MESSAGE]);
    let packet = match packets::receive(from, &mut *bytes) {
        Err(Errno::CONNRESET) => return Ok(None),
        Err(Errno::AGAIN) => return Err(ChannelError::Silent(patience)),
        packet => packet?,
    };
    if packet.is_truncated {
        return Err(ChannelError::Truncated);
    }
    if packet.length == 0 {
        return Ok(None);
    }
    let message = serde_json::from_slice(&bytes[..packet.length]).map_err(ChannelError::Unknown)?;
    Ok(Some((message, packet.descriptors.into_iter().next())))
}

/// The longest message. The path of a Unix socket is the longest regular content, with 108 bytes; error messages are cut to fit.
pub(super) const LONGEST_MESSAGE: usize = 4096;
