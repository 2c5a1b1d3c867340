//! The state that a driver begins with, and leaves behind.

use super::{Resting, Turn};

/// The state of a connection when a driver begins to serve it, and when it passes.
#[derive(Debug)]
pub(crate) struct Baggage {
    /// As another driver left it, here or in another process. `None`: the connection is new.
    pub(crate) resting: Option<Box<Resting>>,
    pub(crate) passes: Passes,
    /// The turn to pass, if the driver has waited for it already.
    pub(crate) turn: Option<Turn>,
}

/// Whether a connection passes to the process that has taken over, when it is idle or has responses under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Passes {
    WhenItCan,
    /// It was refused, or its driver cannot take it apart: it ends here.
    Never,
}

impl Baggage {
    pub(crate) fn of_new_connection() -> Self {
        Baggage { resting: None, passes: Passes::WhenItCan, turn: None }
    }

    pub(crate) fn of_arrival(resting: Resting) -> Self {
        Baggage { resting: Some(Box::new(resting)), passes: Passes::WhenItCan, turn: None }
    }
}
