//! `[access_log]`.

use clap::Args;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::destination::Destination;
use super::field::Field;
use super::layout::{Format, Layout};
use crate::values::{Problems, overridable};

/// A line for each response.
#[derive(Debug, Clone, PartialEq, Args, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccessLogConfig {
    /// Destination of the lines: `stdout`, `off`, a file to append to (SIGUSR1 reopens it), `journald`, `syslog` (the socket
    /// /dev/log), `syslog:/path/of/a/socket` or `syslog:HOST:PORT` (UDP).
    #[arg(id = "access_log", long = "access-log", value_name = "WHERE", env = "SEALION_ACCESS_LOG", default_value_t = Destination::Stdout)]
    #[schemars(with = "String")]
    pub to: Destination,

    /// Format of a line: `logfmt` (`name=value`), `combined` (that of nginx and Apache httpd) or `json`.
    #[arg(id = "access_log_format", long = "access-log-format", value_enum, hide_possible_values = true,
          value_name = "FORMAT", env = "SEALION_ACCESS_LOG_FORMAT", default_value_t = Format::Logfmt)]
    pub format: Format,

    /// Fields of a line, in this order, for `logfmt` and `json`; docs/logs.md lists all [default: the usual ones]
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
}

impl Default for AccessLogConfig {
    fn default() -> Self {
        Self { to: Destination::Stdout, format: Format::default(), fields: Vec::new() }
    }
}

overridable!(AccessLogConfig { to = "access_log", format = "access_log_format", fields = "access_log_fields" });

impl AccessLogConfig {
    pub(crate) fn check(&self, problems: &mut Problems) {
        if self.format == Format::Combined && !self.fields.is_empty() {
            problems.add(
                &(0..0),
                "access_log.fields",
                "the fields of the combined format are fixed: remove access_log.fields, or choose logfmt or json",
            );
        }
    }

    /// The destination, with the path of a file resolved, and the layout of lines.
    pub(crate) fn build(&self, problems: &Problems) -> (Destination, Layout) {
        let to = match &self.to {
            Destination::File(path) => Destination::File(problems.resolve(path)),
            other => other.clone(),
        };
        (to, Layout::new(self.format, &self.fields))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn build(text: &str) -> (Destination, String) {
        let config: AccessLogConfig = toml::from_str(text).unwrap();
        let mut problems = Problems::of_file(Path::new("/etc/sealion/f"), text);
        config.check(&mut problems);
        (config.build(&problems).0, problems.to_string())
    }

    #[test]
    fn tables_are_read() {
        assert_eq!(build(""), (Destination::Stdout, String::new()));
        assert_eq!(build("to = 'log'").0, Destination::File("/etc/sealion/log".into()));
        assert_eq!(build("to = '/log'\nformat='json'\nfields=['user_agent','ms']").0, Destination::File("/log".into()));
        let text = toml::to_string(&AccessLogConfig::default()).unwrap();
        assert_eq!(toml::from_str::<AccessLogConfig>(&text).unwrap(), AccessLogConfig::default());
    }

    #[test]
    fn what_is_wrong_is_named() {
        assert!(
            build("format = 'combined'\nfields = ['ms']").1.contains("access_log.fields: the fields of the combined")
        );
        for text in ["fields = ['megabytes']", "to = 'syslog:x'", "format = 'common'"] {
            assert!(toml::from_str::<AccessLogConfig>(text).is_err(), "{text}");
        }
    }
}
