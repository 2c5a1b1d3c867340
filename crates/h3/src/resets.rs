//! The numbers of requests cancelled, for metrics.

use sealion_http::multiplexed;

use crate::error::ErrorCode;

/// Numbers of cancelled requests, in the order of [`ErrorCode::REGISTERED`]; the last number counts all other codes.
pub type Resets = multiplexed::Resets<{ ErrorCode::REGISTERED.len() + 1 }>;

/// The place of a code among the numbers.
pub(crate) fn place(code: ErrorCode) -> usize {
    ErrorCode::REGISTERED.iter().position(|registered| *registered == code).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use sealion_http::multiplexed::By;

    use super::*;

    #[test]
    fn each_side_has_a_number_for_each_code_and_one_for_all_others() {
        let mut resets = Resets::default();
        for code in [ErrorCode::H3_REQUEST_CANCELLED, ErrorCode::H3_REQUEST_CANCELLED, ErrorCode(0), ErrorCode(0x21)] {
            resets.count(By::Client, place(code));
        }
        resets.count(By::Server, place(ErrorCode::H3_REQUEST_REJECTED));
        let shown = |by| {
            let name = |place: usize| ErrorCode::REGISTERED.get(place).and_then(|code| code.name()).unwrap_or("other");
            let counts = resets.by(by).iter().enumerate().filter(|(_, count)| **count > 0);
            counts.map(|(place, count)| (name(place), *count)).collect::<Vec<_>>()
        };
        assert_eq!(shown(By::Client), [("H3_REQUEST_CANCELLED", 2), ("other", 2)]);
        assert_eq!(shown(By::Server), [("H3_REQUEST_REJECTED", 1)]);
    }
}
