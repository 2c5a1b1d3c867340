//! Files that are served beside the cache, and a client that verifies them.

use std::io;
use std::net::SocketAddr;
use std::path::Path;

use sealion_testkit::http::{self, Response};
use sealion_testkit::{Client, Connector, Course, Fault, content};

use super::figures::Figures;

/// Their names are their lengths: kept in memory, open, and larger than the buffers of a connection.
pub(super) const LENGTHS: [u64; 4] = [100, 20_000, 150_000, 2_000_001];

/// Makes the files.
pub(super) fn make(root: &Path) {
    LENGTHS.iter().for_each(|length| content::write(&root.join(length.to_string()), *length));
}

/// Asks for files until the course ends. Every request has to succeed.
pub(super) fn read(
    figures: &Figures,
    connector: &Connector,
    address: SocketAddr,
    course: &Course,
) -> Result<(), Fault> {
    while !course.has_ended() {
        let mut client = connector.try_connect(address).map_err(|error| failed("a connection for files", &error))?;
        for length in LENGTHS.iter().copied().cycle().take(40) {
            let response = ask(figures, &mut client, length)?;
            if course.has_ended() || response.field("connection").is_some_and(|value| value == "close") {
                break;
            }
        }
    }
    Ok(())
}

/// Asks for one file.
pub(super) fn ask(figures: &Figures, client: &mut Client, length: u64) -> Result<Response, Fault> {
    let target = format!("/{length}");
    let response = http::get(client, &target).map_err(|error| failed(&target, &error))?;
    check(&target, &response, length)?;
    figures.verified(response.body.len());
    Ok(response)
}

/// Compares a response with the content of that length.
pub(super) fn check(target: &str, response: &Response, length: u64) -> Result<(), Fault> {
    if response.status != 200 {
        return Err(Fault::Failed(format!("{target}: status {}: {:?}", response.status, response.fields)));
    }
    if response.body != content::bytes(0..length) {
        let (came, fields) = (response.body.len(), &response.fields);
        return Err(Fault::Wrong(format!("{target}: {came} bytes that are not its content: {fields:?}")));
    }
    Ok(())
}

pub(super) fn failed(what: &str, error: &io::Error) -> Fault {
    Fault::Failed(format!("{what}: {error}"))
}
