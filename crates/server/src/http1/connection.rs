//! The requests of one HTTP/1 connection, one after another (RFC 9112).
//!
//! ```text
//!   ┌──────────────────────── persists ───────────────────────────┐
//!   ▼                                                             │
//! Idle ─first byte─► Head ─whole─► Body ─drained─► handler ─► Response ─► end of the connection
//!   │ idle, draining   │ request     │ request       stall timeout
//!   │ timeout: end     │ timeout: 408│ timeout: end
//! ```

use std::cell::RefCell;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::time::Instant;

use sealion_tls::{Error, TlsStream};
use tokio::time::{Instant as Deadline, Sleep, sleep, timeout_at};

use super::body::{BodyDrain, Drained};
use super::head::{self, Framing, Parsed, RequestHead, Version};
use super::write::{Connection, write_head};
use crate::access_log::{AccessLog, Entry, Noted, Part};
use crate::connection::{Phase, Shared};
use crate::encoding::Coding;
use crate::errand::Findings;
use crate::generation::Generation;
use crate::handler::{self, Client};
use crate::http_time::HttpTime;
use crate::limits::Share;
use crate::metrics::{self, Sent, WorkerMetrics};
use crate::request::Target;
use crate::response::{Body, Response, Status};
use crate::site::{Site, Sites};
use crate::transport::{self, Choice};
use crate::worker::closing_idle;

/// Serves requests until the connection is to be closed in order; the caller closes it.
///
/// # Errors
/// What ended the connection instead.
pub(crate) async fn serve(stream: &mut TlsStream, peer: &SocketAddr, shared: &Shared) -> Result<(), Error> {
    let mut exchange = Exchange {
        noted: Noted::default(),
        choice: Choice::default(),
        share: Share::default(),
        counted: metrics::worker(),
    };
    let mut phase = shared.phase.clone();
    let mut end = pin!(closing_idle(&mut phase, shared));
    let mut idle = pin!(sleep(shared.generations.current().limits().idle_timeout.duration()));
    let mut requests = 0;
    loop {
        if !wait_for_request(stream, shared, end.as_mut(), idle.as_mut()).await? {
            return Ok(());
        }
        let _active = exchange.counted.map(|worker| worker.active.enter());
        requests += 1;
        let current = shared.generations.current();
        let last_allowed = current.limits().max_requests.is_some_and(|most| requests >= most.get());
        let Some(answer) = exchange.read(stream, peer, shared, &current, last_allowed).await? else {
            return Ok(());
        };
        let connection = answer.connection;
        exchange.respond(stream, peer, shared, &current, answer).await?;
        if connection == Connection::Close {
            return Ok(());
        }
    }
}

/// Waits for the first byte of a request. `false`: none will come, or none is wanted any more.
///
/// `idle` is one timer for all waits of a connection: setting it anew for each would cost more than it is worth. One
/// that fires early, for a wait that is over, is set again.
async fn wait_for_request(
    stream: &mut TlsStream,
    shared: &Shared,
    mut end: Pin<&mut impl Future<Output = ()>>,
    mut idle: Pin<&mut Sleep>,
) -> Result<bool, Error> {
    if !stream.buffered().is_empty() {
        return Ok(true);
    }
    let mut since = None;
    loop {
        tokio::select! {
            biased;
            came = stream.read_more() => return match came {
                Ok(came) => Ok(came > 0),
                // Between requests nothing can be missing, and many clients just close.
                Err(Error::Truncated) => Ok(false),
                Err(error) => Err(error),
            },
            () = end.as_mut() => return Ok(false),
            () = async { since.get_or_insert_with(Deadline::now); idle.as_mut().await } => {
                let patience = shared.generations.current().limits().idle_timeout.duration();
                let deadline = since.unwrap_or_else(Deadline::now) + patience;
                if deadline <= Deadline::now() {
                    timed_out(metrics::worker(), metrics::Deadline::Idle);
                    return Ok(false);
                }
                idle.as_mut().reset(deadline);
            }
        }
    }
}

/// What a request is answered with: the head as bytes, and of the response only what is needed after that, since a connection has room for it
/// all its life.
struct Answer {
    head: Vec<u8>,
    body: Body,
    status: Status,
    encoding: Option<Coding>,
    user: Option<Box<str>>,
    connection: Connection,
    /// When the request's head, or what stands for it, was complete; `None`: nobody wants to know.
    started: Option<Instant>,
}

impl Answer {
    fn new(response: Response, connection: Connection, started: Option<Instant>, now: &HttpTime) -> Self {
        let mut head = HEADS.with_borrow_mut(Vec::pop).unwrap_or_default();
        write_head(&mut head, &response, connection, now);
        let Response { status, fields, body, user, .. } = response;
        Self { head, body, status, encoding: fields.content_encoding, user, connection, started }
    }

    fn refusal(status: Status, sites: &Sites) -> Self {
        Self::new(sites.plain(status), Connection::Close, Some(Instant::now()), &HttpTime::now())
    }
}

/// Kept from request to request, so that a steady state allocates little.
struct Exchange {
    /// What the log says of the request once its bytes are gone.
    noted: Noted,
    choice: Choice,
    share: Share,
    counted: Option<&'static WorkerMetrics>,
}

impl Exchange {
    /// Reads a request, head and body, and makes its response. `None`: the client went away.
    async fn read(
        &mut self,
        stream: &mut TlsStream,
        peer: &SocketAddr,
        shared: &Shared,
        current: &Generation,
        last_allowed: bool,
    ) -> Result<Option<Answer>, Error> {
        self.noted.clear();
        // Set when something of the request is still missing: usually nothing is.
        let mut deadline = None;
        let limits = current.limits();
        let mut deadline = || *deadline.get_or_insert_with(|| Deadline::now() + limits.request_timeout.duration());
        let refused = |status| Ok(Some(Answer::refusal(status, &current.sites)));
        let mut findings = Findings::default();
        // The same request, when it comes back from an errand, is not counted again.
        let mut admitted = None;
        // An errand is part of what the client waits for.
        let mut began = None;
        let is_timed = shared.access_log.is_on() || self.counted.is_some();
        let (started, now, response, version, framing, wants_close, head_len) = loop {
            let errand = match head::parse(stream.buffered(), &current.head_limits) {
                Ok(Parsed::Head { head, len }) => {
                    let site = current.sites.find(head.request.authority);
                    let started = is_timed.then(|| *began.get_or_insert_with(Instant::now));
                    if shared.access_log.is_on() {
                        note(&mut self.noted, &head, &stream.buffered()[..len], &shared.access_log, site);
                    }
                    let now = HttpTime::now();
                    let wants_close = !head.keep_alive || head.expect_continue;
                    // Clients of a Unix socket have no address.
                    let address = Some(peer.ip()).filter(|address| !address.is_unspecified());
                    let refusal = *admitted.get_or_insert_with(|| {
                        let limits = site.and_then(|site| site.limits.as_ref());
                        self.share.admit(limits, address, stream.socket()).err()
                    });
                    let client = Client { address, auth: stream.info().client_auth.as_ref(), refusal };
                    match handler::handle(&head.request, &current.sites, site, client, now, &mut findings) {
                        Ok(response) => {
                            if let (Some(worker), Target::Path { path, .. }) = (self.counted, head.request.target) {
                                worker.asked_for(path, response.body.len());
                            }
                            break (started, now, response, head.version, head.framing, wants_close, len);
                        }
                        Err(errand) => Some(errand),
                    }
                }
                Ok(Parsed::Incomplete) => None,
                Err(reject) => {
                    tracing::debug!("refused with {}: {}", reject.status.code(), reject.why);
                    return refused(reject.status);
                }
            };
            // The head is parsed again with what was found: that is rare, and costs an idle connection no room.
            if let Some(errand) = errand {
                match Box::pin(errand.run()).await {
                    Ok(fetched) => findings.take(fetched),
                    Err(error) => {
                        tracing::error!("a thread that did something for a request ended: {error}");
                        return refused(Status::InternalServerError);
                    }
                }
                continue;
            }
            match timeout_at(deadline(), stream.read_more()).await {
                Ok(Ok(0)) | Ok(Err(Error::Truncated)) => return Ok(None),
                Ok(Ok(_)) => {}
                Ok(Err(error)) => return Err(error),
                Err(_) => {
                    timed_out(self.counted, metrics::Deadline::Request);
                    return refused(Status::RequestTimeout);
                }
            }
        };
        stream.consume(head_len);

        let mut close = wants_close || last_allowed || *shared.phase.borrow() != Phase::Serving;
        if framing != Framing::None && !wants_close {
            match Box::pin(drain(stream, BodyDrain::new(framing, limits.max_body.0), deadline())).await? {
                RequestBody::Done => {}
                RequestBody::TooLong => close = true,
                RequestBody::Broken(status) => return refused(status),
                RequestBody::Gone => return Ok(None),
            }
        }
        close |= stream.should_close();
        let connection = match (close, version) {
            (true, _) => Connection::Close,
            (false, Version::Http10) => Connection::KeepAlive10,
            (false, Version::Http11) => Connection::KeepAlive,
        };
        if let Some(cause) = &response.cause {
            let target = self.noted.get(Part::Target).unwrap_or_default().escape_ascii();
            tracing::warn!("{peer}: {target}: answered {}: {cause}", response.status.code());
        }
        Ok(Some(Answer::new(response, connection, started, &now)))
    }

    /// Sends the response and writes its line.
    async fn respond(
        &mut self,
        stream: &mut TlsStream,
        peer: &SocketAddr,
        shared: &Shared,
        current: &Generation,
        answer: Answer,
    ) -> Result<(), Error> {
        let Answer { mut head, body, status, encoding, user, started, .. } = answer;
        let before = stream.payload_sent();
        let sent = transport::send(stream, &head, &body, shared, current.ktls(), &mut self.choice).await;
        let head_len = head.len() as u64;
        head.clear();
        HEADS.with_borrow_mut(|heads| {
            if heads.len() < KEPT_HEADS {
                heads.push(head);
            }
        });
        let Some(started) = started else { return sent };
        let (bytes, took) = (stream.payload_sent() - before, started.elapsed());
        if let Some(worker) = self.counted {
            let (why, set_up) = (self.choice.why, self.choice.set_up);
            worker.sent(Sent { status: status.code(), why, bytes, took, set_up });
        }
        if shared.access_log.is_on() {
            shared.access_log.write(&Entry {
                peer: *peer,
                request: &self.noted,
                user: user.as_deref(),
                sni: stream.info().server_name.as_deref(),
                status: status.code(),
                body: bytes.saturating_sub(head_len),
                encoding,
                duration: took,
                tls: stream.info(),
                path: stream.path(),
                why: self.choice.why,
                moved_at: self.choice.moved_at,
                set_up: self.choice.set_up,
                aborted: sent.as_ref().err().map(|error| error as &dyn std::fmt::Display),
            });
        }
        sent
    }
}

/// Keeps what the log shows of a request, and no more.
fn note(noted: &mut Noted, head: &RequestHead<'_>, bytes: &[u8], log: &AccessLog, site: Option<&Site>) {
    let wanted = |part, value: &'static [u8]| if log.wants(part) { value } else { b"" };
    let field = |part, name| if log.wants(part) { head::find_field(bytes, name).unwrap_or_default() } else { b"" };
    noted.set([
        head.request.method.as_str().as_bytes(),
        head.request.raw_target.as_bytes(),
        wanted(Part::Protocol, if head.version == Version::Http11 { b"HTTP/1.1" } else { b"HTTP/1.0" }),
        if log.wants(Part::Host) { head.request.authority.unwrap_or_default().as_bytes() } else { b"" },
        field(Part::Referer, "referer"),
        field(Part::UserAgent, "user-agent"),
        if log.wants(Part::Site) { site.map_or(b"", |site| site.name.as_bytes()) } else { b"" },
    ]);
    if site.is_some_and(|site| !site.access_log) {
        noted.be_silent();
    }
}

fn timed_out(counted: Option<&WorkerMetrics>, deadline: metrics::Deadline) {
    if let Some(worker) = counted {
        worker.timed_out(deadline);
    }
}

thread_local! {
    /// Buffers for heads of responses; an idle connection holds none.
    static HEADS: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
}

/// GUESS: as many as responses of one worker are under way in a moment of ordinary load.
const KEPT_HEADS: usize = 8;

enum RequestBody {
    Done,
    TooLong,
    Broken(Status),
    Gone,
}

async fn drain(stream: &mut TlsStream, mut body: BodyDrain, deadline: Deadline) -> Result<RequestBody, Error> {
    loop {
        if body.is_too_long() {
            return Ok(RequestBody::TooLong);
        }
        match body.feed(stream.buffered()) {
            Drained::NeedMore => stream.consume(stream.buffered().len()),
            Drained::Done { consumed } => {
                stream.consume(consumed);
                return Ok(RequestBody::Done);
            }
            Drained::TooLong => return Ok(RequestBody::TooLong),
            Drained::Broken(reject) => return Ok(RequestBody::Broken(reject.status)),
        }
        match timeout_at(deadline, stream.read_more()).await {
            Ok(Ok(0)) | Ok(Err(Error::Truncated)) => return Ok(RequestBody::Gone),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error),
            Err(_) => {
                timed_out(metrics::worker(), metrics::Deadline::Request);
                return Ok(RequestBody::Broken(Status::RequestTimeout));
            }
        }
    }
}
