//! The stream of one request: the connection, which it has to itself.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use sealion_http::http1::head::{Framing, RequestHead, Version};
use sealion_http::{Request, Status};
use sealion_tls::{Part, TlsStream};
use tokio::sync::oneshot;

use super::content::{ContentReader, Step};
use super::respond::Leave;
use crate::exchange::{self, Awaited, Connection, ContentRest, Error, PathChoice, RelayedContent, RequestSide};
use crate::passing::{ContentUnderWay, Link, Turn, TurnWait};
use crate::response::Response;
use crate::upstream::{Inbound, Interim, InterimReceiver};

/// The connection while it serves one request.
pub(super) struct Stream<'a> {
    pub(super) tls: &'a mut TlsStream,
    pub(super) path: &'a mut PathChoice,
    /// `None`: it could not be read.
    head: Option<&'a RequestHead<'a>>,
    /// How long the client may take for the next piece of content.
    patience: Duration,
    /// The content of the request, if it is forwarded.
    pub(super) content: Option<ContentReader>,
    /// Sends it to the process that has the upstream. `None`: this one has it.
    relayed: Option<RelayedContent>,
    /// Dropped when the client leaves. `None`: no task wants to know.
    here: Option<oneshot::Sender<()>>,
    interims: Option<InterimReceiver>,
    /// Interim responses that are to be sent.
    unsent: Vec<u8>,
}

impl exchange::Stream for Stream<'_> {
    fn connection(&self) -> &impl Connection {
        &*self.tls
    }

    fn has_content(&self) -> bool {
        self.head.is_some_and(|head| head.framing != Framing::None)
    }

    fn is_connect(&self) -> bool {
        false
    }

    fn takes_interim(&self) -> bool {
        self.head.is_some_and(|head| head.version == Version::Http11)
    }

    fn interim(&mut self, interim: &Interim) {
        interim.status.write_line(&mut self.unsent);
        self.unsent.extend_from_slice(interim.fields.lines());
        self.unsent.extend_from_slice(b"\r\n");
    }

    fn attach(&mut self, inbound: Inbound, awaited: Awaited, interims: Option<InterimReceiver>) -> Inbound {
        let Some(head) = self.head.filter(|_| awaited != Awaited::None) else { return inbound };
        let forwards = awaited == Awaited::Upstream;
        let has_content = forwards && !matches!(head.framing, Framing::None | Framing::Length(0));
        let may_upgrade = forwards && head.framing == Framing::None && head.version == Version::Http11;
        let upgrade = may_upgrade && asks_for_upgrade(&head.request);
        let pipe = match (has_content, upgrade) {
            (true, _) => Some(ContentReader::new(head.framing, head.expect_continue, self.patience)),
            (false, true) => Some(ContentReader::of_tunnel()),
            (false, false) => None,
        };
        let (reader, content) = pipe.unzip();
        let (here, gone) = oneshot::channel();
        (self.content, self.here, self.interims) = (reader, Some(here), interims);
        Inbound { content, upgrade, gone: Some(gone), ..inbound }
    }
}

impl<'a> Stream<'a> {
    pub(super) fn new(
        tls: &'a mut TlsStream,
        path: &'a mut PathChoice,
        head: Option<&'a RequestHead<'a>>,
        patience: Duration,
    ) -> Self {
        let (content, relayed, here, interims, unsent) = (None, None, None, None, Vec::new());
        Stream { tls, path, head, patience, content, relayed, here, interims, unsent }
    }

    /// Goes on with the content of a request whose upstream another process has.
    ///
    /// # Errors
    /// It is content of another protocol.
    pub(super) fn resume_content(&mut self, content: Option<ContentUnderWay>, link: &Link) -> Result<(), Error> {
        if let Some(content) = content {
            let resumed = ContentReader::resume(content, link.clone(), self.patience);
            let (reader, relayed) = resumed.ok_or(Error::Offer)?;
            (self.content, self.relayed) = (Some(reader), Some(relayed));
        }
        Ok(())
    }

    /// Packs the content of the request for another process. `None`: no more of it is passed on.
    pub(super) fn pack_content(&mut self) -> Option<ContentUnderWay> {
        let reader = self.content.as_mut()?;
        let rest = match &mut self.relayed {
            Some(relayed) => relayed.take_rest()?,
            None => {
                reader.writer().as_ref()?;
                ContentRest::to_come()
            }
        };
        Some(reader.pack(rest))
    }

    /// Takes what an upstream of this process gets of the request.
    pub(super) fn take_request(&mut self) -> RequestSide {
        RequestSide {
            writer: self.content.as_mut().and_then(|reader| reader.writer().take()),
            here: self.here.take(),
            interims: self.interims.take(),
        }
    }

    /// Awaits an answer of the process that has the upstream. `unsent`: interim responses.
    pub(super) fn expect_relayed(&mut self, unsent: Vec<u8>, here: oneshot::Sender<()>, interims: InterimReceiver) {
        (self.here, self.interims, self.unsent) = (Some(here), Some(interims), unsent);
    }

    /// Takes the interim responses that are to be sent.
    pub(super) fn take_unsent(&mut self) -> Vec<u8> {
        while let Some(interim) = self.interims.as_mut().and_then(|receiver| receiver.try_recv().ok()) {
            exchange::Stream::interim(self, &interim);
        }
        std::mem::take(&mut self.unsent)
    }

    /// The connection was not taken: they are sent here.
    pub(super) fn give_back_unsent(&mut self, unsent: Vec<u8>) {
        self.unsent.splice(..0, unsent);
    }

    /// Whether the next request may follow.
    pub(super) fn may_continue(&self) -> bool {
        self.content.as_ref().is_none_or(|content| content.is_open() || content.is_complete())
    }

    /// The version of the request.
    pub(super) fn version(&self) -> Version {
        self.head.map_or(Version::Http11, |head| head.version)
    }

    /// How the content of the request is sent to the process that has the upstream.
    pub(super) fn demand(&self) -> exchange::Demand {
        self.relayed.as_ref().map(RelayedContent::demand).unwrap_or_default()
    }

    /// Awaits a response. If it may come from an upstream, the content of the request is read meanwhile, interim responses are passed on, and forwarding ends
    /// when the client leaves. A response of the site's own is awaited in any case: a wrong password is logged as such.
    pub(super) async fn wait_for<T>(
        &mut self,
        mut answer: Pin<&mut impl Future<Output = T>>,
        leave: Leave<'_>,
    ) -> Waited<T> {
        self.send_interim().await;
        if self.here.is_none() {
            return Waited::Answered(answer.await);
        }
        // Whether the client may still send, or close.
        let mut is_open = true;
        loop {
            let mut turn = TurnWait::default();
            let meanwhile = poll_fn(|cx| match self.poll_meanwhile(cx, answer.as_mut(), &mut is_open) {
                // A client that has left is not passed on.
                Poll::Pending if is_open => leave.poll(&mut turn, cx).map(Meanwhile::Leaves),
                meanwhile => meanwhile,
            });
            match meanwhile.await {
                Meanwhile::Leaves(turn) => return Waited::Leaves(turn),
                Meanwhile::Answered(response) => {
                    // Interim responses that came with it. The response meets a failure too.
                    while let Some(interim) = self.interims.as_mut().and_then(|receiver| receiver.try_recv().ok()) {
                        exchange::Stream::interim(self, &interim);
                        self.send_interim().await;
                    }
                    self.here = None;
                    return Waited::Answered(response);
                }
                Meanwhile::Continue => self.unsent.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"),
                Meanwhile::Interim(interim) => exchange::Stream::interim(self, &interim),
            }
            if !self.send_interim().await {
                (self.here, is_open) = (None, false);
            }
        }
    }

    fn poll_meanwhile<T>(
        &mut self,
        cx: &mut Context<'_>,
        mut answer: Pin<&mut impl Future<Output = T>>,
        is_open: &mut bool,
    ) -> Poll<Meanwhile<T>> {
        if let Poll::Ready(response) = answer.as_mut().poll(cx) {
            return Poll::Ready(Meanwhile::Answered(response));
        }
        if let Some(receiver) = &mut self.interims
            && let Poll::Ready(received) = receiver.poll_recv(cx)
        {
            match received {
                Some(interim) => return Poll::Ready(Meanwhile::Interim(interim)),
                None => self.interims = None,
            }
        }
        if !*is_open {
            return Poll::Pending;
        }
        let error = match self.content.as_mut().map(|content| content.poll(cx, self.tls)) {
            Some(Poll::Pending) => return Poll::Pending,
            Some(Poll::Ready(Ok(Step::Continue))) => return Poll::Ready(Meanwhile::Continue),
            Some(Poll::Ready(Err(error))) => error,
            // The content is complete.
            Some(Poll::Ready(Ok(Step::Done))) | None => match ready!(self.tls.poll_peer_gone(cx)) {
                // A half-close before the head of the response counts as gone: status 499.
                Ok(()) => sealion_tls::Error::Truncated.into(),
                Err(error) => Error::from(error),
            },
        };
        tracing::debug!("the client left before the answer: {error}");
        (self.here, *is_open) = (None, false);
        // A task that waited for the client goes on now.
        answer.poll(cx).map(Meanwhile::Answered)
    }

    /// `false`: the client has left. The response meets that too.
    async fn send_interim(&mut self) -> bool {
        if self.unsent.is_empty() {
            return true;
        }
        let interim = std::mem::take(&mut self.unsent);
        let sent = Box::pin(self.tls.respond(&[Part::Bytes(&interim)])).await;
        if let Err(error) = &sent {
            tracing::debug!("the client left before an interim response: {error}");
        }
        sent.is_ok()
    }

    /// Whether the next request follows, once `response` is sent.
    pub(super) fn continues_after(&mut self, response: &Response) -> bool {
        match &mut self.content {
            Some(content) if response.status == Status::SWITCHING_PROTOCOLS => {
                content.open_tunnel();
                true
            }
            Some(content) => content.is_complete(),
            None => true,
        }
    }
}

/// An event while a response is awaited.
enum Meanwhile<T> {
    Answered(T),
    /// The content of the request is wanted: 100 is to be sent.
    Continue,
    Interim(Interim),
    /// It is this connection's turn to pass.
    Leaves(Turn),
}

/// The outcome of a wait for a response.
pub(super) enum Waited<T> {
    Answered(T),
    /// It is this connection's turn to pass to the process that has taken over.
    Leaves(Turn),
}

/// Whether a request asks for another protocol (RFC 9110 §7.8).
fn asks_for_upgrade(request: &Request<'_>) -> bool {
    let names_it =
        |line: &[u8]| line.split(|octet| *octet == b',').any(|name| name.trim_ascii().eq_ignore_ascii_case(b"upgrade"));
    request.fields.first("upgrade").is_some() && request.fields.all("connection").any(names_it)
}
