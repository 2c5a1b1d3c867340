//! Which path the next response of a connection takes.

use std::time::Duration;

use sealion_tls::{Error, MoveError, TlsStream};

use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::{Decision, Forgone, KtlsMode, Offer, PathReason, Situation, decide};

/// What decides over the path of a response, besides the connection itself.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathPolicy<'a> {
    /// What the operator chose.
    pub(crate) mode: KtlsMode,
    /// What the kernel offers.
    pub(crate) kernel: &'a KernelOffer,
    /// What the two paths cost here.
    pub(crate) costs: &'a Costs,
}

/// The choice of a path, from response to response of a connection.
#[derive(Debug, Default)]
pub(crate) struct PathChoice {
    forgone: Forgone,
    /// Why the last response took its path; `None` when the connection was lost before that was chosen.
    pub(crate) reason: Option<PathReason>,
    /// Bytes of responses that the connection had sent when it moved.
    pub(crate) moved_at: Option<u64>,
    /// What the move took that was made for the last response.
    pub(crate) set_up: Option<Duration>,
}

impl PathChoice {
    /// Chooses the path of the next response, and moves the connection if that is the choice.
    pub(crate) async fn make(
        &mut self,
        stream: &mut TlsStream,
        upcoming: u64,
        policy: PathPolicy<'_>,
    ) -> Result<(), Error> {
        (self.reason, self.set_up) = (None, None);
        let (version, aead) = (stream.info().version, stream.aead());
        let cost = policy.costs.of(version, aead);
        let situation = Situation {
            path: stream.path(),
            kernel: match stream.socket().is_tcp() {
                true => policy.kernel.for_connection(version, aead),
                false => Offer::NotTcp,
            },
            upcoming,
            forgone: self.forgone,
            curve: &cost.curve,
            set_up: cost.set_up.nanoseconds(),
        };
        let (decision, forgone) = decide(policy.mode, &situation);
        self.forgone = forgone;
        self.reason = Some(match decision {
            Decision::Stay(reason) => reason,
            Decision::Move => match stream.move_to_kernel(upcoming).await {
                Ok(took) => {
                    cost.set_up.observe(took);
                    self.moved_at = Some(stream.payload_sent());
                    self.set_up = Some(took);
                    PathReason::Moved
                }
                Err(MoveError::AlreadyMoved) => PathReason::MovedBefore,
                Err(MoveError::KeyWorn) => PathReason::KeyWorn,
                Err(MoveError::Refused(error)) => {
                    tracing::debug!("stays in user space: {error}");
                    policy.kernel.refused(&error);
                    PathReason::Refused
                }
                Err(MoveError::Connection(error)) => return Err(error),
            },
        });
        Ok(())
    }

    /// Chooses again before `upcoming` more bytes of a response whose length was not known: as it grows, the kernel may become worth it.
    pub(crate) async fn weigh(
        &mut self,
        stream: &mut TlsStream,
        upcoming: u64,
        policy: PathPolicy<'_>,
    ) -> Result<(), Error> {
        match self.reason {
            Some(PathReason::Moved | PathReason::MovedBefore) => Ok(()),
            _ => self.make(stream, upcoming, policy).await,
        }
    }
}
