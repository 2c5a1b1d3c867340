//! From a response to the connection: which path it takes, and head and body in one go.

use sealion_tls::{Error, MoveError, Part, TlsStream};

use crate::connection::Shared;
use crate::response::Body;
use crate::send_policy::{Decision, Situation, Why, decide};

/// Sends a response. `why` is set as soon as the path is chosen.
///
/// # Errors
/// What cut the response short.
pub(crate) async fn send(
    stream: &mut TlsStream,
    head: &[u8],
    body: &Body,
    shared: &Shared,
    why: &mut Option<Why>,
) -> Result<(), Error> {
    let upcoming = head.len() as u64 + body.len();
    *why = Some(choose_path(stream, upcoming, shared).await?);
    match body {
        Body::Empty => stream.send(&[Part::Bytes(head)]).await,
        Body::Bytes(bytes) => stream.send(&[Part::Bytes(head), Part::Bytes(bytes)]).await,
        Body::File { file, range } => {
            stream.send(&[Part::Bytes(head), Part::File { file, range: range.clone() }]).await
        }
        Body::Multipart { file, parts, closing } => {
            let mut all = Vec::with_capacity(parts.len() * 2 + 2);
            all.push(Part::Bytes(head));
            for part in parts {
                all.push(Part::Bytes(&part.head));
                all.push(Part::File { file, range: part.range.clone() });
            }
            all.push(Part::Bytes(closing));
            stream.send(&all).await
        }
    }
}

async fn choose_path(stream: &mut TlsStream, upcoming: u64, shared: &Shared) -> Result<Why, Error> {
    let situation = Situation {
        path: stream.path(),
        upcoming,
        kernel: shared.kernel.for_connection(stream.info().version, stream.aead()),
    };
    match decide(shared.ktls, situation) {
        Decision::Stay(why) => Ok(why),
        Decision::Move => match stream.move_to_kernel(upcoming).await {
            Ok(()) => Ok(Why::Moved),
            Err(MoveError::AlreadyMoved) => Ok(Why::MovedBefore),
            Err(MoveError::KeyWorn) => Ok(Why::KeyWorn),
            Err(MoveError::Refused(error)) => {
                tracing::debug!("stays in user space: {error}");
                shared.kernel.refused(&error);
                Ok(Why::Refused)
            }
            Err(MoveError::Connection(error)) => Err(error),
        },
    }
}
