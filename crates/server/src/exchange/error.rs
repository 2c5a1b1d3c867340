//! Errors that end a connection.

use std::fmt;

use sealion_tls::AlertDescription;

use super::Shared;
use crate::observe::metrics::ErrorKind;
use crate::response::SourceError;
use crate::values::Phase;

/// An error that ended a connection.
#[derive(Debug)]
pub(crate) enum Error {
    /// The TLS connection failed.
    Tls(sealion_tls::Error),
    /// The source of a response body failed.
    Source(SourceError),
}

impl Error {
    /// The alert to send before closing. `None`: it could not arrive, or the client ended the connection.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        match self {
            Error::Tls(error) => error.alert(),
            Error::Source(_) => Some(AlertDescription::INTERNAL_ERROR),
        }
    }

    /// The label under which metrics count the error.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Error::Tls(error) => ErrorKind::of(error),
            Error::Source(_) => ErrorKind::Source,
        }
    }
}

/// Why a response was dropped before its end, without an error of its connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cut {
    /// It took longer than the grace time.
    Grace,
    /// A second signal ended the process.
    Stopped,
    /// The task of its connection panicked.
    Panic,
}

impl Cut {
    /// Why a response is dropped now.
    pub(crate) fn of(shared: &Shared) -> Self {
        Self::by(*shared.phase.borrow(), std::thread::panicking())
    }

    /// `phase`: that of the process.
    fn by(phase: Phase, is_panicking: bool) -> Self {
        match phase {
            _ if is_panicking => Cut::Panic,
            Phase::Stopping => Cut::Stopped,
            Phase::Serving | Phase::HandedOver | Phase::Draining => Cut::Grace,
        }
    }
}

impl fmt::Display for Cut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Cut::Grace => "the time of grace ended",
            Cut::Stopped => "a second signal ended the server",
            Cut::Panic => "the task of the connection panicked",
        })
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Tls(error) => error.fmt(f),
            Error::Source(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for Error {}

impl From<SourceError> for Error {
    fn from(error: SourceError) -> Self {
        Error::Source(error)
    }
}

impl From<sealion_tls::Error> for Error {
    fn from(error: sealion_tls::Error) -> Self {
        Error::Tls(error)
    }
}
