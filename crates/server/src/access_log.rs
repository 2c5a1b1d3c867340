//! A line for each response. Writing it never waits: lines go to a thread of their own, and what that thread cannot
//! keep up with is dropped and counted.

use std::fmt::{self, Write as _};
use std::fs::OpenOptions;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, channel, sync_channel};
use std::time::{Duration, SystemTime};

use clap::Args;
use schemars::JsonSchema;
use sealion_tls::{HandshakeInfo, Path, Version};
use serde::{Deserialize, Serialize};

use crate::config::overridable;
use crate::send_policy::Why;

/// Lines that may wait for the writer. GUESS: a tenth of a second of a busy machine, under 2 MB.
const QUEUE: usize = 8192;

/// How long the last lines may take. GUESS: a file or a log collector takes them in milliseconds; a pipe that nobody
/// reads takes them never, and must not keep the server from ending.
const LAST_LINES: Duration = Duration::from_secs(2);

/// Where lines go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Destination {
    /// Nowhere.
    Off,
    /// Standard output.
    Stdout,
    /// The end of a file.
    File(PathBuf),
}

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("write `stdout`, `off` or a file".to_owned()),
            "off" => Ok(Self::Off),
            "stdout" | "-" => Ok(Self::Stdout),
            path => Ok(Self::File(path.into())),
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
        }
    }
}

impl Serialize for Destination {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

/// A line for each response.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct AccessLogConfig {
    /// Where the lines go: `stdout`, `off` or a file to append to.
    #[arg(id = "access_log", long = "access-log", value_name = "WHERE", env = "SEALION_ACCESS_LOG", default_value_t = Destination::Stdout)]
    #[schemars(with = "String")]
    pub to: Destination,
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        AccessLogConfig { to: Destination::Stdout }
    }
}

overridable!(AccessLogConfig { to = "access_log" });

/// What a line says.
pub struct Entry<'a> {
    /// The client.
    pub peer: SocketAddr,
    /// Method and request-target as they came; `None` when no request could be read.
    pub request: Option<(&'a str, &'a str)>,
    /// The response's status.
    pub status: u16,
    /// Body bytes that went out.
    pub body: u64,
    /// From the end of the request's head to the response's last byte.
    pub duration: Duration,
    /// What the handshake agreed on.
    pub tls: &'a HandshakeInfo,
    /// Who sealed the response.
    pub path: Path,
    /// Why; `None` when the connection was lost before the path was chosen.
    pub why: Option<Why>,
    /// What moving the connection into the kernel took, if this response did that.
    pub set_up: Option<Duration>,
    /// What cut the response short.
    pub aborted: Option<&'a dyn std::fmt::Display>,
}

impl Entry<'_> {
    fn line(&self, now: SystemTime) -> String {
        let mut line = String::with_capacity(256);
        let (method, target) = self.request.unwrap_or(("-", "-"));
        let version = match self.tls.version {
            Version::Tls12 => "1.2",
            Version::Tls13 => "1.3",
        };
        let micros = self.duration.as_micros();
        // Writing to a String cannot fail.
        let _ =
            write!(line, "time={} peer={} method={method} target=\"", humantime::format_rfc3339_millis(now), self.peer);
        escape(&mut line, target);
        let _ = write!(
            line,
            "\" status={} bytes={} ms={}.{:03} tls={version} suite={} resumed={} path={} why={}",
            self.status,
            self.body,
            micros / 1000,
            micros % 1000,
            self.tls.suite,
            if self.tls.resumed { "yes" } else { "no" },
            self.path.as_str(),
            self.why.map_or("-", Why::as_str),
        );
        if let Some(set_up) = self.set_up {
            let _ = write!(line, " setup_us={}", set_up.as_micros());
        }
        if let Some(aborted) = self.aborted {
            line.push_str(" aborted=\"");
            escape(&mut line, &aborted.to_string());
            line.push('"');
        }
        line.push('\n');
        line
    }
}

fn escape(line: &mut String, text: &str) {
    for c in text.chars() {
        match c {
            '"' | '\\' => line.extend(['\\', c]),
            c if c.is_control() => line.extend(c.escape_unicode()),
            c => line.push(c),
        }
    }
}

/// The workers' end of the log.
#[derive(Debug, Clone)]
pub struct AccessLog {
    queue: Option<SyncSender<String>>,
    dropped: Arc<AtomicU64>,
}

/// The end that outlives the workers.
#[derive(Debug)]
pub struct Writer {
    /// Disconnected when the last line is written; `None` without a destination.
    ended: Option<Receiver<()>>,
    dropped: Arc<AtomicU64>,
}

impl AccessLog {
    /// Opens the destination and starts its writer.
    ///
    /// # Errors
    /// When the file cannot be opened for appending, or no thread started.
    pub fn open(destination: &Destination) -> io::Result<(Self, Writer)> {
        let out: Box<dyn Write + Send> = match destination {
            Destination::Off => {
                let dropped = Arc::default();
                return Ok((Self { queue: None, dropped: Arc::clone(&dropped) }, Writer { ended: None, dropped }));
            }
            Destination::Stdout => Box::new(io::stdout()),
            Destination::File(path) => {
                Box::new(OpenOptions::new().create(true).append(true).open(path)?) as Box<dyn Write + Send>
            }
        };
        let (queue, lines) = sync_channel(QUEUE);
        let dropped = Arc::new(AtomicU64::new(0));
        let counter = Arc::clone(&dropped);
        let (end, ended) = channel::<()>();
        std::thread::Builder::new().name("access-log".to_owned()).spawn(move || {
            write_lines(&lines, BufWriter::new(out), &counter);
            drop(end);
        })?;
        Ok((Self { queue: Some(queue), dropped: Arc::clone(&dropped) }, Writer { ended: Some(ended), dropped }))
    }

    /// Writes a line, or counts it as dropped.
    pub fn write(&self, entry: &Entry<'_>) {
        if let Some(queue) = &self.queue
            && queue.try_send(entry.line(SystemTime::now())).is_err()
        {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether lines go anywhere.
    pub fn is_on(&self) -> bool {
        self.queue.is_some()
    }
}

impl Writer {
    /// Waits until every line is written, once all [`AccessLog`]s are gone; not for ever.
    pub fn finish(self) {
        if let Some(ended) = self.ended
            && ended.recv_timeout(LAST_LINES) == Err(RecvTimeoutError::Timeout)
        {
            tracing::warn!("the access log lost its last lines: its destination takes nothing");
        }
        let dropped = self.dropped.load(Ordering::Relaxed);
        if dropped > 0 {
            tracing::warn!(
                "the access log lost {dropped} lines: its destination is slower than the responses, or failed"
            );
        }
    }
}

fn write_lines(lines: &Receiver<String>, mut out: BufWriter<Box<dyn Write + Send>>, dropped: &AtomicU64) {
    let mut failed = false;
    while let Ok(first) = lines.recv() {
        let mut line = Some(first);
        while let Some(text) = line {
            if let Err(error) = out.write_all(text.as_bytes()) {
                fail(&mut failed, &error, dropped);
            }
            line = lines.try_recv().ok();
        }
        if let Err(error) = out.flush() {
            fail(&mut failed, &error, dropped);
        }
    }
}

fn fail(failed: &mut bool, error: &io::Error, dropped: &AtomicU64) {
    dropped.fetch_add(1, Ordering::Relaxed);
    if !std::mem::replace(failed, true) {
        tracing::error!("the access log cannot be written: {error}. Requests are served on without it");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_it_all_and_cannot_be_forged() {
        let tls = HandshakeInfo::new(Version::Tls13, "TLS_AES_128_GCM_SHA256");
        let entry = Entry {
            peer: "192.0.2.1:50000".parse().unwrap(),
            request: Some(("GET", "/a\"b\\c")),
            status: 206,
            body: 7,
            duration: Duration::from_micros(1234),
            tls: &tls,
            path: Path::Kernel,
            why: Some(Why::Moved),
            set_up: Some(Duration::from_nanos(41_999)),
            aborted: Some(&"line\nbreak"),
        };
        assert_eq!(
            entry.line(SystemTime::UNIX_EPOCH),
            "time=1970-01-01T00:00:00.000Z peer=192.0.2.1:50000 method=GET target=\"/a\\\"b\\\\c\" status=206 bytes=7 \
             ms=1.234 tls=1.3 suite=TLS_AES_128_GCM_SHA256 resumed=no path=kernel why=moved setup_us=41 \
             aborted=\"line\\u{a}break\"\n"
        );
    }
}
