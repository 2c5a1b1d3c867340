//! An HTTPS server for files that lets the kernel seal the records when that is cheaper.
//!
//! The way of a request, file by file:
//!
//! ```text
//! listener ─► worker ─► connection ─► http1/connection ─► http1/head ─► limits ─► handler ─► site/features, where there are any
//!                                                                                               │
//!                                                                     encoding ◄─ file_cache ◄─ target
//!                                                                        │           └─► resolve, or an errand for another thread
//!        access_log ◄─ transport ◄─ send_policy ◄─ http1/write ◄─ conditional, range
//! ```

pub mod access_log;
pub mod calibrate;
pub mod certificates;
pub mod check;
pub mod cli;
pub mod compress;
pub mod conditional;
pub mod config;
pub mod connection;
pub mod costs;
pub mod dev_certificate;
pub mod doctor;
pub mod encoding;
pub mod errand;
pub mod etag;
pub mod file_cache;
pub mod generation;
pub mod handler;
pub mod health_check;
pub mod http1;
pub mod http_time;
pub mod import_nginx;
pub mod kernel_offer;
pub mod limits;
pub mod listener;
pub mod manual;
pub mod metrics;
pub mod mime;
pub mod more_fields;
pub mod privileges;
pub mod range;
mod reload;
pub mod request;
pub mod resolve;
pub mod response;
pub mod send_policy;
pub mod serve;
mod service_manager;
pub mod site;
pub mod target;
pub mod top;
mod transport;
pub mod upgrade;
mod worker;
