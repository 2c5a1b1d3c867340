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
use std::task::{Context as TaskContext, Poll, ready};

use sealion_h2::{By, Connection, ErrorCode, Event, HeadBuffer, HeaderBlock, StreamId};
use sealion_http::Status;
use sealion_tls::{Source, TlsStream};
use tokio::task::yield_now;
use tokio::time::{Sleep, sleep};

use super::batch::{Batch, RECORD};
use super::head::write_head;
use super::request::{Answer, Answered, Answering, Context, Delivery, free_head, keep_head};
use super::response::{Sending, reset_by_client};
use crate::exchange::{Cut, End, Error, Listener, PathChoice, Shared, now};
use crate::limits::{Closing, Idle, Moment, Permit};
use crate::observe::metrics;

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
    let mut idle = shared.idle.register(waker);
    let context = Context { shared, listener, remote: *peer, auth: stream.info().client_auth };
    let mut serving = Serving { stream, connection: Box::new(Http2::new(context)) };
    loop {
        let Serving { stream, connection } = &mut serving;
        // Boxed, so that an idle connection does not hold its memory.
        let ended = Box::pin(connection.work(stream)).await;
        connection.cut_short(stream, &ended).await;
        if let Some(end) = ended? {
            return Ok(end);
        }
        connection.protocol.shrink();
        match wait_for_frame(stream, &mut idle).await? {
            None => {}
            Some(closing) => {
                // A request that crosses GOAWAY is above its number: the client knows that it may repeat it.
                connection.protocol.drain_now();
                connection.closing = Some(if closing == Closing::Evicted { End::Evicted } else { End::Usual });
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
        for sending in std::mem::take(&mut self.connection.sending) {
            self.connection.finish(sending, self.stream, Some(&cut));
        }
    }
}

/// Waits for the first octet of a frame, or of the record that holds it. `Some`: the connection should be closed instead.
async fn wait_for_frame(stream: &mut TlsStream, idle: &mut Idle<'_>) -> Result<Option<Closing>, Error> {
    poll_fn(|cx| {
        if !stream.is_receiving()
            && let Poll::Pending = stream.poll_wait_for_record(cx)?
        {
            let closing = ready!(idle.poll_closing(Moment::now));
            if closing == Closing::Evicted && sealion_ktls::queued(stream.socket()).is_ok_and(|bytes| bytes > 0) {
                // What the client has not taken would be lost with the connection.
                idle.postpone(Moment::now());
                return Poll::Pending;
            }
            if closing == Closing::TimedOut
                && let Some(worker) = metrics::worker()
            {
                worker.timed_out(metrics::Deadline::Idle);
            }
            return Poll::Ready(Ok(Some(closing)));
        }
        // The end of the stream shows again when it is read.
        Poll::Ready(Ok(if idle.begin() { None } else { Some(Closing::Evicted) }))
    })
    .await
}

struct Http2<'a> {
    context: Context<'a>,
    protocol: Connection,
    permit: Permit,
    path: PathChoice,
    receiving: Vec<Receiving>,
    answering: Vec<(StreamId, Answering<'a>)>,
    sending: Vec<Sending>,
    /// Frames that go out before any of [`Self::protocol`]'s next ones: heads of responses.
    heads: Vec<u8>,
    /// Octets of responses whose path has not been chosen.
    upcoming: u64,
    /// Records of the next batch.
    batch: usize,
    requests: u64,
    /// The client sends no more.
    finished: bool,
    /// The protocol was violated; GOAWAY is queued.
    failed: bool,
    /// Close the connection when everything is written.
    closing: Option<End>,
    /// The deadline that runs, if any.
    deadline: Option<Deadline>,
}

/// A request whose content has not ended.
struct Receiving {
    stream: StreamId,
    head: HeadBuffer,
    /// Octets of content so far.
    content: u64,
}

/// Whether the client waits for a response before it sends content (RFC 9110 §10.1.1).
fn expects_continue(head: &HeadBuffer) -> bool {
    head.fields().first("expect").is_some()
}

/// What is waited for, and until when.
struct Deadline {
    of: Wait,
    timer: Pin<Box<Sleep>>,
    /// Octets of content that had been sent when it began.
    progress: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    /// For the rest of a frame or a header block.
    Frame,
    /// For the rest of a request's content.
    Content,
    /// For the client to open a window.
    Window,
}

/// Records of a batch that is sent while TCP is full: little, so that urgent responses need not wait for it.
const FEWEST_RECORDS: usize = 4;

/// Records of a batch while TCP takes everything, as many as [`TlsStream`] seals at a time.
const MOST_RECORDS: usize = 33;

/// Batches in a row, after which other connections have their turn.
const MOST_IN_A_ROW: u32 = 4;

/// Octets that renew the deadline of a window: a client that opens windows octet by octet makes no progress.
const PROGRESS: u64 = 16 << 10;

/// Usual length of a header block, for the choice of path.
const HEAD_ESTIMATE: u64 = 128;

impl<'a> Http2<'a> {
    fn new(context: Context<'a>) -> Self {
        Self {
            context,
            protocol: Connection::new(context.shared.generations.current().http2.clone()),
            permit: Permit::default(),
            path: PathChoice::default(),
            receiving: Vec::new(),
            answering: Vec::new(),
            sending: Vec::new(),
            heads: Vec::new(),
            upcoming: 0,
            batch: FEWEST_RECORDS,
            requests: 0,
            finished: false,
            failed: false,
            closing: None,
            deadline: None,
        }
    }

    /// Reads, answers and sends until no stream is left. `Some`: close the connection.
    async fn work(&mut self, stream: &mut TlsStream) -> Result<Option<End>, Error> {
        let _active = metrics::worker().map(|worker| worker.active.enter());
        let mut batch = Batch::default();
        let mut block = HeaderBlock::default();
        let mut in_a_row = 0;
        loop {
            let next = poll_fn(|cx| {
                self.receive(cx, stream, &mut block)?;
                self.poll_answers(cx, stream, &mut block);
                match self.next() {
                    Next::Wait => {
                        in_a_row = 0;
                        self.poll_deadline(cx, stream).map(|()| Ok(Next::Send))
                    }
                    next => Poll::Ready(Ok::<_, Error>(next)),
                }
            })
            .await?;
            if let Next::End(end) = next {
                self.heads = Vec::new();
                self.deadline = None;
                return Ok(end);
            }
            if self.upcoming > 0 {
                let current = self.context.shared.generations.current();
                let upcoming = std::mem::take(&mut self.upcoming);
                self.path.make(stream, upcoming, self.context.shared.path_policy(current.ktls)).await?;
            }
            self.fill(&mut batch);
            self.send(stream, &batch, &mut block).await?;
            batch.clear();
            self.finish_ended(stream);
            in_a_row += 1;
            if in_a_row > MOST_IN_A_ROW {
                in_a_row = 0;
                yield_now().await;
            }
        }
    }

    /// Reads all frames that have come.
    fn receive(
        &mut self,
        cx: &mut TaskContext<'_>,
        stream: &mut TlsStream,
        block: &mut HeaderBlock,
    ) -> Result<(), Error> {
        if !self.context.shared.is_serving() {
            self.protocol.drain();
        }
        let mut head = free_head();
        let result = loop {
            if self.failed || !self.protocol.wants_read() {
                break Ok(());
            }
            if !stream.buffered().is_empty() {
                self.frames(stream, &mut head, block);
                continue;
            }
            if self.finished {
                break Ok(());
            }
            match stream.poll_read_more(cx) {
                Poll::Pending => break Ok(()),
                Poll::Ready(Ok(0)) => self.finished = true,
                Poll::Ready(Ok(_)) => {}
                // Between requests no data can be lost, and many clients close without close_notify.
                Poll::Ready(Err(sealion_tls::Error::Truncated)) if self.protocol.is_idle() => self.finished = true,
                Poll::Ready(Err(error)) => break Err(error.into()),
            }
        };
        keep_head(head);
        result
    }

    /// Takes the frames in the stream's buffer.
    fn frames(&mut self, stream: &mut TlsStream, head: &mut HeadBuffer, block: &mut HeaderBlock) {
        let buffered = stream.buffered();
        let mut input = buffered;
        loop {
            match self.protocol.receive(&mut input, head) {
                Ok(Some(event)) => self.event(event, stream, head, block),
                Ok(None) => break,
                Err(error) => {
                    tracing::debug!("{}: closed with GOAWAY: {error}", self.context.remote);
                    self.failed = true;
                    input = &[];
                    break;
                }
            }
        }
        let consumed = buffered.len() - input.len();
        stream.consume(consumed);
    }

    fn event(&mut self, event: Event<'_>, stream: &TlsStream, head: &mut HeadBuffer, block: &mut HeaderBlock) {
        match event {
            Event::Request { stream: id, end } => {
                self.count_request();
                if end || expects_continue(head) {
                    self.answer(id, head, stream, block);
                } else {
                    let head = std::mem::replace(head, free_head());
                    self.receiving.push(Receiving { stream: id, head, content: 0 });
                }
            }
            Event::TooLarge { stream: id, .. } => {
                self.count_request();
                let refused = self.context.refuse(Status::REQUEST_HEADER_FIELDS_TOO_LARGE, false);
                self.answering.push((id, refused));
            }
            Event::Data { stream: id, data, end } => {
                self.protocol.consume(id, data.len());
                self.received(id, data.len() as u64, end, stream, block);
            }
            Event::Trailers { stream: id } => self.received(id, 0, true, stream, block),
            Event::Reset { stream: id, code, by } => {
                if let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == id) {
                    keep_head(self.receiving.swap_remove(index).head);
                    self.protocol.release(id);
                }
                // An answer that is being made goes on: its stream keeps its slot until then.
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
            }
            Event::Refused { stream: id } => tracing::debug!("{}: stream {id} refused", self.context.remote),
            Event::GoAway { .. } => self.protocol.drain_now(),
            Event::WindowOpened { .. } | Event::PriorityChanged { .. } | Event::SettingsAcknowledged => {}
        }
    }

    /// Answers the request in `head`.
    fn answer(&mut self, id: StreamId, head: &mut HeadBuffer, stream: &TlsStream, block: &mut HeaderBlock) {
        match self.context.answer(head, &mut self.permit, stream.socket()) {
            Answer::Now(answered) => self.respond(id, answered, stream, block),
            Answer::Later(answering) => self.answering.push((id, answering)),
        }
    }

    /// Discards `length` octets of a request's content, which files do not need. Its end, or too much of it, brings the response; in the second case
    /// the client is told then that the rest is not wanted.
    fn received(&mut self, id: StreamId, length: u64, end: bool, stream: &TlsStream, block: &mut HeaderBlock) {
        let Some(index) = self.receiving.iter().position(|receiving| receiving.stream == id) else { return };
        let receiving = &mut self.receiving[index];
        receiving.content += length;
        if end || receiving.content > self.context.shared.generations.current().limits.max_body.0 {
            let mut head = self.receiving.swap_remove(index).head;
            self.answer(id, &mut head, stream, block);
            keep_head(head);
        }
    }

    fn count_request(&mut self) {
        self.requests += 1;
        let current = self.context.shared.generations.current();
        if current.limits.max_requests.is_some_and(|most| self.requests >= most.get()) {
            self.protocol.drain();
        }
    }

    /// Writes the head of a response and makes its content ready.
    fn respond(&mut self, id: StreamId, answered: Box<Answered>, stream: &TlsStream, block: &mut HeaderBlock) {
        let (response, framing) = (&answered.response, answered.framing);
        write_head(block, response.status, &response.fields, framing, &now());
        let length = if framing.has_content() { response.body.len() } else { Some(0) };
        let before = self.heads.len();
        let written = self.protocol.respond(id, &[block.as_bytes()], length == Some(0), &mut self.heads);
        let mut sending = Sending::new(id, answered, (self.heads.len() - before) as u64);
        sending.is_head_only = length == Some(0);
        self.upcoming += HEAD_ESTIMATE + length.unwrap_or(0);
        match written {
            Ok(()) if sending.is_head_only => self.sending.push(sending),
            Ok(()) => {
                if sending.offer(&mut self.protocol).is_ok() {
                    self.sending.push(sending);
                }
            }
            // The client reset the stream while the answer was made.
            Err(error) => self.finish(sending, stream, Some(&error)),
        }
        if stream.should_close() {
            self.protocol.drain();
        }
    }

    /// Looks whether answers are ready, and whether sources have more.
    fn poll_answers(&mut self, cx: &mut TaskContext<'_>, stream: &TlsStream, block: &mut HeaderBlock) {
        let mut index = 0;
        while index < self.answering.len() {
            match self.answering[index].1.as_mut().poll(cx) {
                Poll::Ready(answered) => {
                    let (id, _) = self.answering.swap_remove(index);
                    self.respond(id, answered, stream, block);
                }
                Poll::Pending => index += 1,
            }
        }
        let mut index = 0;
        while index < self.sending.len() {
            match self.sending[index].poll_source(&mut self.protocol, cx) {
                Poll::Ready(error) => {
                    let sending = self.sending.swap_remove(index);
                    self.protocol.reset(sending.stream, ErrorCode::INTERNAL_ERROR);
                    self.finish(sending, stream, Some(&error));
                }
                Poll::Pending => index += 1,
            }
        }
    }

    fn next(&self) -> Next {
        if !self.heads.is_empty() || self.protocol.has_control() || (!self.failed && self.protocol.has_frame()) {
            return Next::Send;
        }
        let idle = self.protocol.is_idle() && self.answering.is_empty();
        if self.finished && !self.receiving.is_empty() {
            // The rest of their content will not come.
            return Next::End(Some(End::Usual));
        }
        if self.failed || (idle && (self.finished || self.protocol.is_drained())) {
            return Next::End(Some(self.closing.unwrap_or(End::Usual)));
        }
        match (idle, self.closing) {
            (true, Some(end)) => Next::End(Some(end)),
            (true, None) if !self.protocol.is_within_frame() => Next::End(None),
            _ => Next::Wait,
        }
    }

    /// Waits for the deadline of what the client owes, if it owes anything. Ready: the deadline passed, and its consequence is queued.
    fn poll_deadline(&mut self, cx: &mut TaskContext<'_>, stream: &TlsStream) -> Poll<()> {
        let stalled = self.protocol.stalled().next().is_some();
        let of = match () {
            () if stalled => Wait::Window,
            () if self.protocol.is_within_frame() => Wait::Frame,
            () if !self.receiving.is_empty() => Wait::Content,
            () => {
                self.deadline = None;
                return Poll::Pending;
            }
        };
        let progress = stream.payload_sent();
        let limits = &self.context.shared.generations.current().limits;
        let timeout = if of == Wait::Window { &limits.stall_timeout } else { &limits.request_timeout };
        let renewed = self.deadline.take_if(|deadline| deadline.of != of || progress >= deadline.progress + PROGRESS);
        drop(renewed);
        let begin = || Deadline { of, timer: Box::pin(sleep(timeout.duration())), progress };
        ready!(self.deadline.get_or_insert_with(begin).timer.as_mut().poll(cx));
        self.deadline = None;
        match of {
            Wait::Frame => {
                if let Some(worker) = metrics::worker() {
                    worker.timed_out(metrics::Deadline::Request);
                }
                self.protocol.close(ErrorCode::ENHANCE_YOUR_CALM, "a frame did not come to its end in time");
                self.failed = true;
            }
            Wait::Content => {
                for Receiving { stream: id, head, .. } in std::mem::take(&mut self.receiving) {
                    if let Some(worker) = metrics::worker() {
                        worker.timed_out(metrics::Deadline::Request);
                    }
                    let is_head = head.request().method == "HEAD";
                    keep_head(head);
                    self.answering.push((id, self.context.refuse(Status::REQUEST_TIMEOUT, is_head)));
                }
            }
            Wait::Window => {
                let stalled: Vec<StreamId> = self.protocol.stalled().map(|(id, _)| id).collect();
                for id in stalled {
                    self.protocol.reset(id, ErrorCode::CANCEL);
                    if let Some(index) = self.sending.iter().position(|sending| sending.stream == id) {
                        let sending = self.sending.swap_remove(index);
                        let why = format!("the client opened no window for {} s", timeout.duration().as_secs_f32());
                        self.finish(sending, stream, Some(&why));
                    }
                }
            }
        }
        Poll::Ready(())
    }

    /// Fills a batch: what the protocol wants to say, heads, then content by priority.
    fn fill(&mut self, batch: &mut Batch) {
        batch.copy(&self.heads);
        self.heads.clear();
        self.sending.iter_mut().for_each(|sending| sending.ended = sending.is_head_only);
        self.protocol.write_control(&mut self.heads);
        batch.copy(&self.heads);
        self.heads.clear();
        if self.failed {
            return;
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
            sending.ended = frame.end;
        }
    }

    /// Sends a batch, and reads meanwhile: windows are opened by reading.
    async fn send(&mut self, stream: &mut TlsStream, batch: &Batch, block: &mut HeaderBlock) -> Result<(), Error> {
        let parts = batch.parts();
        let mut source = Source::frames(&parts);
        let mut waited = false;
        stream.begin().await?;
        poll_fn(|cx| {
            if let Poll::Ready(sent) = stream.poll_send(cx, &mut source) {
                return Poll::Ready(sent.map_err(Error::from));
            }
            waited = true;
            self.receive(cx, stream, block)?;
            self.poll_answers(cx, stream, block);
            Poll::Pending
        })
        .await?;
        stream.finish()?;
        self.batch = if waited { FEWEST_RECORDS } else { (self.batch * 2).min(MOST_RECORDS) };
        Ok(())
    }

    /// Ends the work for all responses that are sent.
    fn finish_ended(&mut self, stream: &TlsStream) {
        let mut index = 0;
        while index < self.sending.len() {
            match self.sending[index].ended {
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
        for (id, answering) in std::mem::take(&mut self.answering) {
            let answered = answering.await;
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
