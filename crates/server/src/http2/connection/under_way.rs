//! Responses that go on in the process that has taken over.

use std::future::poll_fn;
use std::io;
use std::os::fd::OwnedFd;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll};

use sealion_h2::StreamId;
use sealion_http::Protocol;
use sealion_http::http1::framing::ResponseFraming;
use sealion_tls::TlsStream;

use super::Http2;
use super::answer::{Waiting, block_of};
use crate::exchange::{
    Answered, Answers, Awaited, Demand, Feed, Home, LostConnection, Passed, RelayedAnswer, RelayedSource, RequestSide,
    Upload, Wait, feed_answer, pass,
};
use crate::http2::batch::Batch;
use crate::http2::content::Streamed;
use crate::http2::response::Sending;
use crate::limits::Moment;
use crate::observe::metrics;
use crate::passing::{
    ContentUnderWay, Driver, Ends, Files, Line, Link, MOST_FILES, Passes, Refused, Relayed, Resting, Segment, Stage,
    StreamUnderWay, Streams, Turn, TurnWait,
};
use crate::response::{BodyStream, Piece, Source};
use crate::upstream::ContentWriter;

/// The passing of a connection whose responses are under way.
#[derive(Default)]
pub(super) struct Leaving<'a> {
    /// The connection waits for its turn.
    turn: TurnWait<'a>,
    /// It is packed, and has its turn.
    pub(super) packed: Option<(Box<Resting>, Turn)>,
    /// Responses whose content this process has.
    pub(super) feeds: Vec<Feed>,
    /// Relays for the answers that this process awaits.
    awaited: Vec<Await>,
    /// The streams that another process left.
    pub(super) arrived: Option<Box<Streams>>,
}

/// The relay for an answer that is awaited here.
struct Await {
    stream: StreamId,
    link: Link,
}

/// The departure of a connection.
pub(super) struct Departure {
    turn: Turn,
    /// Relays for what this process has.
    pairs: Vec<(Link, OwnedFd)>,
    /// The sockets of others.
    further: Vec<(StreamId, OwnedFd)>,
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

/// Runs `work` while responses are fed.
pub(super) async fn beside<T>(feeds: Vec<Feed>, mut work: Pin<Box<impl Future<Output = T>>>) -> T {
    let mut feeds: Vec<_> = feeds.into_iter().map(|feed| Box::pin(feed.run())).collect();
    poll_fn(|cx| {
        feeds.retain_mut(|feed| feed.as_mut().poll(cx).is_pending());
        work.as_mut().poll(cx)
    })
    .await
}

impl<'a> Http2<'a> {
    /// Waits for the turn to pass, if another process has taken over. `files`: the batch that is being sent has them.
    pub(super) fn poll_leave(&mut self, cx: &mut TaskContext<'_>, files: usize) -> Poll<Departure> {
        let Some(giver) = self.context.shared.heir(self.passes) else { return Poll::Pending };
        self.let_go_of_cancelled();
        if !self.can_leave(files) {
            self.leaving.stay();
            return Poll::Pending;
        }
        let Poll::Ready(turn) = self.leaving.turn.poll(giver, cx) else { return Poll::Pending };
        self.leaving.stay();
        let awaited = self.answering.iter().filter(|waiting| waiting.link.is_none()).count();
        let fed = self.sending.iter().filter(|sending| sending.is_fed_here()).count();
        let pairs: io::Result<Vec<_>> = (0..awaited + fed).map(|_| Link::pair()).collect();
        match pairs.and_then(|pairs| Ok((pairs, self.further()?))) {
            Ok((pairs, further)) => Poll::Ready(Departure { turn, pairs, further }),
            Err(error) => {
                tracing::warn!("{}: its responses stay with this process: {error}", self.context.remote);
                giver.stays(Refused::OwnDescriptors);
                self.passes = Passes::Never;
                self.idle.cannot_pass();
                Poll::Pending
            }
        }
    }

    /// The sockets over which another process feeds responses, for yet another one.
    fn further(&self) -> io::Result<Vec<(StreamId, OwnedFd)>> {
        let awaited =
            self.answering.iter().filter_map(|waiting| Some((waiting.stream, waiting.link.as_ref()?.duplicate())));
        let fed = self.sending.iter().filter_map(|sending| Some((sending.stream, sending.relay()?)));
        awaited.chain(fed).map(|(id, end)| Ok((id, end?))).collect()
    }

    /// Streams that the client has reset give up their slots: the ends of their requests are awaited here.
    fn let_go_of_cancelled(&mut self) {
        // A client that has closed its direction may still read what it gets.
        if self.finished {
            return;
        }
        for waiting in self.answering.iter().filter(|waiting| waiting.wait.is_cancelled()) {
            self.protocol.release(waiting.stream);
        }
    }

    fn can_leave(&self, files: usize) -> bool {
        let goes_on = !self.failed && self.closing.is_none() && self.receiving.is_empty();
        let awaited: Vec<_> = self.answering.iter().filter(|waiting| !waiting.wait.is_cancelled()).collect();
        let count = self.sending.len() + awaited.len();
        let is_known = |streamed: &Streamed| {
            self.sending.iter().any(|sending| sending.stream == streamed.stream && sending.has_source())
                || self.answering.iter().any(|waiting| waiting.stream == streamed.stream)
        };
        goes_on
            && self.protocol.can_rest()
            && count == self.protocol.open_streams()
            && count + files <= MOST_FILES
            && awaited.iter().all(|waiting| waiting.can_leave())
            && self.sending.iter().all(|sending| sending.can_leave())
            && self.streamed.iter().all(is_known)
    }

    /// Packs the connection, and the unsent rest of `batch`: the bytes from `after` on. `None`: nothing is being sent.
    pub(super) fn leave(&mut self, departure: Departure, unsent: Option<(&Batch, usize)>, stream: &mut TlsStream) {
        let Departure { turn, mut pairs, mut further } = departure;
        let mut ends = |id| {
            let index = further.iter().position(|(of, _)| *of == id);
            index.map(|index| further.swap_remove(index).1)
        };
        let mut files = Files::default();
        let (mut frames, begun) = unsent.map_or_else(Default::default, |(batch, after)| batch.pack(after, &mut files));
        let mut responses = Vec::new();
        for sending in std::mem::take(&mut self.sending) {
            let further = ends(sending.stream);
            responses.push(self.pack_sending(sending, further, &mut pairs, &mut files));
        }
        let (cancelled, awaited): (Vec<_>, Vec<_>) = std::mem::take(&mut self.answering)
            .into_iter()
            .partition(|waiting: &Waiting<'_>| waiting.wait.is_cancelled());
        self.answering = cancelled;
        let (elsewhere, here): (Vec<_>, Vec<_>) = awaited.into_iter().partition(|waiting| waiting.link.is_some());
        for waiting in elsewhere.into_iter().chain(here) {
            let further = ends(waiting.stream);
            responses.push(self.pack_awaited(waiting, further, &mut pairs, &mut files));
        }
        self.count_resets();
        self.protocol.write_control(&mut self.heads);
        if !self.heads.is_empty() {
            frames.push(Segment::Bytes(std::mem::take(&mut self.heads)));
        }
        let Some(rest) = self.protocol.to_rest() else { unreachable!("it can rest, and its output is taken") };
        let is_responding = unsent.is_some();
        let streams = Streams { frames, begun, is_responding, upcoming: self.upcoming, responses, files };
        let driver = Driver::Http2(Box::new(rest), Some(Box::new(streams)));
        self.leaving.packed = Some((self.to_baggage(Moment::now(), driver), turn));
        stream.set_responding(false);
    }

    fn pack_sending(
        &mut self,
        sending: Box<Sending<'a>>,
        further: Option<OwnedFd>,
        pairs: &mut Vec<(Link, OwnedFd)>,
        files: &mut Files,
    ) -> StreamUnderWay {
        let id = sending.stream;
        let (mut packed, source) = sending.pack(&self.path, files);
        let Some(content) = source else {
            self.streamed.retain(|streamed| streamed.stream != id);
            return packed;
        };
        let left = content.left();
        let upload = self.take_upload(id);
        let (request, writer) = upload.unzip();
        let request = request.flatten();
        let number = match further {
            Some(end) => files.push_relay(end),
            None => {
                let Some((link, far)) = pairs.pop() else { unreachable!("a pair was made for each") };
                let side = RequestSide { writer: writer.flatten(), ..RequestSide::default() };
                let home = Home::new(link, side, self.context.shared);
                self.leaving.feeds.push(Feed { home, content });
                files.push_relay(far)
            }
        };
        let stage = Stage::Content { framing: ResponseFraming::Nothing, left };
        packed.relayed = Some(Relayed { number, stage, content: request });
        packed
    }

    /// Takes the content of a request: as another process goes on with it, and the writer for the upstream of this one.
    fn take_upload(&mut self, id: StreamId) -> Option<(Option<ContentUnderWay>, Option<ContentWriter>)> {
        let index = self.streamed.iter().position(|streamed| streamed.stream == id)?;
        let mut streamed = self.streamed.swap_remove(index);
        let content = streamed.pack(&mut self.protocol);
        Some((content, streamed.upload.into_writer()))
    }

    /// Packs a request whose answer is awaited. If this process awaits it, it stays among those until it is certain that the connection has passed.
    fn pack_awaited(
        &mut self,
        waiting: Waiting<'a>,
        further: Option<OwnedFd>,
        pairs: &mut Vec<(Link, OwnedFd)>,
        files: &mut Files,
    ) -> StreamUnderWay {
        let id = waiting.stream;
        let line = Line::awaited(waiting.later.began);
        let request = waiting.later.head.upgrade().map(|head| Box::clone(&head));
        let streamed = self.streamed.iter_mut().find(|streamed| streamed.stream == id);
        let content = streamed.and_then(|streamed| streamed.pack(&mut self.protocol));
        let number = match further {
            Some(end) => {
                waiting.later.duty.leave();
                self.streamed.retain(|streamed| streamed.stream != id);
                files.push_relay(end)
            }
            None => {
                let Some((link, far)) = pairs.pop() else { unreachable!("a pair was made for each") };
                self.leaving.awaited.push(Await { stream: id, link });
                self.answering.push(waiting);
                files.push_relay(far)
            }
        };
        StreamUnderWay {
            stream: id,
            request,
            line,
            ended: false,
            filled: false,
            ends: Ends::Usual,
            rest: Vec::new(),
            trailers: None,
            stall: None,
            relayed: Some(Relayed { number, stage: Stage::Awaited, content }),
        }
    }

    /// Whether this process has no part in what is packed.
    pub(super) fn is_fed_elsewhere(&self) -> bool {
        self.leaving.feeds.is_empty() && self.answering.is_empty()
    }

    /// Offers the connection, and goes on to feed its responses. `false`: it was refused, and goes on here.
    pub(super) async fn leave_feeding(&mut self, stream: &mut TlsStream, resting: Box<Resting>, turn: Turn) -> bool {
        let shared = self.context.shared;
        let passed = match shared.giver.get() {
            Some(giver) => pass(stream, &resting, giver, shared).await,
            None => Passed::Stays,
        };
        drop(turn);
        let awaited = std::mem::take(&mut self.leaving.awaited);
        match passed {
            Passed::Lost => {
                let (context, sent) = (self.context, stream.payload_sent());
                let lost = LostConnection { context, tls: stream.info(), path: stream.path(), sent };
                if let Driver::Http2(rest, Some(mut streams)) = resting.driver {
                    // Those that are awaited here have their lines from this process's own answers.
                    streams.responses.retain(|response| awaited.iter().all(|own| own.stream != response.stream));
                    lost.finish(Driver::Http2(rest, Some(streams)));
                }
                true
            }
            Passed::Taken => {
                // Its copies of the relays' far ends would hide that the other process has closed them.
                drop(resting);
                let _active = metrics::worker().map(|worker| worker.active.enter());
                self.feed(awaited, stream).await;
                true
            }
            Passed::Stays => {
                self.passes = Passes::Never;
                self.idle.cannot_pass();
                if let Driver::Http2(_, Some(mut streams)) = resting.driver {
                    // Their answers are awaited here as before.
                    streams.responses.retain(|response| awaited.iter().all(|own| own.stream != response.stream));
                    self.leaving.arrived = Some(streams);
                }
                false
            }
        }
    }

    /// Feeds the responses of a connection that has passed, and ends the requests that its client has cancelled.
    async fn feed(&mut self, awaited: Vec<Await>, stream: &TlsStream) {
        let (shared, listener) = (self.context.shared, self.context.listener);
        let feeds = std::mem::take(&mut self.leaving.feeds);
        let mut running: Vec<Pin<Box<dyn Future<Output = ()> + Send + 'a>>> =
            feeds.into_iter().map(|feed| Box::pin(feed.run()) as _).collect();
        let mut cancelled = Vec::new();
        for waiting in std::mem::take(&mut self.answering) {
            let Some(Await { link, .. }) = awaited.iter().find(|own| own.stream == waiting.stream) else {
                cancelled.push(waiting);
                continue;
            };
            let Waiting { stream: id, answer, mut wait, later, .. } = waiting;
            later.duty.leave();
            let streamed = self.streamed.iter().position(|streamed| streamed.stream == id);
            let writer = streamed.and_then(|index| self.streamed.swap_remove(index).upload.into_writer());
            let request = RequestSide { writer, here: wait.cancel.take(), interims: wait.interims.take() };
            let home = Home::new(link.clone(), request, shared);
            running.push(Box::pin(feed_answer(home, answer, move |response, framing| {
                block_of(listener, response, framing)
            })));
        }
        drop(awaited);
        poll_fn(|cx| {
            running.retain_mut(|feed| feed.as_mut().poll(cx).is_pending());
            let has_ended = self.poll_cut(cx, &mut cancelled, stream, &CANCELLED).is_ready();
            if has_ended && running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
    }

    /// Goes on with the responses of another process, in `batch` the frames that it had made. Returns whether frames before them were sent.
    pub(super) fn go_on(&mut self, streams: Streams, batch: &mut Batch) -> bool {
        let Streams { frames, begun, is_responding, upcoming, responses, mut files } = streams;
        batch.unpack(frames, begun, &files);
        self.upcoming = upcoming;
        if self.window.is_first() {
            self.window.resume(&self.protocol, &self.context.shared.generations);
        }
        for mut under_way in responses {
            let id = under_way.stream;
            match under_way.relayed.take() {
                None => self.go_on_sending(under_way, &files, None),
                Some(Relayed { number, stage, content }) => match (files.take_relay(number), stage) {
                    (Ok(link), Stage::Awaited) => self.go_on_awaiting(under_way, link, content),
                    (Ok(link), Stage::Content { left, .. }) => {
                        let demand = self.go_on_receiving(id, content, &link);
                        let source = Box::pin(RelayedSource::new(link, demand));
                        self.go_on_sending(under_way, &files, Some(BodyStream { length: left, source }));
                    }
                    (Err(error), _) => {
                        tracing::warn!("{}: stream {id} breaks off behind an upgrade: {error}", self.context.remote);
                        let source = Box::pin(Broken(Some(error)));
                        self.go_on_sending(under_way, &files, Some(BodyStream { length: None, source }));
                    }
                },
            }
        }
        is_responding
    }

    fn go_on_sending(&mut self, mut under_way: StreamUnderWay, files: &Files, source: Option<BodyStream>) {
        let StreamUnderWay { request, line, ends, .. } = &mut under_way;
        self.path.go_on(line);
        let place = self.streams.try_take();
        let request = (request.take(), line);
        let mut answered = Answered::continued(self.context, Protocol::Http2, request, *ends, place);
        answered.keep_place(&mut self.permit);
        self.sending.push(Sending::resume(answered, under_way, files, source));
        self.has_backlog = true;
    }

    /// Goes on with the content of a request whose upstream another process has.
    fn go_on_receiving(&mut self, id: StreamId, content: Option<ContentUnderWay>, link: &Link) -> Demand {
        let streamed = match content {
            Some(content) => Streamed::resume(id, content, link.clone()),
            // The client may send more of it.
            None => Streamed::new(id, Upload::closed()),
        };
        let demand = streamed.upload.demand();
        self.streamed.push(streamed);
        demand
    }

    fn go_on_awaiting(&mut self, under_way: StreamUnderWay, link: Link, content: Option<ContentUnderWay>) {
        let StreamUnderWay { stream: id, request, line, .. } = under_way;
        // An offer without the head is refused.
        let head = request.unwrap_or_default();
        let memory = head.memory();
        let demand = self.go_on_receiving(id, content, &link);
        let (relayed, here, interims) = RelayedAnswer::new(link.clone(), demand);
        let answers = Answers { context: self.context, protocol: Protocol::Http2, streams: &self.streams };
        let (answer, later) = answers.go_on(head, &line, relayed, &mut self.permit);
        let wait = Wait { cancel: Some(here), awaited: Awaited::Upstream, interims: Some(interims) };
        self.answering.push(Waiting { stream: id, memory, answer, wait, later, link: Some(link) });
    }
}

/// Why a request that the client has reset has no response.
const CANCELLED: &str = "the client reset the stream";

/// The source of a response whose relay is lost.
struct Broken(Option<io::Error>);

impl Source for Broken {
    fn poll_piece(mut self: Pin<&mut Self>, _: &mut TaskContext<'_>) -> Poll<Option<io::Result<Piece>>> {
        let error = self.0.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        Poll::Ready(Some(Err(error)))
    }
}
