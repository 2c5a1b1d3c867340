//! The numbers of streams reset, for metrics.

/// The side that reset a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// The client.
    Client,
    /// The protocol, because of the client's frames, or the driver.
    Server,
}

/// Numbers of resets by code: one for each of the registered codes, and the last one for all others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resets<const NUMBERS: usize> {
    by_client: [u32; NUMBERS],
    by_server: [u32; NUMBERS],
}

impl<const NUMBERS: usize> Default for Resets<NUMBERS> {
    fn default() -> Self {
        Resets { by_client: [0; NUMBERS], by_server: [0; NUMBERS] }
    }
}

impl<const NUMBERS: usize> Resets<NUMBERS> {
    /// Counts one. `place`: of its code among the registered ones; anything beyond counts as another code.
    pub fn count(&mut self, by: By, place: usize) {
        let numbers = match by {
            By::Client => &mut self.by_client,
            By::Server => &mut self.by_server,
        };
        numbers[place.min(NUMBERS - 1)] += 1;
    }

    /// The numbers for one side, in the order of the registered codes.
    pub fn by(&self, by: By) -> &[u32] {
        match by {
            By::Client => &self.by_client,
            By::Server => &self.by_server,
        }
    }
}
