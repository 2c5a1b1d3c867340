//! The protocol between the host and the guest's `/init`: a plan at a fixed path, and marks in the output.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// The plan's path in the guest.
pub(crate) const PLAN_PATH: &str = "/sealion-guest.json";

/// The directory of the modules in the guest. Its file `order` lists their names in load order.
pub(crate) const MODULES_PATH: &str = "/lib/modules-sealion";

/// The directory of busybox and its applets in the guest.
pub(crate) const TOOLS_PATH: &str = "/tools";

/// The second serial port carries output and marks. The first is the kernel's console only, so that no kernel message
/// splits a line.
pub(crate) const OUTPUT_PORT: &str = "/dev/ttyS1";

/// The third serial port carries the archive of files brought back.
pub(crate) const ARCHIVE_PORT: &str = "/dev/ttyS2";

/// Begins a mark: ASCII's record separator, which programs do not print.
const SEPARATOR: char = '\u{1e}';

/// The guest's work between boot and power-off.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Set for every job.
    pub(crate) environment: Vec<(String, String)>,
    pub(crate) jobs: Vec<Job>,
    /// The directory whose files are sent to the archive port after the last job.
    pub(crate) bring_back: Option<PathBuf>,
}

/// A program to run as root.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Its path in the guest.
    pub program: PathBuf,
    /// Arguments after the name.
    pub arguments: Vec<String>,
    /// The working directory; it must exist in the guest.
    pub directory: PathBuf,
    /// Variables in addition to [`Payload::environment`](crate::Payload::environment).
    pub environment: Vec<(String, String)>,
}

impl Job {
    /// A command for the shell.
    pub fn shell(command: &str) -> Self {
        Self::program("/bin/sh", ["-c", command])
    }

    /// A program with arguments, in root's home.
    pub fn program<A: Into<String>>(program: impl Into<PathBuf>, arguments: impl IntoIterator<Item = A>) -> Self {
        Self {
            program: program.into(),
            arguments: arguments.into_iter().map(Into::into).collect(),
            directory: "/root".into(),
            environment: Vec::new(),
        }
    }
}

/// A line of the output port that is not output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mark {
    /// The job with this index starts.
    Started(usize),
    /// The job ended with this exit code, 128 + n for signal n.
    Ended(usize, i32),
    /// Every job has ended; the guest powers off.
    Finished,
}

impl Mark {
    /// The mark as a line.
    pub(crate) fn line(self) -> String {
        match self {
            Self::Started(job) => format!("{SEPARATOR}started {job}"),
            Self::Ended(job, code) => format!("{SEPARATOR}ended {job} {code}"),
            Self::Finished => format!("{SEPARATOR}finished"),
        }
    }

    /// Splits a line into the mark and the output before it, if any.
    pub(crate) fn split(line: &str) -> (Option<&str>, Option<Self>) {
        let Some((output, mark)) = line.split_once(SEPARATOR) else {
            return (Some(line), None);
        };
        let mut words = mark.split(' ');
        let mark = match (words.next(), words.next(), words.next()) {
            (Some("started"), Some(job), None) => job.parse().ok().map(Self::Started),
            (Some("ended"), Some(job), Some(code)) => {
                job.parse().ok().zip(code.parse().ok()).map(|(job, code)| Self::Ended(job, code))
            }
            (Some("finished"), None, None) => Some(Self::Finished),
            _ => None,
        };
        match mark {
            Some(mark) => ((!output.is_empty()).then_some(output), Some(mark)),
            None => (Some(line), None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_survive_the_wire() {
        for mark in [Mark::Started(0), Mark::Ended(12, 134), Mark::Finished] {
            assert_eq!(Mark::split(&mark.line()), (None, Some(mark)));
        }
    }

    #[test]
    fn output_before_a_mark_is_kept() {
        let line = format!("no line end{}", Mark::Ended(0, 1).line());
        assert_eq!(Mark::split(&line), (Some("no line end"), Some(Mark::Ended(0, 1))));
        assert_eq!(Mark::split("plain"), (Some("plain"), None));
        assert_eq!(Mark::split("\u{1e}nonsense"), (Some("\u{1e}nonsense"), None));
    }
}
