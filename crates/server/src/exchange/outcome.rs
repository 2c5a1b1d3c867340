//! The end of an exchange: the line in the access log, and the counters.

use std::fmt::Display;
use std::sync::atomic::Ordering;
use std::time::Instant;

use sealion_http::{Request, Status, Target};
use sealion_tls::{HandshakeInfo, SealedBy};

use super::{Cut, Exchange, Owed, PathChoice, Started};
use crate::observe::access_log::{CacheTrace, Entry, Outcome, Requested, SiteLog};
use crate::observe::metrics::{self, Sent, SiteNumber};
use crate::observe::traces::Ended;
use crate::response::Response;

impl<'a> Outcome<'a> {
    /// The outcome of sending `response`: `body` and `wire` bytes were sent by `path`, as `choice` has it.
    pub(crate) fn of(
        response: &'a Response,
        (body, wire): (u64, u64),
        path: SealedBy,
        choice: &PathChoice,
        aborted: Option<&'a dyn Display>,
    ) -> Self {
        Outcome {
            status: response.status,
            encoding: response.fields.content_encoding,
            user: response.user.as_deref(),
            body,
            wire,
            stream: None,
            path,
            reason: choice.reason,
            moved_at: choice.moved_at,
            set_up: choice.set_up,
            upstream: response.upstream.as_deref(),
            cache: response.cache,
            aborted,
            is_unlogged: response.is_unlogged,
            route: response.route,
        }
    }
}

impl Exchange<'_, '_> {
    /// Writes the line in the access log, and updates the metrics: once.
    pub(crate) fn finish(&mut self, tls: Option<&HandshakeInfo>, outcome: &Outcome<'_>) {
        if self.owed.is_owed()
            && let Some(started) = self.owed.started.take()
        {
            self.write(&started, tls, outcome);
        }
    }

    /// Writes the line of a request that was dropped before its response: at the end of the grace time, or by a panic. `path`: the connection's path.
    pub(crate) fn cut_short(&mut self, tls: Option<&HandshakeInfo>, path: SealedBy) {
        let (response, cut) = (Response::plain(Status::SERVICE_UNAVAILABLE), self.why_cut());
        self.finish(tls, &Outcome::of(&response, (0, 0), path, &PathChoice::default(), Some(&cut)));
    }

    /// Whether the line is still to be written.
    pub(crate) fn owes_line(&self) -> bool {
        self.owed.is_owed()
    }

    /// Ends it without a line: the client left before it had sent all of its request.
    pub(crate) fn abandon(mut self) {
        self.owed.started = None;
    }

    /// Why a response is dropped before its end.
    pub(crate) fn why_cut(&self) -> Cut {
        Cut::of(self.owed.context.shared)
    }

    fn write(&self, started: &Started, tls: Option<&HandshakeInfo>, outcome: &Outcome<'_>) {
        let (shared, peer, request) = (self.owed.context.shared, self.owed.peer, self.request);
        let ended = Instant::now();
        let took = ended - started.at;
        if let Some(worker) = metrics::worker() {
            let Outcome { reason, wire, set_up, .. } = *outcome;
            let number = self.site.map_or(SiteNumber::NONE, |site| site.number);
            let route = self.site.and_then(|site| site.route_number(outcome.route));
            worker.sent(Sent {
                status: outcome.status.code(),
                why: reason,
                bytes: wire,
                took,
                set_up,
                site: number,
                route,
                protocol: peer.protocol,
            });
            if let Some(cache) = outcome.cache {
                worker.reused[cache.outcome as usize].add(1);
                worker.reused_bytes[cache.outcome as usize].add(outcome.body);
                worker.collapsed.add(u64::from(cache.reason == Some(CacheTrace::COLLAPSED)));
            }
            if let Some(Request { target: Target::Path { path, .. }, .. }) = request {
                let site = self.site.filter(|_| self.generation.sites.are_several()).map_or("", |site| &site.name);
                worker.asked_for(site, path, outcome.body);
            }
        }
        if let (Some(tracer), Some(span), Some(request)) = (&shared.tracer, &started.span, request)
            && span.is_sampled()
        {
            let (status, aborted) = (outcome.status.code(), outcome.aborted);
            let upstream = outcome.upstream.map(|upstream| &*upstream.server);
            let ended =
                Ended { request, protocol: peer.protocol, client: peer.address, status, took, upstream, aborted };
            if !tracer.end(span, &ended) {
                shared.metrics.otlp_dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        if outcome.is_unlogged {
            return;
        }
        // A request that could not be read belongs to no site.
        let log = self.site.filter(|_| request.is_some()).map_or(SiteLog::Common, |site| site.log);
        if let Some(log) = shared.access_log.of(log) {
            log.write(&Entry {
                peer: peer.address,
                request: request.map(|request| Requested {
                    request,
                    protocol: peer.protocol,
                    site: self.site.map_or("", |site| &site.name),
                    route: self.site.and_then(|site| site.route_name(outcome.route)),
                }),
                duration: took,
                ended,
                tls,
                outcome: *outcome,
            });
        }
    }
}

impl Drop for Exchange<'_, '_> {
    #[inline]
    fn drop(&mut self) {
        if self.owes_line() {
            self.drop_unfinished();
        }
    }
}

impl Exchange<'_, '_> {
    #[cold]
    fn drop_unfinished(&mut self) {
        let is_sealed = self.owed.context.listener.is_tls;
        self.cut_short(None, if is_sealed { SealedBy::User } else { SealedBy::Nobody });
    }
}

impl Drop for Owed<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.is_owed() {
            self.drop_unfinished();
        }
    }
}

impl Owed<'_> {
    #[cold]
    fn drop_unfinished(&mut self) {
        let current = self.context.shared.generations.current();
        // The generation of the request may be gone, and the place of its site with it.
        self.site = current.sites.place(None, self.context.listener.place);
        drop(Exchange::resume(&current, None, self.take()));
    }
}
