//! The choice between user space and the kernel for the next response of a connection.

use std::time::Duration;

use sealion_tls::{Error, MoveError};

use super::Connection;
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::path::policy::{Decision, Forgone, KtlsMode, Offer, PathReason, Situation, decide};

/// Inputs to the choice of path that do not depend on the connection.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PathPolicy<'a> {
    /// The operator's setting.
    pub(crate) mode: KtlsMode,
    /// The kernel's TLS support.
    pub(crate) kernel: &'a KernelOffer,
    /// The measured costs of the two paths.
    pub(crate) costs: &'a Costs,
}

/// The state of the choice across the responses of a connection.
#[derive(Debug, Default)]
pub(crate) struct PathChoice {
    forgone: Forgone,
    /// The reason for the path of the last response. `None`: the connection was lost before the choice.
    pub(crate) reason: Option<PathReason>,
    /// Response bytes that the connection had sent when it moved.
    pub(crate) moved_at: Option<u64>,
    /// Duration of the move, if it was made for the last response.
    pub(crate) set_up: Option<Duration>,
}

impl PathChoice {
    /// For a connection that never moves.
    pub(crate) fn constant(reason: PathReason) -> Self {
        PathChoice { reason: Some(reason), ..PathChoice::default() }
    }

    /// For a connection that another process served: the nanoseconds that an earlier move would have saved there, and the response bytes that it had sent
    /// when it moved.
    pub(crate) fn resume(forgone: u64, moved_at: Option<u64>) -> Self {
        PathChoice { forgone: Forgone::from_nanoseconds(forgone), moved_at, ..PathChoice::default() }
    }

    /// For [`Self::resume`].
    pub(crate) fn forgone(&self) -> u64 {
        self.forgone.nanoseconds()
    }

    /// Chooses the path for the next response, and moves the connection into the kernel if chosen.
    pub(crate) async fn make(
        &mut self,
        connection: &mut impl Connection,
        upcoming: u64,
        policy: PathPolicy<'_>,
    ) -> Result<(), Error> {
        (self.reason, self.set_up) = (None, None);
        let (Some(version), Some(aead)) = (connection.tls().map(|info| info.version), connection.aead()) else {
            self.reason = Some(PathReason::NoTls);
            return Ok(());
        };
        let cost = policy.costs.of(version, aead);
        let situation = Situation {
            path: connection.path(),
            kernel: match connection.is_tcp() {
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
            // Boxed: a connection moves once.
            Decision::Move => match Box::pin(connection.offload(upcoming)).await {
                Ok(took) => {
                    cost.set_up.observe(took);
                    self.moved_at = Some(connection.sent());
                    self.set_up = Some(took);
                    PathReason::Moved
                }
                Err(MoveError::NoTls) => PathReason::NoTls,
                Err(MoveError::AlreadyMoved) => PathReason::MovedBefore,
                Err(MoveError::KeyWorn) => PathReason::KeyWorn,
                Err(MoveError::Refused(error)) => {
                    tracing::debug!("kernel TLS refused, connection stays in user space: {error}");
                    policy.kernel.refused(&error);
                    PathReason::Refused
                }
                Err(MoveError::Connection(error)) => return Err(error),
            },
        });
        Ok(())
    }

    /// Reconsiders the path before `upcoming` more bytes of a response of unknown length: as it grows, the move may pay off.
    pub(crate) async fn weigh(
        &mut self,
        connection: &mut impl Connection,
        upcoming: u64,
        policy: PathPolicy<'_>,
    ) -> Result<(), Error> {
        match self.reason {
            Some(PathReason::Moved | PathReason::MovedBefore | PathReason::NoTls) => Ok(()),
            _ => self.make(connection, upcoming, policy).await,
        }
    }
}
