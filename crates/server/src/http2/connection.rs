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

use std::fmt::Display;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context as TaskContext, Poll, Waker, ready};
use std::time::{Duration, Instant};

use sealion_h2::{By, Connection, ErrorCode, Event, HeadBuffer, StreamId};
use sealion_http::Status;
use sealion_tls::{Part, Source, TlsStream};
use tokio::sync::oneshot;
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep_until};

use super::batch::{Batch, RECORD, free_bytes, keep_bytes};
use super::content::Streamed;
use super::head::with_head;
use super::request::{Answer, Answered, Answering, Context, Delivery, free_head, keep_head};
use super::response::{Sending, reset_by_client};
use crate::exchange::{Cut, End, Error, Listener, PathChoice, Shared, now, poll_idle_end};
use crate::limits::{Idle, Permit};
use crate::observe::metrics;
use crate::upstream::RequestContent;

/// Serves requests until the connection should be closed in order; the caller closes it.
///
/// # Errors
/// The connection failed.
pub(crate) async fn serve(
    stream: &mut TlsStream,
    peer: &SocketAddr,
    listener: &Listener,
    shared: &Shared,
) -> Result<End, Error> {
    let waker = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
    let idle = shared.idle.register(waker);
    let context = Context { shared, listener, remote: *peer, auth: stream.info().client_auth };
    let mut serving = Serving { stream, connection: Box::new(Http2::new(context, idle)) };
    loop {
        let Serving { stream, connection } = &mut serving;
        // Boxed, so that an idle connection does not hold its memory.
        let ended = Box::pin(connection.work(stream)).await;
        connection.cut_short(stream, &ended).await;
        if let Some(end) = ended? {
            return Ok(end);
        }
        connection.protocol.shrink();
        match wait_for_frame(stream, &mut connection.idle).await? {
            Waited::Octets => {}
            Waited::Gone => return Ok(End::Usual),
            // Idle: a request that is under way is refused by GOAWAY, and the client knows that it may repeat it.
            Waited::Closing(end) => {
                connection.protocol.drain_now();
                connection.closing = Some(end);
            }
        }
    }
}

/// A connection and its socket. What is being sent when it is dropped, with the worker's runtime at the end of the grace time, has a line too.
struct Serving<'s, 'a> {
    stream: &'s mut TlsStream,
    connection: Box<Http2<'a>>,
}

impl Drop for Serving<'_, '_> {
    fn drop(&mut self) {
        let cut = Cut::of(self.connection.context.shared);
        for Waiting { stream: id, mut answer, cancel, .. } in std::mem::take(&mut self.connection.answering) {
            // What is forwarded is answered at once when its client is gone.
            if cancel.map(drop).is_some()
                && let Poll::Ready(answered) = answer.as_mut().poll(&mut TaskContext::from_waker(Waker::noop()))
            {
                self.connection.finish(Sending::new(id, answered, 0), self.stream, Some(&cut));
            }
        }
        for sending in std::mem::take(&mut self.connection.sending) {
            self.connection.finish(sending, self.stream, Some(&cut));
        }
    }
}

/// What ended the wait of an idle connection.
enum Waited {
    /// The client sent something, or has closed in order.
    Octets,
    /// The client closed without close_notify, as many do.
    Gone,
    Closing(End),
}

/// Waits for the first octet of a frame, or of the record that holds it. A connection stays idle until a request comes: other frames do not
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
    context: Context<'a>,
    idle: Idle<'a>,
    protocol: Connection,
    permit: Permit,
    path: PathChoice,
    receiving: Vec<Receiving>,
    /// Contents that are passed on.
    streamed: Vec<Streamed>,
    answering: Vec<Waiting<'a>>,
    sending: Vec<Sending>,
    /// Frames that go out before any of [`Self::protocol`]'s next ones: heads of responses.
    heads: Vec<u8>,
    /// Octets of responses whose path has not been chosen.
    upcoming: u64,
    /// Records of the next batch.
    batch: usize,
    requests: u64,
    /// The client has sent the beginning of its preface.
    begun: bool,
    /// The client sends no more.
    finished: bool,
    /// The protocol was violated; GOAWAY is queued.
    failed: bool,
    /// Close the connection when everything is written.
    closing: Option<End>,
    /// The frame or header block that is waited for.
    frame: Option<PartialFrame>,
    /// When the client has to have acknowledged our settings: set by the first wait.
    settings_due: Option<Instant>,
    /// Ends the wait for what the client owes. It may go off earlier.
    timer: Option<Pin<Box<Sleep>>>,
}

/// A request whose answer is being made.
struct Waiting<'a> {
    stream: StreamId,
    /// Octets of its head.
    memory: usize,
    answer: Answering<'a>,
    /// Dropped, it ends a request that is forwarded.
    cancel: Option<oneshot::Sender<()>>,
}

/// A request whose content has not ended.
struct Receiving {
    stream: StreamId,
    head: HeadBuffer,
    /// Octets of content so far.
    content: u64,
    /// When all of it has to be there.
    deadline: Instant,
}

/// Whether the client waits for a response before it sends content (RFC 9110 §10.1.1).
fn expects_continue(head: &HeadBuffer) -> bool {
    head.fields().first("expect").is_some()
}

/// A frame or a header block whose end has not come.
#[derive(Debug, Clone, Copy)]
struct PartialFrame {
    /// As of [`Connection::frames_begun`].
    number: u64,
    deadline: Instant,
}

/// Records of a batch that is sent while TCP is full: little, so that urgent responses need not wait for it.
const FEWEST_RECORDS: usize = 4;

/// Records of a batch while TCP takes everything, as many as [`TlsStream`] seals at a time.
const MOST_RECORDS: usize = 33;

/// Batches in a row, after which other connections have their turn.
const MOST_IN_A_ROW: u32 = 4;

/// Requests behind the last one that `max_requests` allows: what a client may have sent before it read GOAWAY.
const MOST_BEHIND_THE_LAST: u64 = 128;

/// Streams for which an idle connection keeps memory.
const KEPT_STREAMS: usize = 4;

/// Octets of a head that is large.
const LARGE_HEAD: usize = 4 << 10;

/// Octets of heads that a connection may keep: 32 of the largest that `max_head` allows by default. Beyond, large heads are refused.
const MOST_KEPT: usize = 1 << 20;

/// Usual length of a header block, for the choice of path.
const HEAD_ESTIMATE: u64 = 128;

impl<'a> Http2<'a> {
    fn new(context: Context<'a>, idle: Idle<'a>) -> Self {
        Self {
            context,
            idle,
            protocol: Connection::new(context.shared.generations.current().http2.clone()),
            permit: Permit::default(),
            path: PathChoice::default(),
            receiving: Vec::new(),
            streamed: Vec::new(),
            answering: Vec::new(),
            sending: Vec::new(),
            heads: Vec::new(),
            upcoming: 0,
            batch: FEWEST_RECORDS,
            requests: 0,
            begun: false,
            finished: false,
            failed: false,
            closing: None,
            frame: None,
            settings_due: None,
            timer: None,
        }
    }

    /// Reads, answers and sends until no stream is left. `Some`: close the connection.
    async fn work(&mut self, stream: &mut TlsStream) -> Result<Option<End>, Error> {
        let _active = metrics::worker().map(|worker| worker.active.enter());
        let mut batch = Batch::take();
        self.heads = free_bytes();
        let (mut in_a_row, mut is_first) = (0, true);
        loop {
            let next = poll_fn(|cx| {
                self.receive(cx, stream)?;
                self.poll_answers(cx, stream);
                match self.next(stream) {
                    Next::Wait => {
                        in_a_row = 0;
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
            self.send(stream, &batch).await?;
            batch.clear();
            self.finish_ended(stream);
            // What else has come is read when the connection has waited for it: one look at the socket less.
            if stream.buffered().is_empty()
                && let Next::End(None) = self.next(stream)
            {
                return Ok(self.rest(batch, None));
            }
            in_a_row += 1;
            if in_a_row > MOST_IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
            }
        }
    }

    /// Gives back memory that an idle connection does not need. A few streams keep theirs for the next request.
    fn rest(&mut self, batch: Batch, end: Option<End>) -> Option<End> {
        batch.keep();
        keep_bytes(std::mem::take(&mut self.heads));
        (self.timer, self.frame) = (None, None);
        self.receiving.shrink_to(KEPT_STREAMS);
        self.answering.shrink_to(KEPT_STREAMS);
        self.sending.shrink_to(KEPT_STREAMS);
        end
    }

    /// Reads all frames that have come.
    fn receive(&mut self, cx: &mut TaskContext<'_>, stream: &mut TlsStream) -> Result<(), Error> {
        if !self.context.shared.is_serving() {
            self.protocol.drain();
        }
        let mut head = free_head();
        let result = loop {
            if self.failed || !self.protocol.wants_read() {
                break Ok(());
            }
            if !stream.buffered().is_empty() {
                self.frames(stream, &mut head);
                continue;
            }
            if self.finished {
                break Ok(());
            }
            match stream.poll_read_more(cx) {
                Poll::Pending => break Ok(()),
                Poll::Ready(Ok(0)) => {
                    self.finished = true;
                    // The rest of their content will not come.
                    self.streamed.clear();
                }
                Poll::Ready(Ok(_)) => {}
                // Between requests no data can be lost, and many clients close without close_notify.
                Poll::Ready(Err(sealion_tls::Error::Truncated)) if self.protocol.is_idle() => self.finished = true,
                Poll::Ready(Err(error)) => break Err(error.into()),
            }
        };
        keep_head(head);
        if self.finished && !self.receiving.is_empty() {
            self.abandon_receiving();
        }
        result
    }

    /// The rest of these contents will not come: the client has closed its direction. Its other requests are answered.
    fn abandon_receiving(&mut self) {
        for Receiving { stream, head, .. } in std::mem::take(&mut self.receiving) {
            self.protocol.reset(stream, ErrorCode::CANCEL);
            self.protocol.release(stream);
            keep_head(head);
        }
    }

    /// Takes the frames in the stream's buffer.
    fn frames(&mut self, stream: &mut TlsStream, head: &mut HeadBuffer) {
        let buffered = stream.buffered();
        let mut input = buffered;
        loop {
            match self.protocol.receive(&mut input, head) {
                Ok(Some(event)) => self.event(event, stream, head),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("{}: closed with GOAWAY: {error}", self.context.remote);
                    self.failed = true;
                    input = &[];
                    break;
                }
            }
        }
        self.begun = true;
        let consumed = buffered.len() - input.len();
        stream.consume(consumed);
    }

    fn event(&mut self, event: Event<'_>, stream: &TlsStream, head: &mut HeadBuffer) {
        match event {
            Event::Request { stream: id, end } => {
                self.count_request();
                if head.memory() > LARGE_HEAD && self.kept() > MOST_KEPT {
                    // The head is not kept for it.
                    let status = Status::REQUEST_HEADER_FIELDS_TOO_LARGE;
                    self.refuse(id, status, HeadBuffer::default());
                } else if !end && self.context.may_forward(head) {
                    let length = head.fields().first("content-length");
                    let length = length.and_then(|digits| std::str::from_utf8(digits).ok()?.parse().ok());
                    let (streamed, content) = Streamed::new(id, length, expects_continue(head));
                    self.streamed.push(streamed);
                    self.answer(id, head, stream, Some(content));
                } else if end || expects_continue(head) {
                    self.answer(id, head, stream, None);
                } else {
                    let head = std::mem::replace(head, free_head());
                    let limits = &self.context.shared.generations.current().limits;
                    let deadline = Instant::now() + limits.request_timeout.duration();
                    self.receiving.push(Receiving { stream: id, head, content: 0, deadline });
                }
            }
            Event::TooLarge { stream: id, .. } => {
                self.count_request();
                let head = std::mem::replace(head, free_head());
                self.refuse(id, Status::REQUEST_HEADER_FIELDS_TOO_LARGE, head);
            }
            Event::Data { stream: id, data, end } => match self.streamed.iter_mut().find(|other| other.stream == id) {
                Some(streamed) => streamed.receive(data, end),
                None => self.received(id, data.len() as u64, end, stream),
            },
            Event::Trailers { stream: id } => match self.streamed.iter_mut().find(|other| other.stream == id) {
                Some(streamed) => streamed.end(head.fields()),
                None => self.received(id, 0, true, stream),
            },
            Event::Reset { stream: id, code, by } => {
                if let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == id) {
                    keep_head(self.receiving.swap_remove(index).head);
                    self.protocol.release(id);
                }
                self.streamed.retain(|streamed| streamed.stream != id);
                // An answer that is being made goes on, unless it is forwarded: its stream keeps its slot until then.
                if let Some(waiting) = self.answering.iter_mut().find(|waiting| waiting.stream == id) {
                    waiting.cancel = None;
                }
                if let Some(index) = self.sending.iter().position(|sending| sending.stream == id) {
                    let why: &dyn Display = match by {
                        By::Client => &reset_by_client(code),
                        By::Server => &code,
                    };
                    let sending = self.sending.swap_remove(index);
                    self.finish(sending, stream, Some(why));
                }
            }
            Event::Malformed { stream: id, why } => {
                tracing::debug!("{}: stream {id}: malformed request: {why}", self.context.remote);
                self.log_refusal(Status::BAD_REQUEST, stream, why);
            }
            Event::Refused { stream: id } => {
                tracing::debug!("{}: stream {id} refused", self.context.remote);
                self.log_refusal(
                    Status::SERVICE_UNAVAILABLE,
                    stream,
                    "more streams than are allowed, or GOAWAY was sent",
                );
            }
            Event::GoAway { .. } => self.protocol.drain_now(),
            Event::WindowOpened { .. } | Event::PriorityChanged { .. } | Event::SettingsAcknowledged => {}
        }
    }

    /// Writes the line of a request that was reset before it had a stream.
    fn log_refusal(&mut self, status: Status, stream: &TlsStream, why: &str) {
        let delivery = Delivery { body: 0, wire: 0, path: stream.path(), choice: &mut self.path, aborted: Some(&why) };
        self.context.reset(status).finish(&self.context, stream.info(), delivery);
    }

    /// Octets of heads that wait for content, an answer's end or the log.
    fn kept(&self) -> usize {
        let receiving: usize = self.receiving.iter().map(|receiving| receiving.head.memory()).sum();
        let answering: usize = self.answering.iter().map(|waiting| waiting.memory).sum();
        receiving + answering + self.sending.iter().map(|sending| sending.answered.memory()).sum::<usize>()
    }

    /// Refuses a request, of which `head` has what is known.
    fn refuse(&mut self, id: StreamId, status: Status, head: HeadBuffer) {
        let memory = head.memory();
        let answer = self.context.refuse(status, head);
        self.answering.push(Waiting { stream: id, memory, answer, cancel: None });
    }

    /// Answers the request in `head`.
    fn answer(&mut self, id: StreamId, head: &mut HeadBuffer, stream: &TlsStream, content: Option<RequestContent>) {
        let memory = head.memory();
        match self.context.answer(head, &mut self.permit, stream.socket(), content) {
            Answer::Now(answered) => self.respond(id, answered, stream),
            Answer::Later(answer, cancel) => {
                self.answering.push(Waiting { stream: id, memory, answer, cancel });
            }
        }
    }

    /// Discards `length` octets of a request's content, which files do not need. Its end, or too much of it, brings the response; in the second case
    /// the client is told then that the rest is not wanted.
    fn received(&mut self, id: StreamId, length: u64, end: bool, stream: &TlsStream) {
        let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == id) else { return };
        let receiving = &mut self.receiving[index];
        receiving.content += length;
        // Behind the answer no more is taken than the window has room for.
        self.protocol.consume(id, length as usize);
        if end || receiving.content > self.context.shared.generations.current().limits.max_body.0 {
            let mut head = self.receiving.swap_remove(index).head;
            self.answer(id, &mut head, stream, None);
            keep_head(head);
        }
    }

    fn count_request(&mut self) {
        self.requests += 1;
        self.permit.is_shared = self.protocol.open_streams() > 1;
        if !self.idle.begin() {
            // Its slot is promised to another connection.
            self.closing = Some(End::Evicted);
            self.protocol.drain_now();
        }
        let current = self.context.shared.generations.current();
        let Some(most) = current.limits.max_requests else { return };
        if self.requests >= most.get() {
            self.protocol.drain();
        }
        if self.requests >= most.get().saturating_add(MOST_BEHIND_THE_LAST) {
            // The client does not reply to the PING that would tell what it had sent before it knew.
            self.protocol.drain_now();
        }
    }

    /// Writes the head of a response and makes its content ready.
    fn respond(&mut self, id: StreamId, answered: Box<Answered>, stream: &TlsStream) {
        let (response, framing) = (&answered.response, answered.framing);
        let length = if framing.has_content() { response.body.len() } else { Some(0) };
        let before = self.heads.len();
        let written = with_head(response.status, &response.fields, framing, &now(), |head| {
            self.protocol.respond(id, head, length == Some(0), &mut self.heads)
        });
        let mut sending = Sending::new(id, answered, (self.heads.len() - before) as u64);
        sending.ended = length == Some(0);
        let offered = written.and_then(|()| if sending.ended { Ok(()) } else { sending.offer(&mut self.protocol) });
        match offered {
            Ok(()) => {
                self.upcoming += HEAD_ESTIMATE + length.unwrap_or(0);
                self.sending.push(sending);
            }
            // The client reset the stream while the answer was made.
            Err(error) => self.finish(sending, stream, Some(&error)),
        }
        if stream.should_close() {
            self.protocol.drain();
        }
    }

    /// Looks whether answers are ready, and whether sources have more.
    fn poll_answers(&mut self, cx: &mut TaskContext<'_>, stream: &TlsStream) {
        for streamed in &mut self.streamed {
            streamed.poll(cx, &mut self.protocol, &mut self.heads);
        }
        let mut index = 0;
        while index < self.answering.len() {
            match self.answering[index].answer.as_mut().poll(cx) {
                Poll::Ready(answered) => {
                    let id = self.answering.swap_remove(index).stream;
                    self.respond(id, answered, stream);
                }
                Poll::Pending => index += 1,
            }
        }
        let mut index = 0;
        while index < self.sending.len() {
            match self.sending[index].poll_source(&mut self.protocol, cx, &mut self.upcoming, &mut self.heads) {
                Poll::Ready(error) => {
                    let sending = self.sending.swap_remove(index);
                    self.protocol.reset(sending.stream, ErrorCode::INTERNAL_ERROR);
                    self.finish(sending, stream, Some(&error));
                }
                Poll::Pending => index += 1,
            }
        }
    }

    fn next(&self, stream: &TlsStream) -> Next {
        if !self.heads.is_empty() || self.protocol.has_control() || (!self.failed && self.protocol.has_frame()) {
            return Next::Send;
        }
        let idle = self.protocol.is_idle() && self.answering.is_empty();
        if self.failed || (idle && (self.finished || self.protocol.is_drained())) {
            return Next::End(Some(self.closing.unwrap_or(End::Usual)));
        }
        match (idle, self.closing) {
            (true, Some(end)) => Next::End(Some(end)),
            (true, None) if !self.is_within_frame(stream) => Next::End(None),
            _ => Next::Wait,
        }
    }

    /// Whether a frame, or a record, has begun and not ended. A connection on which nothing has come is idle.
    fn is_within_frame(&self, stream: &TlsStream) -> bool {
        stream.is_receiving() || (self.begun && self.protocol.is_within_frame())
    }

    /// Waits for the deadline of what the client owes, if it owes anything. Ready: a deadline passed, and its consequence is queued.
    fn poll_deadline(&mut self, cx: &mut TaskContext<'_>, stream: &TlsStream) -> Poll<()> {
        let within_frame = self.is_within_frame(stream);
        if !within_frame {
            self.frame = None;
        }
        let stalled = self.protocol.stalled().next().is_some();
        let unacknowledged = !self.protocol.settings_acknowledged() && !self.finished;
        let owes_content = self.streamed.iter().any(|streamed| streamed.owed_since().is_some());
        if !within_frame && !stalled && !unacknowledged && !owes_content && self.receiving.is_empty() {
            self.timer = None;
            return Poll::Pending;
        }
        let now = Instant::now();
        let (request_timeout, stall_timeout) = {
            let limits = &self.context.shared.generations.current().limits;
            (limits.request_timeout.duration(), limits.stall_timeout.duration())
        };
        if within_frame {
            let number = self.protocol.frames_begun();
            if self.frame.is_none_or(|frame| frame.number != number) {
                self.frame = Some(PartialFrame { number, deadline: now + request_timeout });
            }
        }
        if stalled {
            for (id, progress) in self.protocol.stalled() {
                if let Some(sending) = self.sending.iter_mut().find(|sending| sending.stream == id) {
                    sending.stalled(progress, now + stall_timeout);
                }
            }
        }
        let settings = unacknowledged.then(|| *self.settings_due.get_or_insert(now + request_timeout));
        let frame = self.frame.map(|frame| frame.deadline);
        let contents = self.receiving.iter().map(|receiving| receiving.deadline);
        let pieces = self.streamed.iter().filter_map(|streamed| Some(streamed.owed_since()? + request_timeout));
        let windows = self.sending.iter().filter_map(|sending| sending.deadline());
        let all = frame.into_iter().chain(settings).chain(contents).chain(pieces).chain(windows);
        let Some(first) = all.min() else { return Poll::Pending };
        if first > now {
            let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(first.into())));
            if timer.deadline() != first.into() {
                timer.as_mut().reset(first.into());
            }
            ready!(timer.as_mut().poll(cx));
        }
        self.timer = None;
        self.expire(first, stream, request_timeout, stall_timeout);
        Poll::Ready(())
    }

    /// Ends the wait for what should have been there at `first`, which has passed.
    fn expire(&mut self, first: Instant, stream: &TlsStream, request_timeout: Duration, stall_timeout: Duration) {
        if self.frame.is_some_and(|frame| frame.deadline <= first) {
            metrics::timed_out(metrics::Deadline::Request);
            self.protocol.close(ErrorCode::ENHANCE_YOUR_CALM, "a frame did not come to its end in time");
            self.failed = true;
            return;
        }
        if !self.protocol.settings_acknowledged() && self.settings_due.is_some_and(|due| due <= first) {
            metrics::timed_out(metrics::Deadline::Request);
            self.protocol.close(ErrorCode::SETTINGS_TIMEOUT, "the client did not acknowledge SETTINGS in time");
            self.failed = true;
            return;
        }
        let late: Vec<_> = self.receiving.extract_if(.., |receiving| receiving.deadline <= first).collect();
        for receiving in late {
            metrics::timed_out(metrics::Deadline::Request);
            self.refuse(receiving.stream, Status::REQUEST_TIMEOUT, receiving.head);
        }
        for streamed in &mut self.streamed {
            if streamed.owed_since().is_some_and(|since| since + request_timeout <= first) {
                metrics::timed_out(metrics::Deadline::Request);
                streamed.time_out();
            }
        }
        let late = |sending: &Sending| sending.deadline().is_some_and(|deadline| deadline <= first);
        while let Some(index) = self.sending.iter().position(late) {
            let sending = self.sending.swap_remove(index);
            self.protocol.reset(sending.stream, ErrorCode::CANCEL);
            let why = format!("the client opened no window for {} s", stall_timeout.as_secs_f32());
            self.finish(sending, stream, Some(&why));
        }
    }

    /// Fills a batch: what the protocol wants to say, heads, then content by priority. `is_first`: since the connection was idle.
    fn fill(&mut self, batch: &mut Batch, is_first: bool) {
        batch.copy(&self.heads);
        self.heads.clear();
        self.protocol.write_control(&mut self.heads);
        batch.copy(&self.heads);
        self.heads.clear();
        for sending in &mut self.sending {
            sending.filled = sending.ended;
        }
        if self.failed {
            return;
        }
        if is_first && self.sending.iter().any(|sending| sending.is_long()) {
            batch.begin_short();
        }
        while batch.len() < self.batch * RECORD
            && let Some(frame) = self.protocol.next_frame(batch.room())
        {
            batch.copy(&frame.header);
            let Some(sending) = self.sending.iter_mut().find(|sending| sending.stream == frame.stream) else {
                debug_assert!(false, "a frame of a stream without content");
                continue;
            };
            sending.take(frame.length, batch);
            sending.wire += (frame.header.len() + frame.length) as u64;
            (sending.ended, sending.filled) = (frame.end, frame.end);
            if sending.end_with_trailers(&mut self.protocol, &mut self.heads) {
                sending.filled = true;
                batch.copy(&self.heads);
                self.heads.clear();
            }
        }
    }

    /// Sends a batch, and reads meanwhile: windows are opened by reading.
    async fn send(&mut self, stream: &mut TlsStream, batch: &Batch) -> Result<(), Error> {
        let (one, several);
        let parts: &[Part<'_>] = match batch.only_part() {
            Some(part) => {
                one = [part];
                &one
            }
            None => {
                several = batch.parts();
                &several
            }
        };
        let mut source = Source::frames(parts, batch.first_record());
        let mut waited = false;
        stream.begin().await?;
        poll_fn(|cx| {
            if let Poll::Ready(sent) = stream.poll_send(cx, &mut source) {
                return Poll::Ready(sent.map_err(Error::from));
            }
            waited = true;
            self.receive(cx, stream)?;
            self.poll_answers(cx, stream);
            Poll::Pending
        })
        .await?;
        stream.finish()?;
        self.batch = if waited { FEWEST_RECORDS } else { (self.batch * 2).min(MOST_RECORDS) };
        Ok(())
    }

    /// Ends the work for all responses whose end was in the batch that is sent.
    fn finish_ended(&mut self, stream: &TlsStream) {
        let mut index = 0;
        while index < self.sending.len() {
            match self.sending[index].filled {
                true => {
                    let sending = self.sending.swap_remove(index);
                    self.finish(sending, stream, None);
                }
                false => index += 1,
            }
        }
    }

    /// Releases the stream and writes the line in the access log. `aborted`: why the response is incomplete.
    fn finish(&mut self, sending: Sending, stream: &TlsStream, aborted: Option<&dyn Display>) {
        self.streamed.retain(|streamed| streamed.stream != sending.stream);
        self.protocol.release(sending.stream);
        let Sending { answered, body, wire, .. } = sending;
        let delivery = Delivery { body, wire, path: stream.path(), choice: &mut self.path, aborted };
        answered.finish(&self.context, stream.info(), delivery);
    }

    /// Logs what the end of the connection cut short. Answers that are being made are waited for: what they were asked, a wrong password too, is
    /// logged.
    async fn cut_short(&mut self, stream: &TlsStream, ended: &Result<Option<End>, Error>) {
        if matches!(ended, Ok(None)) {
            return;
        }
        let why = match ended {
            Err(error) => error.to_string(),
            Ok(_) => "the connection ended".to_owned(),
        };
        self.streamed.clear();
        for Waiting { stream: id, answer, cancel, .. } in std::mem::take(&mut self.answering) {
            drop(cancel);
            let answered = answer.await;
            self.finish(Sending::new(id, answered, 0), stream, Some(&why));
        }
        for sending in std::mem::take(&mut self.sending) {
            self.finish(sending, stream, Some(&why));
        }
    }
}

/// What the driver does next.
#[derive(Debug)]
enum Next {
    Send,
    Wait,
    /// No stream is left. `Some`: close the connection.
    End(Option<End>),
}
