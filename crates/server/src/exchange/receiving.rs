//! Requests of a connection that has several at a time, while their content comes and is discarded.

use std::time::Instant;

use sealion_http::multiplexed::HeadBuffer;

use super::{Current, free_head};

/// A request whose content is discarded, and has not ended. `Id`: the number of a stream.
pub(crate) struct Receiving<Id> {
    pub(crate) stream: Id,
    pub(crate) head: Box<HeadBuffer>,
    /// The settings that it began under. Under others, content might be forwarded after some of it was discarded.
    pub(crate) current: Current,
    /// Bytes of content so far.
    content: u64,
    /// When all of it has to be there.
    pub(crate) deadline: Instant,
}

impl<Id> Receiving<Id> {
    /// The request in `head`, which is taken.
    pub(crate) fn new(stream: Id, head: &mut Box<HeadBuffer>, current: Current) -> Self {
        let deadline = Instant::now() + current.limits.request_timeout.duration();
        Receiving { stream, head: std::mem::replace(head, free_head()), current, content: 0, deadline }
    }

    /// Counts content. `true`: its end, or too much of it, brings the response.
    pub(crate) fn discard(&mut self, length: u64, end: bool) -> bool {
        self.content += length;
        end || self.content > self.current.limits.max_discarded_body.0
    }
}

/// Requests behind the last one that `max_requests` allows: a client may have sent them before it read GOAWAY.
pub(crate) const MAX_BEHIND_THE_LAST: u64 = 128;

/// Bytes of a head that is large.
const LARGE_HEAD: usize = 4 << 10;

/// Bytes of heads that a connection may keep: 32 of the largest that `max_head` allows by default. Beyond, large heads are refused.
const MAX_KEPT: usize = 1 << 20;

/// Whether a request may keep its head while it waits: small ones always. `kept`: bytes that the requests of its connection keep.
pub(crate) fn may_keep(head: &HeadBuffer, kept: impl FnOnce() -> usize) -> bool {
    head.memory() <= LARGE_HEAD || kept() <= MAX_KEPT
}
