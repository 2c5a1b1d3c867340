//! Who seals the next response, and why. Pure: no socket, no clock.
//!
//! Moving a connection into the kernel costs once, and saves a little on each later response: nobody knows how many will
//! come. This is the question of whether to rent skis or to buy them, and so is the answer: a connection moves as soon as what it
//! would have saved so far, had it moved, reaches what the move costs.
//!
//! By the costs it is told, a connection so decided never costs more than twice the best that could have been done by one who had
//! known all its responses, as long as no response costs more than twice as much in the kernel as in user space:
//! - It moves later than the best. What it forgave in between is less than the move, which the best paid too.
//! - It moves, and the best never does. User space has cost the best at least what was forgone, hence at least the move.
//! - It moves earlier than the best, or the best never moves: of the responses behind the move each costs at most twice.
//!
//! What small responses save in user space counts against what large ones forgo, but never beyond nothing: what was cheap
//! before is no reason to wait now.

use clap::ValueEnum;
use schemars::JsonSchema;
use sealion_tls::Path;
use serde::{Deserialize, Serialize};

use super::costs::curve::Curve;
use crate::values::labels;

/// What the operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum KtlsMode {
    /// Move when it is worth it.
    Auto,
    /// Move before the first response.
    Always,
    /// Never move.
    Never,
}

/// What is known before a response is sent.
#[derive(Debug, Clone, Copy)]
pub struct Situation<'a> {
    /// Who seals this connection now.
    pub path: Path,
    /// Whether the kernel could take this connection.
    pub kernel: Offer,
    /// Bytes of this response, head included.
    pub upcoming: u64,
    /// What earlier responses of this connection would have saved in the kernel.
    pub forgone: Forgone,
    /// What responses of this version and AEAD cost.
    pub curve: &'a Curve,
    /// What a move is expected to cost, in nanoseconds.
    pub set_up: u64,
}

/// Nanoseconds that a connection would have saved so far, had it moved at the best moment; never below nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Forgone(u64);

/// Whether the kernel could take a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It seals this version and cipher.
    Ready,
    /// It has no kernel TLS.
    Absent,
    /// Its record layer sits upon TCP, and this is a Unix socket.
    NotTcp,
    /// It has kernel TLS, but not this version and cipher.
    NoCipher,
    /// It refused a short while ago.
    Suspended,
    /// It was seen to seal this version and cipher wrongly.
    Quarantined,
}

/// What to do before the response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// Leave the sender where it is.
    Stay(PathReason),
    /// Move the sender into the kernel first; stay if it refuses.
    Move,
}

labels! {
    /// Why a response takes its path: a word for the log.
    pub PathReason {
        /// Kernel: this response was worth the move.
        Moved = "moved",
        /// Kernel: an earlier response was.
        MovedBefore = "moved-before",
        /// User space: this response, and those before it, would not pay for the move.
        Small = "small",
        /// User space: by what the paths cost here, the kernel never wins.
        NoGain = "no-gain",
        /// User space: `--ktls never`.
        Never = "never",
        /// User space: this kernel has no kernel TLS.
        Absent = "no-ktls",
        /// User space: the connection came by a Unix socket.
        NotTcp = "not-tcp",
        /// User space: this kernel does not seal this version and cipher.
        NoCipher = "no-cipher",
        /// User space: the kernel refused just now.
        Refused = "refused",
        /// User space: the kernel refused a short while ago.
        Suspended = "suspended",
        /// User space: the kernel was seen to seal this version and cipher wrongly.
        Quarantined = "quarantined",
        /// User space: the key would wear out, and this kernel cannot change it.
        KeyWorn = "key-worn",
    }
}

impl PathReason {
    /// Which path the response takes.
    pub fn sealed_by(self) -> Path {
        match self {
            Self::Moved | Self::MovedBefore => Path::Kernel,
            _ => Path::User,
        }
    }
}

/// Decides for one response, and says what is forgone once that is done.
pub fn decide(mode: KtlsMode, situation: &Situation<'_>) -> (Decision, Forgone) {
    let Situation { path, kernel, upcoming, forgone, curve, set_up } = *situation;
    let stay = |why| (Decision::Stay(why), forgone);
    if path == Path::Kernel {
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
    let after = forgone.and(curve.saving(upcoming));
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
    /// With one more response in user space that would have saved so much in the kernel.
    fn and(self, saving: i64) -> Self {
        Self(self.0.saturating_add_signed(saving))
    }
}

#[cfg(test)]
#[path = "policy_tests.rs"]
mod tests;
