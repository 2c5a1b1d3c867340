//! The content of a request that is taken whole, before a server is asked. A client that sends it too slowly is refused.
//!
//! ```text
//! client ─► collect ─► Queue (memory, file) ─► a task that writes ─► RequestContent ─► server
//! ```

use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http::HeaderMap;
use http_body::{Body, Frame};
use sealion_http::{FieldSection, Status};
use tokio::time::{Instant, timeout_at};

use super::content::{ContentWriter, Incomplete, RequestContent, Room, pipe};
use super::spool::{Place, Queue, Rest, Spooling, Taken};
use super::spool_disk::DiskError;
use super::waiting::Waiting;
use crate::limits::Reservation;
use crate::observe::metrics;

/// Why a content was not collected.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotCollected {
    /// The client did not send all of it.
    #[error(transparent)]
    Client(#[from] Incomplete),
    #[error(
        "the content for a script has no room while it is waited for: set buffer_request = {{ disk = \"1GiB\", directory = \"/var/tmp\" }} in the rule"
    )]
    TooLong,
    #[error(
        "other contents of the client take all that it may have of limits.max_buffered: set buffer_request = {{ disk = \"1GiB\", directory = \"/var/tmp\" }} in the rule, or raise limits.max_buffered_per_address"
    )]
    NoRoomForClient,
    #[error(
        "contents that wait take all of limits.max_buffered, or the disk of buffer_request is full or fails: set buffer_request = {{ disk = \"1GiB\", directory = \"/var/tmp\" }} in the rule, or raise max_buffered"
    )]
    NoRoom,
    #[error("the disk of buffer_request does not answer")]
    NoDisk,
}

impl NotCollected {
    /// The response to the request.
    pub(crate) fn status(self) -> Status {
        match self {
            NotCollected::Client(incomplete) => incomplete.status,
            NotCollected::TooLong => Status::CONTENT_TOO_LARGE,
            NotCollected::NoRoomForClient | NotCollected::NoRoom | NotCollected::NoDisk => Status::SERVICE_UNAVAILABLE,
        }
    }
}

/// The least rate at which a client has to send.
struct LeastRate {
    /// Bytes in each window, and the window's length. `None`: nothing came.
    least: Option<(u64, Duration)>,
    /// Bytes that came in this window.
    came: u64,
    /// How often the client could send no more, or again, when the window began.
    holds: u64,
    /// The end of the window.
    due: Instant,
}

impl LeastRate {
    fn new(least: Option<(u64, Duration)>) -> Self {
        LeastRate { least, came: 0, holds: 0, due: Instant::now() + least.map_or(Duration::ZERO, |(_, window)| window) }
    }

    /// The next frame of `content`.
    async fn next(&mut self, content: &mut RequestContent) -> Option<Result<Frame<Bytes>, Incomplete>> {
        let Some((least, window)) = self.least else {
            return poll_fn(|cx| Pin::new(&mut *content).poll_frame(cx)).await;
        };
        loop {
            let next = poll_fn(|cx| Pin::new(&mut *content).poll_frame(cx));
            match timeout_at(self.due, next).await {
                Ok(frame) => {
                    if let Some(data) = frame.as_ref().and_then(|frame| frame.as_ref().ok()?.data_ref()) {
                        self.came += data.len() as u64;
                    }
                    return frame;
                }
                Err(_) if self.came < least && content.holds() == (self.holds, false) => {
                    metrics::timed_out(metrics::Deadline::Request);
                    return Some(Err(Incomplete { status: Status::REQUEST_TIMEOUT }));
                }
                // It sent enough, or could not send.
                Err(_) => (self.came, self.holds, self.due) = (0, content.holds().0, Instant::now() + window),
            }
        }
    }

    /// Moves the deadline: the client was not read for this time.
    fn pause(&mut self, time: Duration) {
        self.due += time;
    }
}

/// A content with the memory that is reserved for it.
struct Reserved {
    content: Vec<u8>,
    _memory: Reservation,
}

impl AsRef<[u8]> for Reserved {
    fn as_ref(&self) -> &[u8] {
        &self.content
    }
}

/// Reads a content of announced length whole. `memory`: its length, reserved until the last copy of the bytes is dropped.
///
/// # Errors
/// The client broke off, was too slow, or sent another length than it announced.
pub(crate) async fn read_whole(
    mut content: RequestContent,
    memory: Reservation,
    waiting: &Waiting,
) -> Result<Bytes, Incomplete> {
    let length = content.length();
    let mut rate = LeastRate::new(waiting.least());
    let mut whole = Vec::new();
    while let Some(frame) = rate.next(&mut content).await {
        if let Ok(data) = frame?.into_data() {
            whole.extend_from_slice(&data);
        }
    }
    match length {
        Some(length) if length != whole.len() as u64 => Err(Incomplete { status: Status::BAD_REQUEST }),
        _ => Ok(Bytes::from_owner(Reserved { content: whole, _memory: memory })),
    }
}

/// Takes the content of a request, whole if there is room for it.
/// `client`: the client whose contents share a bound. `None`: there is no such bound.
///
/// # Errors
/// The client did not send all of it, or was too slow, or it is refused.
pub(crate) async fn collect(
    mut content: RequestContent,
    spooling: &Arc<Spooling>,
    client: Option<IpAddr>,
    rest: Rest,
) -> Result<RequestContent, NotCollected> {
    let announced = content.length();
    let mut queue = Queue::new(spooling, client);
    let (mut length, mut trailers) = (0, None);
    let most = (spooling.memory as u64).min(spooling.waiting.most(client)) + spooling.disk;
    if rest == Rest::Refused && announced.is_some_and(|length| length > most) {
        return Err(NotCollected::TooLong);
    }
    let mut rate = LeastRate::new(spooling.waiting.least());
    // Which of them the server gets is decided when they are sent.
    content.pass_trailers(&Arc::from([]));
    let rest = 'all: loop {
        let Some(frame) = rate.next(&mut content).await else { break None };
        let data = match frame?.into_data() {
            Ok(data) => data,
            Err(frame) => {
                // Scripts learn none, and need the length.
                trailers = frame.into_trailers().ok().filter(|_| rest == Rest::Passed);
                continue;
            }
        };
        length += data.len() as u64;
        loop {
            match queue.place(data.len(), rest) {
                Place::Nowhere if rest == Rest::Refused => {
                    // Waiting for others, each of many contents could hold a part of the memory, and none would be whole.
                    return Err(match () {
                        () if length > most => NotCollected::TooLong,
                        () if queue.is_clients_share_taken(data.len()) => NotCollected::NoRoomForClient,
                        // Or the disk may be full or fail.
                        () => NotCollected::NoRoom,
                    });
                }
                Place::Memory => queue.push(data),
                Place::Nowhere => {
                    queue.push(data);
                    break 'all Some(content);
                }
                Place::File(slot) => {
                    let begun = Instant::now();
                    let written = spooling.write(slot, data.clone()).await;
                    rate.pause(begun.elapsed());
                    match written {
                        Ok(written) => queue.wrote(written),
                        // The content that is already in the file cannot be read either.
                        Err(DiskError::NoReply) if rest == Rest::Refused || queue.needs_file() => {
                            return Err(NotCollected::NoDisk);
                        }
                        Err(error) => {
                            queue.failed(&error);
                            continue;
                        }
                    }
                }
            }
            break;
        }
    };
    // Only chunked content has trailers.
    let known = if rest.is_none() && trailers.is_none() { Some(length) } else { announced };
    let (writer, collected) = pipe(known);
    tokio::spawn(feed(writer, Arc::clone(spooling), queue, rest, trailers));
    Ok(collected)
}

/// Bytes of a file that are read at a time.
const READ: u64 = 64 << 10;

/// Writes the waiting content, and then the rest as it comes.
async fn feed(
    mut writer: ContentWriter,
    spooling: Arc<Spooling>,
    mut queue: Queue,
    rest: Option<RequestContent>,
    mut trailers: Option<HeaderMap>,
) {
    while let Some(taken) = queue.pop() {
        match taken {
            Taken::Memory(content) => {
                if poll_fn(|cx| writer.poll_room(cx)).await == Room::Closed {
                    return;
                }
                writer.write(content);
            }
            Taken::File { file, mut range } => {
                while range.start < range.end {
                    if poll_fn(|cx| writer.poll_room(cx)).await == Room::Closed {
                        return;
                    }
                    let next = range.start..range.end.min(range.start + READ);
                    range.start = next.end;
                    // Where it fails, the client sent all of it.
                    match spooling.read(&file, next).await {
                        Ok(octets) => writer.write(octets.into()),
                        Err(DiskError::NoReply) => return writer.fail(Status::SERVICE_UNAVAILABLE),
                        Err(DiskError::Failed(error)) => {
                            spooling.files.warn_of_read(&error);
                            return writer.fail(Status::INTERNAL_SERVER_ERROR);
                        }
                    }
                }
            }
        }
    }
    if let Some(mut rest) = rest {
        loop {
            if poll_fn(|cx| writer.poll_room(cx)).await == Room::Closed {
                return;
            }
            // The server may leave while the client sends nothing.
            let next = poll_fn(|cx| match writer.poll_closed(cx) {
                Poll::Ready(()) => Poll::Ready(None),
                Poll::Pending => Pin::new(&mut rest).poll_frame(cx).map(Some),
            });
            match next.await {
                None => return,
                Some(None) => break,
                Some(Some(Err(incomplete))) => return writer.fail(incomplete.status),
                Some(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) => writer.write(data),
                    Err(frame) => trailers = frame.into_trailers().ok(),
                },
            }
        }
    }
    let mut lines = Vec::new();
    for (name, value) in trailers.iter().flatten() {
        lines.extend_from_slice(name.as_str().as_bytes());
        lines.extend_from_slice(b": ");
        lines.extend_from_slice(value.as_bytes());
        lines.extend_from_slice(b"\r\n");
    }
    writer.finish_with(FieldSection::from_lines(&lines));
}

#[cfg(test)]
mod tests {
    use super::super::spool::BufferConfig;
    use super::*;
    use crate::values::{Problems, Size};

    #[test]
    fn a_server_that_leaves_ends_the_wait_for_the_client() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let (mut client, rest) = pipe(None);
        let (writer, mut content) = pipe(None);
        let spooling = Spooling::in_memory(1 << 20, &Arc::default());
        let queue = Queue::new(&spooling, None);
        runtime.block_on(async {
            let fed = tokio::spawn(feed(writer, spooling, queue, Some(rest), None));
            client.write(Bytes::from_static(b"sent"));
            let frame = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await;
            assert_eq!(frame.unwrap().unwrap().into_data().unwrap(), "sent");
            // The feed waits for the client.
            tokio::task::yield_now().await;
            drop(content);
            fed.await.unwrap();
            assert_eq!(poll_fn(|cx| client.poll_room(cx)).await, Room::Closed);
        });
    }

    #[test]
    fn a_file_that_cannot_be_read_is_not_the_fault_of_the_client() {
        let directory = tempfile::tempdir().unwrap();
        let config = BufferConfig {
            memory: Size(0),
            disk: Some(Size(100)),
            directory: Some(directory.path().to_owned().into()),
        };
        let spooling = config.build(&Arc::default(), "buffer", &mut Problems::of_arguments()).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        let mut queue = Queue::new(&spooling, None);
        let Place::File(slot) = queue.place(30, Rest::Refused) else { panic!("there is room") };
        let written = runtime.block_on(spooling.write(slot, Bytes::from_static(&[7; 30]))).unwrap();
        written.file.on_disk.file.set_len(0).unwrap();
        queue.wrote(written);
        let (writer, mut content) = pipe(Some(30));
        let fed = feed(writer, spooling, queue, None, None);
        let frame = runtime.block_on(async {
            tokio::spawn(fed);
            poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await
        });
        let incomplete = frame.unwrap().unwrap_err();
        assert_eq!(incomplete.status, Status::INTERNAL_SERVER_ERROR);
    }
}
