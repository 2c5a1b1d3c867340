//! Who seals the next response, and why. Pure: no socket, no clock.

use clap::ValueEnum;
use sealion_tls::Path;

/// What the operator chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum KtlsMode {
    /// Move when a response is worth it.
    Auto,
    /// Move before the first response.
    Always,
    /// Never move.
    Never,
}

/// Bytes of a response, head included, from which the kernel is worth its set-up.
///
/// GUESS: published measurements see kTLS ahead from 64 to 128 KiB on, and counted in instructions it is ahead from
/// 16 KiB on with a set-up under 20,000 instructions.
pub const THRESHOLD: u64 = 64 << 10;

/// What is known before a response is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// Who seals this connection now.
    pub path: Path,
    /// Bytes of this response, head included.
    pub upcoming: u64,
    /// Whether the kernel could take this connection.
    pub kernel: Offer,
}

/// Whether the kernel could take a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It seals this version and cipher.
    Ready,
    /// It has no kernel TLS.
    Absent,
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
    Stay(Why),
    /// Move the sender into the kernel first; stay if it refuses.
    Move,
}

/// Why a response takes its path: a word for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// Kernel: this response was worth the move.
    Moved,
    /// Kernel: an earlier response was.
    MovedBefore,
    /// User space: smaller than the threshold.
    Small,
    /// User space: `--ktls never`.
    Never,
    /// User space: this kernel has no kernel TLS.
    Absent,
    /// User space: this kernel does not seal this version and cipher.
    NoCipher,
    /// User space: the kernel refused just now.
    Refused,
    /// User space: the kernel refused a short while ago.
    Suspended,
    /// User space: the kernel was seen to seal this version and cipher wrongly.
    Quarantined,
    /// User space: the key would wear out, and this kernel cannot change it.
    KeyWorn,
}

impl Why {
    /// The word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Moved => "moved",
            Self::MovedBefore => "moved-before",
            Self::Small => "small",
            Self::Never => "never",
            Self::Absent => "no-ktls",
            Self::NoCipher => "no-cipher",
            Self::Refused => "refused",
            Self::Suspended => "suspended",
            Self::Quarantined => "quarantined",
            Self::KeyWorn => "key-worn",
        }
    }
}

/// Decides for one response.
pub fn decide(mode: KtlsMode, situation: Situation) -> Decision {
    if situation.path == Path::Kernel {
        return Decision::Stay(Why::MovedBefore);
    }
    let worth_it = match mode {
        KtlsMode::Never => return Decision::Stay(Why::Never),
        KtlsMode::Always => true,
        KtlsMode::Auto => situation.upcoming >= THRESHOLD,
    };
    match situation.kernel {
        Offer::Absent => Decision::Stay(Why::Absent),
        Offer::NoCipher => Decision::Stay(Why::NoCipher),
        Offer::Quarantined => Decision::Stay(Why::Quarantined),
        _ if !worth_it => Decision::Stay(Why::Small),
        Offer::Suspended => Decision::Stay(Why::Suspended),
        Offer::Ready => Decision::Move,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decisions() {
        use Decision::{Move, Stay};
        use KtlsMode::{Always, Auto, Never};
        use Offer::{Absent, NoCipher, Quarantined, Ready, Suspended};
        let small = THRESHOLD - 1;
        for (mode, path, upcoming, kernel, expected) in [
            (Auto, Path::User, small, Ready, Stay(Why::Small)),
            (Auto, Path::User, THRESHOLD, Ready, Move),
            (Auto, Path::User, THRESHOLD, Absent, Stay(Why::Absent)),
            (Auto, Path::User, small, Absent, Stay(Why::Absent)),
            (Auto, Path::User, THRESHOLD, NoCipher, Stay(Why::NoCipher)),
            (Auto, Path::User, THRESHOLD, Suspended, Stay(Why::Suspended)),
            (Auto, Path::User, THRESHOLD, Quarantined, Stay(Why::Quarantined)),
            (Always, Path::User, THRESHOLD, Quarantined, Stay(Why::Quarantined)),
            (Auto, Path::User, small, Suspended, Stay(Why::Small)),
            (Auto, Path::Kernel, 0, Ready, Stay(Why::MovedBefore)),
            (Auto, Path::Kernel, THRESHOLD, Suspended, Stay(Why::MovedBefore)),
            (Always, Path::User, 0, Ready, Move),
            (Always, Path::User, 0, NoCipher, Stay(Why::NoCipher)),
            (Always, Path::User, u64::MAX, Suspended, Stay(Why::Suspended)),
            (Never, Path::User, u64::MAX, Ready, Stay(Why::Never)),
            (Never, Path::User, u64::MAX, Absent, Stay(Why::Never)),
        ] {
            let situation = Situation { path, upcoming, kernel };
            assert_eq!(decide(mode, situation), expected, "{mode:?} {situation:?}");
        }
    }
}
