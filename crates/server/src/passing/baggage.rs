//! What a driver begins with, and leaves behind.

use super::Resting;

/// What a driver finds when it begins to serve a connection, and leaves when the connection passes.
#[derive(Debug)]
pub(crate) struct Baggage {
    /// As another driver left it, here or in another process. `None`: the connection is new.
    pub(crate) resting: Option<Box<Resting>>,
    pub(crate) passes: Passes,
}

/// Whether a connection passes to the process that has taken over, when it is idle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passes {
    WhenIdle,
    /// It was refused, or its driver cannot take it apart: it ends here.
    Never,
}

impl Baggage {
    pub(crate) fn of_new_connection() -> Self {
        Baggage { resting: None, passes: Passes::WhenIdle }
    }

    pub(crate) fn of_arrival(resting: Resting) -> Self {
        Baggage { resting: Some(Box::new(resting)), passes: Passes::WhenIdle }
    }
}
