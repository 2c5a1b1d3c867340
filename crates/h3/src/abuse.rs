//! Counters against clients that cause more work than they do (RFC 9114 §10.5).
//!
//! | attack | bound |
//! |---|---|
//! | cancelled, malformed and refused requests (Rapid Reset, CVE-2023-44487) | [`Limits::resets`], refilled by completed requests; a cancelled request keeps its slot |
//! | DATA without content | [`MAX_EMPTY_DATA`], refilled by completed requests |
//! | frames of unknown or reserved types, MAX_PUSH_ID, GOAWAY, instructions of QPACK | [`MAX_IDLE_FRAMES`], refilled by completed requests |
//! | unidirectional streams of unknown types | [`MAX_UNKNOWN_STREAMS`], refilled by completed requests |
//! | PRIORITY_UPDATE | [`MAX_PRIORITY_UPDATES`], refilled by completed requests |
//! | any bytes without use | the ratio: (all bytes) / 8 > payload + 1 MiB, as in HTTP/2 |
//!
//! `connection` bounds field sections. The transport has its own bounds.

use sealion_http::multiplexed::{Budget, Overhead};

use crate::error::{ConnectionError, Flood};
use crate::settings::Limits;

/// The number of DATA frames without content that a client may send before it has completed a request.
pub const MAX_EMPTY_DATA: u32 = 100;

/// The number of frames and instructions without effect that a client may send before it has completed a request. Each
/// completed request allows eight more.
///
/// A browser sends one reserved frame on some streams (RFC 9114 §7.2.8), and one instruction of QPACK for each request
/// that it cancels.
pub const MAX_IDLE_FRAMES: u32 = 500;

/// The number of unidirectional streams of unknown types that a client may open before it has completed a request.
///
/// A browser opens one of a reserved type (RFC 9114 §6.2.3).
pub const MAX_UNKNOWN_STREAMS: u32 = 16;

/// The number of PRIORITY_UPDATE frames that a client may send before it has completed a request. Each completed
/// request allows eight more.
pub const MAX_PRIORITY_UPDATES: u32 = 500;

/// The counters of a connection.
#[derive(Debug)]
pub(crate) struct Abuse {
    resets: Budget,
    empty_data: Budget,
    idle_frames: Budget,
    unknown_streams: Budget,
    priority_updates: Budget,
    overhead: Overhead,
}

impl Abuse {
    pub(crate) fn new(limits: &Limits) -> Self {
        Abuse {
            resets: Budget::new(limits.resets),
            empty_data: Budget::new(MAX_EMPTY_DATA),
            idle_frames: Budget::new(MAX_IDLE_FRAMES),
            unknown_streams: Budget::new(MAX_UNKNOWN_STREAMS),
            priority_updates: Budget::new(MAX_PRIORITY_UPDATES),
            overhead: Overhead::default(),
        }
    }

    /// `bytes` of any stream arrived.
    #[inline]
    pub(crate) fn received(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        self.overhead.received(bytes).ok_or(ConnectionError::flood(Flood::Overhead))
    }

    /// `bytes` of fields were decoded, or of content received or sent.
    #[inline]
    pub(crate) fn useful(&mut self, bytes: u64) {
        self.overhead.useful(bytes);
    }

    /// A request was cancelled by the client or because of it, or was refused.
    pub(crate) fn reset(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.resets, 1, Flood::Resets)
    }

    /// A response was sent to its end.
    pub(crate) fn completed(&mut self) {
        self.resets.refill(1);
        self.empty_data.refill(8);
        self.idle_frames.refill(8);
        self.unknown_streams.refill(1);
        self.priority_updates.refill(8);
    }

    /// DATA without content arrived.
    pub(crate) fn empty_data(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.empty_data, 1, Flood::EmptyData)
    }

    /// `count` frames or instructions without effect arrived.
    pub(crate) fn idle_frames(&mut self, count: u32) -> Result<(), ConnectionError> {
        spend(&mut self.idle_frames, count, Flood::IdleFrames)
    }

    /// A unidirectional stream of an unknown type was opened.
    pub(crate) fn unknown_stream(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.unknown_streams, 1, Flood::UnknownStreams)
    }

    /// PRIORITY_UPDATE arrived.
    pub(crate) fn priority_update(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.priority_updates, 1, Flood::PriorityUpdates)
    }
}

fn spend(budget: &mut Budget, count: u32, flood: Flood) -> Result<(), ConnectionError> {
    budget.spend(count).ok_or(ConnectionError::flood(flood))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The number of times that `step` succeeds, up to 10,000.
    fn count(mut step: impl FnMut() -> Result<(), ConnectionError>) -> u32 {
        let mut count = 0;
        while count < 10_000 && step().is_ok() {
            count += 1;
        }
        count
    }

    #[test]
    fn every_budget_ends_and_completed_requests_refill_it() {
        let mut abuse = Abuse::new(&Limits { resets: 10, ..Limits::default() });
        for refilled in [false, true] {
            let expected = |full: u32, by: u32| if refilled { by } else { full };
            assert_eq!(count(|| abuse.reset()), expected(10, 1));
            assert_eq!(count(|| abuse.empty_data()), expected(MAX_EMPTY_DATA, 8));
            assert_eq!(count(|| abuse.idle_frames(1)), expected(MAX_IDLE_FRAMES, 8));
            assert_eq!(count(|| abuse.unknown_stream()), expected(MAX_UNKNOWN_STREAMS, 1));
            assert_eq!(count(|| abuse.priority_update()), expected(MAX_PRIORITY_UPDATES, 8));
            abuse.completed();
        }
        (0..10_000).for_each(|_| abuse.completed());
        assert_eq!(count(|| abuse.reset()), 10, "no more than at first");
    }

    #[test]
    fn bytes_without_use_are_bounded_by_the_bytes_of_use() {
        let mut abuse = Abuse::new(&Limits::default());
        let mut received = 0;
        while abuse.received(17).is_ok() {
            received += 17;
        }
        assert!((8 << 20) - received < 2 * 17, "{received}");
        abuse.useful(100);
        let mut more = 17;
        while abuse.received(17).is_ok() {
            more += 17;
        }
        assert!((800 - 34..=800 + 34).contains(&more), "{more}");
    }
}
