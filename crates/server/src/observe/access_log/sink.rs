//! Opened destinations: a stream of lines, or a datagram per line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, Ipv6Addr, ToSocketAddrs, UdpSocket};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{OFlags, fcntl_setfl};
use rustix::io::retry_on_intr;

use super::batch::Batch;
use super::rotation::Rotation;

/// An opened destination of lines.
pub(super) enum Sink {
    Stream(Stream),
    Datagrams(Datagrams),
}

/// The number of lines that a sink did not accept, and the last error.
pub(super) type Lost = Option<(usize, io::Error)>;

impl Sink {
    /// Writes as many lines as possible.
    pub(super) fn write(&mut self, lines: &Batch) -> Lost {
        match self {
            Sink::Stream(stream) => stream.write(lines),
            Sink::Datagrams(datagrams) => datagrams.write(lines),
        }
    }

    /// Reopens a file by its name; other destinations stay open.
    pub(super) fn reopen(&mut self) -> io::Result<()> {
        match self {
            Sink::Stream(Stream { path: Some(path), rotation, .. }) => {
                *self = Sink::Stream(Stream::file(&path.clone(), *rotation)?);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// A file, or standard output.
pub(super) struct Stream {
    out: File,
    path: Option<PathBuf>,
    /// A pipe or a terminal, which other processes may write to. Each write has whole lines, and is short enough to be
    /// atomic (pipe(7)).
    is_shared: bool,
    /// The file does not end with a line end, so the next line needs a line feed before it.
    torn: bool,
    /// `None`: other programs rotate the file.
    rotation: Option<Rotation>,
    /// The length of the file, if it is rotated.
    len: u64,
    /// When the file was created.
    begun: SystemTime,
}

impl Stream {
    pub(super) fn stdout() -> io::Result<Self> {
        let out = File::from(rustix::io::dup(rustix::stdio::stdout())?);
        let is_shared = !out.metadata()?.is_file();
        Ok(Self { out, path: None, is_shared, torn: false, rotation: None, len: 0, begun: SystemTime::now() })
    }

    pub(super) fn file(path: &Path, rotation: Option<Rotation>) -> io::Result<Self> {
        // A FIFO that no process reads: open(2) fails with ENXIO. Without O_NONBLOCK it would wait for a reader.
        let mut options = OpenOptions::new();
        let out = options.create(true).append(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(path)?;
        fcntl_setfl(&out, OFlags::APPEND)?;
        let metadata = out.metadata()?;
        let is_file = metadata.is_file();
        let torn = is_file && ends_inside_a_line(path);
        // Not every file system records creation times.
        let begun = metadata.created().unwrap_or_else(|_| SystemTime::now());
        let rotation = rotation.filter(|_| is_file);
        Ok(Self { out, path: Some(path.to_owned()), is_shared: !is_file, torn, rotation, len: metadata.len(), begun })
    }

    /// Rotates the file if due. If that fails, lines are still appended to it, and later lines try again.
    fn rotate(&mut self, rotation: Rotation, more: u64) -> io::Result<()> {
        let now = SystemTime::now();
        if let Some(path) = self.path.clone().filter(|_| rotation.is_due(self.len, more, self.begun, now)) {
            rotation.rotate(&path, &self.out, now)?;
            *self = Stream { begun: now, ..Stream::file(&path, Some(rotation))? };
        }
        Ok(())
    }

    fn write(&mut self, lines: &Batch) -> Lost {
        if let Some(rotation) = self.rotation
            && let Err(error) = self.rotate(rotation, lines.bytes().len() as u64)
        {
            tracing::warn!("the access log cannot be rotated: {error}");
        }
        if self.torn {
            match self.write_all(b"\n") {
                (_, None) => self.torn = false,
                (_, Some(error)) => return Some((lines.len(), error)),
            }
        }
        let (written, error) = match self.is_shared {
            false => self.write_all(lines.bytes()),
            true => self.write_in_pieces(lines),
        };
        if let Some(last) = lines.bytes()[..written].last() {
            self.torn = *last != b'\n';
        }
        self.len += written as u64;
        Some((lines.len() - lines.lines_within(written), error?))
    }

    /// As [`Self::write_all`], but each write has as many whole lines as a pipe takes atomically.
    fn write_in_pieces(&mut self, lines: &Batch) -> (usize, Option<io::Error>) {
        let mut written = 0;
        let mut piece = 0..0;
        for line in lines.iter() {
            if piece.len() + line.len() > PIPE_BUF {
                let (more, error) = self.write_all(&lines.bytes()[piece.clone()]);
                written += more;
                if error.is_some() {
                    return (written, error);
                }
                piece.start = piece.end;
            }
            piece.end += line.len();
        }
        let (more, error) = self.write_all(&lines.bytes()[piece]);
        (written + more, error)
    }

    /// Returns the number of bytes written, and the error that ended writing.
    fn write_all(&mut self, bytes: &[u8]) -> (usize, Option<io::Error>) {
        let mut at = 0;
        while at < bytes.len() {
            match self.out.write(&bytes[at..]) {
                Ok(0) => return (at, Some(io::ErrorKind::WriteZero.into())),
                Ok(written) => at += written,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                // Another process has made a shared pipe non-blocking. Only this thread waits.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    let mut ready = [PollFd::new(&self.out, PollFlags::OUT)];
                    if let Err(error) = retry_on_intr(|| poll(&mut ready, None)) {
                        return (at, Some(error.into()));
                    }
                }
                Err(error) => return (at, Some(error)),
            }
        }
        (at, None)
    }
}

/// The number of bytes that a pipe takes atomically (PIPE_BUF, pipe(7)).
const PIPE_BUF: usize = 4096;

/// Whether the file ends with an incomplete line, for instance after the disk was full. `false` if the file can be
/// appended to but not read.
fn ends_inside_a_line(path: &Path) -> bool {
    let last = || -> io::Result<u8> {
        let mut file = File::open(path)?;
        file.seek(SeekFrom::End(-1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        Ok(last[0])
    };
    last().is_ok_and(|last| last != b'\n')
}

/// A socket that sends each line as a message. The daemon at its other end may restart.
pub(super) struct Datagrams {
    to: Receiver,
    socket: Option<Socket>,
}

enum Receiver {
    Unix(PathBuf),
    Udp(String),
}

enum Socket {
    Unix(UnixDatagram),
    Udp(UdpSocket),
}

impl Datagrams {
    pub(super) fn unix(path: &Path) -> Self {
        Self { to: Receiver::Unix(path.to_owned()), socket: None }
    }

    pub(super) fn udp(address: &str) -> Self {
        Self { to: Receiver::Udp(address.to_owned()), socket: None }
    }

    /// A failed message does not stop the batch: it may only be too long. Connects at most twice per batch, so that a
    /// restart of the daemon loses no line.
    fn write(&mut self, lines: &Batch) -> Lost {
        let mut lost: Lost = None;
        let mut attempts = 2;
        for line in lines.iter() {
            if self.socket.is_none() && attempts == 0 {
                // The rest of this batch is not tried again: the last error says why.
                lost = lost.map(|(count, error)| (count + 1, error));
                continue;
            }
            let sent = loop {
                match self.send(line, &mut attempts) {
                    Err(error) if error.raw_os_error() == Some(rustix::io::Errno::MSGSIZE.raw_os_error()) => {
                        break Err(error);
                    }
                    Err(error) => {
                        self.socket = None;
                        if attempts == 0 {
                            break Err(error);
                        }
                    }
                    Ok(()) => break Ok(()),
                }
            };
            if let Err(error) = sent {
                let before = lost.map_or(0, |(count, _)| count);
                lost = Some((before + 1, error));
            }
        }
        lost
    }

    fn send(&mut self, message: &[u8], attempts: &mut u32) -> io::Result<()> {
        let socket = match &self.socket {
            Some(socket) => socket,
            None => {
                *attempts = attempts.checked_sub(1).ok_or(io::ErrorKind::NotConnected)?;
                self.socket.insert(self.to.connect()?)
            }
        };
        match socket {
            Socket::Unix(socket) => socket.send(message),
            Socket::Udp(socket) => socket.send(message),
        }
        .map(drop)
    }
}

impl Receiver {
    fn connect(&self) -> io::Result<Socket> {
        match self {
            Receiver::Unix(path) => {
                let socket = UnixDatagram::unbound()?;
                socket.connect(path)?;
                Ok(Socket::Unix(socket))
            }
            Receiver::Udp(address) => {
                let to = address.to_socket_addrs()?.next().ok_or(io::ErrorKind::AddrNotAvailable)?;
                let any = if to.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
                let socket = UdpSocket::bind(std::net::SocketAddr::new(any, 0))?;
                socket.connect(to)?;
                Ok(Socket::Udp(socket))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(texts: &[&str]) -> Batch {
        let mut batch = Batch::default();
        texts.iter().for_each(|text| batch.push(|line| line.extend_from_slice(format!("{text}\n").as_bytes())));
        batch
    }

    #[test]
    fn half_a_line_is_ended_before_the_next() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        std::fs::write(&path, "whole\nhal").unwrap();
        let mut stream = Stream::file(&path, None).unwrap();
        assert!(stream.write(&lines(&["a", "b"])).is_none());
        assert!(stream.write(&lines(&["c"])).is_none());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "whole\nhal\na\nb\nc\n");
        assert!(Stream::file(&path, None).unwrap().write(&lines(&["d"])).is_none());
        assert!(std::fs::read_to_string(&path).unwrap().ends_with("c\nd\n"));
    }

    #[test]
    fn a_full_disk_takes_nothing_and_says_so() {
        let mut stream = Stream::file(Path::new("/dev/full"), None).unwrap();
        let (lost, error) = stream.write(&lines(&["a", "b"])).expect("nothing is taken");
        assert_eq!((lost, error.kind()), (2, io::ErrorKind::StorageFull));
        assert!(!stream.torn, "nothing was begun");
    }

    #[test]
    fn datagrams_wait_for_nobody_and_find_a_new_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let mut datagrams = Datagrams::unix(&path);
        assert_eq!(datagrams.write(&lines(&["a", "b"])).expect("no listener").0, 2);
        for _ in 0..2 {
            let listener = UnixDatagram::bind(&path).unwrap();
            assert!(datagrams.write(&lines(&["c"])).is_none(), "a new listener is found at once");
            let mut buffer = [0; 10];
            let came = listener.recv(&mut buffer).unwrap();
            assert_eq!(&buffer[..came], b"c\n");
            drop(listener);
            std::fs::remove_file(&path).unwrap();
        }
    }
}
