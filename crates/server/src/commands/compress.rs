//! `sealion compress`: makes the compressed files that sites with `precompressed` serve.

use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sealion_http::Coding;
use sealion_http::content_type::ContentType;

use crate::commands::print;
use crate::files::coding::config::{TYPES, Types};
use crate::files::coding::encoder::{Effort, Encoder};
use crate::values::{Bounded, Size};

/// Arguments of `sealion compress`.
#[derive(Debug, Clone, Args)]
pub(super) struct CompressArgs {
    /// Directory to compress. Compressed files are written beside the originals; symbolic links and names that begin with a
    /// dot are skipped
    pub root: PathBuf,

    /// Content codings to write
    #[arg(long, value_parser = coding(), value_name = "CODING", value_delimiter = ',', default_values_t = Coding::ALL)]
    pub codings: Vec<Coding>,

    /// Minimum size of files to compress
    #[arg(long, value_name = "SIZE", default_value_t = Size(1 << 10))]
    pub min: Size,

    /// Media types to compress, for instance `application/json` or `text/*`
    #[arg(long, value_name = "TYPE", value_delimiter = ',', default_values = TYPES)]
    pub types: Vec<String>,

    /// Threads [default: one per core]
    #[arg(long, value_name = "N")]
    pub jobs: Option<Bounded<1, 1024>>,
}

/// Parses a coding by its Content-Encoding name.
fn coding() -> impl TypedValueParser<Value = Coding> {
    let tokens = PossibleValuesParser::new(Coding::ALL.map(Coding::token));
    tokens.try_map(|token| Coding::from_token(&token).ok_or("not a coding"))
}

/// Compresses the files whose compressed files are missing or outdated.
///
/// # Errors
/// An argument is invalid, or the directory cannot be read. Files that fail are reported one by one, and make the exit
/// code 1.
pub(super) fn run(args: &CompressArgs) -> Result<ExitCode, String> {
    let types = Types::new(&args.types).map_err(|wrong| format!("--types: {wrong}"))?;
    let mut files = Vec::new();
    find(&args.root, &types, args.min.0, &mut files)?;
    if files.is_empty() {
        let text = format!("nothing to compress: no file of {} or more has one of the types\n", args.min);
        return print(&text).map(|()| ExitCode::SUCCESS);
    }
    let codings: Vec<Coding> = Coding::ALL.into_iter().filter(|coding| args.codings.contains(coding)).collect();
    let threads = match args.jobs {
        Some(jobs) => jobs.usize(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    // Large files first, so that no thread starts one when the others run out of work.
    files.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
    let tasks =
        Mutex::new(files.iter().flat_map(|(path, len)| codings.iter().map(move |coding| (path, *len, *coding))));
    let next = || tasks.lock().ok()?.next();
    let bytes: u64 = files.iter().map(|(_, len)| len).sum();
    let progress = Progress::new(files.len() * codings.len(), bytes * codings.len() as u64);
    let outcomes: Vec<Vec<_>> = thread::scope(|scope| {
        let work = || {
            let mut outcomes = Vec::new();
            while let Some((path, len, coding)) = next() {
                let outcome = compress(path, coding);
                if let Err(error) = &outcome {
                    progress.clear();
                    eprintln!("sealion: cannot compress {} with {coding}: {error}", path.display());
                }
                progress.add(len);
                outcomes.push((coding, outcome));
            }
            outcomes
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Result<_, _>>()
    })
    .map_err(|_| "a thread panicked; see the message above".to_owned())?;
    progress.clear();
    let outcomes: Vec<(Coding, io::Result<Outcome>)> = outcomes.into_iter().flatten().collect();
    summarize(&codings, &outcomes)?;
    let failed = outcomes.iter().any(|(_, outcome)| outcome.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints a line for each coding.
fn summarize(codings: &[Coding], outcomes: &[(Coding, io::Result<Outcome>)]) -> Result<(), String> {
    for coding in codings {
        let all = || outcomes.iter().filter(|(of, _)| of == coding).map(|(_, outcome)| outcome);
        let of_coding = || all().filter_map(|outcome| outcome.as_ref().ok());
        let count = |wanted: fn(&Outcome) -> bool| of_coding().filter(|outcome| wanted(outcome)).count();
        let (from, to) = of_coding().fold((0, 0), |(from, to), outcome| match outcome {
            Outcome::Written { from: more, to: less } => (from + more, to + less),
            _ => (from, to),
        });
        let failed = match all().filter(|outcome| outcome.is_err()).count() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        print(&format!(
            "{coding}: {} written ({from} bytes became {to}), {} up to date, {} would not be smaller{failed}\n",
            count(|outcome| matches!(outcome, Outcome::Written { .. })),
            count(|outcome| matches!(outcome, Outcome::UpToDate)),
            count(|outcome| matches!(outcome, Outcome::NotSmaller)),
        ))?;
    }
    Ok(())
}

/// The progress on a terminal: a line that is overwritten.
struct Progress {
    is_shown: bool,
    files: usize,
    bytes: u64,
    /// Files and bytes that are done, and when the line was written.
    done: Mutex<(usize, u64, Option<Instant>)>,
}

impl Progress {
    fn new(files: usize, bytes: u64) -> Self {
        Self { is_shown: io::stderr().is_terminal(), files, bytes, done: Mutex::default() }
    }

    /// Counts a file of this length.
    fn add(&self, len: u64) {
        let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
        (done.0, done.1) = (done.0 + 1, done.1 + len);
        if self.is_shown && done.2.is_none_or(|written| written.elapsed() >= PROGRESS_EVERY) {
            done.2 = Some(Instant::now());
            // A terminal that is gone ends no work.
            let _ = write!(io::stderr(), "{ERASE_LINE}{}", self.line(done.0, done.1));
        }
    }

    fn line(&self, files: usize, bytes: u64) -> String {
        let share = (bytes * 100).checked_div(self.bytes).unwrap_or(100);
        format!("compressing: {share}%, {files} of {} compressed files", self.files)
    }

    /// Removes the line, before another one is printed.
    fn clear(&self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "{ERASE_LINE}");
        }
    }
}

/// Returns to the start of the line, and erases it (ECMA-48, EL).
const ERASE_LINE: &str = "\r\x1b[K";

const PROGRESS_EVERY: Duration = Duration::from_millis(100);

/// The outcome for one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Written {
        /// Bytes of the original.
        from: u64,
        /// Bytes of the compressed file.
        to: u64,
    },
    UpToDate,
    NotSmaller,
}

/// Collects the files to compress, with their lengths.
fn find(directory: &Path, types: &Types, min: u64, files: &mut Vec<(PathBuf, u64)>) -> Result<(), String> {
    let fail = |error| format!("cannot read {}: {error}: choose a readable directory", directory.display());
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let name = entry.file_name();
        if name.as_bytes().starts_with(b".") {
            continue;
        }
        let kind = entry.file_type().map_err(fail)?;
        if kind.is_dir() {
            find(&entry.path(), types, min, files)?;
        } else if kind.is_file() && types.contain(ContentType::of_name(name.as_bytes()).essence()) {
            // A file deleted in the meantime is not an error.
            let len = entry.metadata().map_or(0, |metadata| metadata.len());
            if len >= min && len > 0 {
                files.push((entry.path(), len));
            }
        }
    }
    Ok(())
}

/// Writes the compressed file beside `path` atomically, with the original's time, mode and owner.
fn compress(path: &Path, coding: Coding) -> io::Result<Outcome> {
    let sibling = sibling(path, coding);
    let source = File::open(path)?;
    let before = source.metadata()?;
    if fs::metadata(&sibling).is_ok_and(|sibling| sibling.len() > 0 && time(&sibling) >= time(&before)) {
        return Ok(Outcome::UpToDate);
    }
    let directory = path.parent().unwrap_or(Path::new("."));
    // The server hides names that begin with a dot.
    let written = tempfile::Builder::new().prefix(".sealion-").tempfile_in(directory)?;
    let mut encoder = Encoder::new(coding, Effort::Beforehand, before.len(), BufWriter::new(written.as_file()))?;
    let read = io::copy(&mut source.take(before.len()), &mut encoder)?;
    encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
    let after = fs::metadata(path)?;
    if read != before.len() || (after.len(), after.ino(), time(&after)) != (before.len(), before.ino(), time(&before)) {
        return Err(io::Error::other("the file changed during compression: run the command again"));
    }
    let to = written.as_file().metadata()?.len();
    if to >= before.len() {
        return Ok(Outcome::NotSmaller);
    }
    let file = written.as_file();
    // Only root can change the owner.
    let _ = fchown(file, Some(before.uid()), Some(before.gid()));
    file.set_permissions(before.permissions())?;
    file.set_modified(before.modified()?)?;
    // After a crash the name must not have partial contents, which would be served.
    file.sync_all()?;
    written.persist(&sibling).map_err(|error| error.error)?;
    Ok(Outcome::Written { from: before.len(), to })
}

fn sibling(path: &Path, coding: Coding) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(coding.suffix());
    name.into()
}

fn time(metadata: &Metadata) -> (i64, i64) {
    (metadata.mtime(), metadata.mtime_nsec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_counts_bytes_since_files_differ_in_length() {
        let progress = Progress { is_shown: false, files: 4, bytes: 1000, done: Mutex::default() };
        progress.add(900);
        let (files, bytes, _) = *progress.done.lock().unwrap();
        assert_eq!(progress.line(files, bytes), "compressing: 90%, 1 of 4 compressed files");
        let empty = Progress { is_shown: false, files: 0, bytes: 0, done: Mutex::default() };
        assert_eq!(empty.line(0, 0), "compressing: 100%, 0 of 0 compressed files");
    }
}
