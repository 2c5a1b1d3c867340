//! The process: start, signals, reload, upgrade, privileges, the service manager.

mod announce;
mod build;
pub(crate) mod control;
mod descriptors;
mod memory;
mod prepare;
pub(crate) mod privileges;
mod reload;
mod serve;
pub(crate) mod servers;
mod service_manager;
mod show;
mod signals;
pub(crate) mod upgrade;

pub(crate) use build::build;
pub(crate) use descriptors::check_open_files;
pub(crate) use serve::run;
