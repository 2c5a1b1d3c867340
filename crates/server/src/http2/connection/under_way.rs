//! Responses that go on in the process that has taken over.

use std::task::{Context as TaskContext, Poll};

use sealion_http::Protocol;
use sealion_tls::TlsStream;

use super::Http2;
use crate::exchange::Answered;
use crate::http2::batch::Batch;
use crate::http2::response::Sending;
use crate::limits::Moment;
use crate::passing::{Driver, Files, MOST_FILES, Resting, Segment, StreamUnderWay, Streams, Turn, TurnWait};

/// The passing of a connection whose responses are under way.
#[derive(Default)]
pub(super) struct Leaving<'a> {
    /// The connection waits for its turn.
    turn: TurnWait<'a>,
    /// It is packed, and has its turn.
    pub(super) packed: Option<(Box<Resting>, Turn)>,
    /// The streams that another process left.
    pub(super) arrived: Option<Box<Streams>>,
}

impl Leaving<'_> {
    pub(super) fn of_arrived(arrived: Option<Box<Streams>>) -> Self {
        Leaving { arrived, ..Leaving::default() }
    }

    /// The connection waits no longer for its turn, which others may have.
    pub(super) fn stay(&mut self) {
        self.turn = TurnWait::default();
    }
}

impl<'a> Http2<'a> {
    /// Waits for the turn to pass, if another process has taken over and the rest of all responses is known.
    pub(super) fn poll_leave(&mut self, cx: &mut TaskContext<'_>) -> Poll<Turn> {
        let Some(giver) = self.context.shared.heir(self.passes) else { return Poll::Pending };
        if !self.can_leave() {
            self.leaving.stay();
            return Poll::Pending;
        }
        self.leaving.turn.poll(giver, cx)
    }

    fn can_leave(&self) -> bool {
        let is_sending = self.receiving.is_empty() && self.answering.is_empty() && self.streamed.is_empty();
        let goes_on = !self.failed && !self.finished && self.closing.is_none();
        is_sending
            && goes_on
            && self.protocol.can_rest()
            && self.sending.len() == self.protocol.open_streams()
            && self.sending.len() <= MOST_FILES
            && self.sending.iter().all(|sending| sending.can_leave())
    }

    /// Packs the connection, and the unsent rest of `batch`: the bytes from `after` on. `None`: nothing is being sent.
    pub(super) fn leave(&mut self, turn: Turn, unsent: Option<(&Batch, usize)>, stream: &mut TlsStream) {
        let mut files = Files::default();
        let (mut frames, begun) = unsent.map_or_else(Default::default, |(batch, after)| batch.pack(after, &mut files));
        self.count_resets();
        self.protocol.write_control(&mut self.heads);
        if !self.heads.is_empty() {
            frames.push(Segment::Bytes(std::mem::take(&mut self.heads)));
        }
        let sending = std::mem::take(&mut self.sending).into_iter();
        let responses = sending.map(|sending| sending.pack(&self.path, &mut files)).collect();
        let Some(rest) = self.protocol.to_rest() else { unreachable!("it can rest, and its output is taken") };
        let is_responding = unsent.is_some();
        let streams = Streams { frames, begun, is_responding, upcoming: self.upcoming, responses, files };
        let driver = Driver::Http2(Box::new(rest), Some(Box::new(streams)));
        self.leaving.packed = Some((self.to_baggage(Moment::now(), driver), turn));
        stream.set_responding(false);
    }

    /// Goes on with the responses of another process, in `batch` the frames that it had made. Returns whether frames before them were sent.
    pub(super) fn go_on(&mut self, streams: Streams, batch: &mut Batch) -> bool {
        let Streams { frames, begun, is_responding, upcoming, responses, files } = streams;
        batch.unpack(frames, begun, &files);
        self.upcoming = upcoming;
        for mut under_way in responses {
            let StreamUnderWay { request, line, .. } = &mut under_way;
            self.path.go_on(line);
            let place = self.streams.try_take();
            let request = (request.take(), line);
            let answered = Answered::continued(self.context, Protocol::Http2, request, &mut self.permit, place);
            self.sending.push(Sending::resume(answered, under_way, &files));
        }
        is_responding
    }
}
