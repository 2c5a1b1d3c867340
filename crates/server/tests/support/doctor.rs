//! `sealion doctor`, as text and as JSON.

use std::ffi::OsStr;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use serde_json::Value;

/// The user ID without any capability.
const NOBODY: u32 = 65534;

/// Its outcome.
pub(crate) struct Doctor {
    pub(crate) code: i32,
    pub(crate) text: String,
    pub(crate) json: Value,
}

/// A finding.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    pub(crate) state: String,
    pub(crate) found: String,
    pub(crate) means: String,
    pub(crate) remedy: Option<String>,
}

impl Doctor {
    /// Runs it twice, once for each form.
    ///
    /// # Panics
    /// When it fails, and when text, JSON and exit code do not say the same.
    #[track_caller]
    pub(crate) fn ask(arguments: &[&str]) -> Self {
        let text = run(arguments);
        let json = run(&[arguments, &["--json"]].concat());
        for output in [&text, &json] {
            assert!(output.stderr.is_empty(), "{}", String::from_utf8_lossy(&output.stderr));
        }
        let doctor = Self {
            code: text.status.code().expect("it ends by itself"),
            text: String::from_utf8(text.stdout).expect("text"),
            json: serde_json::from_slice(&json.stdout).expect("JSON"),
        };
        assert_eq!(json.status.code(), Some(doctor.code), "{}", doctor.text);
        doctor
    }

    /// About this machine: each finding stands in the text with its sign and its remedy, in the order of the JSON.
    #[track_caller]
    pub(crate) fn of_this_machine() -> Self {
        let doctor = Self::ask(&[]);
        let text = without_tracked(&doctor.text);
        let mut rest = text.as_str();
        for finding in doctor.json["findings"].as_array().expect("findings") {
            let word = |name: &str| finding[name].as_str().expect("a text");
            let sign = match word("state") {
                "good" => "ok  ",
                "note" => "    ",
                "warning" => "warn",
                "bad" => "BAD ",
                other => panic!("no such state: {other}"),
            };
            let mut lines = vec![format!("{sign}  {:<12} {}\n", word("topic"), without_tracked(word("found")))];
            if word("state") != "good" {
                lines.push(format!("{:19}{}\n", "", word("means")));
            }
            if finding.get("remedy").is_some() {
                lines.push(format!("{:19}-> {}\n", "", word("remedy")));
            }
            for line in lines {
                rest = rest.strip_prefix(&line).unwrap_or_else(|| panic!("{line:?} is not in the text:\n{rest}"));
            }
        }
        let will = doctor.json["ktls_will_be_used"].as_bool().expect("yes or no");
        assert_eq!(doctor.code, i32::from(!will), "{}", doctor.text);
        let verdict = if will { "Kernel TLS will be used here." } else { "Kernel TLS will not be used here" };
        assert!(rest.trim_start().starts_with(verdict), "{rest}");
        doctor
    }

    /// The findings of a topic.
    #[track_caller]
    pub(crate) fn findings(&self, topic: &str) -> Vec<Finding> {
        let all = self.json["findings"].as_array().expect("findings");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        all.iter()
            .filter(|finding| finding["topic"] == topic)
            .map(|finding| Finding {
                state: text(&finding["state"]),
                found: text(&finding["found"]),
                means: text(&finding["means"]),
                remedy: finding.get("remedy").map(text),
            })
            .collect()
    }

    /// The only finding of a topic.
    #[track_caller]
    pub(crate) fn finding(&self, topic: &str) -> Finding {
        match &self.findings(topic)[..] {
            [finding] => finding.clone(),
            other => panic!("findings of {topic}: {other:#?}"),
        }
    }

    /// Asks about a process or port; each socket of the JSON has its line in the text, and so has the process.
    #[track_caller]
    pub(crate) fn of_sockets(arguments: &[&str]) -> Self {
        let doctor = Self::ask(arguments);
        let sockets = doctor.sockets();
        let process = usize::from(doctor.json.get("process").is_some());
        assert_eq!(doctor.text.lines().count(), process + 1 + sockets.len(), "{}", doctor.text);
        assert_eq!(doctor.text.starts_with("It runs as "), process == 1, "{}", doctor.text);
        for (socket, line) in sockets.iter().zip(doctor.text.lines().skip(process + 1)) {
            for name in ["local", "remote", "sending", "receiving"] {
                assert!(line.contains(socket[name].as_str().expect("a text")), "{socket} and {line}");
            }
        }
        doctor
    }

    /// The sockets that it found.
    #[track_caller]
    pub(crate) fn sockets(&self) -> &[Value] {
        self.json["sockets"].as_array().expect("sockets")
    }
}

/// Asserts that it fails with one line, and returns it.
#[track_caller]
pub(crate) fn refusal(arguments: &[&str]) -> String {
    one_line(&run(arguments))
}

/// The same as a user without capabilities, which only root can become.
#[track_caller]
pub(crate) fn refusal_of_nobody(arguments: &[&str]) -> String {
    let output = command(arguments).uid(NOBODY).gid(NOBODY).output();
    one_line(&output.expect("the program starts as another user"))
}

#[track_caller]
fn one_line(output: &Output) -> String {
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!((output.status.code(), text.lines().count()), (Some(1), 1), "{text}");
    assert!(output.stdout.is_empty(), "nothing on standard output");
    text
}

fn run(arguments: &[impl AsRef<OsStr>]) -> Output {
    command(arguments).output().expect("the program starts")
}

fn command(arguments: &[impl AsRef<OsStr>]) -> Command {
    let mut command = Command::new(super::PROGRAM);
    command.arg("doctor").args(arguments);
    command
}

/// The text without the number of tracked connections, which changes between two runs.
fn without_tracked(text: &str) -> String {
    const BEFORE: &str = "connection tracking has ";
    match text.split_once(BEFORE) {
        Some((before, after)) => format!("{before}{BEFORE}{}", after.trim_start_matches(|c: char| c.is_ascii_digit())),
        None => text.to_owned(),
    }
}
