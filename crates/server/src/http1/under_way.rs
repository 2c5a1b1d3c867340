//! A response that goes on in the process that has taken over.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::pin::pin;

use bytes::Bytes;
use sealion_http::Status;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::{RequestHead, Version};
use sealion_http::http1::write::{Connection, insert_lines, write_head};
use sealion_tls::TlsStream;

use super::buffer::Buffer;
use super::connection::{After, Http1, Kept, Reply};
use super::respond::{Departure, Head, Leave, Progress, Relay, go_on_with, respond, respond_with, send_rest, stays};
use super::stream::{Stream, Waited};
use crate::exchange::{
    Context, Duty, End, Error, Exchange, Feed, Home, LostConnection, Passed, RelayedAnswer, RelayedSource, Shared, now,
    pass,
};
use crate::limits::Moment;
use crate::observe::metrics;
use crate::passing::{Driver, Ends, Files, Line, Link, Passes, Relayed, RelayedHead, Segment, Stage, Turn, UnderWay};
use crate::response::{Body, BodyStream, Cursor, Response, SourceError};

impl Http1<'_> {
    /// Goes on with an exchange that another process began, and writes its line in the access log.
    pub(super) async fn go_on(
        &mut self,
        mut under_way: Box<UnderWay>,
        tls: &mut TlsStream,
        remote: &SocketAddr,
        shared: &Shared,
    ) -> Result<After, Error> {
        let _active = metrics::worker().map(|worker| worker.active.enter());
        let current = shared.generations.current();
        let auth = tls.info().and_then(|info| info.client_auth);
        let context = Context { shared, listener: self.listener, remote: *remote, auth, server_name: None };
        let UnderWay { request, persists, line, rest, relayed, files } = &mut *under_way;
        // An offer with another head is refused.
        let Some(head) = UnderWay::head_of(request) else { return Err(Error::Offer) };
        let peer = context.peer(head.request.fields, head.version.into());
        let exchange = Exchange::continued(&context, &current, peer, Some(&head.request), line);
        exchange.keep_place(&mut self.permit);
        self.path.go_on(line);
        let leave = Leave::of(shared, self.passes);
        let stream = Stream::new(tls, &mut self.path, Some(&head), current.limits.request_timeout.duration());
        let mut reply = Reply::new(exchange, stream);
        let result = match relayed.take() {
            Some(Relayed { number, stage: Stage::Awaited, content }) => {
                let link = files.take_relay(number).map_err(SourceError::Failed)?;
                reply.stream.resume_content(content, &link)?;
                let unsent = bytes_of(std::mem::take(rest));
                return reply
                    .await_relayed(link, unsent, *persists, leave)
                    .await
                    .map(|after| after.with_request(request));
            }
            relayed => {
                let content = files.unpack_content(std::mem::take(rest));
                reply.progress = Progress::resume(content, line.counts);
                reply.response = Some(reply.exchange.response_of(line));
                match relayed {
                    Some(relayed) => reply.go_on_with(relayed, files, leave).await,
                    None => send_rest(reply.stream.tls, leave, &mut reply.progress).await,
                }
            }
        };
        reply.end(result, *persists, shared).map(|after| after.with_request(request))
    }

    /// Passes a connection within a response that this process goes on to feed.
    pub(super) async fn leave_feeding(
        &mut self,
        (under_way, turn, feed): (Box<UnderWay>, Turn, Box<Feed>),
        tls: &mut TlsStream,
        remote: &SocketAddr,
        shared: &Shared,
    ) -> Result<After, Error> {
        let resting = self.rest(*remote, Moment::now(), Some(under_way));
        let passed = match shared.giver.get() {
            Some(giver) => pass(tls, &resting, giver, shared).await,
            None => Passed::Stays,
        };
        drop(turn);
        let under_way = match resting.driver {
            // Their copy of the relay's far end would hide that the other process has closed it.
            Driver::Http1(under_way) if passed == Passed::Stays => under_way,
            driver if passed == Passed::Lost => {
                let (auth, sent) = (tls.info().and_then(|info| info.client_auth), tls.payload_sent());
                let context = Context { shared, listener: self.listener, remote: *remote, auth, server_name: None };
                LostConnection { context: &context, tls: tls.info(), path: tls.path(), sent }.finish(driver);
                None
            }
            driver => {
                drop(driver);
                None
            }
        };
        match (passed, under_way) {
            (Passed::Taken, _) => {
                let _active = metrics::worker().map(|worker| worker.active.enter());
                feed.run().await;
                Ok(After::End(End::Passed))
            }
            // Both ends of the relay are here.
            (Passed::Stays, Some(under_way)) => {
                self.passes = Passes::Never;
                let mut goes_on = pin!(self.go_on(under_way, tls, remote, shared));
                tokio::select! {
                    after = &mut goes_on => return after,
                    () = feed.run() => {}
                }
                goes_on.await
            }
            (Passed::Stays | Passed::Lost, _) => Ok(After::End(End::Passed)),
        }
    }
}

/// The bytes of interim responses that were not sent.
fn bytes_of(rest: Vec<Segment>) -> Vec<u8> {
    let bytes = rest.into_iter().filter_map(|segment| match segment {
        Segment::Bytes(bytes) => Some(bytes),
        Segment::File { .. } => None,
    });
    bytes.flatten().collect()
}

impl Reply<'_, '_> {
    /// Sends the rest of a response whose content another process feeds.
    async fn go_on_with(
        &mut self,
        Relayed { number, stage, content }: Relayed,
        files: &mut Files,
        leave: Leave<'_>,
    ) -> Result<super::respond::Sent, Error> {
        let Stage::Content { framing, left } = stage else { return Err(Error::Offer) };
        let link = files.take_relay(number).map_err(SourceError::Failed)?;
        self.stream.resume_content(content, &link)?;
        let source = Box::pin(RelayedSource::new(link, self.stream.demand()));
        let ready = std::mem::take(&mut self.progress.content);
        self.progress.content = ready.with_source(BodyStream { length: left, source });
        let policy = self.exchange.path_policy();
        go_on_with(&mut self.stream, framing, (policy, leave), &mut self.progress).await
    }

    /// Awaits a response of another process, and sends it.
    async fn await_relayed(
        &mut self,
        link: Link,
        unsent: Vec<u8>,
        persists: bool,
        mut leave: Leave<'_>,
    ) -> Result<After, Error> {
        let (mut answer, here, interims) = RelayedAnswer::new(link.clone(), self.stream.demand());
        self.stream.expect_relayed(unsent, here, interims);
        let mut answer = pin!(poll_fn(|cx| answer.poll(cx)));
        loop {
            let response = match Box::pin(self.stream.wait_for(answer.as_mut(), leave)).await {
                Waited::Answered(Ok(Some((head, octets)))) => {
                    return Box::pin(self.send_relayed((head, octets), link, persists, leave)).await;
                }
                Waited::Answered(Ok(None)) => Response::plain(Status::CLIENT_CLOSED_REQUEST),
                Waited::Answered(Err(error)) => self.exchange.refuse(Status::BAD_GATEWAY).await.because(Some(error)),
                Waited::Leaves(turn) => match link.duplicate() {
                    Ok(end) => return Ok(self.pack_awaited(end, persists, turn)),
                    Err(error) => {
                        leave.stay(&error);
                        continue;
                    }
                },
            };
            return Box::pin(self.send_last(response)).await;
        }
    }

    /// The request whose response is awaited over the relay `end`, for yet another process, except its head. That process writes the line.
    fn pack_awaited(&mut self, end: OwnedFd, persists: bool, turn: Turn) -> After {
        let mut files = Files::default();
        let number = files.push_relay(end);
        let rest = vec![Segment::Bytes(self.stream.take_unsent())];
        let persists = persists && self.stream.may_continue();
        let content = self.stream.pack_content();
        let relayed = Some(Relayed { number, stage: Stage::Awaited, content });
        let line = self.exchange.leave_awaited();
        let under_way = UnderWay { request: Vec::new(), persists, line, rest, relayed, files };
        After::Pass(Box::new(under_way), turn, None)
    }

    /// Sends a response whose head another process has made, and whose content it feeds.
    async fn send_relayed(
        &mut self,
        (head, octets): (Box<RelayedHead>, Bytes),
        link: Link,
        persists: bool,
        leave: Leave<'_>,
    ) -> Result<After, Error> {
        let RelayedHead { mut line, framing, length, ends } = *head;
        let response = self.response.insert(self.exchange.response_of(&mut line));
        if ends == Ends::Withheld {
            self.finish(None);
            return Ok(After::Close);
        }
        let continues = self.stream.continues_after(response);
        let close = !persists || ends == Ends::Closes || !continues || self.stream.tls.should_close();
        let connection = announced(close, framing, self.stream.version());
        let mut octets_with = Buffer::take();
        octets_with.extend_from_slice(&octets);
        if !connection.line().is_empty() {
            insert_lines(&mut octets_with, connection.line());
        }
        if framing.has_content() {
            let source = Box::pin(RelayedSource::new(link, self.stream.demand()));
            self.progress.content = Cursor::default().with_source(BodyStream { length, source });
        }
        let policy = self.exchange.path_policy();
        let result = respond_with(&mut self.stream, octets_with, framing, (policy, leave), &mut self.progress).await;
        self.end(result, !matches!(connection, Connection::Close | Connection::Upgrade), self.exchange.shared())
    }

    /// Sends the last response of the connection.
    pub(super) async fn send_last(&mut self, mut response: Response) -> Result<After, Error> {
        let framing = self.exchange.answered(&mut response);
        let Reply { exchange, stream, response: place, progress } = self;
        let response = place.insert(response);
        let head = Head { framing, connection: Connection::Close, date: now(), alternative: None };
        let result = respond(stream, response, head, (exchange.path_policy(), Leave::never()), progress).await;
        self.finish(result.as_ref().err().map(|error| error as &dyn std::fmt::Display));
        result.map(|_| After::Close)
    }

    /// The rest of the response for another process, except the head of the request. That process writes the line.
    pub(super) fn pack(
        &mut self,
        persists: bool,
        Departure { turn, framing, relay }: Departure,
        shared: &Shared,
    ) -> io::Result<After> {
        let mut files = Files::default();
        let lead = self.progress.lead();
        let lead = (!lead.is_empty()).then(|| Segment::Bytes(lead.to_vec()));
        let content = self.progress.content.segments().map(|segment| files.pack_segment(segment));
        let rest = lead.into_iter().chain(content).collect();
        let (mut relayed, mut feed) = (None, None);
        if let Some(source) = self.progress.content.take_source() {
            let stage = Stage::Content { framing, left: source.left() };
            let content = self.stream.pack_content();
            let number = match relay {
                Some(Relay::Further(end)) => files.push_relay(end),
                Some(Relay::Own(near, far)) => {
                    let home = Home::new(near, self.stream.take_request(), shared);
                    feed = Some(Box::new(Feed { home, content: source }));
                    files.push_relay(far)
                }
                None => return Err(io::ErrorKind::BrokenPipe.into()),
            };
            relayed = Some(Relayed { number, stage, content });
        }
        let response = self.response.take().unwrap_or_else(|| Response::plain(Status::OK));
        let line = self.exchange.leave(response, self.stream.path, self.progress.start());
        let under_way = UnderWay { request: Vec::new(), persists, line, rest, relayed, files };
        Ok(After::Pass(Box::new(under_way), turn, feed))
    }
}

/// The Connection field of the head.
pub(super) fn announced(close: bool, framing: ResponseFraming, version: Version) -> Connection {
    match (close || framing.needs_close(), version) {
        _ if framing == ResponseFraming::Tunnel => Connection::Upgrade,
        (true, _) => Connection::Close,
        (false, Version::Http10) => Connection::KeepAlive10,
        (false, Version::Http11) => Connection::KeepAlive,
    }
}

/// A connection whose response is awaited, which may pass.
pub(super) struct Awaiting<'a> {
    pub(super) context: &'a Context<'a>,
    pub(super) kept: Kept<'a>,
    /// The head of the request.
    pub(super) request: &'a [u8],
    /// To write the line.
    pub(super) duty: Duty,
}

/// A response that was awaited here, and whose client another process has.
pub(super) struct Elsewhere {
    pub(super) home: Home,
    pub(super) response: Box<Response>,
    /// Whether the connection shows that a response is cut.
    pub(super) shows_cuts: bool,
}

impl Awaiting<'_> {
    /// Offers the connection to the process that has taken over. `Some`: it was taken, or lost.
    pub(super) async fn pass(
        &self,
        stream: &mut Stream<'_>,
        (line, persists): (Line, bool),
        turn: Turn,
    ) -> Option<Option<Home>> {
        let shared = self.context.shared;
        let (near, far) = Link::pair().inspect_err(|error| stays(error, shared)).ok()?;
        let mut files = Files::default();
        let number = files.push_relay(far);
        let rest = vec![Segment::Bytes(stream.take_unsent())];
        let persists = persists && stream.may_continue();
        let content = stream.pack_content();
        let relayed = Some(Relayed { number, stage: Stage::Awaited, content });
        let request = self.request.to_vec();
        let under_way = UnderWay { request, persists, line, rest, relayed, files };
        let resting = self.kept.rest(stream.path, Moment::now(), Some(Box::new(under_way)));
        let passed = pass(stream.tls, &resting, shared.giver.get()?, shared).await;
        drop(turn);
        let driver = resting.driver;
        match passed {
            Passed::Taken => {
                // Its copy of the relay's far end would hide that the other process has closed it.
                drop(driver);
                self.duty.leave();
                Some(Some(Home::new(near, stream.take_request(), shared)))
            }
            Passed::Lost => Some(None),
            Passed::Stays => {
                if let Driver::Http1(Some(under_way)) = driver {
                    stream.give_back_unsent(bytes_of(under_way.rest));
                }
                None
            }
        }
    }
}

impl Elsewhere {
    /// Feeds the response to the process that has the client.
    pub(super) async fn feed(self, exchange: &mut Exchange<'_, '_>, head: &RequestHead<'_>, context: &Context<'_>) {
        let Elsewhere { mut home, mut response, shows_cuts } = self;
        let mut ends = if response.is_withheld { Ends::Withheld } else { Ends::Usual };
        if head.version == Version::Http10
            && exchange.framing(head.request.method, &response) == ResponseFraming::UntilClose
            && !shows_cuts
        {
            response = super::connection::until_close(exchange, *response).await.into();
            ends = Ends::Closes;
        }
        let framing = exchange.answered(&mut response);
        let mut octets = Vec::new();
        write_head(&mut octets, response.status, &response.fields, framing, Connection::KeepAlive, &now());
        if let Some(alternative) = context.listener.alternative(&response) {
            insert_lines(&mut octets, alternative.line());
        }
        let body = std::mem::replace(&mut response.body, Body::Empty);
        let length = body.len();
        let line = exchange.leave(*response, &Default::default(), (0, 0));
        home.send_head(RelayedHead { line, framing, length, ends }, octets).await;
        let content = if framing.has_content() { body } else { Body::Empty };
        home.send_content(Cursor::new(content)).await;
    }
}
