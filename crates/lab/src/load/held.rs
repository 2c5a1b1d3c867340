//! Connections that stay open after one request.

use std::sync::Arc;
use std::time::Instant;

use anyhow::{Context, Result, ensure};

use super::connection::{Common, Connection};
use super::failure::{Failure, Kind};
use super::receiving::Reference;
use super::run::{common, outcome, prepare};
use super::tally::Tally;
use super::{LoadPlan, Outcome, Protocol};

/// Opens the plan's connections one after another, makes one request on each, and calls `idle` while all of them are
/// open. Ignores the plan's threads, cores, arrival, calls and extent. Failures are counted in the outcome.
///
/// # Errors
/// As [`super::run`].
pub fn hold<T>(plan: &LoadPlan, idle: impl FnOnce() -> T) -> Result<(Outcome, T)> {
    prepare(plan)?;
    ensure!(!matches!(plan.protocol, Protocol::Http3 { .. }), "idle connections are held over TCP, not over QUIC");
    let reference = Arc::new(Reference::default());
    let common = common(plan, 0, super::tls_client::config(plan)?, reference.clone())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.context("cannot start a client thread")?;
    let mut sum = Tally::new();
    let connections = runtime.block_on(async {
        let mut connections = Vec::new();
        for _ in 0..plan.connections {
            let started = Instant::now();
            let one = tokio::time::timeout(plan.timeout, one(&common, &mut sum)).await;
            let one = one
                .unwrap_or_else(|_| Err(Failure::new(Kind::Timeout, format!("no response within {:?}", plan.timeout))));
            match one {
                Ok(connection) => connections.push(connection),
                Err(failure) => sum.failures.count(failure),
            }
            sum.lasted(started, Instant::now());
        }
        connections
    });
    let seen = idle();
    runtime.block_on(async { connections.into_iter().for_each(Connection::close) });
    Ok((outcome(sum, &reference), seen))
}

/// A connection after its request.
async fn one(common: &Common, sum: &mut Tally) -> Result<Connection, Failure> {
    let begun = Instant::now();
    let (mut connection, opening) = Connection::open(common).await?;
    sum.opened(opening);
    let answer = connection.request(common).await?;
    sum.first_answer();
    sum.answered(begun, &answer);
    Ok(connection)
}
