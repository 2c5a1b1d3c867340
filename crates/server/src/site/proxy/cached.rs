//! A forwarded request that the cache may answer.

use std::time::Duration;

use sealion_http::{HttpTime, Request, Status, Target};
use tokio::time::timeout;

use super::{Rule, failed, is_read};
use crate::observe::access_log::CacheTrace;
use crate::response::Response;
use crate::site::Arrival;
use crate::site::forwarded_path::ForwardedPath;
use crate::store::{Answered, CacheRule, Question, Targeted, content_in_key};
use crate::upstream::{Forwarded, Inbound, RequestContent, forward, read_whole};

impl Rule {
    /// Whether nothing but the cache comes before the upstream: neither a file, nor a script, nor a copy of the request.
    pub(in crate::site) fn answers_from_cache(&self) -> bool {
        self.cache.is_some() && !self.files_first && self.scripts.is_none() && self.mirror.is_none()
    }

    /// The stored response that this worker has in memory, for a request whose path was not rewritten. `None`: [`Self::forward`] has to answer.
    pub(in crate::site) fn answer_at_once(
        &self,
        request: &Request<'_>,
        arrival: Arrival,
        now: HttpTime,
        is_compressed: bool,
    ) -> Option<Response> {
        let (Some(cache), Target::Path { path, query }) = (&self.cache, request.target) else { return None };
        let target = Targeted::new(path, query, &self.cache_name);
        let Arrival { scheme, is_trusted } = arrival;
        cache.answer_at_once(Question { request, scheme, is_trusted, target, is_compressed }, now.seconds().get())
    }

    /// Answers from the cache, or from the upstream.
    pub(super) async fn forward_cached(
        &self,
        cache: &CacheRule,
        request: &Request<'_>,
        path: ForwardedPath<'_>,
        mut inbound: Inbound,
    ) -> Box<Response> {
        let Target::Path { path: requested, query } = request.target else {
            return Response::plain(Status::BAD_REQUEST).into();
        };
        // Keys have hosts in lower case. A server that minds the case would answer one client for all.
        let lower = request.authority.filter(|host| host.bytes().any(|octet| octet.is_ascii_uppercase()));
        let lower = lower.map(str::to_ascii_lowercase);
        let lowered = lower.as_deref().map(|host| Request { authority: Some(host), ..request.clone() });
        let request = lowered.as_ref().unwrap_or(request);
        let (is_trusted, client) = (inbound.is_trusted, inbound.bounded_client());
        if is_read(request) && !inbound.upgrade {
            leave_out_empty(&mut inbound.content).await;
        }
        // A content without room is forwarded as it comes, and the response is not stored.
        let memory = inbound.content.as_ref().and_then(|content| {
            let length = content.length().filter(|_| !inbound.upgrade && cache.stores_query(request, content))?;
            self.waiting.reserve_spare(client, usize::try_from(length).ok()?)
        });
        let content = match memory.and_then(|memory| Some((inbound.content.take()?, memory))) {
            None => None,
            Some((content, memory)) => match read_whole(content, memory, &self.waiting).await {
                Ok(content) => Some(content),
                Err(incomplete) => return Response::plain(incomplete.status).into(),
            },
        };
        let content_in_key = content.as_ref().map(|content| content_in_key(request.fields, content));
        let query = cache.query_in_key(query);
        let target = match self.scripts.is_some() && path.is_rewritten() {
            // A script learns the path that the client asked for (REQUEST_URI), and the other one has chosen the script.
            true => Targeted::new(requested, query.as_deref(), &self.cache_name).of_script(path.raw()),
            false => Targeted::new(path.raw(), query.as_deref(), &self.cache_name),
        };
        let target = target.of_query(content_in_key.as_deref());
        let is_plain = inbound.scheme == "http";
        let is_compressed = inbound.is_compressed;
        let question = Question { request, scheme: inbound.scheme, is_trusted, target, is_compressed };
        if request.method.as_str() == "PURGE" {
            return purge(cache, question, &inbound).await.into();
        }
        let bypass = match () {
            () if !is_read(request) && content.is_none() => Some("method"),
            () if inbound.content.is_some() || inbound.upgrade => Some("content"),
            // The server gets fields that identify the user; no key contains them.
            () if inbound.fields.iter().any(|(_, value)| value.is_some()) => Some("forward-auth"),
            () => None,
        };
        let asked = self.asked(request, path.decoded(), &inbound);
        let Some(mut forwarded) = self.request(request, path, inbound) else {
            return Response::plain(Status::BAD_REQUEST).into();
        };
        forwarded.kept = content;
        self.copy(&mut forwarded, &asked, client);
        let (trace, passing) = if let Some(reason) = bypass {
            (CacheTrace::bypass(reason), None)
        } else {
            let is_own = |name: &str| self.request.iter().any(|(own, _)| own == name);
            cache.keep_to_key(forwarded.fields.map_mut(), is_trusted, is_own);
            // Trailers are not stored.
            (forwarded.te, forwarded.takes_trailers) = (false, false);
            // Many clients may share the request to the server.
            let interim = forwarded.interim.take();
            match cache.answer(question, forwarded, &self.upstream).await {
                Answered::Response(mut response, upstream) => {
                    response.upstream = upstream.map(Box::new);
                    return response;
                }
                Answered::Reply(reply, upstream, trace) => {
                    let mut response = self.response(reply, request, client);
                    // The response is for this client alone.
                    if let Some(cookie) = self.upstream.sticky_cookie_of(request, &upstream.server, is_plain) {
                        response.fields.extra.add_octets("Set-Cookie", cookie.as_bytes());
                    }
                    cache.add_status(&mut response, &trace);
                    (response.upstream, response.cache) = (Some(Box::new(upstream)), Some(trace));
                    return response;
                }
                Answered::Failed(failed_fetch) => {
                    return failed(&failed_fetch.failure, failed_fetch.trace.clone(), &self.upstream).into();
                }
                Answered::Pass(same, trace, passing) => {
                    forwarded = Forwarded { interim, ..same };
                    (trace, passing)
                }
            }
        };
        let (upstream, result) = forward(&self.upstream, &mut forwarded).await;
        let mut response = match result {
            Ok(reply) => {
                if let Some(passing) = passing {
                    passing.replied(&reply);
                }
                cache.invalidate(question, reply.status, &reply.fields).await;
                let mut response = self.response(reply, request, client);
                self.add_sticky_cookie(&forwarded, is_plain, &mut response);
                response
            }
            Err(failure) => {
                return Response { cache: Some(trace), ..failed(&failure, Some(upstream), &self.upstream) }.into();
            }
        };
        cache.add_status(&mut response, &trace);
        (response.upstream, response.cache) = (Some(Box::new(upstream)), Some(trace));
        response
    }
}

/// The time for which the end of a content is awaited.
// GUESS: clients send it with the head, in a packet of its own at most.
const END_COMES: Duration = Duration::from_millis(100);

/// Leaves out a content that has no bytes. Over HTTP/2 and HTTP/3 a request without a length may say so only by an end behind its head.
async fn leave_out_empty(content: &mut Option<RequestContent>) {
    let Some(inner) = content.as_mut().filter(|content| content.length().is_none_or(|length| length == 0)) else {
        return;
    };
    if timeout(END_COMES, inner.is_empty()).await == Ok(true) {
        *content = None;
    }
}

/// Purges for a client that may. Others are refused: the server might take the method for one of its own.
async fn purge(cache: &CacheRule, question: Question<'_>, inbound: &Inbound) -> Response {
    if !cache.may_purge(inbound.client) {
        return Response::plain(Status::FORBIDDEN);
    }
    match cache.purge(question).await {
        Ok(()) => Response::plain(Status::OK),
        Err(error) => Response::plain(Status::INTERNAL_SERVER_ERROR).because(Some(error)),
    }
}
