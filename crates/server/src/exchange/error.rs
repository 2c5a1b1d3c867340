//! Errors that end a connection.

use sealion_tls::AlertDescription;

use super::Shared;
use crate::observe::metrics::ErrorKind;
use crate::response::SourceError;
use crate::values::Phase;

/// An error that ended a connection.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The TLS connection failed.
    #[error(transparent)]
    Tls(#[from] sealion_tls::Error),
    /// The source of a response body failed.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// Another process offered an exchange of another protocol.
    #[error("an older process offered an exchange of the wrong form")]
    Offer,
}

impl Error {
    /// The alert to send before closing. `None`: it could not arrive, or the client ended the connection.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        match self {
            Error::Tls(error) => error.alert(),
            Error::Source(_) | Error::Offer => Some(AlertDescription::INTERNAL_ERROR),
        }
    }

    /// The label under which metrics count the error.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Error::Tls(error) => ErrorKind::of(error),
            Error::Source(_) => ErrorKind::Source,
            Error::Offer => ErrorKind::Unfinished,
        }
    }
}

/// Why a response was dropped before its end, without an error of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Cut {
    /// It took longer than the grace time.
    #[error("the time of grace ended")]
    Grace,
    /// A second signal ended the process.
    #[error("a second signal ended the server")]
    Stopped,
    /// The task of its connection panicked.
    #[error("the task of the connection panicked")]
    Panic,
}

impl Cut {
    /// Why a response is dropped now.
    pub(crate) fn of(shared: &Shared) -> Self {
        Self::by(*shared.phase.borrow(), std::thread::panicking())
    }

    /// `phase`: the phase of the process.
    pub(super) fn by(phase: Phase, is_panicking: bool) -> Self {
        match phase {
            _ if is_panicking => Cut::Panic,
            Phase::Stopping => Cut::Stopped,
            Phase::Serving | Phase::HandedOver | Phase::Draining => Cut::Grace,
        }
    }
}
