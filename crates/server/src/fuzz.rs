//! The functions that `fuzz/` calls. Each asserts a property of any input.

use std::path::Path;

use clap::Parser;
use sealion_http::dictionary::{self, DictionaryCoding};
use sealion_http::request::FieldLines;

use crate::config::{Config, ServeArgs, changes};
use crate::guarded;
use crate::process;
use crate::upstream::{cgi_fuzz, http1_fuzz};

/// A configuration file: it is refused with a message, or printed it says the same again, and its times can be added to the clock.
///
/// Returns the message.
pub fn configuration(text: &str) -> Option<String> {
    if text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("include")) {
        // It names files of this machine.
        return None;
    }
    let (config, _) = match Config::parse(Path::new("fuzz.toml"), text) {
        Ok(parsed) => parsed,
        Err(problems) => {
            let message = problems.to_string();
            assert!(message.starts_with("fuzz.toml"), "{message}");
            return Some(message);
        }
    };
    let limits = &config.limits;
    for timeout in [limits.request_timeout, limits.idle_timeout, limits.stall_timeout, limits.grace] {
        let _ = std::time::Instant::now() + timeout.duration();
    }
    let printed = toml::to_string(&config).expect("a configuration can be printed");
    if printed.contains("${") {
        // Read again, it would be a variable.
        return None;
    }
    let Ok((again, _)) = Config::parse(Path::new("again.toml"), &printed) else {
        panic!("a printed configuration is refused: {printed}")
    };
    // Secrets are not printed.
    let differences = changes(&config, &again).into_iter().filter(|change| !change.is_secret());
    let differences: Vec<String> = differences.map(|change| change.to_string()).collect();
    assert!(differences.is_empty(), "{differences:?}");
    None
}

/// A configuration file made from nginx': it is TOML with the server's keys. Values may be refused: a host need not exist, and a time may be too long.
pub fn converted(text: &str) {
    let parsed = text.parse::<toml::Table>();
    assert!(parsed.is_ok(), "{parsed:?}: {text}");
    if let Some(refused) = configuration(text) {
        for fault in ["unknown field", "missing field", "invalid type"] {
            assert!(!refused.contains(fault), "{refused}: {text}");
        }
    }
}

/// The content of an offer of a connection, which came with `files` descriptors.
pub fn offer(content: &[u8], files: usize) {
    crate::passing::fuzz_offer(content, files);
}

/// A packet of a relay between two processes.
pub fn packet(content: &[u8]) {
    crate::passing::fuzz_packet(content);
}

/// The bytes of a FastCGI server, in pieces of `at_a_time` bytes.
pub fn fastcgi(octets: &[u8], at_a_time: usize) {
    cgi_fuzz::fastcgi(octets, at_a_time);
}

/// The bytes of a uwsgi server, in pieces of `at_a_time` bytes.
pub fn uwsgi(octets: &[u8], at_a_time: usize) {
    cgi_fuzz::uwsgi(octets, at_a_time);
}

/// The bytes of an HTTP/1.1 server, in pieces of `at_a_time` bytes.
pub fn http1_answer(octets: &[u8], at_a_time: usize) {
    http1_fuzz::answer(octets, at_a_time);
}

/// Serves by a configuration file until the process ends.
///
/// # Errors
/// The server does not start.
pub fn serve(configuration: &Path) -> Result<(), String> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }
    let line = Line::parse_from(["sealion".as_ref(), "--config".as_ref(), configuration.as_os_str()]);
    process::run(&line.serve)
}

/// The target of a request: it gets nothing of a closed file.
pub fn target(path: &str) {
    guarded::target(path);
}

/// A path that is refused, in another spelling: it is refused too. `which`: the path. `how`: a byte for each byte, how to spell it.
pub fn spelling(which: u8, how: &[u8]) {
    guarded::spelling(which, how);
}

/// The fields that name a client's dictionary, and the beginning of a compressed file: a digest has one spelling, and no coding is used that the client
/// does not name.
pub fn dictionary(available: &[u8], accept: &[u8], content: &[u8]) {
    if let Some(hash) = crate::site::parse_available_dictionary(available) {
        let again = sfv::FieldType::serialize(&sfv::Item::new(sfv::BareItem::ByteSequence(hash.to_vec())));
        assert_eq!(crate::site::parse_available_dictionary(again.as_bytes()), Some(hash));
    }
    let mut lines = FieldLines::default();
    lines.add(accept);
    let accepted = dictionary::accepted(&lines);
    let names = |token: &str| accept.windows(3).any(|part| part.eq_ignore_ascii_case(token.as_bytes()));
    assert!(accepted.iter().all(|coding| names(coding.token())), "{}", accept.escape_ascii());
    for coding in DictionaryCoding::ALL {
        if let Some(hash) = coding.dictionary_of(content) {
            assert!(content.starts_with(&coding.header(&hash)));
        }
    }
}
