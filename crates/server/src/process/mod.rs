//! The process: start, signals, reload, taking over, privileges, the service manager.

mod build;
pub(crate) mod privileges;
mod reload;
mod serve;
mod service_manager;
pub(crate) mod upgrade;

pub(crate) use build::build;
pub(crate) use serve::run;
