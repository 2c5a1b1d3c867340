//! Writing an archive while it is sent.
//!
//! ```text
//! thread of the blocking pool: headers and small files, large files as ranges, or all of it through an encoder ─► channel ─► the response
//! ```
//!
//! The channel holds a few pieces: a slow client holds up the thread, and a client that leaves ends it.

use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use sealion_http::Coding;
use tokio::sync::mpsc;
use tokio::task::spawn_blocking;

use super::Permit;
use super::tar::{self, padded};
use super::walk::{Member, Walk};
use crate::files::coding::encoder::{Effort, Encoder};
use crate::files::resolve::{Content, Found, NotOpened, Root, SiteFile, Wait, beneath};
use crate::response::{Piece, Source};

/// The archive of a directory as the content of a response.
pub(super) struct ArchiveSource {
    state: State,
    /// Held until the archive is sent: a file that is a piece of its own is sent when its thread has ended.
    _permit: Permit,
}

enum State {
    /// Nothing was asked for yet: a response to HEAD never does.
    New(Option<Box<Job>>),
    Running(Receiver),
}

/// `None`: the archive is complete.
type Sender = mpsc::Sender<Option<io::Result<Piece>>>;
type Receiver = mpsc::Receiver<Option<io::Result<Piece>>>;

/// An archive to write.
#[derive(Debug)]
pub(super) struct Job {
    root: Arc<Root>,
    /// The directory, beneath the root.
    top: Box<[u8]>,
    /// The path of the directory in the archive, with a slash at its end.
    prefix: Vec<u8>,
    members: Vec<Member>,
    coding: Option<Coding>,
    /// Bytes of the archive before any coding.
    length: u64,
}

impl ArchiveSource {
    /// `prefix`: the path of the directory in the archive, with a slash at its end.
    pub(super) fn new(walk: Walk, prefix: Vec<u8>, coding: Option<Coding>, permit: Permit) -> Self {
        let Walk { root, top, mut members, .. } = walk;
        // By name, so that directories come before their members, and the archive of one state is always the same.
        members.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let of_member = |member: &Member| {
            let mut header = Vec::new();
            tar::write_header(&mut header, &[&prefix, &*member.name].concat(), member.len, member.modified);
            header.len() as u64 + padded(member.len)
        };
        let length = members.iter().map(of_member).sum::<u64>() + tar::END as u64;
        let state = State::New(Some(Box::new(Job { root, top, prefix, members, coding, length })));
        ArchiveSource { state, _permit: permit }
    }

    /// Bytes of the archive before any coding.
    pub(super) fn length(&self) -> u64 {
        match &self.state {
            State::New(Some(job)) => job.length,
            _ => 0,
        }
    }
}

impl Source for ArchiveSource {
    fn poll_piece(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        loop {
            match &mut self.state {
                State::New(job) => {
                    let Some(job) = job.take() else { return Poll::Ready(None) };
                    let (sender, receiver) = mpsc::channel(PIECES);
                    spawn_blocking(move || job.run(&sender));
                    self.state = State::Running(receiver);
                }
                State::Running(receiver) => {
                    return Poll::Ready(match ready!(receiver.poll_recv(cx)) {
                        Some(Some(piece)) => Some(piece),
                        Some(None) => {
                            self.state = State::New(None);
                            None
                        }
                        None => Some(Err(io::Error::other("the thread that writes the archive panicked"))),
                    });
                }
            }
        }
    }
}

impl Job {
    /// Writes the archive into the channel, and then its end, or the error.
    fn run(&self, sender: &Sender) {
        let written = match self.coding {
            None => self.write(&mut Pieces { sender, pending: Vec::new() }),
            Some(coding) => self.write_encoded(coding, Pieces { sender, pending: Vec::new() }),
        };
        // The receiver is gone if the client has left.
        let _ = sender.blocking_send(written.err().map(Err));
    }

    fn write_encoded(&self, coding: Coding, pieces: Pieces<'_>) -> io::Result<()> {
        let mut encoder = Encoder::new(coding, Effort::Now, self.length, pieces)?;
        self.write(&mut encoder)?;
        encoder.finish()?.pass()
    }

    fn write(&self, out: &mut impl Sink) -> io::Result<()> {
        let mut block = Vec::new();
        for member in &self.members {
            block.clear();
            tar::write_header(&mut block, &[&self.prefix, &*member.name].concat(), member.len, member.modified);
            out.write_all(&block)?;
            if member.name.ends_with(b"/") {
                continue;
            }
            let path = beneath(&self.top, &member.name);
            let file = self.open(&path, member.len)?;
            out.write_file(&file).map_err(|error| about(&path, &error))?;
            block.clear();
            tar::fill_up(&mut block, member.len);
            out.write_all(&block)?;
        }
        out.write_all(&[0; tar::END])?;
        out.flush()
    }

    /// Opens a file that had so many bytes in the walk.
    fn open(&self, path: &[u8], len: u64) -> io::Result<Arc<SiteFile>> {
        match self.root.resolve(path, 0, Wait::Yes) {
            Ok(Found::File(file)) if file.len == len => Ok(file),
            Ok(_) => Err(about(path, &"it changed while the archive was made")),
            Err(NotOpened::Unresolved(unresolved)) => Err(match unresolved.cause {
                Some(cause) => about(path, &cause),
                None => about(path, &"it was removed while the archive was made"),
            }),
            Err(error @ NotOpened::Waits) => Err(about(path, &format_args!("{error:?}"))),
        }
    }
}

fn about(path: &[u8], error: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("archive: /{}: {error}", path.escape_ascii()))
}

/// The destination of an archive.
trait Sink: Write {
    fn write_file(&mut self, file: &Arc<SiteFile>) -> io::Result<()>;
}

/// The channel to the response.
struct Pieces<'a> {
    sender: &'a Sender,
    /// Bytes for the next piece.
    pending: Vec<u8>,
}

impl Pieces<'_> {
    fn send(&self, piece: Piece) -> io::Result<()> {
        self.sender.blocking_send(Some(Ok(piece))).map_err(|_| io::ErrorKind::BrokenPipe.into())
    }

    /// Passes on the pending bytes.
    fn pass(mut self) -> io::Result<()> {
        self.flush()
    }
}

impl Write for Pieces<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pending.extend_from_slice(bytes);
        if self.pending.len() >= PIECE {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let pending = std::mem::take(&mut self.pending);
        self.send(Piece::Bytes(Bytes::from(pending)))
    }
}

impl Sink for Pieces<'_> {
    /// A small file is copied among the headers. A larger one is sent as a range of the file, as any file is.
    fn write_file(&mut self, file: &Arc<SiteFile>) -> io::Result<()> {
        if file.len < PIECE as u64 {
            return copy(file, self);
        }
        self.flush()?;
        self.send(Piece::File { file: Arc::clone(file), range: 0..file.len })
    }
}

impl<W: Write> Sink for Encoder<W> {
    fn write_file(&mut self, file: &Arc<SiteFile>) -> io::Result<()> {
        copy(file, self)
    }
}

/// Copies all bytes that the file had when it was opened.
fn copy(file: &SiteFile, out: &mut impl Write) -> io::Result<()> {
    let file_of = match &file.content {
        Content::File(file_of) => file_of,
        Content::Memory(bytes) => return out.write_all(bytes),
    };
    let mut buffer = vec![0; usize::try_from(file.len).unwrap_or(PIECE).min(PIECE)];
    let mut offset = 0;
    while offset < file.len {
        let most = usize::try_from(file.len - offset).unwrap_or(PIECE).min(buffer.len());
        match file_of.read_at(&mut buffer[..most], offset) {
            Ok(0) => return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it was truncated while it was read")),
            Ok(read) => {
                out.write_all(&buffer[..read])?;
                offset += read as u64;
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Pieces in the channel.
const PIECES: usize = 2;

/// Bytes of a piece in memory, and length from which a file is a piece of its own.
const PIECE: usize = 128 << 10;
