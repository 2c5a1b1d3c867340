//! The driver of an HTTP/2 connection: one task reads frames, answers requests and sends what is ready, whatever its stream.
//!
//! ```text
//!           ┌────────────────────────────────────────────────────────────────┐
//!           ▼                                                                │
//! Idle ─► read, answer ─nothing to send─► wait for input, an answer, a deadline ──┤
//!   ▲       │ something to send                                               │
//!   │       └─► choose the path ─► fill a batch from all streams ─► send it, and read meanwhile
//!   └─────────── no stream is left
//! ```
//!
//! A stream is in one of three lists: `receiving`, while its content comes; `answering`, while its response is made; `sending`, from the head of its
//! response to the end.

mod answer;
mod deadlines;
mod receive;
mod send;
mod under_way;
mod unsent;

use std::fmt::Display;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll, Waker};

use sealion_h2::{Connection, StreamId};
use sealion_http::Protocol;
use sealion_tls::TlsStream;
use tokio::task::yield_now;

use super::batch::{Batch, free_bytes, keep_bytes, shrink};
use super::content::{ContentWindow, Streamed};
use super::response::{Ahead, Sending};
use crate::exchange::{
    Answers, Context, Cut, Delivery, End, Error, Listener, PathChoice, Receiving, Shared, poll_idle_end,
};
use crate::limits::{ConnectionStreams, Idle, Moment, Permit};
use crate::observe::metrics;
use crate::passing::{Baggage, Driver, Passes, Refused, Resting};
use answer::Waiting;
use deadlines::Deadlines;
use under_way::{Leaving, beside};
use unsent::Unsent;

/// Serves requests until the connection should be closed in order, or pass on; the caller does so. `baggage`: its state at the beginning, and when it passes.
///
/// # Errors
/// The connection failed.
pub(crate) async fn serve(
    baggage: &mut Baggage,
    stream: &mut TlsStream,
    peer: &SocketAddr,
    listener: &Listener,
    shared: &Shared,
) -> Result<End, Error> {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let mut idle = shared.idle.register(waker);
    if baggage.passes == Passes::WhenItCan {
        idle.can_pass();
    }
    let auth = stream.info().and_then(|info| info.client_auth);
    let context = Context { shared, listener, remote: *peer, auth, server_name: None };
    let mut serving = Serving { stream, connection: Box::new(Http2::new(&context, idle, baggage)) };
    loop {
        let Serving { stream, connection } = &mut serving;
        let feeds = std::mem::take(&mut connection.leaving.feeds);
        // Boxed, so that an idle connection does not hold its memory.
        let work = Box::pin(connection.work(stream));
        let ended = if feeds.is_empty() { work.await } else { Box::pin(beside(feeds, work)).await };
        connection.cut_short(stream, &ended).await;
        if let Some(end) = ended? {
            let Some((resting, turn)) = connection.leaving.packed.take() else { return Ok(end) };
            if connection.is_fed_elsewhere() {
                (baggage.resting, baggage.turn) = (Some(resting), Some(turn));
                return Ok(end);
            }
            if Box::pin(connection.leave_feeding(stream, resting, turn)).await {
                return Ok(End::Passed);
            }
            continue;
        }
        connection.protocol.shrink();
        stream.set_responding(false);
        match wait_for_frame(stream, &mut connection.idle).await? {
            Waited::Octets => {}
            Waited::Gone => return Ok(End::Usual),
            Waited::Closing(End::Passing) => match connection.to_resting() {
                Some(resting) => {
                    baggage.resting = Some(resting);
                    return Ok(End::Passing);
                }
                None => {
                    connection.passes = Passes::Never;
                    if let Some(giver) = shared.giver.get() {
                        giver.stays(Refused::Busy);
                    }
                    connection.idle.cannot_pass();
                }
            },
            // Idle: a request that is under way is refused by GOAWAY, and the client knows that it may repeat it.
            Waited::Closing(end) => {
                connection.protocol.drain_now();
                connection.closing = Some(end);
            }
        }
    }
}

/// A connection and its socket. If it is dropped with the worker's runtime at the end of the grace time, responses that are being sent have lines too.
struct Serving<'s, 'a> {
    stream: &'s mut TlsStream,
    connection: Box<Http2<'a>>,
}

impl Drop for Serving<'_, '_> {
    fn drop(&mut self) {
        let cut = Cut::of(self.connection.context.shared);
        for Waiting { stream: id, mut answer, wait, .. } in std::mem::take(&mut self.connection.answering) {
            // A forwarded request is answered at once when its client is gone.
            if wait.cancel.map(drop).is_some()
                && let Poll::Ready(answered) = answer.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
            {
                self.connection.finish(Sending::new(id, answered), self.stream, Some(&cut));
            }
        }
        for sending in std::mem::take(&mut self.connection.sending) {
            self.connection.finish(sending, self.stream, Some(&cut));
        }
    }
}

/// The event that ended the wait of an idle connection.
enum Waited {
    /// The client sent something, or has closed in order.
    Octets,
    /// The client closed without close_notify, as many do.
    Gone,
    Closing(End),
}

/// Waits for the first byte of a frame, or of the record that holds it. A connection stays idle until a request comes: other frames do not
/// renew its time.
async fn wait_for_frame(stream: &mut TlsStream, idle: &mut Idle<'_>) -> Result<Waited, Error> {
    poll_fn(|cx| {
        let came = match stream.is_receiving() {
            true => Poll::Ready(Ok(true)),
            false => stream.poll_wait_for_record(cx),
        };
        match came {
            Poll::Ready(Err(sealion_tls::Error::Truncated)) => return Poll::Ready(Ok(Waited::Gone)),
            Poll::Ready(Err(error)) => return Poll::Ready(Err(error.into())),
            Poll::Ready(Ok(_)) | Poll::Pending => {}
        }
        let more = if came.is_ready() { Poll::Ready(Ok(Waited::Octets)) } else { Poll::Pending };
        // Frames that come again and again do not put off the end.
        match poll_idle_end(stream, idle) {
            Poll::Ready(end) => Poll::Ready(Ok(Waited::Closing(end))),
            Poll::Pending => more,
        }
    })
    .await
}

struct Http2<'a> {
    context: &'a Context<'a>,
    idle: Idle<'a>,
    protocol: Connection,
    permit: Permit,
    /// Places of the responses that hold descriptors.
    streams: Arc<ConnectionStreams>,
    path: PathChoice,
    receiving: Vec<Receiving<StreamId>>,
    /// Contents that are passed on.
    streamed: Vec<Streamed>,
    window: ContentWindow,
    answering: Vec<Waiting<'a>>,
    #[expect(
        clippy::vec_box,
        reason = "a response is not moved when it begins and ends, and the list of an idle connection is short"
    )]
    sending: Vec<Box<Sending<'a>>>,
    /// Frames that go out before any of [`Self::protocol`]'s next ones: heads of responses.
    heads: Vec<u8>,
    /// Content may wait to be sent that no response may overtake.
    has_backlog: bool,
    /// Bytes of sources that wait to be sent.
    ahead: Ahead,
    /// Bytes of responses whose path has not been chosen.
    upcoming: u64,
    /// Bytes of the next batch, and of its largest frame.
    batch: usize,
    unsent: Unsent,
    requests: u64,
    passes: Passes,
    /// The client has sent the beginning of its preface.
    begun: bool,
    /// The client sends no more.
    finished: bool,
    /// The protocol was violated; GOAWAY is queued.
    failed: bool,
    /// Close the connection when everything is written.
    closing: Option<End>,
    deadlines: Deadlines,
    leaving: Leaving<'a>,
}

/// Batches in a row, after which other connections have their turn.
const MOST_IN_A_ROW: u32 = 4;

/// Bytes in a row, after which other connections have their turn: a large batch has more.
const MOST_OCTETS_IN_A_ROW: usize = 1 << 18;

/// Streams that an idle connection keeps memory for.
const KEPT_STREAMS: usize = 4;

impl<'a> Http2<'a> {
    /// A new connection, or a connection that has been served before.
    fn new(context: &'a Context<'a>, idle: Idle<'a>, baggage: &mut Baggage) -> Self {
        let connection = Self {
            context,
            idle,
            protocol: Connection::new(context.shared.generations.current().http2.clone()),
            permit: Permit::default(),
            streams: context.shared.streams.connection(context.listener.one_client(context.remote)),
            path: PathChoice::default(),
            receiving: Vec::new(),
            streamed: Vec::new(),
            window: ContentWindow::new(context.listener.one_client(context.remote)),
            answering: Vec::new(),
            sending: Vec::new(),
            heads: Vec::new(),
            has_backlog: false,
            ahead: Ahead::new(&context.shared.ahead),
            upcoming: 0,
            batch: send::SMALL_BATCH,
            unsent: Unsent::default(),
            requests: 0,
            passes: baggage.passes,
            begun: false,
            finished: false,
            failed: false,
            closing: None,
            deadlines: Deadlines::default(),
            leaving: Leaving::default(),
        };
        match baggage.resting.take().map(|resting| *resting) {
            Some(Resting {
                driver: Driver::Http2(rest, streams),
                idle_since,
                requests,
                forgone,
                moved_at,
                paced,
                ..
            }) => {
                if streams.is_none() {
                    connection.idle.resume(idle_since);
                }
                Self {
                    leaving: Leaving::of_arrived(streams),
                    protocol: Connection::resume(*rest),
                    permit: Permit::of_paced(paced),
                    path: PathChoice::resume(forgone, moved_at),
                    requests,
                    begun: true,
                    ..connection
                }
            }
            _ => connection,
        }
    }

    /// The state that another process needs to go on. `None`: the connection is not at rest.
    fn to_resting(&self) -> Option<Box<Resting>> {
        let is_at_rest = self.is_idle() && !self.finished && self.closing.is_none() && self.heads.is_empty();
        let protocol = self.protocol.to_rest().filter(|_| is_at_rest)?;
        Some(self.to_baggage(self.idle.since(), Driver::Http2(Box::new(protocol), None)))
    }

    fn to_baggage(&self, idle_since: Moment, driver: Driver) -> Box<Resting> {
        Box::new(Resting {
            listener: self.context.listener.name.clone(),
            peer: self.context.remote,
            idle_since,
            requests: self.requests,
            forgone: self.path.forgone(),
            moved_at: self.path.moved_at,
            paced: self.permit.paced(),
            driver,
        })
    }

    /// Reads, answers and sends until no stream is left. `Some`: close the connection.
    async fn work(&mut self, stream: &mut TlsStream) -> Result<Option<End>, Error> {
        let _active = metrics::worker().map(|worker| worker.active.enter());
        let mut batch = Batch::take();
        self.heads = free_bytes();
        let (mut in_a_row, mut octets_in_a_row, mut is_first) = (0, 0, true);
        if let Some(streams) = self.leaving.arrived.take() {
            is_first = false;
            if self.go_on(*streams, &mut batch) || batch.len() > 0 {
                Box::pin(self.send(stream, &mut batch)).await?;
                batch.clear();
                self.finish_ended(stream);
            }
        }
        loop {
            if self.leaving.packed.is_some() {
                return Ok(self.rest(batch, Some(End::Passing)));
            }
            let next = poll_fn(|cx| {
                self.receive(cx, stream)?;
                self.poll_answers(cx, stream);
                match self.next(stream) {
                    Next::Wait if let Poll::Ready(departure) = self.poll_leave(cx, 0) => {
                        self.leave(departure, None, stream);
                        Poll::Ready(Ok(Next::End(Some(End::Passing))))
                    }
                    Next::Wait => {
                        (in_a_row, octets_in_a_row) = (0, 0);
                        shrink(&mut self.heads);
                        batch.shrink();
                        self.poll_deadline(cx, stream).map(|()| Ok(Next::Send))
                    }
                    next => Poll::Ready(Ok::<_, Error>(next)),
                }
            })
            .await?;
            if let Next::End(end) = next {
                return Ok(self.rest(batch, end));
            }
            if self.upcoming > 0 {
                let current = self.context.shared.generations.current();
                let upcoming = std::mem::take(&mut self.upcoming);
                self.path.make(stream, upcoming, self.context.shared.path_policy(current.ktls)).await?;
            }
            self.fill(&mut batch, is_first);
            is_first = false;
            self.send(stream, &mut batch).await?;
            if self.leaving.packed.is_some() {
                return Ok(self.rest(batch, Some(End::Passing)));
            }
            octets_in_a_row += batch.len();
            batch.clear();
            self.finish_ended(stream);
            // Further input is read when the connection has waited for it: this saves a look at the socket.
            if stream.buffered().is_empty()
                && let Next::End(None) = self.next(stream)
            {
                return Ok(self.rest(batch, None));
            }
            in_a_row += 1;
            if in_a_row > MOST_IN_A_ROW || octets_in_a_row > MOST_OCTETS_IN_A_ROW {
                (in_a_row, octets_in_a_row) = (0, 0);
                yield_now().await;
            }
        }
    }

    /// Gives back memory that an idle connection does not need. A few streams keep theirs for the next request.
    fn rest(&mut self, batch: Batch, end: Option<End>) -> Option<End> {
        batch.keep();
        keep_bytes(std::mem::take(&mut self.heads));
        self.deadlines.rest();
        self.unsent.rest();
        self.window.reduce(&mut self.protocol);
        self.leaving.stay();
        self.receiving.shrink_to(KEPT_STREAMS);
        self.answering.shrink_to(KEPT_STREAMS);
        self.sending.shrink_to(KEPT_STREAMS);
        end
    }

    /// Asks for responses.
    fn answers(&self) -> Answers<'_, 'a> {
        Answers { context: self.context, protocol: Protocol::Http2, streams: &self.streams }
    }

    /// Whether no request waits for a response or a part of one.
    fn is_idle(&self) -> bool {
        self.protocol.is_idle() && self.answering.is_empty()
    }

    fn next(&self, stream: &TlsStream) -> Next {
        if !self.heads.is_empty() || self.protocol.has_control() || (!self.failed && self.protocol.has_frame()) {
            return Next::Send;
        }
        let idle = self.is_idle();
        if self.failed || (idle && (self.finished || self.protocol.is_drained())) {
            return Next::End(Some(self.closing.unwrap_or(End::Usual)));
        }
        match (idle, self.closing) {
            (true, Some(end)) => Next::End(Some(end)),
            (true, None) if !self.is_within_frame(stream) => Next::End(None),
            _ => Next::Wait,
        }
    }

    /// Whether a frame, or a record, has begun and not ended. A connection that received nothing is idle.
    fn is_within_frame(&self, stream: &TlsStream) -> bool {
        stream.is_receiving() || (self.begun && self.protocol.is_within_frame())
    }

    /// Releases the stream and writes the line in the access log. `aborted`: why the response is incomplete.
    #[expect(clippy::boxed_local, reason = "it is dropped in its box, and not moved out for that")]
    fn finish(&mut self, mut sending: Box<Sending<'_>>, stream: &TlsStream, aborted: Option<&dyn Display>) {
        self.streamed.retain(|streamed| streamed.stream != sending.stream);
        self.protocol.release(sending.stream);
        sending.take_back();
        let Sending { stream: id, ref mut answered, body, wire, .. } = *sending;
        let delivery =
            Delivery { stream: id.get().into(), body, wire, path: stream.path(), choice: &mut self.path, aborted };
        answered.finish(stream.info(), delivery);
    }

    fn count_resets(&mut self) {
        if let Some(resets) = self.protocol.take_resets()
            && let Some(worker) = metrics::worker()
        {
            worker.http2.reset(&resets);
        }
    }

    /// Logs the responses that the end of the connection cut short. Responses that are being made are waited for: their requests are logged, a wrong password
    /// too.
    async fn cut_short(&mut self, stream: &TlsStream, ended: &Result<Option<End>, Error>) {
        self.count_resets();
        if matches!(ended, Ok(None | Some(End::Passing))) {
            return;
        }
        let why = match ended {
            Err(error) => error.to_string(),
            Ok(_) => "the connection ended".to_owned(),
        };
        self.streamed.clear();
        self.streams.close();
        let mut answering = std::mem::take(&mut self.answering);
        // All that is forwarded ends now: none waits for another.
        answering.iter_mut().for_each(|waiting| waiting.wait.cancel = None);
        poll_fn(|cx| self.poll_cut(cx, &mut answering, stream, &why)).await;
        for sending in std::mem::take(&mut self.sending) {
            self.finish(sending, stream, Some(&why));
        }
    }
}

impl<'a> Http2<'a> {
    /// Waits for responses that are for the log alone. `why`: they are not sent.
    fn poll_cut(
        &mut self,
        cx: &mut TaskContext<'_>,
        answering: &mut Vec<Waiting<'a>>,
        stream: &TlsStream,
        why: &dyn Display,
    ) -> Poll<()> {
        let mut index = 0;
        while index < answering.len() {
            match answering[index].answer.as_mut().poll(cx) {
                Poll::Ready(answered) => {
                    let id = answering.swap_remove(index).stream;
                    self.finish(Sending::new(id, answered), stream, Some(why));
                }
                Poll::Pending => index += 1,
            }
        }
        if answering.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    }
}

/// The next step of the driver.
#[derive(Debug)]
enum Next {
    Send,
    Wait,
    /// No stream is left. `Some`: close the connection.
    End(Option<End>),
}
