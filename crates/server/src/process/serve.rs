//! `sealion serve`, from start to end. Every problem is found before the first connection, and reported in one line.
//!
//! ```text
//! Prepared::new ─► bind ─► confine ─► AccessLogs::open ─► announce ─► Server::start ─► Server::serve ─► Server::drain ─► Server::finish
//! ```

mod handover;
mod orders;

use std::collections::BTreeSet;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};
use std::{io, thread};

use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::interval;
use tokio_util::task::TaskTracker;

use super::announce::{announce, describe};
use super::control::{self, Orders};
use super::descriptors::DescriptorPlan;
use super::prepare::Prepared;
use super::privileges::{self, Confinement, GivenUp};
use super::reload::{self, Refused};
use super::service_manager;
use super::show::Show;
use super::signals::{Signal, Signals};
use super::upgrade::{Connections as Passed, Predecessor, Program, Service, Successor};
use crate::certificates;
use crate::config::{Config, ServeArgs};
use crate::exchange::{Generations, Shared};
use crate::limits::{IdleConnections, StreamPlaces};
use crate::listen::{Inherited, Listeners, close_idle, rest_idle, worker};
use crate::monitor::{Connections, Exporter};
use crate::observe::access_log::{AccessLogs, Writers};
use crate::observe::messages;
use crate::observe::{Left, Warnings};
use crate::passing::{Giver, Taking};
use crate::path::policy::KtlsMode;
use crate::store::CLOSING;
use crate::upstream::check_health;
use crate::values::{Phase, Timeout};
use handover::{Upgrade, hand_over};

/// Serves until SIGINT or SIGTERM.
///
/// # Errors
/// A line for each problem, with the remedy. Nothing has been served then.
pub(crate) fn run(args: &ServeArgs) -> Result<(), String> {
    let program = Program::of_this_process();
    let (predecessor, mut inherited) = match Predecessor::find()? {
        Some((predecessor, inherited)) => (Some(predecessor), inherited),
        None => (None, Inherited::from_systemd()?),
    };
    let confinement = predecessor.as_ref().map_or_else(Confinement::default, |predecessor| predecessor.confinement);
    let tickets = predecessor.as_ref().and_then(|predecessor| predecessor.tickets.as_ref());
    let mut prepared = Prepared::new(args, &mut inherited, tickets)?;
    let mut listeners = bind(&prepared, inherited)?;
    prepared.made.append(&mut listeners.made);
    let control = control::bind();
    let given_up = confine(args, &prepared, confinement)?;
    let _messages = messages::start_writer().map_err(|e| format!("cannot start: {e}"))?;
    let (access_log, log_writers) = AccessLogs::open(&prepared.access_log)?;
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| format!("cannot start: {e}"))?;
    // Before the first line is printed, because a signal may follow it at once.
    let (mut signals, mut orders) = {
        let _entered = runtime.enter();
        let signals = Signals::listen().map_err(|e| format!("cannot handle signals: {e}"))?;
        (signals, Orders::listen(control).map_err(|e| format!("cannot take orders: {e}"))?)
    };
    // A successor's site is open already.
    let show = predecessor.is_none().then(|| Show::new(args, &prepared.config, &listeners)).transpose()?;
    announce(args, &prepared, &listeners, &given_up);
    let steering = listeners.take_steering();
    let mut server = Server::start(args, prepared, listeners, given_up.confinement, access_log)?;
    if let Some(predecessor) = predecessor {
        if let Some(Passed { channel, pid }) = predecessor.replace(&server.shared.predecessors)
            && let Some(places) = server.places.take()
            && let Err(error) = server.take_from(channel, pid, places)
        {
            tracing::error!("connections of process {pid} end there: cannot take them: {error}");
        }
        for (socket, steering) in steering {
            if let Err(error) = steering.attach(&socket) {
                tracing::error!("new clients of HTTP/3 do not reach this process: {error}");
            }
        }
    }
    // After the predecessor's last order: only one process may order a certificate.
    server.start_certificates()?;
    service_manager::ready(&server.status());
    if let Some(show) = show {
        show.run();
    }
    runtime.spawn(close_idle(Arc::downgrade(&server.shared)));
    runtime.spawn(rest_idle(Arc::downgrade(&server.shared)));
    let shared = Arc::downgrade(&server.shared);
    runtime.spawn(check_health(move || Some(shared.upgrade()?.generations.latest().upstreams.clone())));
    let drained = runtime.block_on(async {
        let stop = server.serve(&program, &mut signals, &mut orders).await;
        orders.finish().await;
        server.drain(stop, &mut signals).await
    });
    // After a panic too: the other workers' lines wait.
    server.finish(log_writers);
    // A thread that carries out an order may wait for a disk that hangs.
    runtime.shutdown_background();
    drained
}

/// Binds all listeners that were not inherited, and closes inherited sockets that are no longer configured.
fn bind(prepared: &Prepared, mut inherited: Inherited) -> Result<Listeners, String> {
    let config = &prepared.config;
    // Without a suite of TLS 1.3, no listener has HTTP/3, and `build` refused where it is required.
    let http3 = if prepared.generation.tls.has_quic() { config.http3.enabled } else { Some(false) };
    let mut listeners = Listeners::bind(&config.listen, config.server.worker_count(), http3, &mut inherited)?;
    if let Some(listener) = &prepared.metrics_listener {
        listeners.held.push(listener.held()?);
    }
    // Each worker had a socket of its own.
    for address in inherited.finish()?.into_iter().map(|address| address.to_string()).collect::<BTreeSet<_>>() {
        tracing::info!("no longer listening on {address}: it is gone from the configuration");
    }
    Ok(listeners)
}

/// Gives up privileges, then looks for files that are out of reach since.
fn confine(args: &ServeArgs, prepared: &Prepared, inherited: Confinement) -> Result<GivenUp, String> {
    let file = args.config.as_deref();
    let mut given_up = privileges::give_up(&prepared.config, file, &prepared.made, inherited)?;
    if given_up.is_worth_a_line() {
        given_up.lacking.extend(reload::out_of_reach(args, &prepared.tls, prepared.kernel_rekeys()));
    }
    privileges::check_roots(&prepared.config, file, given_up.confinement)?;
    Ok(given_up)
}

/// The pause between two reports to the process that has taken over.
const REPORT_EVERY: Duration = Duration::from_secs(1);

/// For the last metrics and spans, where `limits.grace` is over.
const LAST_MESSAGES: Duration = Duration::from_secs(1);

/// The running server: its state, its threads, and the sockets for a successor.
struct Server<'a> {
    args: &'a ServeArgs,
    /// The configuration in use.
    config: Config,
    shared: Arc<Shared>,
    phase: watch::Sender<Phase>,
    workers: Vec<thread::JoinHandle<()>>,
    /// For connections of the process before.
    places: Option<worker::Places>,
    /// Takes connections of the processes before. `None`: there was none, or it keeps them.
    taking: Option<Arc<Taking>>,
    /// Passes connections to the process that has taken over.
    passing: Option<thread::JoinHandle<()>>,
    metrics_thread: Option<thread::JoinHandle<()>>,
    exporter: Option<Exporter>,
    service: Arc<Service>,
}

/// Why the server stops accepting connections.
struct Stop {
    signal: &'static str,
    /// The process that has taken over, if one has, and where connections go that pass to it.
    successor: Option<(Successor, OwnedFd)>,
    /// Forwards purges to the successor.
    purges: Option<JoinHandle<()>>,
}

impl<'a> Server<'a> {
    /// Starts the workers, the metrics thread and the self-check.
    fn start(
        args: &'a ServeArgs,
        prepared: Prepared,
        listeners: Listeners,
        confinement: Confinement,
        access_log: AccessLogs,
    ) -> Result<Self, String> {
        let Prepared { config, descriptors, metrics_listener, otlp, .. } = prepared;
        let DescriptorPlan { connections: max_connections, streams } = descriptors;
        let (phase, _) = watch::channel(Phase::Serving);
        let (tracer, spans) = otlp.as_ref().and_then(|settings| settings.tracer()).unzip();
        let shared = Arc::new(Shared {
            generations: Generations::new(prepared.generation),
            tls: prepared.tls,
            kernel: prepared.kernel,
            costs: prepared.costs,
            access_log,
            metrics: prepared.metrics,
            tracer,
            slots: Arc::new(Semaphore::new(max_connections)),
            streams: StreamPlaces::new(streams),
            ahead: Arc::default(),
            addresses: Arc::default(),
            idle: IdleConnections::default(),
            most_connections: max_connections,
            phase: phase.subscribe(),
            proxies_refused: AtomicU64::new(0),
            certificates_refused: Warnings::default(),
            cut: AtomicUsize::new(0),
            predecessors: Arc::default(),
            giver: OnceLock::new(),
            busy: TaskTracker::new(),
        });
        if let Some(store) = &shared.generations.latest().store {
            store.start()?;
        }
        let (workers, places) = worker::start(listeners.sets, &config.listen, &shared)?;
        let metrics_thread = metrics_listener.map(|listener| listener.start(&shared)).transpose()?;
        let exporter = otlp.map(|settings| Exporter::start(settings, spans, &shared)).transpose()?;
        if let Some(pause) = config.server.self_check_every {
            start_self_checks(Arc::downgrade(&shared), pause.duration())?;
        }
        let service = Arc::new(Service {
            held: listeners.held,
            confinement,
            predecessors: Arc::clone(&shared.predecessors),
            tickets: Some(Arc::clone(shared.tls.ticket_keys())),
            datagrams: Some(listeners.datagrams),
        });
        Ok(Self {
            args,
            config,
            shared,
            phase,
            workers,
            places: Some(places),
            taking: None,
            passing: None,
            metrics_thread,
            exporter,
            service,
        })
    }

    /// Watches certificate files, and orders certificates.
    fn start_certificates(&self) -> Result<(), String> {
        let served = Arc::downgrade(&self.shared);
        let latest = move || served.upgrade().map(|shared| Arc::clone(&shared.generations.latest().certificates));
        certificates::start(latest, &self.shared.tls, self.shared.phase.clone())
    }

    /// The status for the service manager.
    fn status(&self) -> String {
        format!("serving {}", describe(&self.config))
    }

    /// Handles signals until one of them ends this process, or a successor serves.
    async fn serve(&mut self, program: &Program, signals: &mut Signals, orders: &mut Orders) -> Stop {
        let mut upgrade = Upgrade::new(self.shared.generations.latest().store.clone());
        let mut reports = interval(REPORT_EVERY);
        let predecessors = Arc::clone(&self.shared.predecessors);
        loop {
            tokio::select! {
                // Reports are read although no command asks for them, so that the last ones have room.
                _ = reports.tick(), if !predecessors.is_empty() => drop(predecessors.left()),
                (order, reply) = orders.next() => self.carry_out(order, reply, &mut upgrade, program),
                signal = signals.next() => match signal {
                    Signal::Reload => drop(self.reload(false)),
                    Signal::Reopen => self.shared.access_log.reopen(),
                    Signal::Upgrade => upgrade.start(program, &self.service, "SIGUSR2", None),
                    Signal::Stop(signal) => {
                        upgrade.cancel();
                        return Stop { signal, successor: None, purges: None };
                    }
                },
                (ended, reply) = upgrade.ended() => {
                    let successor = hand_over(ended);
                    let pid = successor.as_ref().map(|(successor, _)| successor.pid()).map_err(Clone::clone);
                    let purges = upgrade.forward_purges(pid.as_ref().ok().copied(), move || {
                        if let Some(reply) = reply {
                            let _ = reply.send(pid.map(|pid| format!("process {pid} has taken over")));
                        }
                    });
                    if let Ok(successor) = successor {
                        return Stop { signal: "upgrade", successor: Some(successor), purges };
                    }
                }
            }
        }
    }

    /// Takes the connections of the process before.
    fn take_from(&mut self, channel: OwnedFd, pid: u32, places: worker::Places) -> io::Result<()> {
        let shared = Arc::downgrade(&self.shared);
        let hand_over = move |pid, channel| {
            if let Some(shared) = shared.upgrade()
                && let Some(giver) = shared.giver.get()
            {
                giver.hand_over(pid, channel);
            }
        };
        let taking = Taking::new(move |arrival| places.give(arrival), hand_over)?;
        taking.start(channel, pid)?;
        self.taking = Some(taking);
        Ok(())
    }

    fn reload(&mut self, may_upgrade: bool) -> Result<String, Refused> {
        service_manager::reloading();
        let confinement = self.service.confinement;
        let outcome = reload::reload(self.args, &self.shared, &mut self.config, confinement, may_upgrade);
        service_manager::ready(&self.status());
        outcome
    }

    /// Closes the listeners and waits until the workers have ended.
    ///
    /// # Errors
    /// A worker panicked.
    async fn drain(&mut self, Stop { signal, purges, successor }: Stop, signals: &mut Signals) -> Result<(), String> {
        let (grace, upgrade_grace) = {
            let limits = &self.shared.generations.latest().limits;
            (limits.grace.duration(), limits.upgrade_grace.map(Timeout::duration))
        };
        let next = if successor.is_some() { Phase::HandedOver } else { Phase::Draining };
        if next == Phase::Draining {
            service_manager::stopping("responses under way are finished");
        }
        // The last listening descriptors: connections that wait in their queues are refused now, not when the process ends.
        self.service = Arc::default();
        let successor = successor.map(|(successor, channel)| {
            match Giver::start(channel, successor.pid()) {
                Ok((giver, thread)) => {
                    let _ = self.shared.giver.set(giver);
                    self.passing = Some(thread);
                    if let Some(taking) = &self.taking {
                        taking.stop();
                    }
                }
                Err(error) => tracing::error!("connections end here: cannot pass them: {error}"),
            }
            successor
        });
        self.phase.send_replace(next);
        if self.shared.giver.get().is_some() {
            self.shared.idle.pass();
        }
        let store = self.shared.generations.latest().store.clone();
        if let Some(store) = store.as_ref().filter(|_| next == Phase::HandedOver) {
            // The successor stores from now on.
            store.close(false, Instant::now() + CLOSING);
        }
        match if next == Phase::HandedOver { upgrade_grace } else { Some(grace) } {
            Some(time) => {
                tracing::info!("{signal}: no new connections; responses under way have {} s", time.as_secs_f32())
            }
            None => tracing::info!("{signal}: no new connections; responses under way go on to their end"),
        }
        let begun = Instant::now();
        let workers = std::mem::take(&mut self.workers);
        let mut joined = tokio::task::spawn_blocking(|| workers.into_iter().try_for_each(thread::JoinHandle::join));
        let mut reports = interval(REPORT_EVERY);
        let joined = loop {
            tokio::select! {
                joined = &mut joined => break joined,
                _ = reports.tick(), if successor.is_some() => {
                    if let Some(successor) = &successor {
                        successor.report(left(&self.shared));
                    }
                }
                signal = signals.next() => match signal {
                    Signal::Stop(name) if *self.phase.borrow() == Phase::HandedOver => {
                        tracing::info!("{name}: closing idle connections");
                        self.phase.send_replace(Phase::Draining);
                    }
                    Signal::Stop(again) => {
                        tracing::warn!("{again} again: stopping at once");
                        self.phase.send_replace(Phase::Stopping);
                        break joined.await;
                    }
                    Signal::Reopen => self.shared.access_log.reopen(),
                    Signal::Reload | Signal::Upgrade => {}
                },
            }
        };
        let is_hurried = *self.phase.borrow() == Phase::Stopping;
        if let Some(purges) = purges.filter(|_| !is_hurried) {
            let _ = purges.await;
        }
        if let Some(store) = store {
            // As long as responses have, or as a disk needs that is well.
            let closing = Instant::now() + CLOSING;
            store.close(true, if is_hurried { closing } else { closing.max(begun + grace) });
        }
        if let Some(exporter) = self.exporter.take() {
            // A connection that took the whole time costs no metrics.
            let now = Instant::now();
            exporter.finish(if is_hurried { now } else { (begun + grace).max(now + LAST_MESSAGES) });
        }
        match joined {
            Ok(Ok(())) => Ok(()),
            _ => Err("a worker thread panicked; the message above says where".to_owned()),
        }
    }

    /// Writes the last lines of the access logs.
    fn finish(self, log_writers: Writers) {
        let Self { shared, metrics_thread, passing, taking, phase: _phase, .. } = self;
        if let (Some(thread), Some(giver)) = (passing, shared.giver.get()) {
            if let Some(taking) = taking {
                taking.wait();
            }
            giver.end();
            // The thread has reported its outcome itself.
            let _ = thread.join();
        }
        if let Some(thread) = metrics_thread.filter(|_| *shared.phase.borrow() == Phase::HandedOver) {
            // It answers the connections that it accepted before the successor did.
            let _ = thread.join();
        }
        let cut = shared.cut.load(Ordering::Relaxed);
        if cut > 0 {
            tracing::warn!(
                "{cut} connections were cut: their responses took longer than limits.grace or limits.upgrade_grace"
            );
        }
        // The writer ends with the last sender, which is in `shared`. A self-check may hold it a moment longer.
        drop(shared);
        log_writers.finish();
    }
}

/// The connections that have not ended.
fn left(shared: &Shared) -> Left {
    let Connections { handshaking, idle, active, lingering, most: _ } = Connections::of(shared);
    Left { pid: std::process::id(), active: handshaking + active + lingering, idle }
}

/// Repeats the self-check for as long as the server runs. The thread holds only a weak reference between checks, so that the server's
/// end does not wait for it.
fn start_self_checks(shared: Weak<Shared>, pause: Duration) -> Result<(), String> {
    let repeat = move || {
        loop {
            thread::sleep(pause);
            let Some(shared) = shared.upgrade() else { return };
            let (mode, kernel) = (shared.generations.latest().ktls, Arc::clone(&shared.kernel));
            drop(shared);
            if mode != KtlsMode::Never {
                kernel.self_check();
            }
        }
    };
    thread::Builder::new()
        .name("self-check".to_owned())
        .spawn(repeat)
        .map(drop)
        .map_err(|e| format!("cannot start the self-check: {e}"))
}
