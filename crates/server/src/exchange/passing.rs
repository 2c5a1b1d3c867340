//! An exchange whose response goes on in another process: that one writes the line in the access log.

use std::time::{Duration, Instant};

use sealion_http::{Fields, Request, Status};

use super::{Context, Exchange, Generation, Owed, PathChoice, Peer, Started};
use crate::limits::Permit;
use crate::passing::{Cache, Line, Passes, Upstream};
use crate::response::{Body, Response};

impl Owed<'_> {
    /// Whether the connection may pass while this response is under way, if it otherwise `passes`. The process that began a span also reports it to the
    /// tracer.
    pub(crate) fn passes(&self, passes: Passes) -> Passes {
        match self.started.as_ref().and_then(|started| started.span.as_ref()) {
            Some(span) if span.is_sampled() => Passes::Never,
            _ => passes,
        }
    }
}

impl PathChoice {
    /// Goes on with the path that another process chose for a response.
    pub(crate) fn go_on(&mut self, line: &Line) {
        (self.reason, self.set_up) = (line.path_reason(), line.set_up);
    }
}

impl<'c, 'r> Exchange<'c, 'r> {
    /// See [`Owed::passes`].
    pub(crate) fn passes(&self, passes: Passes) -> Passes {
        self.owed.passes(passes)
    }

    /// Ends it here without a line. Returns the data for the line in the other process. `counts`: see [`Line::counts`].
    pub(crate) fn leave(&mut self, response: Response, path: &PathChoice, counts: (u64, u64)) -> Line {
        let name = self.site.and_then(|site| site.route_name(response.route));
        Line {
            took: self.owed.started.take().map(|started| started.at.elapsed()),
            status: response.status.code(),
            encoding: response.fields.content_encoding,
            user: response.user,
            upstream: response.upstream.as_deref().map(Upstream::of),
            cache: response.cache.map(Cache::of),
            is_unlogged: response.is_unlogged,
            route: response.route.zip(name.map(Into::into)),
            reason: path.reason.map(|reason| reason.label().into()),
            set_up: path.set_up,
            counts,
        }
    }

    /// Goes on with an exchange that another process began, `took` ago.
    pub(crate) fn continued(
        context: &'c Context<'c>,
        generation: &'r Generation,
        peer: Peer,
        request: Option<&'r Request<'r>>,
        took: Option<Duration>,
    ) -> Self {
        let now = Instant::now();
        let started = took.map(|took| Started { at: now.checked_sub(took).unwrap_or(now), span: None });
        let site = generation.sites.place(request.and_then(|request| request.authority), context.listener.place);
        Self::resume(generation, request, Owed { context, peer, site, refusal: None, limited_by: None, started })
    }

    /// Counts the connection for the site. It is not refused: it was admitted when the request came.
    pub(crate) fn keep_place(&self, permit: &mut Permit) {
        permit.keep_place(self.limits());
    }

    /// The response that another process described by `line`, without its content and the part of its head that was sent.
    pub(crate) fn response_of(&self, line: &mut Line) -> Response {
        // The route may have another number, or may be gone.
        let is_same =
            |(number, name): &(u32, Box<str>)| self.site?.route_name(Some(*number)).filter(|own| **own == **name);
        let route = line.route.take().filter(|route| is_same(route).is_some()).map(|(number, _)| number);
        let fields = Fields { content_encoding: line.encoding, ..Fields::default() };
        let status = Status::new(line.status).unwrap_or(Status::OK);
        Response {
            user: line.user.take(),
            upstream: line.upstream.take().map(|upstream| Box::new(upstream.trace())),
            cache: line.cache.take().and_then(Cache::trace),
            is_unlogged: line.is_unlogged,
            route,
            ..Response::new(status, fields, Body::Empty)
        }
    }
}
