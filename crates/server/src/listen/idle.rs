//! Closes idle connections: after their timeout, and when the server drains. Before that they rest.

use std::pin::pin;
use std::sync::Weak;

use tokio::sync::watch;
use tokio::time::{sleep, timeout};

use crate::exchange::Shared;
use crate::limits::Moment;
use crate::values::{Phase, draining};

/// The fraction of the grace time after which idle connections are closed. The rest is a margin for requests that cross
/// the close_notify.
const IDLE_SHARE_OF_GRACE: f32 = 0.75;

/// Closes idle connections for as long as the server runs. One task does so for all connections, so that none needs its
/// own timer.
pub(crate) async fn close_idle(shared: Weak<Shared>) {
    let Some(mut phase) = shared.upgrade().map(|shared| shared.phase.clone()) else { return };
    let mut waited = phase.clone();
    let mut drained = pin!(time_to_drain(&mut waited, &shared));
    loop {
        let Some(server) = shared.upgrade() else { return };
        let pause =
            server.idle.close_expired(Moment::now(), server.generations.latest().limits.idle_timeout.duration());
        drop(server);
        tokio::select! {
            () = sleep(pause) => {}
            () = &mut drained => break,
        }
    }
    let passing = shared.upgrade().filter(|server| server.giver.get().is_some());
    if let Some(server) = passing {
        // The others pass, however long their responses take.
        server.idle.drain_rest();
        drop(server);
        // An error means that the server ends.
        let _ = phase.wait_for(|phase| *phase > Phase::HandedOver).await;
    }
    if let Some(server) = shared.upgrade() {
        server.idle.drain();
    }
}

/// Lets idle connections rest for as long as the server runs.
pub(crate) async fn rest_idle(shared: Weak<Shared>) {
    while let Some(server) = shared.upgrade() {
        let pause = server.idle.rest(Moment::now());
        drop(server);
        sleep(pause).await;
    }
}

/// Waits until idle connections should be closed.
///
/// A request that crosses the close_notify gets no response. After another process has taken over there is no hurry:
/// the next response announces `Connection: close`, and a connection that stays idle is closed late in the grace time.
async fn time_to_drain(phase: &mut watch::Receiver<Phase>, shared: &Weak<Shared>) {
    draining(phase).await;
    if *phase.borrow() != Phase::HandedOver {
        return;
    }
    let Some(grace) = shared.upgrade().map(|shared| shared.generations.latest().limits.grace.duration()) else {
        return;
    };
    let _ = timeout(grace.mul_f32(IDLE_SHARE_OF_GRACE), phase.wait_for(|phase| *phase > Phase::HandedOver)).await;
}
