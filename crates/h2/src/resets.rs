//! The numbers of streams reset, for metrics.

use sealion_http::multiplexed;

use crate::error::ErrorCode;

/// Numbers of RST_STREAM frames, in the order of [`ErrorCode::REGISTERED`]; the last number counts all other codes.
pub type Resets = multiplexed::Resets<{ ErrorCode::REGISTERED.len() + 1 }>;

/// The place of a code among the numbers. The registered ones begin with 0.
pub(crate) fn place(code: ErrorCode) -> usize {
    code.0 as usize
}

#[cfg(test)]
mod tests {
    use sealion_http::multiplexed::By;

    use super::*;

    #[test]
    fn each_side_has_a_number_for_each_code_and_one_for_all_others() {
        let mut resets = Resets::default();
        for code in [ErrorCode::CANCEL, ErrorCode::CANCEL, ErrorCode(0xe), ErrorCode(u32::MAX)] {
            resets.count(By::Client, place(code));
        }
        resets.count(By::Server, place(ErrorCode::REFUSED_STREAM));
        let shown = |by| {
            let name = |place: usize| ErrorCode::REGISTERED.get(place).and_then(|code| code.name()).unwrap_or("other");
            let counts = resets.by(by).iter().enumerate().filter(|(_, count)| **count > 0);
            counts.map(|(place, count)| (name(place), *count)).collect::<Vec<_>>()
        };
        assert_eq!(shown(By::Client), [("CANCEL", 2), ("other", 2)]);
        assert_eq!(shown(By::Server), [("REFUSED_STREAM", 1)]);
    }
}
