//! From a response to the connection: which path it takes, and head and body in one go.

use std::ops::Range;
use std::time::Duration;

use sealion_tls::{Error, MoveError, Part, TlsStream};

use crate::connection::Shared;
use crate::resolve::{Content, SiteFile};
use crate::response::Body;
use crate::send_policy::{Decision, Forgone, KtlsMode, Offer, Situation, Why, decide};

/// The choice of a path, from response to response of a connection.
#[derive(Debug, Default)]
pub(crate) struct Choice {
    forgone: Forgone,
    /// Why the last response took its path; `None` when the connection was lost before that was chosen.
    pub(crate) why: Option<Why>,
    /// Bytes of responses that the connection had sent when it moved.
    pub(crate) moved_at: Option<u64>,
    /// What the move took that was made for the last response.
    pub(crate) set_up: Option<Duration>,
}

/// Sends a response. `choice` tells of it as soon as the path is chosen.
///
/// # Errors
/// What cut the response short.
pub(crate) async fn send(
    stream: &mut TlsStream,
    head: &[u8],
    body: &Body,
    shared: &Shared,
    mode: KtlsMode,
    choice: &mut Choice,
) -> Result<(), Error> {
    let upcoming = head.len() as u64 + body.len();
    choice.make(stream, upcoming, shared, mode).await?;
    match body {
        Body::Empty => stream.respond(&[Part::Bytes(head)]).await,
        Body::Bytes(bytes) => stream.respond(&[Part::Bytes(head), Part::Bytes(bytes)]).await,
        Body::File { file, range } => stream.respond(&[Part::Bytes(head), part(file, range)]).await,
        Body::Multipart { file, parts, closing } => {
            let mut all = Vec::with_capacity(parts.len() * 2 + 2);
            all.push(Part::Bytes(head));
            for part in parts {
                all.push(Part::Bytes(&part.head));
                all.push(self::part(file, &part.range));
            }
            all.push(Part::Bytes(closing));
            stream.respond(&all).await
        }
    }
}

fn part<'a>(file: &'a SiteFile, range: &Range<u64>) -> Part<'a> {
    match &file.content {
        Content::File(file) => Part::File { file, range: range.clone() },
        Content::Memory(bytes) => Part::Bytes(&bytes[range.start as usize..range.end as usize]),
    }
}

impl Choice {
    /// Chooses the path of the next response, and moves the connection if that is the choice.
    async fn make(
        &mut self,
        stream: &mut TlsStream,
        upcoming: u64,
        shared: &Shared,
        mode: KtlsMode,
    ) -> Result<(), Error> {
        (self.why, self.set_up) = (None, None);
        let (version, aead) = (stream.info().version, stream.aead());
        let cost = shared.costs.of(version, aead);
        let situation = Situation {
            path: stream.path(),
            kernel: match stream.socket().is_tcp() {
                true => shared.kernel.for_connection(version, aead),
                false => Offer::NotTcp,
            },
            upcoming,
            forgone: self.forgone,
            curve: &cost.curve,
            set_up: cost.set_up.nanoseconds(),
        };
        let (decision, forgone) = decide(mode, &situation);
        self.forgone = forgone;
        self.why = Some(match decision {
            Decision::Stay(why) => why,
            Decision::Move => match stream.move_to_kernel(upcoming).await {
                Ok(took) => {
                    cost.set_up.observe(took);
                    self.moved_at = Some(stream.payload_sent());
                    self.set_up = Some(took);
                    Why::Moved
                }
                Err(MoveError::AlreadyMoved) => Why::MovedBefore,
                Err(MoveError::KeyWorn) => Why::KeyWorn,
                Err(MoveError::Refused(error)) => {
                    tracing::debug!("stays in user space: {error}");
                    shared.kernel.refused(&error);
                    Why::Refused
                }
                Err(MoveError::Connection(error)) => return Err(error),
            },
        });
        Ok(())
    }
}
