//! Faults of a server under load, as a run counts them.

use std::fmt;
use std::io;

/// A fault found by a load.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A response that looks complete but differs from the origin's.
    Wrong(String),
    /// A request without a response, or with an unexpected status.
    Failed(String),
    /// Another violated guarantee of the server.
    Broken(String),
}

impl Fault {
    /// The same fault, with `more` after its description.
    #[must_use]
    pub fn with(self, more: &str) -> Self {
        match self {
            Self::Wrong(text) => Self::Wrong(text + more),
            Self::Failed(text) => Self::Failed(text + more),
            Self::Broken(text) => Self::Broken(text + more),
        }
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wrong(text) => write!(f, "wrong response: {text}"),
            Self::Failed(text) => write!(f, "failed request: {text}"),
            Self::Broken(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

/// An error of the machine on which a load runs.
impl From<io::Error> for Fault {
    fn from(error: io::Error) -> Self {
        Self::Broken(error.to_string())
    }
}
