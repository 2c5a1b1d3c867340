//! Messages on standard error.

use std::io::IsTerminal;

use clap::ValueEnum;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use tracing::level_filters::LevelFilter;

/// The least severe messages that are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum LogLevel {
    /// No messages.
    Off,
    /// Failures of the server.
    Error,
    /// Conditions that an operator should look into.
    Warn,
    /// Failed connections, with the error.
    Info,
    /// Every connection.
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

/// Sends messages of this level and above to standard error.
pub(crate) fn log_to_stderr(level: LogLevel) {
    tracing_subscriber::fmt()
        .with_max_level(LevelFilter::from(level))
        .with_target(false)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}
