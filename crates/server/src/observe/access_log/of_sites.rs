//! Logs of sites, besides the common log.

use std::collections::BTreeMap;
use std::time::Instant;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::config::Sample;
use super::field::{Field, Naming};
use super::layout::Format;
use super::rotation::RotateConfig;
use super::writer::LAST_LINES;
use super::{AccessLog, AccessLogConfig, AccessLogPlan, Destination, Writer};
use crate::values::{At, Problems, Time};

/// An access log for this site: its responses are not in the common log. Keys that are not set here are inherited from
/// `[access_log]`, except `rotate`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SiteLogConfig {
    /// Destination of the lines, as in `[access_log]`. Sites with the same destination share a log, and must agree on
    /// the other keys.
    #[schemars(with = "String")]
    pub to: Destination,
    /// Format of a line.
    #[serde(default)]
    pub format: Option<Format>,
    /// Fields of a line.
    #[serde(default)]
    pub fields: Option<Vec<Field>>,
    /// Text of a line, in place of fields.
    #[serde(default)]
    pub text: Option<At<String>>,
    /// Maximum time that lines are collected.
    #[serde(default)]
    pub flush_after: Option<Time>,
    /// The share of responses that are logged.
    #[serde(default)]
    #[schemars(with = "Option<String>")]
    pub sample: Option<Sample>,
    /// Rotation of the file by the server itself.
    #[serde(default)]
    pub rotate: Option<RotateConfig>,
}

impl SiteLogConfig {
    /// With the keys inherited from the common log.
    fn completed(&self, common: &AccessLogConfig) -> AccessLogConfig {
        let format = self.format.unwrap_or(common.format);
        let chooses = self.format.is_some() || self.fields.is_some();
        let text = self.text.clone().or_else(|| common.text.clone().filter(|_| !chooses));
        let has_none = format == Format::Combined || text.is_some();
        let inherited = || if has_none { Vec::new() } else { common.fields.clone() };
        AccessLogConfig {
            to: self.to.clone(),
            format,
            fields: self.fields.clone().unwrap_or_else(inherited),
            text,
            flush_after: self.flush_after.unwrap_or(common.flush_after),
            sample: self.sample.unwrap_or(common.sample),
            rotate: self.rotate.clone(),
        }
    }
}

/// The log of a site.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SiteLog {
    Off,
    /// The log of all sites.
    Common,
    /// A log for sites, by index.
    Own(usize),
}

/// The logs of sites, one per destination. Their order does not depend on the order of the sites, so that a reload that
/// reorders sites keeps the logs.
#[derive(Debug, Default)]
pub(crate) struct SiteLogs {
    all: BTreeMap<String, Shared>,
}

#[derive(Debug)]
struct Shared {
    config: AccessLogConfig,
    naming: Naming,
}

impl SiteLogs {
    /// Collects the logs of all sites. `sites`: each with its log, and whether requests for it may name different
    /// hosts.
    pub(crate) fn new<'a>(
        common: &AccessLogConfig,
        sites: impl Iterator<Item = (&'a SiteLogConfig, bool)>,
        problems: &mut Problems,
    ) -> Self {
        let mut logs = Self::default();
        for (site, has_hosts) in sites {
            let config = site.completed(common);
            let name = config.to.to_string();
            match (&config.to, logs.all.get_mut(&name)) {
                (Destination::Off, _) => {
                    problems.add(
                        &(0..0),
                        "site.log.to",
                        "\"off\": remove the table `log`, and write `access_log = false`",
                    );
                }
                (Destination::File(_) | Destination::Stdout, _) if config.to == common.to => problems.add(
                    &(0..0),
                    "site.log.to",
                    format_args!(
                        "{name} is where [access_log] writes: remove the table `log`, or name another destination"
                    ),
                ),
                (_, Some(other)) if other.config != config => problems.add(
                    &(0..0),
                    "site.log",
                    format_args!(
                        "two sites write to {name} in different ways: let them agree, or name another destination"
                    ),
                ),
                (_, Some(other)) => other.naming = Naming::SiteAndHost,
                (_, None) => {
                    config.check("site.log", problems);
                    let naming = if has_hosts { Naming::Host } else { Naming::Nothing };
                    logs.all.insert(name, Shared { config, naming });
                }
            }
        }
        logs
    }

    /// The configurations of all logs.
    pub(crate) fn configs(&self) -> impl Iterator<Item = &AccessLogConfig> {
        self.all.values().map(|log| &log.config)
    }

    /// The log of a site that has its own log.
    pub(crate) fn of(&self, site: &SiteLogConfig) -> SiteLog {
        let name = site.to.to_string();
        self.all.keys().position(|other| *other == name).map_or(SiteLog::Off, SiteLog::Own)
    }

    /// The plans, in the order of [`SiteLog::Own`].
    fn plans(&self, problems: &Problems) -> Vec<AccessLogPlan> {
        self.all.values().map(|log| log.config.build(log.naming, problems)).collect()
    }
}

/// The contents and destinations of all logs.
#[derive(Debug)]
pub(crate) struct AccessLogPlans {
    common: AccessLogPlan,
    of_sites: Vec<AccessLogPlan>,
}

impl AccessLogPlans {
    /// `sites`: from a configuration whose problems are reported elsewhere. `several_sites`: lines of the common log
    /// name their site.
    pub(crate) fn new(common: &AccessLogConfig, sites: &SiteLogs, several_sites: bool, problems: &Problems) -> Self {
        let naming = if several_sites { Naming::SiteAndHost } else { Naming::Nothing };
        Self { common: common.build(naming, problems), of_sites: sites.plans(problems) }
    }
}

/// The common log and the logs of sites.
#[derive(Debug)]
pub(crate) struct AccessLogs {
    common: AccessLog,
    of_sites: Vec<AccessLog>,
}

impl AccessLogs {
    /// Opens all logs.
    ///
    /// # Errors
    /// A log cannot be opened; the message names it.
    pub(crate) fn open(plans: &AccessLogPlans) -> Result<(Self, Writers), String> {
        let mut writers = Vec::new();
        let mut open = |plan: &AccessLogPlan| {
            let (log, writer) = AccessLog::open(plan).map_err(|error| {
                let name = match &plan.destination {
                    Destination::Stdout => "standard output".to_owned(),
                    other => other.to_string(),
                };
                format!(
                    "cannot write the access log to {name}: {error}: name a file that can be written, `stdout` or `off`"
                )
            })?;
            writers.push(writer);
            Ok::<_, String>(log)
        };
        let common = open(&plans.common)?;
        let of_sites = plans.of_sites.iter().map(open).collect::<Result<_, _>>()?;
        Ok((Self { common, of_sites }, Writers(writers)))
    }

    /// Whether any log is on.
    pub(crate) fn is_on(&self) -> bool {
        self.common.is_on() || !self.of_sites.is_empty()
    }

    /// The log for responses of a site, if any.
    pub(crate) fn of(&self, site: SiteLog) -> Option<&AccessLog> {
        let log = match site {
            SiteLog::Off => return None,
            SiteLog::Common => &self.common,
            SiteLog::Own(place) => self.of_sites.get(place)?,
        };
        log.is_on().then_some(log)
    }

    fn all(&self) -> impl Iterator<Item = &AccessLog> {
        std::iter::once(&self.common).chain(&self.of_sites)
    }

    /// Reopens the files, as [`AccessLog::reopen`].
    pub(crate) fn reopen(&self) {
        self.all().for_each(AccessLog::reopen);
    }

    /// Lines written and lines dropped since the start.
    pub(crate) fn counts(&self) -> (u64, u64) {
        self.all().map(AccessLog::counts).fold((0, 0), |sum, counts| (sum.0 + counts.0, sum.1 + counts.1))
    }
}

/// The receiving ends of all logs.
#[derive(Debug)]
pub(crate) struct Writers(Vec<Writer>);

impl Writers {
    /// Waits until every line is written. The wait for all logs together is as long as for one. Call it when no worker
    /// adds lines any more.
    pub(crate) fn finish(self) {
        self.0.iter().for_each(Writer::close);
        let until = Instant::now() + LAST_LINES;
        self.0.into_iter().for_each(|writer| writer.finish(until));
    }
}
