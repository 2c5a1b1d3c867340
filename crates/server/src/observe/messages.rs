//! Messages on standard error. While the server serves, a separate thread writes them, so that an unread pipe does not
//! stop a worker. Messages beyond its queue are dropped and counted.

use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::thread::Builder;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::fmt::format::Writer as FormatWriter;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

/// The minimum severity of printed messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// No messages.
    Off,
    /// Failures of the server.
    Error,
    /// Conditions that an operator should look into.
    Warn,
    /// Changes of the server's own state: reloads, certificates, upgrades.
    Info,
    /// Every connection, and failed ones with the error.
    Debug,
}

impl From<LogLevel> for LevelFilter {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Off => LevelFilter::OFF,
            LogLevel::Error => LevelFilter::ERROR,
            LogLevel::Warn => LevelFilter::WARN,
            LogLevel::Info => LevelFilter::INFO,
            LogLevel::Debug => LevelFilter::DEBUG,
        }
    }
}

/// The format of a message.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum LogFormat {
    /// A line for people.
    #[default]
    Text,
    /// An object per line: `time` (RFC 3339), `level`, `target` (the part of the program) and `message`.
    Json,
}

/// Set for JSON.
static AS_JSON: AtomicBool = AtomicBool::new(false);

/// Sets the format of all messages from now on, including messages about panics.
pub(crate) fn write_as(format: LogFormat) {
    if format == LogFormat::Json && !AS_JSON.swap(true, Ordering::Relaxed) {
        std::panic::set_hook(Box::new(|panic| print(Level::ERROR, format_args!("{panic}"))));
    }
}

/// Sends messages of this level and above to standard error.
pub(crate) fn log_to_stderr(level: LogLevel) {
    let lines = tracing_subscriber::fmt().with_max_level(LevelFilter::from(level)).with_writer(|| Message);
    if AS_JSON.load(Ordering::Relaxed) {
        lines.event_format(Json).init();
    } else {
        lines.with_target(false).with_ansi(io::stderr().is_terminal()).init();
    }
}

/// Writes a line at any level: the sites that the server serves, and why it ends.
pub(crate) fn print(level: Level, text: fmt::Arguments<'_>) {
    if AS_JSON.load(Ordering::Relaxed) {
        let fields = Map::from_iter([("message".to_owned(), text.to_string().into())]);
        // An error cannot be reported anywhere.
        let _ = io::stderr().write_all(json(level, "sealion", fields).as_bytes());
    } else {
        eprintln!("sealion: {text}");
    }
}

/// A message as a line of JSON.
fn json(level: Level, target: &str, fields: Map<String, Value>) -> String {
    let mut time = String::new();
    // If the clock cannot be read, the time is empty.
    let _ = SystemTime.format_time(&mut FormatWriter::new(&mut time));
    let mut line = Map::from_iter([
        ("time".to_owned(), time.into()),
        ("level".to_owned(), level.as_str().to_lowercase().into()),
        ("target".to_owned(), target.into()),
    ]);
    line.extend(fields);
    format!("{}\n", Value::Object(line))
}

/// Writes events as JSON.
struct Json;

impl<S: Subscriber + for<'a> LookupSpan<'a>, N: for<'a> FormatFields<'a> + 'static> FormatEvent<S, N> for Json {
    fn format_event(&self, _: &FmtContext<'_, S, N>, mut writer: FormatWriter<'_>, event: &Event<'_>) -> fmt::Result {
        let mut fields = Fields(Map::new());
        event.record(&mut fields);
        writer.write_str(&json(*event.metadata().level(), event.metadata().target(), fields.0))
    }
}

/// The fields of an event, including the message.
struct Fields(Map<String, Value>);

impl Visit for Fields {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").into());
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name().to_owned(), value.into());
    }
}

/// The maximum number of messages that wait to be written, and of their bytes: far more than a busy server writes in a
/// second.
const QUEUE: usize = 4096;
const QUEUED_BYTES: usize = 1 << 20;

/// How long the end of the server waits for the last messages. A terminal or a log collector takes them in
/// milliseconds; a pipe without a reader never does.
const LAST_MESSAGES: Duration = Duration::from_secs(2);

static QUEUED: OnceLock<Queue> = OnceLock::new();

/// Messages dropped since the start.
static LOST: AtomicU64 = AtomicU64::new(0);

struct Queue {
    lines: SyncSender<Line>,
    bytes: AtomicUsize,
    /// The queue is full, and the writer has not yet reported how many messages were lost.
    lossy: AtomicBool,
}

enum Line {
    Text(Box<[u8]>),
    /// All messages before it are written.
    Last(SyncSender<()>),
}

/// Writes one message, which tracing passes in one piece.
struct Message;

impl Write for Message {
    fn write(&mut self, text: &[u8]) -> io::Result<usize> {
        match QUEUED.get() {
            Some(queue) => queue.push(text),
            None => io::stderr().write_all(text)?,
        }
        Ok(text.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Queue {
    fn push(&self, text: &[u8]) {
        let waiting = self.bytes.fetch_add(text.len(), Ordering::Relaxed);
        if waiting + text.len() > QUEUED_BYTES || self.lines.try_send(Line::Text(text.into())).is_err() {
            self.bytes.fetch_sub(text.len(), Ordering::Relaxed);
            LOST.fetch_add(1, Ordering::Relaxed);
            self.lossy.store(true, Ordering::Release);
        }
    }
}

/// The number of messages dropped because standard error did not take them.
pub(crate) fn lost() -> u64 {
    LOST.load(Ordering::Relaxed)
}

/// Makes a thread write the messages from now on. Call it after privileges are dropped, because the thread inherits the
/// caller's.
///
/// # Errors
/// The thread cannot be started.
pub(crate) fn start_writer() -> io::Result<Writer> {
    let (lines, queued) = sync_channel(QUEUE);
    Builder::new().name("messages".to_owned()).spawn(move || write_lines(&queued))?;
    let _ = QUEUED.set(Queue { lines, bytes: AtomicUsize::new(0), lossy: AtomicBool::new(false) });
    Ok(Writer)
}

/// Waits for the last messages when dropped, at most [`LAST_MESSAGES`].
pub(crate) struct Writer;

impl Drop for Writer {
    fn drop(&mut self) {
        let Some(queue) = QUEUED.get() else { return };
        let (written, all_written) = sync_channel(1);
        // A full queue gets room while the writer works. If the writer is stuck, this does not wait.
        let begun = Instant::now();
        let mut last = Line::Last(written);
        while let Err(error) = queue.lines.try_send(last) {
            let (TrySendError::Full(back) | TrySendError::Disconnected(back)) = error;
            if begun.elapsed() >= LAST_MESSAGES {
                return;
            }
            last = back;
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = all_written.recv_timeout(LAST_MESSAGES.saturating_sub(begun.elapsed()));
    }
}

fn write_lines(lines: &Receiver<Line>) {
    let mut reported = 0;
    let mut stderr = io::stderr();
    while let Ok(line) = lines.recv() {
        match line {
            Line::Text(text) => {
                // An error cannot be reported anywhere.
                let _ = stderr.write_all(&text);
                let Some(queue) = QUEUED.get() else { continue };
                queue.bytes.fetch_sub(text.len(), Ordering::Relaxed);
                if queue.lossy.swap(false, Ordering::Acquire) {
                    report_loss(&mut reported);
                }
            }
            Line::Last(written) => {
                report_loss(&mut reported);
                let _ = written.try_send(());
            }
        }
    }
}

fn report_loss(reported: &mut u64) {
    let lost = lost();
    if lost > *reported {
        let lost = lost - *reported;
        print(Level::WARN, format_args!("{lost} messages were lost, because standard error was not read"));
        *reported += lost;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_of_several_lines_is_one_line_of_json() {
        let fields = Map::from_iter([("message".to_owned(), "one\n\"two\"\u{1b}[31m".into())]);
        let line = json(Level::WARN, "sealion::site", fields);
        assert_eq!((line.matches('\n').count(), line.contains('\u{1b}')), (1, false), "{line}");
        let read: Value = serde_json::from_str(&line).unwrap();
        assert_eq!((&read["level"], &read["target"]), (&"warn".into(), &"sealion::site".into()));
        assert_eq!(read["message"], "one\n\"two\"\u{1b}[31m");
        let time = read["time"].as_str().unwrap();
        assert!(time.ends_with('Z') && time.as_bytes()[10] == b'T', "{time}");
    }
}
