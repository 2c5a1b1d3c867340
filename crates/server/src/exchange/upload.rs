//! The content of a request that is forwarded as it comes, for HTTP/2 and HTTP/3. The driver gives the client room for it.

use std::task::Context;
use std::time::Instant;

use bytes::Bytes;
use sealion_http::{FieldSection, Status};

use super::{ContentRest, Demand, RelayedContent};
use crate::passing::{ContentForm, ContentUnderWay, Link};
use crate::upstream::{ContentWriter, RequestContent, pipe};

/// Bytes after which a content is worth a larger window. GUESS.
const LARGE: u64 = 32 << 10;

/// The content of a request, whose response may have begun.
pub(crate) struct Upload {
    /// `None`: nothing more is passed on.
    writer: Option<ContentWriter>,
    /// Bytes that came, and how many of them the upstream has taken.
    came: u64,
    taken: u64,
    /// The client waits for 100 (RFC 9110 §10.1.1).
    expects_continue: bool,
    /// The content is the client's side of a tunnel, which may be silent.
    is_tunnel: bool,
    /// Since when the upstream waits for the client.
    owed_since: Option<Instant>,
    /// The same, of a wait that another process began and the upstream's process has not confirmed.
    was_owed_since: Option<Instant>,
    /// The client has no room on the connection: it can send nothing.
    is_held: bool,
    /// All of it came.
    is_whole: bool,
    /// Sends it to the process that has the upstream. `None`: this one has it.
    relayed: Option<RelayedContent>,
}

impl Upload {
    /// `length`: as announced.
    pub(crate) fn new(length: Option<u64>, expects_continue: bool) -> (Self, RequestContent) {
        let (writer, content) = pipe(length);
        let upload = Upload {
            writer: Some(writer),
            came: 0,
            taken: 0,
            expects_continue,
            is_tunnel: false,
            owed_since: None,
            was_owed_since: None,
            is_held: false,
            is_whole: false,
            relayed: None,
        };
        (upload, content)
    }

    /// The client's side of a tunnel. `end`: it sends nothing.
    pub(crate) fn of_tunnel(end: bool) -> (Self, RequestContent) {
        let (upload, content) = Self::new(None, false);
        let mut upload = Upload { is_tunnel: true, ..upload };
        if end {
            upload.end(FieldSection::default());
        }
        (upload, content)
    }

    /// Goes on with content that goes to another process over `link`.
    pub(crate) fn resume(
        ContentUnderWay { form, expects_continue, is_complete, room, owed_since, waiting, end }: ContentUnderWay,
        link: Link,
    ) -> Self {
        let came = waiting.len() as u64;
        let (relayed, writer) = RelayedContent::start(link, None, ContentRest { room, waiting, end });
        let is_tunnel = matches!(form, ContentForm::Tunnel { .. });
        Upload {
            writer,
            came,
            taken: 0,
            expects_continue,
            is_tunnel,
            owed_since: None,
            was_owed_since: owed_since.map(Into::into),
            is_held: false,
            is_whole: is_complete,
            relayed: Some(relayed),
        }
    }

    /// Content that nothing takes any more.
    pub(crate) fn closed() -> Self {
        let (upload, _) = Self::new(None, false);
        Upload { writer: None, ..upload }
    }

    /// The state that another process needs to go on. `None`: no more of it is passed on.
    pub(crate) fn pack(&mut self) -> Option<ContentUnderWay> {
        let ContentRest { room, waiting, end } = match &mut self.relayed {
            Some(relayed) => relayed.take_rest()?,
            None => {
                self.writer.as_ref().filter(|_| !self.is_whole)?;
                ContentRest::to_come()
            }
        };
        let form = if self.is_tunnel { ContentForm::Tunnel { is_open: true } } else { ContentForm::Frames };
        let (expects_continue, is_complete) = (self.expects_continue, self.is_whole);
        let owed_since = self.owed_since().or(self.was_owed_since).map(Into::into);
        Some(ContentUnderWay { form, expects_continue, is_complete, room, owed_since, waiting, end })
    }

    /// The writer for the upstream of this process.
    pub(crate) fn into_writer(self) -> Option<ContentWriter> {
        self.writer
    }

    /// How it is sent to the process that has the upstream.
    pub(crate) fn demand(&self) -> Demand {
        self.relayed.as_ref().map(RelayedContent::demand).unwrap_or_default()
    }

    /// Bytes that came.
    pub(crate) fn came(&self) -> u64 {
        self.came
    }

    /// Passes content on.
    pub(crate) fn receive(&mut self, data: &[u8], end: bool) {
        self.came += data.len() as u64;
        (self.owed_since, self.was_owed_since) = (None, None);
        if let Some(writer) = &mut self.writer {
            writer.write(Bytes::copy_from_slice(data));
        }
        if end {
            self.end(FieldSection::default());
        }
    }

    /// The content has ended.
    pub(crate) fn end(&mut self, trailers: FieldSection<'_>) {
        (self.owed_since, self.is_whole) = (None, true);
        // The client has its room back when the upstream has taken the rest.
        if let Some(writer) = &mut self.writer {
            writer.end_with(trailers);
        }
    }

    /// Bytes whose room the client can have back: all of them, if nothing more is passed on.
    pub(crate) fn taken(&self) -> u64 {
        if self.writer.is_some() { self.taken.min(self.came) } else { self.came }
    }

    /// Whether it has outgrown a form, and is worth a larger window.
    pub(crate) fn is_large(&self) -> bool {
        self.came >= LARGE
    }

    /// Bytes that wait for the upstream.
    pub(crate) fn waiting(&self) -> u64 {
        self.came - self.taken()
    }

    /// Since when the upstream waits for the client, if it does.
    pub(crate) fn owed_since(&self) -> Option<Instant> {
        self.owed_since.filter(|_| self.writer.is_some())
    }

    /// The client cannot send now, or again. Its time begins when it can, and the upstream waits for it.
    pub(crate) fn hold(&mut self, is_held: bool) {
        if is_held {
            (self.owed_since, self.was_owed_since) = (None, None);
        }
        if std::mem::replace(&mut self.is_held, is_held) != is_held
            && let Some(writer) = &mut self.writer
        {
            writer.hold(is_held);
        }
    }

    /// The client did not send the next piece in time.
    pub(crate) fn time_out(&mut self) {
        if let Some(writer) = self.writer.take() {
            writer.fail(Status::REQUEST_TIMEOUT);
        }
    }

    /// Notes how much the upstream has taken. `true`: the client is to be sent 100, once.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(writer) = &mut self.writer else { return false };
        let taken = writer.poll_taken(cx);
        self.taken = taken.octets;
        match taken.is_owed && !self.is_tunnel {
            true => {
                let was_owed_since = self.was_owed_since.take();
                self.owed_since.get_or_insert_with(|| was_owed_since.unwrap_or_else(Instant::now));
            }
            false => self.owed_since = None,
        }
        taken.is_wanted && std::mem::take(&mut self.expects_continue)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::Pin;
    use std::task::Waker;
    use std::time::Duration;

    use http_body::Body;

    use super::*;

    /// The client's time for the next piece goes on in another process.
    #[tokio::test]
    async fn a_wait_for_the_client_goes_on_in_another_process() {
        let mut cx = Context::from_waker(Waker::noop());
        let (mut upload, mut content) = Upload::new(None, false);
        assert!(Pin::new(&mut content).poll_frame(&mut cx).is_pending());
        upload.poll(&mut cx);
        let since = upload.owed_since().unwrap() - Duration::from_secs(5);
        upload.owed_since = Some(since);
        for is_asked in [false, true] {
            let (_near, far) = Link::pair().unwrap();
            upload = Upload::resume(upload.pack().unwrap(), Link::new(far).unwrap());
            tokio::task::yield_now().await;
            upload.poll(&mut cx);
            assert_eq!(upload.owed_since(), None, "the upstream has not asked yet");
            if is_asked {
                let demand = upload.demand();
                demand.hear(&crate::passing::Word::Wanted(100)).unwrap();
                tokio::task::yield_now().await;
                upload.poll(&mut cx);
                // The two readings of the clock are nanoseconds apart, unless the thread is held up between them.
                assert!(upload.owed_since().unwrap() <= Instant::now() - Duration::from_secs(5));
            }
        }
        upload.receive(b"piece", false);
        assert_eq!((upload.owed_since, upload.was_owed_since), (None, None));
    }
}
