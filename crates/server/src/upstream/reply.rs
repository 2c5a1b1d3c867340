//! The response of a server.

use std::fmt;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sealion_http::{ExtraFields, Status};
use sealion_tls::Pipe;
use tokio::time::{Instant, Sleep, sleep, sleep_until};

use super::InProgress;
use super::answer_fields::AnswerFields;
use super::head::trailers_of_answer;
use super::message::AnswerFrame;
use super::protocol::AnswerContent;
use crate::response::{Piece, Source};

/// The response of a server. Its content may still come.
pub(crate) struct Reply {
    pub(crate) status: Status,
    pub(crate) fields: AnswerFields,
    pub(crate) body: ReplyContent,
    /// Whether its protocol tells the end of the content, whatever the fields say: HTTP/2.
    pub(crate) ends_with_stream: bool,
}

/// The content of a response, or the bytes of a tunnel.
pub(crate) struct ReplyContent(Pin<Box<dyn Source>>);

impl<S: Source + 'static> From<S> for ReplyContent {
    fn from(source: S) -> Self {
        ReplyContent(Box::pin(source))
    }
}

impl From<ReplyContent> for Pin<Box<dyn Source>> {
    fn from(content: ReplyContent) -> Self {
        content.0
    }
}

impl fmt::Debug for Reply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reply").field("status", &self.status).finish_non_exhaustive()
    }
}

/// The content of a response. When its end has come, its connection is kept for the next request; dropped before, it is closed.
pub(super) struct ReplyBody {
    in_progress: InProgress,
    /// `None`: it broke off.
    content: Option<AnswerContent>,
    patience: Patience,
    /// Goes off when the response must have ended.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Whether the client takes trailers.
    takes_trailers: bool,
    trailers: Option<Box<ExtraFields>>,
}

impl ReplyBody {
    /// `takes_trailers`: whether the client does.
    pub(super) fn new(in_progress: InProgress, content: AnswerContent, takes_trailers: bool) -> Self {
        let patience = Patience::new(in_progress.upstream.stall_timeout);
        let deadline = in_progress.deadline.map(|deadline| Box::pin(sleep_until(deadline.into())));
        let content = Some(content);
        ReplyBody { in_progress, content, patience, deadline, takes_trailers, trailers: None }
    }

    fn poll_content(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        loop {
            match ready!(self.poll_next(cx, AnswerContent::poll_frame)) {
                Some(Ok(AnswerFrame::Content(octets))) => {
                    self.patience.moved();
                    self.in_progress.received(octets.len());
                    return Poll::Ready(Some(Ok(Piece::Bytes(octets))));
                }
                // Others are dropped, as RFC 9110 §6.5.1 allows.
                Some(Ok(AnswerFrame::Trailers(fields))) if self.takes_trailers => {
                    self.trailers = trailers_of_answer(&fields);
                }
                Some(Ok(AnswerFrame::Trailers(_))) => {}
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
    }

    /// What `poll` gets of the content, within the deadlines. An error ends the content.
    fn poll_next<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut AnswerContent, &mut Context<'_>) -> Poll<Option<io::Result<T>>>,
    ) -> Poll<Option<io::Result<T>>> {
        let next = self.poll_in_time(cx, poll);
        if let Poll::Ready(Some(Err(_))) = next {
            self.content = None;
        }
        next
    }

    fn poll_in_time<T>(
        &mut self,
        cx: &mut Context<'_>,
        poll: impl FnOnce(&mut AnswerContent, &mut Context<'_>) -> Poll<Option<io::Result<T>>>,
    ) -> Poll<Option<io::Result<T>>> {
        let server = || self.in_progress.name();
        if let Some(deadline) = &mut self.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            let limit = self.in_progress.upstream.timeout.unwrap_or_default();
            let late = format!("the answer of {} did not end within {} s", server(), limit.as_secs_f32());
            return Poll::Ready(Some(Err(io::Error::new(io::ErrorKind::TimedOut, late))));
        }
        let Some(content) = &mut self.content else { return Poll::Ready(None) };
        match poll(content, cx) {
            Poll::Ready(next) => {
                let broke_off = |error| io::Error::other(format!("the answer of {} broke off: {error}", server()));
                Poll::Ready(next.map(|next| next.map_err(broke_off)))
            }
            Poll::Pending => self.patience.poll(cx).map(|limit| {
                let stalled = format!("{} sent nothing of its answer for {} s", server(), limit.as_secs_f32());
                Some(Err(io::Error::new(io::ErrorKind::TimedOut, stalled)))
            }),
        }
    }
}

impl Source for ReplyBody {
    fn poll_piece(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        self.get_mut().poll_content(cx)
    }

    fn fills_pipes(&self) -> bool {
        self.content.as_ref().is_some_and(AnswerContent::fills_pipes)
    }

    fn poll_fill_pipe(self: Pin<&mut Self>, cx: &mut Context<'_>, pipe: &mut Pipe) -> Poll<Option<io::Result<usize>>> {
        let this = self.get_mut();
        let moved = ready!(this.poll_next(cx, |content, cx| content.poll_fill_pipe(cx, pipe)));
        if let Some(Ok(moved)) = moved {
            this.patience.moved();
            this.in_progress.counts().piped(moved);
        }
        Poll::Ready(moved)
    }

    fn trailers(self: Pin<&mut Self>) -> Option<Box<ExtraFields>> {
        self.get_mut().trailers.take()
    }
}

impl Drop for ReplyBody {
    fn drop(&mut self) {
        if let Some(AnswerContent::Http1(body)) = self.content.take() {
            self.in_progress.keep(body.into_connection());
        }
    }
}

/// A deadline that moves with each piece. The timer is set once in a while, not for each of them.
pub(crate) struct Patience {
    limit: Duration,
    has_moved: bool,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Patience {
    pub(crate) fn new(limit: Duration) -> Self {
        Patience { limit, has_moved: false, timer: None }
    }

    /// Goes on with a wait that began before.
    pub(crate) fn since(limit: Duration, began: Option<std::time::Instant>) -> Self {
        let timer = began.and_then(|began| began.checked_add(limit)).map(|end| Box::pin(sleep_until(end.into())));
        Patience { timer, ..Self::new(limit) }
    }

    /// When the wait began that is under way, if one is.
    pub(crate) fn began(&self) -> Option<std::time::Instant> {
        let end = self.timer.as_ref()?.deadline().into_std();
        if self.has_moved { Some(end) } else { end.checked_sub(self.limit) }
    }

    /// Something came.
    pub(crate) fn moved(&mut self) {
        self.has_moved = true;
    }

    /// Ready when nothing has come for the limit, or up to twice as long.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Duration> {
        let limit = self.limit;
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep(limit)));
        while timer.as_mut().poll(cx).is_ready() {
            if !std::mem::take(&mut self.has_moved) {
                return Poll::Ready(limit);
            }
            timer.as_mut().reset(Instant::now() + limit);
        }
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn a_wait_that_began_before_ends_when_it_would_have() {
        let limit = Duration::from_secs(1000);
        let began = std::time::Instant::now() - limit;
        let mut patience = Patience::since(limit, Some(began));
        assert_eq!(patience.began(), Some(began));
        patience.moved();
        assert_eq!(patience.began(), Some(began + limit));
        let mut patience = Patience::since(limit, patience.began().map(|began| began - limit));
        assert_eq!(poll_fn(|cx| patience.poll(cx)).await, limit);
        assert_eq!(Patience::since(limit, None).began(), None);
    }
}
