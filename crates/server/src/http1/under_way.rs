//! A response that goes on in the process that has taken over.

use std::net::SocketAddr;
use std::time::Duration;

use sealion_tls::TlsStream;

use super::connection::{After, Http1, Reply};
use super::respond::{Leave, Progress, send_rest};
use super::stream::Stream;
use crate::exchange::{Context, Error, Exchange, Shared};
use crate::observe::metrics;
use crate::passing::{Files, Segment, UnderWay};
use crate::response::Response;

impl Http1<'_> {
    /// Sends the rest of a response that another process began, and writes its line in the access log.
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
        let content = under_way.files.unpack_content(std::mem::take(&mut under_way.rest));
        let UnderWay { request, persists, line, .. } = &mut *under_way;
        // An offer with another head is refused.
        let Some(head) = UnderWay::head_of(request) else { return Err(sealion_tls::Error::Unfinished.into()) };
        let peer = context.peer(head.request.fields, head.version.into());
        let exchange = Exchange::continued(&context, &current, peer, Some(&head.request), line.took);
        exchange.keep_place(&mut self.permit);
        self.path.go_on(line);
        let progress = Progress::resume(content, line.counts);
        let leave = Leave::of(shared, self.passes);
        let response = Some(exchange.response_of(line));
        let stream = Stream::new(tls, &mut self.path, None, Duration::ZERO);
        let mut reply = Reply { exchange, stream, response, progress };
        let result = send_rest(reply.stream.tls, leave, &mut reply.progress).await;
        reply.end(result, *persists).map(|after| after.with_request(request))
    }
}

impl Reply<'_, '_> {
    /// The rest of the response for another process, except the head of the request. That process writes the line.
    pub(super) fn pack(&mut self, response: Response, persists: bool) -> Box<UnderWay> {
        let line = self.exchange.leave(response, self.stream.path, self.progress.start());
        let mut files = Files::default();
        let lead = self.progress.lead();
        let lead = (!lead.is_empty()).then(|| Segment::Bytes(lead.to_vec()));
        let content = self.progress.content.segments().map(|segment| files.pack_segment(segment));
        let rest = lead.into_iter().chain(content).collect();
        Box::new(UnderWay { request: Vec::new(), persists, line, rest, files })
    }
}
