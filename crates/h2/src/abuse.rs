//! Counters against clients that cause more work than they do (RFC 9113 §10.5).
//!
//! | attack | bound |
//! |---|---|
//! | resets of requests (Rapid Reset, CVE-2023-44487), or frames that provoke resets (MadeYouReset, CVE-2025-8671) | [`Limits::resets`], refilled by completed requests; a reset stream keeps its slot |
//! | PING, SETTINGS | [`MAX_REPLIES`] replies that are not written yet; the ratio |
//! | DATA without content | [`MAX_EMPTY_DATA`], refilled by completed requests |
//! | WINDOW_UPDATE by few bytes | [`MAX_SMALL_UPDATES`], and two for each DATA frame that was sent |
//! | PRIORITY_UPDATE | [`MAX_PRIORITY_UPDATES`], refilled by completed requests |
//! | frames on streams that the server has reset | header blocks: one for each such stream, then as resets; content: the ratio, beyond what the stream's window allowed |
//! | any frames without use | the ratio: (all bytes) / 8 > payload + 1 MiB, as in nginx |
//!
//! Header blocks are bounded in `request` and `connection`.

use sealion_http::multiplexed::{Budget, Overhead};
use serde::{Deserialize, Serialize};

use crate::error::{ConnectionError, Flood};
use crate::settings::Limits;

/// The maximum number of replies to PING and SETTINGS that wait to be written.
pub const MAX_REPLIES: u32 = 32;

/// The number of DATA frames without content and END_STREAM that a client may send before it has completed a request.
///
/// Real clients send at most one, before the content of a request.
pub const MAX_EMPTY_DATA: u32 = 100;

/// The number of WINDOW_UPDATE frames below [`SMALL_UPDATE`] bytes that a client may send in addition to two for each
/// DATA frame received.
///
/// A client that reads in small pieces may send an update for each.
pub const MAX_SMALL_UPDATES: u32 = 1000;

/// An increment below this is small.
pub const SMALL_UPDATE: u32 = 1024;

/// The number of PRIORITY_UPDATE frames that a client may send before it has completed a request. Each completed
/// request allows eight more.
///
/// A browser sends one or two for an image whose place on the screen becomes known.
pub const MAX_PRIORITY_UPDATES: u32 = 500;

/// The counters of a connection.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Abuse {
    resets: Budget,
    empty_data: Budget,
    small_updates: Budget,
    priority_updates: Budget,
    replies: u32,
    late: Late,
    /// Frames received.
    frames: u64,
    overhead: Overhead,
}

/// Frames that a client may have sent before it learned of a reset.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
struct Late {
    /// Bytes of DATA.
    content: u64,
    /// Header blocks, that is trailers.
    blocks: u32,
}

impl Abuse {
    pub(crate) fn new(limits: &Limits) -> Self {
        Abuse {
            resets: Budget::new(limits.resets),
            empty_data: Budget::new(MAX_EMPTY_DATA),
            small_updates: Budget::new(MAX_SMALL_UPDATES),
            priority_updates: Budget::new(MAX_PRIORITY_UPDATES),
            replies: 0,
            late: Late::default(),
            frames: 0,
            overhead: Overhead::default(),
        }
    }

    /// A frame of `bytes`, including its header, arrived.
    pub(crate) fn frame(&mut self, bytes: usize) -> Result<(), ConnectionError> {
        self.frames += 1;
        self.overhead.received(bytes).ok_or(ConnectionError::flood(Flood::Overhead))
    }

    pub(crate) fn frames(&self) -> u64 {
        self.frames
    }

    /// `bytes` of fields were decoded, or of content received or sent.
    pub(crate) fn useful(&mut self, bytes: u64) {
        self.overhead.useful(bytes);
    }

    /// A stream was reset by the client or because of it, or was refused.
    pub(crate) fn reset(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.resets, Flood::Resets)
    }

    /// The server reset a stream before the end of its content. The client may already have sent as much content as the
    /// stream's `window` allowed, and trailers.
    pub(crate) fn interrupted(&mut self, window: u32) {
        self.late.content += u64::from(window);
        self.late.blocks = self.late.blocks.saturating_add(1);
    }

    /// `bytes` of DATA arrived on a stream that the server had reset.
    pub(crate) fn late_content(&mut self, bytes: u32) {
        let expected = self.late.content.min(u64::from(bytes));
        self.late.content -= expected;
        self.useful(expected);
    }

    /// A header block arrived on a stream that the server had reset.
    pub(crate) fn late_block(&mut self) -> Result<(), ConnectionError> {
        match self.late.blocks.checked_sub(1) {
            Some(left) => self.late.blocks = left,
            None => self.reset()?,
        }
        Ok(())
    }

    /// A response was sent to its end.
    pub(crate) fn completed(&mut self) {
        self.resets.refill(1);
        self.empty_data.refill(8);
        self.priority_updates.refill(8);
    }

    /// DATA without content and without END_STREAM arrived.
    pub(crate) fn empty_data(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.empty_data, Flood::EmptyData)
    }

    /// WINDOW_UPDATE arrived.
    pub(crate) fn window_update(&mut self, increment: u32) -> Result<(), ConnectionError> {
        if increment >= SMALL_UPDATE {
            return Ok(());
        }
        spend(&mut self.small_updates, Flood::WindowUpdates)
    }

    /// A DATA frame was sent. The client may respond with an update for the stream and one for the connection. A client
    /// may read byte by byte.
    pub(crate) fn sent_data(&mut self, bytes: u32) {
        self.useful(bytes.into());
        // Many frames may be in flight before the first update arrives, so their allowance is not bounded.
        self.small_updates.extend(2);
    }

    /// PRIORITY_UPDATE, or the deprecated PRIORITY, arrived.
    pub(crate) fn priority_update(&mut self) -> Result<(), ConnectionError> {
        spend(&mut self.priority_updates, Flood::PriorityUpdates)
    }

    /// A reply to PING or SETTINGS is queued.
    pub(crate) fn reply(&mut self) -> Result<(), ConnectionError> {
        if self.replies == MAX_REPLIES {
            return Err(ConnectionError::flood(Flood::Replies));
        }
        self.replies += 1;
        Ok(())
    }

    pub(crate) fn replies_written(&mut self) {
        self.replies = 0;
    }

    pub(crate) fn replies_wait(&self) -> bool {
        self.replies > 0
    }
}

fn spend(budget: &mut Budget, flood: Flood) -> Result<(), ConnectionError> {
    budget.spend(1).ok_or(ConnectionError::flood(flood))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn abuse() -> Abuse {
        Abuse::new(&Limits { resets: 10, ..Limits::default() })
    }

    /// The number of times that `step` succeeds, up to 10,000.
    fn count(mut step: impl FnMut() -> Result<(), ConnectionError>) -> u32 {
        let mut count = 0;
        while count < 10_000 && step().is_ok() {
            count += 1;
        }
        count
    }

    #[test]
    fn every_budget_ends() {
        let mut abuse = abuse();
        assert_eq!(count(|| abuse.reset()), 10);
        assert_eq!(count(|| abuse.empty_data()), MAX_EMPTY_DATA);
        assert_eq!(count(|| abuse.window_update(SMALL_UPDATE - 1)), MAX_SMALL_UPDATES);
        assert_eq!(count(|| abuse.window_update(SMALL_UPDATE)), 10_000);
        assert_eq!(count(|| abuse.priority_update()), MAX_PRIORITY_UPDATES);
        assert_eq!(count(|| abuse.reply()), MAX_REPLIES);
        abuse.replies_written();
        assert_eq!(count(|| abuse.reply()), MAX_REPLIES);
    }

    #[test]
    fn each_frame_of_data_allows_two_updates_however_many_come_before_the_first() {
        let mut abuse = abuse();
        for _ in 0..4000 {
            abuse.sent_data(1);
        }
        assert_eq!(count(|| abuse.window_update(1)), 8000 + MAX_SMALL_UPDATES);
    }

    #[test]
    fn what_may_have_been_under_way_when_a_stream_was_reset_costs_nothing() {
        let mut abuse = abuse();
        abuse.interrupted(100);
        abuse.interrupted(50);
        abuse.late_content(120);
        abuse.late_content(31);
        assert_eq!((abuse.overhead.payload(), abuse.late.content), (150, 0));
        assert_eq!(count(|| abuse.late_block()), 2 + 10);
    }

    #[test]
    fn work_that_is_done_refills_a_budget_up_to_its_size() {
        let mut abuse = abuse();
        count(|| abuse.reset());
        abuse.completed();
        assert_eq!(count(|| abuse.reset()), 1);
        (0..100).for_each(|_| abuse.completed());
        assert_eq!(count(|| abuse.reset()), 10);
        count(|| abuse.window_update(1));
        abuse.sent_data(1);
        assert_eq!(count(|| abuse.window_update(1)), 2);
    }

    #[test]
    fn bytes_without_use_are_bounded_by_the_bytes_of_use() {
        let mut abuse = abuse();
        let mut received = 0;
        while abuse.frame(17).is_ok() {
            received += 17;
        }
        assert!((8 << 20) - received < 2 * 17, "{received}");
        abuse.useful(100);
        let mut more = 17;
        while abuse.frame(17).is_ok() {
            more += 17;
        }
        assert!((800 - 34..=800 + 34).contains(&more), "{more}");
    }
}
