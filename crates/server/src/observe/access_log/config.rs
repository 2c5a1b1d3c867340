//! `[access_log]`.

use std::fmt;
use std::io::IsTerminal as _;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::AccessLogPlan;
use super::destination::Destination;
use super::field::{Field, Naming};
use super::layout::{Format, Layout};
use super::rotation::{RotateConfig, Rotation};
use super::text::Text;
use crate::values::{At, Problems, Time, overridable};

/// A line for each response.
#[derive(Debug, Clone, PartialEq, SmartDefault, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessLogConfig {
    /// Destination of the lines: `stdout`, `off`, a file to append to (SIGUSR1 reopens it), `journald`, `syslog` (the socket
    /// /dev/log), `syslog:/path/of/a/socket` or `syslog:HOST:PORT` (UDP).
    #[arg(id = "access_log", long = "access-log", value_name = "WHERE", env = "SEALION_ACCESS_LOG", default_value_t = Destination::Stdout)]
    #[schemars(with = "String")]
    #[default(Destination::Stdout)]
    pub to: Destination,

    /// Format of a line: `logfmt` (`name=value`), `combined` (as in nginx and Apache httpd) or `json`.
    #[arg(id = "access_log_format", long = "access-log-format", value_enum, hide_possible_values = true,
          value_name = "FORMAT", env = "SEALION_ACCESS_LOG_FORMAT", default_value_t = Format::Logfmt)]
    pub format: Format,

    /// Fields of a line, in this order, for `logfmt` and `json`; docs/logs.md lists all of them [default: the usual
    /// fields]
    #[arg(
        id = "access_log_fields",
        long = "access-log-fields",
        value_enum,
        hide_possible_values = true,
        value_delimiter = ',',
        value_name = "FIELD,…",
        env = "SEALION_ACCESS_LOG_FIELDS"
    )]
    pub fields: Vec<Field>,

    /// Text of a line with the same fields, fields of requests and cookies in braces, in place of `fields`:
    /// `{address} "{method} {target}" {status} {header.x-id} {cookie.lang}`. Values are escaped as in `combined`; with
    /// `format = "json"`, as within a string of JSON.
    #[arg(skip)]
    pub text: Option<At<String>>,

    /// Maximum time that lines are collected. The first line after a pause of that length is written at once. `0s`
    /// writes each line at once, which costs more CPU than the response. If the server is killed (SIGKILL, a power
    /// failure), waiting lines are lost.
    #[arg(id = "access_log_flush_after", long = "access-log-flush-after", value_name = "TIME",
          env = "SEALION_ACCESS_LOG_FLUSH_AFTER", default_value_t = Self::default().flush_after)]
    // People who watch the log notice no delay.
    #[default(Time(Duration::from_millis(250)))]
    pub flush_after: Time,

    /// The share of responses that are logged: with `1/100`, each worker logs every hundredth. Errors (status 400 and
    /// above, and responses that were cut short) are always logged.
    #[arg(id = "access_log_sample", long = "access-log-sample", value_name = "1/N",
          env = "SEALION_ACCESS_LOG_SAMPLE", default_value_t = Self::default().sample)]
    #[schemars(with = "String")]
    #[default(Sample(NonZeroU32::MIN))]
    pub sample: Sample,

    /// Rotation of the file by the server itself.
    #[arg(skip)]
    pub rotate: Option<RotateConfig>,
}

overridable!(AccessLogConfig {
    to = "access_log",
    format = "access_log_format",
    fields = "access_log_fields",
    text,
    flush_after = "access_log_flush_after",
    sample = "access_log_sample",
    rotate,
});

/// One response in N, written `1/N`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sample(NonZeroU32);

impl FromStr for Sample {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let one_in = text.strip_prefix("1/").and_then(|number| number.parse().ok());
        one_in.map(Sample).ok_or_else(|| {
            format!(
                "\"{text}\": write `1/N` with N from 1 to {}, for instance `1/100`, or `1/1` for every response",
                u32::MAX
            )
        })
    }
}

impl fmt::Display for Sample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "1/{}", self.0)
    }
}

impl Serialize for Sample {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Sample {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl AccessLogConfig {
    /// `table`: the name of the table.
    pub(crate) fn check(&self, table: &str, problems: &mut Problems) {
        if let Some(rotate) = &self.rotate {
            let what = match &self.to {
                Destination::File(_) if rotate.size.is_none() && rotate.age.is_none() => {
                    "says not when: write for instance size = \"100MB\", age = \"24h\" or both"
                }
                Destination::File(_) => "",
                _ => "applies to files only: name a file in `to`, or remove it",
            };
            if !what.is_empty() {
                problems.add(&(0..0), &format!("{table}.rotate"), what);
            }
        }
        if let Some(text) = &self.text {
            if let Err(what) = Text::parse(text) {
                problems.add(&text.span, &format!("{table}.text"), what);
            }
            if !self.fields.is_empty() {
                let what = "stands beside fields: write them in the text, and remove the list";
                problems.add(&text.span, &format!("{table}.text"), what);
            }
        }
        if self.format == Format::Combined && !self.fields.is_empty() {
            problems.add(
                &(0..0),
                &format!("{table}.fields"),
                "the fields of the combined format are fixed: remove them, or choose logfmt or json",
            );
        }
    }

    /// The directory of the log file, if it does not exist.
    pub(crate) fn missing_directory(&self, problems: &Problems) -> Option<PathBuf> {
        let Destination::File(path) = &self.to else { return None };
        let path = problems.resolve(path);
        let directory = path.parent().filter(|directory| !directory.as_os_str().is_empty())?;
        (!directory.is_dir()).then(|| directory.to_owned())
    }

    /// The text of a line in place of fields. `is_read`: whether a person at a terminal reads the log.
    fn line(&self, is_read: bool, naming: Naming) -> Option<Text> {
        let text = match &self.text {
            Some(text) => text.as_str(),
            None if !is_read || self.format != Format::Logfmt || !self.fields.is_empty() => return None,
            None if naming == Naming::Nothing => ON_TERMINAL,
            None => ON_TERMINAL_WITH_HOST,
        };
        Text::parse(text).ok()
    }

    /// The plan, with the path of a file resolved.
    pub(super) fn build(&self, naming: Naming, problems: &Problems) -> AccessLogPlan {
        let is_read = self.to == Destination::Stdout && std::io::stdout().is_terminal();
        AccessLogPlan {
            destination: match &self.to {
                Destination::File(path) => Destination::File(problems.resolve(path)),
                other => other.clone(),
            },
            layout: Layout::new(self.format, &self.fields, naming).with_text(self.line(is_read, naming)),
            // A person at a terminal sees each line at once.
            flush_after: match is_read {
                true => Duration::ZERO,
                false => self.flush_after.0,
            },
            one_in: self.sample.0,
            rotation: self.rotate.as_ref().map(Rotation::from),
        }
    }
}

/// A line on a terminal fits 120 columns, where a line with all usual fields takes two hundred.
const ON_TERMINAL: &str = "{time} {address} {method} {target} {status} {bytes} B {ms} ms {path} {why} {aborted}";

/// The same, where the log is for several hosts.
const ON_TERMINAL_WITH_HOST: &str =
    "{time} {address} {method} {host} {target} {status} {bytes} B {ms} ms {path} {why} {aborted}";

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn build(text: &str) -> (Destination, String) {
        let config: AccessLogConfig = toml::from_str(text).unwrap();
        let mut problems = Problems::of_file(Path::new("/etc/sealion/f"), text);
        config.check("access_log", &mut problems);
        (config.build(Naming::Nothing, &problems).destination, problems.to_string())
    }

    #[test]
    fn tables_are_read() {
        assert_eq!(build(""), (Destination::Stdout, String::new()));
        assert_eq!(build("to = 'log'").0, Destination::File("/etc/sealion/log".into()));
        assert_eq!(build("to = '/log'\nformat='json'\nfields=['user_agent','ms']").0, Destination::File("/log".into()));
        let config: AccessLogConfig = toml::from_str("sample = '1/100'\nflush_after = '1s'").unwrap();
        assert_eq!((config.sample.0.get(), config.flush_after), (100, Time::seconds(1)));
        let text = toml::to_string(&AccessLogConfig::default()).unwrap();
        assert_eq!(toml::from_str::<AccessLogConfig>(&text).unwrap(), AccessLogConfig::default());
    }

    #[test]
    fn a_terminal_gets_a_short_line_unless_another_is_chosen() {
        let line = |text: &str, is_read, naming| toml::from_str::<AccessLogConfig>(text).unwrap().line(is_read, naming);
        let parsed = |text: &str| Text::parse(text).unwrap();
        assert_eq!(line("", true, Naming::Nothing), Some(parsed(ON_TERMINAL)));
        assert_eq!(line("", true, Naming::SiteAndHost), Some(parsed(ON_TERMINAL_WITH_HOST)));
        assert_eq!(line("", false, Naming::Nothing), None);
        for chosen in ["fields = ['ms']", "format = 'json'", "format = 'combined'"] {
            assert_eq!(line(chosen, true, Naming::Nothing), None, "{chosen}");
        }
        assert_eq!(line("text = '{status}'", true, Naming::Nothing), Some(parsed("{status}")));
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(
            build("format = 'combined'\nfields = ['ms']").1.contains("access_log.fields: the fields of the combined")
        );
        assert!(build("text = '{stats}'").1.contains("f:1: access_log.text: {stats} is not a field"));
        assert!(build("text = '{status}'\nfields = ['ms']").1.contains("access_log.text: stands beside fields"));
        for text in [
            "fields = ['megabytes']",
            "to = 'syslog:x'",
            "format = 'common'",
            "sample = '1/0'",
            "sample = '2/3'",
            "sample = '0.5'",
        ] {
            assert!(toml::from_str::<AccessLogConfig>(text).is_err(), "{text}");
        }
    }
}
