//! What ends a connection other than in order.

use std::{fmt, io};

use sealion_tls::AlertDescription;

use crate::observe::metrics::ErrorKind;

/// What ended a connection.
#[derive(Debug)]
pub(crate) enum Error {
    /// The TLS connection failed.
    Tls(sealion_tls::Error),
    /// The source of a response's body failed.
    Source(io::Error),
    /// The source of a response's body gave another length than it had announced.
    SourceLength {
        /// Bytes that were announced.
        announced: u64,
        /// Bytes that the source gave, or more.
        given: u64,
    },
}

impl Error {
    /// The alert to send before the connection closes; `None` where it could not arrive, or the client ended the connection itself.
    pub(crate) fn alert(&self) -> Option<AlertDescription> {
        match self {
            Error::Tls(error) => error.alert(),
            Error::Source(_) | Error::SourceLength { .. } => Some(AlertDescription::INTERNAL_ERROR),
        }
    }

    /// What it counts as.
    pub(crate) fn kind(&self) -> ErrorKind {
        match self {
            Error::Tls(error) => ErrorKind::of(error),
            Error::Source(_) | Error::SourceLength { .. } => ErrorKind::Source,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Tls(error) => error.fmt(f),
            Error::Source(error) => write!(f, "the response's body cannot be read to its end: {error}"),
            Error::SourceLength { announced, given } => {
                write!(f, "the response's body has {given} bytes or more, but {announced} were announced")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<sealion_tls::Error> for Error {
    fn from(error: sealion_tls::Error) -> Self {
        Error::Tls(error)
    }
}
