//! Two loads in one thread. One of them is measured.

use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use tokio::task::{JoinSet, LocalSet};

use super::receiving::Reference;
use super::run::{allow_open_files, alone, check, outcome, pin, shared, start_client, warm_up};
use super::schedule::Schedule;
use super::tally::Tally;
use super::worker::Shared;
use super::{LoadPlan, Outcome, Progress};

/// Runs `plan` while `other` runs. `other` starts first and is cancelled at the end; its unfinished requests are not
/// counted. Both run on one thread, so that neither waits for the scheduler to preempt the other.
///
/// # Errors
/// As [`super::run`]; a plan has more than one thread, or `other` neither completes nor fails a request within its time
/// limit.
pub fn run_beside(plan: &LoadPlan, other: &LoadPlan) -> Result<(Outcome, Outcome)> {
    ensure!(plan.threads == 1 && other.threads == 1, "loads beside each other have one thread");
    check(plan)?;
    check(other)?;
    allow_open_files(plan, plan.connections + other.connections)?;
    let references: [Arc<Reference>; 2] = Default::default();
    let thread = || -> Result<(Tally, Tally)> {
        pin(&plan.cores, 0)?;
        warm_up()?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.context("cannot start a client thread")?;
        runtime.block_on(LocalSet::new().run_until(both(plan, other, &references)))
    };
    let tallies = std::thread::scope(|scope| scope.spawn(thread).join().expect("a client thread panicked"));
    let (measured, beside) = tallies?;
    Ok((outcome(measured, &references[0]), outcome(beside, &references[1])))
}

async fn both(plan: &LoadPlan, other: &LoadPlan, references: &[Arc<Reference>; 2]) -> Result<(Tally, Tally)> {
    let begin = |plan: &LoadPlan, reference: &Arc<Reference>| -> Result<(Rc<Shared>, JoinSet<std::io::Result<()>>)> {
        let (config, progress) = (super::tls_client::config(plan)?, Arc::new(Progress::default()));
        let shared = Rc::new(shared(plan, 0, config, reference.clone(), Arc::new(Schedule::new(plan)), progress)?);
        let mut clients = JoinSet::new();
        for _ in 0..plan.connections {
            start_client(&mut clients, &shared, plan.protocol, None);
        }
        Ok((shared, clients))
    };
    let (beside, mut clients_beside) = begin(other, &references[1])?;
    let began = Instant::now();
    // Hashing the first response of `other` costs this thread more than all later responses.
    while beside.progress.requests() + beside.progress.failures() == 0 {
        ensure!(began.elapsed() < other.timeout, "no response to {} within {:?}", other.target, other.timeout);
        tokio::time::sleep(BETWEEN_LOOKS).await;
    }
    let (measured, mut clients) = begin(plan, &references[0])?;
    while let Some(ended) = clients.join_next().await {
        ended.expect("a client panicked").context("cannot wait for sockets")?;
    }
    clients_beside.shutdown().await;
    let (measured, beside) = (alone(measured).await?, alone(beside).await?);
    Ok((measured.tally.into_inner(), beside.tally.into_inner()))
}

/// Much shorter than the duration of a large response.
const BETWEEN_LOOKS: Duration = Duration::from_millis(2);
