//! A response that goes on in the process that has taken over.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use sealion_http::http1::head::RequestHead;
use sealion_tls::TlsStream;

use super::connection::{After, Http1, Reply};
use super::respond::{Leave, Progress, send_rest};
use super::stream::Stream;
use crate::exchange::{Context, Error, Exchange, Shared};
use crate::files::resolve::{Content, SiteFile};
use crate::observe::metrics;
use crate::passing::{self, UnderWay};
use crate::response::{Cursor, Response, Segment};

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
        let context = Context { shared, listener: self.listener, remote: *remote, auth };
        let content = content(&mut under_way);
        let span = under_way.request_span();
        let UnderWay { request, persists, line, .. } = &mut *under_way;
        let head = span.and_then(|span| RequestHead::parse(request, span).ok());
        // An offer with another head is refused.
        let Some(head) = head else { return Err(sealion_tls::Error::Unfinished.into()) };
        let peer = context.peer(head.request.fields, head.version.into());
        let exchange = Exchange::continued(&context, &current, peer, &head.request, line.took);
        exchange.keep_place(&mut self.permit);
        (self.path.reason, self.path.set_up) = (line.path_reason(), line.set_up);
        let progress = Progress::resume(content, (line.before, line.overhead));
        let leave = Leave::of(shared, self.passes);
        let response = Some(exchange.response_of(line));
        let stream = Stream::new(tls, &mut self.path, None, Duration::ZERO);
        let mut reply = Reply { exchange, stream, response, progress };
        let result = send_rest(reply.stream.tls, leave, &mut reply.progress).await;
        reply.end(result, *persists).map(|after| after.with_request(request))
    }
}

/// Takes the rest of the content.
fn content(under_way: &mut UnderWay) -> Cursor {
    let UnderWay { rest, files, .. } = under_way;
    Cursor::of_segments(rest.drain(..).map(|segment| match segment {
        passing::Segment::Bytes(bytes) => Segment::of_bytes(bytes.into()),
        passing::Segment::File { number, range } => {
            Segment::File(SiteFile::of_content(Content::File(Arc::clone(&files[number])), range.end), range)
        }
    }))
}

impl Reply<'_, '_> {
    /// What another process needs to send the rest, but for the head of the request. There is no line here any more.
    pub(super) fn pack(&mut self, response: Response, persists: bool) -> Box<UnderWay> {
        let line = self.exchange.leave(response, self.stream.path, self.progress.start());
        let mut under_way =
            Box::new(UnderWay { request: Vec::new(), persists, line, rest: Vec::new(), files: Vec::new() });
        under_way.push_bytes(self.progress.lead());
        for segment in self.progress.content.segments() {
            match segment {
                Segment::File(file, range) => match &file.content {
                    Content::File(file) => under_way.push_file(file, range.clone()),
                    Content::Memory(bytes) => {
                        under_way.push_bytes(&bytes[range.start as usize..range.end as usize]);
                    }
                },
                Segment::Bytes(bytes, range) => under_way.push_bytes(&bytes[range.clone()]),
                Segment::Shared(shared, range) => under_way.push_bytes(&shared.bytes[range.clone()]),
            }
        }
        under_way
    }
}
