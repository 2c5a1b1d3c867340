//! The numbers of requests cancelled, for metrics.

use crate::error::ErrorCode;
use crate::stream::By;

/// Numbers of cancelled requests.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Resets {
    by_client: [u32; CODES + 1],
    by_server: [u32; CODES + 1],
}

const CODES: usize = ErrorCode::REGISTERED.len();

impl Resets {
    pub(crate) fn count(&mut self, by: By, code: ErrorCode) {
        let numbers = match by {
            By::Client => &mut self.by_client,
            By::Server => &mut self.by_server,
        };
        let place = ErrorCode::REGISTERED.iter().position(|registered| *registered == code);
        numbers[place.unwrap_or(CODES)] += 1;
    }

    /// The numbers for one side, in the order of [`ErrorCode::REGISTERED`]; the last number counts all other codes.
    pub fn by(&self, by: By) -> &[u32] {
        match by {
            By::Client => &self.by_client,
            By::Server => &self.by_server,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_side_has_a_number_for_each_code_and_one_for_all_others() {
        let mut resets = Resets::default();
        for code in [ErrorCode::H3_REQUEST_CANCELLED, ErrorCode::H3_REQUEST_CANCELLED, ErrorCode(0), ErrorCode(0x21)] {
            resets.count(By::Client, code);
        }
        resets.count(By::Server, ErrorCode::H3_REQUEST_REJECTED);
        let shown = |by| {
            let name = |place: usize| ErrorCode::REGISTERED.get(place).and_then(|code| code.name()).unwrap_or("other");
            let counts = resets.by(by).iter().enumerate().filter(|(_, count)| **count > 0);
            counts.map(|(place, count)| (name(place), *count)).collect::<Vec<_>>()
        };
        assert_eq!(shown(By::Client), [("H3_REQUEST_CANCELLED", 2), ("other", 2)]);
        assert_eq!(shown(By::Server), [("H3_REQUEST_REJECTED", 1)]);
    }
}
