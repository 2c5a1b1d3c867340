//! Decides which path seals the next response, and why. Pure: no socket, no clock.
//!
//! A move into the kernel costs once and saves a little on each later response, but the number of later responses is
//! unknown. This is the ski-rental problem, and the classic answer applies: a connection moves as soon as the savings
//! it has passed up reach the cost of the move.
//!
//! With the given costs, a connection never costs more than twice the optimum for responses known in advance, as long
//! as no response costs more than twice as much in the kernel as in user space:
//! - It moves later than the optimum. The savings it passed up meanwhile are less than the move, which the optimum
//!   paid too.
//! - It moves, and the optimum never does. User space cost the optimum at least the savings passed up, hence at least
//!   the move.
//! - It moves earlier than the optimum, or the optimum never moves. Each response after the move costs at most double.
//!
//! Small responses that are cheaper in user space reduce the account, but never below zero: past savings in user space
//! are not a reason to wait now.

use clap::ValueEnum;
use schemars::JsonSchema;
use sealion_tls::SealedBy;
use serde::{Deserialize, Serialize};

use super::costs::curve::Curve;
use crate::values::labels;

/// When connections move into the kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KtlsMode {
    /// As soon as the move pays.
    Auto,
    /// Before the first response.
    Always,
    /// Never.
    Never,
}

/// Inputs of the decision, known before a response is sent.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// The path that seals this connection now.
    pub path: SealedBy,
    /// The kernel's offer for this connection.
    pub kernel: Offer,
    /// Bytes of this response, including the head.
    pub upcoming: u64,
    /// Savings that earlier responses of this connection passed up.
    pub forgone: Forgone,
    /// Savings by response length, for this version and AEAD.
    pub curve: &'a Curve,
    /// Expected cost of a move, in nanoseconds.
    pub set_up: u64,
}

/// Savings passed up: the nanoseconds that an earlier move would have saved, at the best moment for it. Never below
/// zero.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forgone(u64);

/// Whether the kernel can take a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// The kernel seals this version and cipher.
    Ready,
    /// The kernel has no kernel TLS.
    Absent,
    /// The connection is on a Unix socket, and kernel TLS needs TCP.
    NotTcp,
    /// The kernel has kernel TLS, but not this version and cipher.
    NoCipher,
    /// The kernel refused a move less than a minute ago, or its TLS layer is missing.
    Suspended,
    /// The kernel has sealed this version and cipher wrongly.
    Quarantined,
}

/// The action before the response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Leave the sender on its path.
    Stay(PathReason),
    /// Move the sender into the kernel first; stay if it refuses.
    Move,
}

labels! {
    /// The reason for a response's path, as a word for the log.
    pub PathReason {
        /// Kernel: the connection moved before this response.
        Moved = "moved",
        /// Kernel: the connection moved before an earlier response.
        MovedBefore = "moved-before",
        /// User space: the responses so far would not pay for the move.
        Small = "small",
        /// User space: it is cheaper at any length on this machine.
        NoGain = "no-gain",
        /// User space: `--ktls never`.
        Never = "never",
        /// User space: this kernel has no kernel TLS.
        Absent = "no-ktls",
        /// User space: the connection is on a Unix socket.
        NotTcp = "not-tcp",
        /// User space: the kernel does not support this version and cipher.
        NoCipher = "no-cipher",
        /// User space: the kernel refused the move.
        Refused = "refused",
        /// User space: the kernel refused recently.
        Suspended = "suspended",
        /// User space: the kernel has sealed this version and cipher wrongly.
        Quarantined = "quarantined",
        /// User space: the key would reach its limit, and this kernel cannot change it.
        KeyWorn = "key-worn",
        /// User space: the connection is QUIC, whose packets no kernel seals.
        Quic = "quic",
        /// Plain: the connection has no TLS, so nothing is sealed.
        NoTls = "no-tls",
    }
}

impl PathReason {
    /// The path of the response.
    pub fn sealed_by(self) -> SealedBy {
        match self {
            Self::Moved | Self::MovedBefore => SealedBy::Kernel,
            Self::Small
            | Self::NoGain
            | Self::Never
            | Self::Absent
            | Self::NotTcp
            | Self::NoCipher
            | Self::Refused
            | Self::Suspended
            | Self::Quarantined
            | Self::KeyWorn
            | Self::Quic => SealedBy::User,
            Self::NoTls => SealedBy::Nobody,
        }
    }
}

/// Decides for one response. Returns the decision, and the savings passed up after it.
pub fn decide(mode: KtlsMode, situation: &Situation<'_>) -> (Decision, Forgone) {
    let Situation { path, kernel, upcoming, forgone, curve, set_up } = *situation;
    let stay = |why| (Decision::Stay(why), forgone);
    if path == SealedBy::Kernel {
        return stay(PathReason::MovedBefore);
    }
    if mode == KtlsMode::Never {
        return stay(PathReason::Never);
    }
    match kernel {
        Offer::Absent => return stay(PathReason::Absent),
        Offer::NotTcp => return stay(PathReason::NotTcp),
        Offer::NoCipher => return stay(PathReason::NoCipher),
        Offer::Quarantined => return stay(PathReason::Quarantined),
        Offer::Ready | Offer::Suspended => {}
    }
    let after = forgone.plus(curve.saving(upcoming));
    if mode == KtlsMode::Auto && after.0 < set_up {
        let why = if curve.ever_saves() { PathReason::Small } else { PathReason::NoGain };
        return (Decision::Stay(why), after);
    }
    match kernel {
        Offer::Suspended => (Decision::Stay(PathReason::Suspended), after),
        _ => (Decision::Move, Forgone::default()),
    }
}

impl Forgone {
    /// These nanoseconds.
    pub(crate) fn from_nanoseconds(nanoseconds: u64) -> Self {
        Self(nanoseconds)
    }

    pub(crate) fn nanoseconds(self) -> u64 {
        self.0
    }

    /// Adds a response sealed in user space that would have saved `saving` in the kernel.
    fn plus(self, saving: i64) -> Self {
        Self(self.0.saturating_add_signed(saving))
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
