//! `sealion compress`: makes the compressed files that sites with `precompressed` serve.

mod versions;

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, Metadata};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use sealion_http::Coding;
use sealion_http::content_type::ContentType;
use sealion_http::dictionary::DictionaryCoding;

use crate::commands::print;
use crate::files::coding::config::{TYPES, Types};
use crate::files::coding::dictionary::{self, MAX_LENGTH};
use crate::files::coding::encoder::{Effort, Encoder};
use crate::values::{Bounded, Mutex, Size};
use versions::Versions;

/// Arguments of `sealion compress`.
#[derive(Debug, Clone, Args)]
pub(super) struct CompressArgs {
    /// Directory to compress. Compressed files are written beside the originals; symbolic links and names that begin with a
    /// dot are skipped
    pub root: PathBuf,

    /// Content codings to write
    #[arg(long, value_parser = coding(), value_name = "CODING", value_delimiter = ',', default_values_t = Coding::ALL)]
    pub codings: Vec<Coding>,

    /// Directory with the previous version of the files. Each file that has a previous version is compressed by it, as `FILE.dcb` and `FILE.dcz` (RFC 9842), for
    /// sites with `dictionary_compressed`; no other compressed files are written
    #[arg(long, value_name = "DIRECTORY", conflicts_with = "codings")]
    pub dictionary: Option<PathBuf>,

    /// Names with a hash of their content, for instance `*-{hash}.*`: a file without a previous version of its own name has the latest file whose name differs
    /// in the hash alone
    #[arg(long, value_name = "PATTERN", requires = "dictionary")]
    pub hashed: Vec<String>,

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
    let versions = args.dictionary.as_deref().map(|old| Versions::find(old, &args.hashed)).transpose()?;
    let mut files = Vec::new();
    find(&args.root, &types, args.min.0, &mut files)?;
    if files.is_empty() {
        let text = format!("nothing to compress: no file of {} or more has one of the types\n", args.min);
        return print(&text).map(|()| ExitCode::SUCCESS);
    }
    let forms: Vec<Form> = match versions {
        Some(_) => DictionaryCoding::ALL.map(Form::ByDictionary).into(),
        None => Coding::ALL.into_iter().filter(|coding| args.codings.contains(coding)).map(Form::Plain).collect(),
    };
    let threads = match args.jobs {
        Some(jobs) => jobs.usize(),
        None => thread::available_parallelism().map_or(1, usize::from),
    };
    // Large files first, so that no thread starts one when the others run out of work.
    files.sort_by_key(|(_, len)| std::cmp::Reverse(*len));
    let tasks = Mutex::new(files.iter().flat_map(|(path, len)| forms.iter().map(move |form| (path, *len, *form))));
    let next = || tasks.lock().next();
    let bytes: u64 = files.iter().map(|(_, len)| len).sum();
    let progress = Progress::new(files.len() * forms.len(), bytes * forms.len() as u64);
    let outcomes: Vec<Vec<_>> = thread::scope(|scope| {
        let work = || {
            let mut outcomes = Vec::new();
            while let Some((path, len, form)) = next() {
                let outcome = match (form, &versions) {
                    (Form::ByDictionary(coding), Some(versions)) => compress_by(versions, &args.root, path, coding),
                    _ => compress(path, form),
                };
                if let Err(error) = &outcome {
                    progress.clear();
                    eprintln!("sealion: cannot compress {} with {form}: {error}", path.display());
                }
                progress.add(len);
                outcomes.push((form, outcome));
            }
            outcomes
        };
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        threads.into_iter().map(|thread| thread.join()).collect::<Result<_, _>>()
    })
    .map_err(|_| "a thread panicked; see the message above".to_owned())?;
    progress.clear();
    let outcomes: Vec<(Form, io::Result<Outcome>)> = outcomes.into_iter().flatten().collect();
    summarize(&forms, &outcomes)?;
    let failed = outcomes.iter().any(|(_, outcome)| outcome.is_err());
    Ok(if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS })
}

/// Prints a line for each form.
fn summarize(forms: &[Form], outcomes: &[(Form, io::Result<Outcome>)]) -> Result<(), String> {
    for &form in forms {
        let all = || outcomes.iter().filter(|(of, _)| *of == form).map(|(_, outcome)| outcome);
        let of_form = || all().filter_map(|outcome| outcome.as_ref().ok());
        let count = |wanted: fn(&Outcome) -> bool| of_form().filter(|outcome| wanted(outcome)).count();
        let without_version = match form {
            Form::Plain(_) => String::new(),
            Form::ByDictionary(_) => {
                format!(", {} have no previous version", count(|outcome| matches!(outcome, Outcome::NoVersion)))
            }
        };
        let (from, to) = of_form().fold((0, 0), |(from, to), outcome| match outcome {
            Outcome::Written { from: more, to: less } => (from + more, to + less),
            _ => (from, to),
        });
        let failed = match all().filter(|outcome| outcome.is_err()).count() {
            0 => String::new(),
            failed => format!(", {failed} failed"),
        };
        print(&format!(
            "{form}: {} written ({from} bytes became {to}), {} up to date, {} would not be smaller{without_version}{failed}\n",
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
        let mut done = self.done.lock();
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

/// A form of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Plain(Coding),
    ByDictionary(DictionaryCoding),
}

impl Form {
    fn suffix(self) -> &'static str {
        match self {
            Form::Plain(coding) => coding.suffix(),
            Form::ByDictionary(coding) => coding.suffix(),
        }
    }
}

impl fmt::Display for Form {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Form::Plain(coding) => coding.fmt(f),
            Form::ByDictionary(coding) => coding.fmt(f),
        }
    }
}

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
    /// It has no previous version, or one that is too long.
    NoVersion,
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

/// Writes the compressed file beside `path`.
fn compress(path: &Path, form: Form) -> io::Result<Outcome> {
    let Form::Plain(coding) = form else { return Ok(Outcome::NoVersion) };
    let original = Original::open(path)?;
    let sibling = sibling(path, form);
    if original.is_up_to_date(&sibling) {
        return Ok(Outcome::UpToDate);
    }
    let length = original.before.len();
    original.write(&sibling, length, |source, written| {
        let mut encoder = Encoder::new(coding, Effort::Beforehand, length, BufWriter::new(written))?;
        let read = io::copy(&mut source.take(length), &mut encoder)?;
        encoder.finish()?.into_inner().map_err(io::IntoInnerError::into_error)?;
        Ok(read)
    })
}

/// Writes the file compressed by its previous version beside `path`.
fn compress_by(versions: &Versions, root: &Path, path: &Path, coding: DictionaryCoding) -> io::Result<Outcome> {
    let Some(previous) = versions.previous(path.strip_prefix(root).unwrap_or(path)) else {
        return Ok(Outcome::NoVersion);
    };
    let original = Original::open(path)?;
    let length = original.before.len();
    if length > MAX_LENGTH || fs::metadata(&previous)?.len() > MAX_LENGTH {
        return Ok(Outcome::NoVersion);
    }
    let dictionary = fs::read(&previous)?;
    if dictionary.is_empty() {
        return Ok(Outcome::NoVersion);
    }
    let sibling = sibling(path, Form::ByDictionary(coding));
    let is_by_it = || {
        let mut header = vec![0; coding.header_len()];
        let read = File::open(&sibling).and_then(|mut file| file.read_exact(&mut header));
        read.is_ok() && coding.dictionary_of(&header) == Some(dictionary::hash(&dictionary))
    };
    if original.is_up_to_date(&sibling) && is_by_it() {
        return Ok(Outcome::UpToDate);
    }
    let mut content = Vec::new();
    (&original.source).take(length).read_to_end(&mut content)?;
    let Some(encoded) = dictionary::encode(coding, &dictionary, &content)? else { return Ok(Outcome::NotSmaller) };
    // A client with a dictionary takes the other codings too.
    let others = Coding::ALL.into_iter().map(|other| self::sibling(path, Form::Plain(other)));
    let others = others.filter(|other| original.is_up_to_date(other)).filter_map(|other| fs::metadata(other).ok());
    let shortest = others.map(|other| other.len()).fold(length, u64::min);
    original.write(&sibling, shortest, |_, mut written| {
        written.write_all(&encoded)?;
        Ok(content.len() as u64)
    })
}

/// A file to compress.
struct Original<'a> {
    path: &'a Path,
    source: File,
    before: Metadata,
}

impl<'a> Original<'a> {
    fn open(path: &'a Path) -> io::Result<Self> {
        let source = File::open(path)?;
        let before = source.metadata()?;
        Ok(Original { path, source, before })
    }

    fn is_up_to_date(&self, sibling: &Path) -> bool {
        fs::metadata(sibling).is_ok_and(|sibling| sibling.len() > 0 && time(&sibling) >= time(&self.before))
    }

    /// Writes a compressed file atomically, with the original's time, mode and owner, if it is shorter than `shortest`. `fill`: writes it, and returns
    /// how many bytes of the original were read.
    fn write(
        self,
        sibling: &Path,
        shortest: u64,
        fill: impl FnOnce(&File, &File) -> io::Result<u64>,
    ) -> io::Result<Outcome> {
        let Original { path, source, before } = self;
        let directory = path.parent().unwrap_or(Path::new("."));
        // The server hides names that begin with a dot.
        let written = tempfile::Builder::new().prefix(".sealion-").tempfile_in(directory)?;
        let read = fill(&source, written.as_file())?;
        let after = fs::metadata(path)?;
        let is_same = (after.len(), after.ino(), time(&after)) == (before.len(), before.ino(), time(&before));
        if read != before.len() || !is_same {
            return Err(io::Error::other("the file changed during compression: run the command again"));
        }
        let to = written.as_file().metadata()?.len();
        if to >= shortest {
            return Ok(Outcome::NotSmaller);
        }
        let file = written.as_file();
        // Only root can change the owner.
        let _ = fchown(file, Some(before.uid()), Some(before.gid()));
        file.set_permissions(before.permissions())?;
        file.set_modified(before.modified()?)?;
        // After a crash the name must not have partial contents, which would be served.
        file.sync_all()?;
        written.persist(sibling).map_err(|error| error.error)?;
        Ok(Outcome::Written { from: before.len(), to })
    }
}

fn sibling(path: &Path, form: Form) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(form.suffix());
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
        let (files, bytes, _) = *progress.done.lock();
        assert_eq!(progress.line(files, bytes), "compressing: 90%, 1 of 4 compressed files");
        let empty = Progress { is_shown: false, files: 0, bytes: 0, done: Mutex::default() };
        assert_eq!(empty.line(0, 0), "compressing: 100%, 0 of 0 compressed files");
    }
}
