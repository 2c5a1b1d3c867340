//! The program on this machine, a module a feature: `cargo test -p sealion --test it sites::`.

#[path = "../support/mod.rs"]
mod support;

mod access_log;
#[cfg(feature = "acme")]
mod acme;
mod browser;
mod cache;
mod calibrate;
mod certificates;
mod cli;
mod cold;
mod compression;
mod config;
mod deadlines;
mod descriptors;
mod dictionaries;
mod doctor;
mod early_hints;
mod encoding;
mod faults;
mod files;
mod guards;
mod health;
mod http;
mod http2;
mod http3;
#[cfg(feature = "import-nginx")]
mod import_nginx;
mod limits;
mod listeners;
mod memory;
mod metrics;
mod mirror;
mod names;
#[cfg(feature = "import-nginx")]
mod nginx_cache;
#[cfg(feature = "import-nginx")]
mod nginx_compression;
#[cfg(feature = "import-nginx")]
mod nginx_corpus;
#[cfg(feature = "import-nginx")]
mod nginx_mirror;
#[cfg(feature = "import-nginx")]
mod nginx_php;
#[cfg(feature = "import-nginx")]
mod nginx_redirects;
mod ocsp;
mod orders;
#[cfg(feature = "otlp")]
mod otlp;
mod packaging;
mod plain;
mod privileges;
mod proxy;
mod relay;
mod routes;
mod secrets;
mod session_tickets;
mod shutdown;
mod sites;
mod top;
mod trust;
mod upgrade;
