//! Purges of a fleet: a stream of Valkey or Redis that each node appends to and reads.
//!
//! ```text
//! sealion purge ─► this node ─► XADD ─► stream ─► XREAD ─► every other node, now or when it is back
//! ```
//!
//! A node keeps the id of the last entry that it has applied beside its stored responses. Where entries after that one may be gone, it purges
//! everything.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

use super::disk::Disk;
use super::purge::{Purge, Target};
use super::purge_file::Durable;
use super::resp::{Connection, Reply};
use super::{CacheConfig, Store, now_ms};
use crate::values::{Problems, Secret};

/// The stream of a fleet, and how far this node has read it.
#[derive(Debug)]
pub(super) struct PurgeStream {
    /// Host and port.
    server: String,
    key: String,
    login: Option<Login>,
    is_connected: AtomicBool,
    /// When everything in the stream had been applied, in milliseconds after `begun`.
    applied: AtomicU64,
    begun: Instant,
}

#[derive(Debug)]
struct Login {
    user: Option<String>,
    password: Secret,
}

/// The stream as metrics show it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PurgeStreamState {
    pub(crate) is_connected: bool,
    /// Seconds since everything in it had been applied.
    pub(crate) lag: u64,
}

/// A purge in the stream. It has no time: each node purges the objects that it has when it reads it.
#[derive(Debug, Serialize, Deserialize)]
struct Entry {
    #[serde(flatten)]
    target: Target,
    #[serde(default)]
    soft: bool,
}

/// The id of an entry: milliseconds and a number (<https://valkey.io/topics/streams-intro/>).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Id(u64, u64);

impl Id {
    /// Before the first entry.
    const START: Id = Id(0, 0);

    fn parse(text: &[u8]) -> Option<Self> {
        let (time, number) = std::str::from_utf8(text).ok()?.trim_ascii().split_once('-')?;
        Some(Id(time.parse().ok()?, number.parse().ok()?))
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.0, self.1)
    }
}

impl PurgeStream {
    /// `None`: none is configured, or it cannot be used.
    pub(super) fn build(config: &CacheConfig, problems: &mut Problems) -> Option<Self> {
        let url = config.purge_stream.as_ref()?;
        let mut add = |what: String| problems.add(&url.span, "cache.purge_stream", what);
        let text = url.reveal();
        let address = text.strip_prefix("redis://").or_else(|| text.strip_prefix("valkey://"));
        let parts = address.and_then(|address| address.split_once('/'));
        let Some((server, key)) = parts.filter(|(server, key)| !server.is_empty() && !key.is_empty()) else {
            add(format!("{:?} is not a stream: write for instance redis://10.0.0.9:6379/sealion-purges", url.value));
            return None;
        };
        if server.contains('@') {
            add("it has a password, which messages would show: name a file with it in purge_stream_password".to_owned());
            return None;
        }
        let has_port = server.rsplit_once(':').is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        let server = if has_port { server.to_owned() } else { format!("{server}:6379") };
        let login = match &config.purge_stream_password {
            None => None,
            Some(file) => match std::fs::read_to_string(problems.resolve(&file.value)) {
                Ok(text) => {
                    let line = text.lines().next().unwrap_or_default();
                    let (user, password) = line.split_once(' ').map_or((None, line), |(user, word)| (Some(user), word));
                    Some(Login { user: user.map(str::to_owned), password: password.to_owned().into() })
                }
                Err(error) => {
                    let what = format!("{}: {error}", file.value.display());
                    problems.add(&file.span, "cache.purge_stream_password", what);
                    return None;
                }
            },
        };
        Some(PurgeStream {
            server,
            key: key.to_owned(),
            login,
            is_connected: AtomicBool::new(false),
            applied: AtomicU64::new(0),
            begun: Instant::now(),
        })
    }

    pub(super) fn server(&self) -> &str {
        &self.server
    }

    pub(super) fn state(&self) -> PurgeStreamState {
        let now = self.begun.elapsed().as_millis() as u64;
        PurgeStreamState {
            is_connected: self.is_connected.load(Ordering::Relaxed),
            lag: now.saturating_sub(self.applied.load(Ordering::Relaxed)) / 1000,
        }
    }

    /// Appends a purge. `Ok`: the stream has it. May block.
    pub(super) fn publish(&self, purge: &Purge, node: &str) -> io::Result<()> {
        let entry = Entry { target: purge.target.clone(), soft: purge.soft };
        let entry = serde_json::to_vec(&entry).map_err(io::Error::other)?;
        let length = MOST_ENTRIES.to_string();
        let command: [&[u8]; 9] =
            [b"XADD", self.key.as_bytes(), b"MAXLEN", b"~", length.as_bytes(), b"*", PURGE, &entry, NODE];
        self.connect()?.call(&[&command[..], &[node.as_bytes()]].concat()).map(drop)
    }

    fn connect(&self) -> io::Result<Connection> {
        let mut connection = Connection::open(&self.server, PATIENCE)?;
        if let Some(Login { user, password }) = &self.login {
            let user = user.as_ref().map(|user| user.as_bytes());
            let command: Vec<&[u8]> =
                [&b"AUTH"[..]].into_iter().chain(user).chain([password.reveal().as_bytes()]).collect();
            connection.call(&command)?;
        }
        Ok(connection)
    }

    /// Says once that the connection was lost, or is there again.
    fn set_connected(&self, result: Result<(), &io::Error>, was_told: &mut bool) {
        self.is_connected.store(result.is_ok(), Ordering::Relaxed);
        let is_lost = result.is_err();
        if std::mem::replace(was_told, is_lost) == is_lost {
            return;
        }
        let server = &self.server;
        match result {
            Err(error) => tracing::warn!(
                "cache: cannot read the purge stream at {server}: {error}; purges of other nodes are applied when it can be read again"
            ),
            Ok(()) => tracing::info!("cache: the purge stream at {server} is read again"),
        }
    }
}

/// Starts the thread that applies the purges of other nodes, and waits a while until the purges are applied that this node has missed.
pub(super) fn follow(store: &Arc<Store>) -> io::Result<()> {
    let (tell, told) = channel();
    let weak = Arc::downgrade(store);
    std::thread::Builder::new().name("sealion-purges".to_owned()).spawn(move || read_on(&weak, &tell))?;
    if told.recv_timeout(PATIENCE).is_err() {
        tracing::warn!("cache: purges of other nodes are still being applied, and stored responses are sent meanwhile");
    }
    Ok(())
}

/// Reads the stream for as long as there is the store. `tell`: once all is applied, or cannot be.
fn read_on(store: &Weak<Store>, tell: &Sender<()>) {
    let mut is_told = false;
    while let Some(store) = store.upgrade() {
        let Some(stream) = &store.stream else { return };
        let result = Reader::resume(&store, stream).and_then(|mut reader| {
            stream.set_connected(Ok(()), &mut is_told);
            read_until_failure(&mut reader, &store, stream, tell)
        });
        if let Err(error) = result {
            stream.set_connected(Err(&error), &mut is_told);
        }
        let _ = tell.send(());
        drop(store);
        std::thread::sleep(RETRY);
    }
}

/// Reads until the connection fails.
fn read_until_failure(reader: &mut Reader, store: &Store, stream: &PurgeStream, tell: &Sender<()>) -> io::Result<()> {
    loop {
        // Without waiting for all purges to be applied.
        while reader.apply_next(store, stream, None)? {}
        reader.keep_place(store)?;
        let now = stream.begun.elapsed().as_millis() as u64;
        stream.applied.store(now, Ordering::Relaxed);
        let _ = tell.send(());
        reader.apply_next(store, stream, Some(TURN))?;
    }
}

/// A node's place in the stream.
struct Reader {
    connection: Connection,
    /// The last entry that was applied.
    last: Id,
    /// The place that is written down.
    kept: Option<Id>,
}

impl Reader {
    /// Connects, and goes on where this node was.
    fn resume(store: &Store, stream: &PurgeStream) -> io::Result<Self> {
        let mut reader = Reader { connection: stream.connect()?, last: Id::START, kept: None };
        let newest = reader.info(stream)?.map_or(Id::START, |info| info.newest);
        let read = |disk: &Disk| disk.directory.read_file(FILE).ok();
        let text = store.disks().next().and_then(|disk| disk.run_and_block("read its place in the purge stream", read));
        let known = text.flatten().and_then(|text| Id::parse(&text));
        reader.last = known.unwrap_or(newest);
        let gap = match known {
            None if newest == Id::START => None,
            None => Some("it was not read here before"),
            Some(known) if newest < known => Some("its entries have older ids than before"),
            Some(known) if newest > known && !reader.is_whole(stream, known)? => Some(GONE),
            Some(_) => None,
        };
        if let Some(why) = gap {
            reader.last = newest;
            purge_everything(store, stream, why)?;
        }
        Ok(reader)
    }

    /// Applies some entries. `wait`: for the first. `false`: there are no more.
    fn apply_next(&mut self, store: &Store, stream: &PurgeStream, wait: Option<Duration>) -> io::Result<bool> {
        let before = self.last;
        let entries = self.read(stream, wait)?;
        let Some((newest, _)) = entries.last() else { return Ok(false) };
        self.last = *newest;
        let is_gap = !self.is_whole(stream, before)?;
        let own = store.node();
        let mut purges = Vec::new();
        for (id, fields) in entries {
            let field = |name: &[u8]| fields.iter().find(|(own, _)| own == name).map(|(_, value)| value.as_slice());
            if field(NODE) == Some(own.as_bytes()) {
                continue;
            }
            match field(PURGE).map(serde_json::from_slice::<Entry>) {
                Some(Ok(entry)) => purges.push(entry),
                _ => {
                    tracing::warn!("cache: entry {id} of the purge stream cannot be read: everything is purged");
                    purges.push(Entry { target: Target::Everything, soft: false });
                }
            }
        }
        let count = purges.len();
        let mut applied = Ok(());
        for (n, Entry { target, soft }) in purges.into_iter().enumerate() {
            // The file is the same for all: the last line takes the lines before with it to the disk.
            let durable = if n + 1 == count { Durable::Yes } else { Durable::No };
            // All hold in memory, even if one cannot be written down: they are then read again.
            applied = applied.and(store.apply(&Purge { target, soft, at: now_ms() }, durable));
        }
        applied?;
        if is_gap {
            purge_everything(store, stream, GONE)?;
        }
        Ok(true)
    }

    /// Writes down how far the stream was read, once everything before is purged.
    fn keep_place(&mut self, store: &Store) -> io::Result<()> {
        let Some(disk) = store.disks().next() else { return Ok(()) };
        // While one process takes over from another, the owner writes. Purges behind the place that was written are applied again.
        if !disk.directory.is_owner() || self.kept == Some(self.last) {
            return Ok(());
        }
        let place = self.last.to_string();
        let write = move |disk: &Disk| disk.directory.write_file(FILE, place.as_bytes());
        // A disk that hangs must not keep the purges of other nodes from being applied.
        if let Some(written) = disk.run_and_block("write its place in the purge stream", write) {
            written?;
            self.kept = Some(self.last);
        }
        Ok(())
    }

    /// Entries after the last one, with their fields.
    fn read(&mut self, stream: &PurgeStream, wait: Option<Duration>) -> io::Result<Vec<(Id, Vec<Field>)>> {
        let (last, count) = (self.last.to_string(), MOST_AT_ONCE.to_string());
        let wait = wait.map(|wait| wait.as_millis().to_string());
        let mut command: Vec<&[u8]> = vec![b"XREAD", b"COUNT", count.as_bytes()];
        if let Some(wait) = &wait {
            command.extend([&b"BLOCK"[..], wait.as_bytes()]);
        }
        command.extend([&b"STREAMS"[..], stream.key.as_bytes(), last.as_bytes()]);
        let reply = self.connection.call(&command)?;
        if reply == Reply::Nothing {
            return Ok(Vec::new());
        }
        // [[key, [[id, [name, value, …]], …]]]
        let entries = list(reply).and_then(|streams| list(streams.into_iter().next()?));
        let entries = entries.and_then(|pair| list(pair.into_iter().nth(1)?)).ok_or_else(unexpected)?;
        entries.into_iter().map(|entry| entry_of(entry).ok_or_else(unexpected)).collect()
    }

    /// Whether no entry after `known` is gone: that one is still there, and the oldest go first.
    fn is_whole(&mut self, stream: &PurgeStream, known: Id) -> io::Result<bool> {
        if known == Id::START {
            return Ok(self.info(stream)?.is_none_or(|info| info.is_whole));
        }
        let id = known.to_string();
        let reply = self.connection.call(&[b"XRANGE", stream.key.as_bytes(), id.as_bytes(), id.as_bytes()])?;
        Ok(list(reply).is_some_and(|found| !found.is_empty()))
    }

    /// `None`: there is no stream.
    fn info(&mut self, stream: &PurgeStream) -> io::Result<Option<Info>> {
        let reply = match self.connection.call(&[b"XINFO", b"STREAM", stream.key.as_bytes()]) {
            Err(error) if error.to_string().contains("no such key") => return Ok(None),
            reply => list(reply?).ok_or_else(unexpected)?,
        };
        let value =
            |name: &[u8]| reply.chunks_exact(2).find(|pair| pair[0] == Reply::Text(name.to_vec())).map(|pair| &pair[1]);
        let newest = match value(b"last-generated-id") {
            Some(Reply::Text(text)) => Id::parse(text),
            _ => None,
        };
        // Before Redis 7, the number of all entries is unknown.
        let is_whole = value(b"entries-added").is_some() && value(b"entries-added") == value(b"length");
        Ok(Some(Info { newest: newest.ok_or_else(unexpected)?, is_whole }))
    }
}

/// The server's information on the stream.
struct Info {
    newest: Id,
    /// Whether it has all entries that were ever added.
    is_whole: bool,
}

type Field = (Vec<u8>, Vec<u8>);

fn entry_of(entry: Reply) -> Option<(Id, Vec<Field>)> {
    let mut parts = list(entry)?.into_iter();
    let id = Id::parse(&text(parts.next()?)?)?;
    let mut fields = list(parts.next()?)?.into_iter();
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (fields.next(), fields.next()) {
        pairs.push((text(name)?, text(value)?));
    }
    Some((id, pairs))
}

fn list(reply: Reply) -> Option<Vec<Reply>> {
    match reply {
        Reply::List(list) => Some(list),
        _ => None,
    }
}

fn text(reply: Reply) -> Option<Vec<u8>> {
    match reply {
        Reply::Text(text) => Some(text),
        _ => None,
    }
}

fn unexpected() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "it did not answer as a stream: name a Valkey or Redis server, and a key of its own",
    )
}

fn purge_everything(store: &Store, stream: &PurgeStream, why: &str) -> io::Result<()> {
    tracing::warn!("cache: the purge stream {} at {}: {why}; everything stored is purged", stream.key, stream.server);
    store.apply(&Purge { target: Target::Everything, soft: false, at: now_ms() }, Durable::Yes)
}

const GONE: &str = "entries that were not read are gone";
/// The field of an entry with the purge, and the one with the node that has applied it already.
const PURGE: &[u8] = b"purge";
const NODE: &[u8] = b"node";
/// The id of the last entry that was applied.
const FILE: &str = "purge-stream";
/// Entries that the stream keeps, about: a node that missed more purges everything.
const MOST_ENTRIES: usize = 100_000;
const MOST_AT_ONCE: usize = 1000;
/// The lag that metrics show rises by so much while nothing is purged.
const TURN: Duration = Duration::from_secs(1);
const RETRY: Duration = Duration::from_secs(1);
/// For a connection, for a reply, and for the purges that a node missed.
const PATIENCE: Duration = Duration::from_secs(5);
