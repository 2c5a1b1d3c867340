//! The thread that watches certificate and key files, and the thread that orders certificates by ACME.
//!
//! Files are polled by stat(2) every two seconds instead of being watched by inotify(7). Polling notices every way in
//! which certbot, Kubernetes and operators replace a file (rename, a changed link above it, a copy over it), even on
//! network file systems. A stat of a thousand files takes a millisecond.

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Duration;

use tokio::sync::watch::Receiver;

#[cfg(feature = "acme")]
use super::acme;
use super::{Certificates, TlsProcess};
use crate::values::Phase;

/// Soon enough for an operator who watches the log.
const PAUSE: Duration = Duration::from_secs(2);

/// Starts both threads. `latest` returns the certificates in use, or `None` once the server has ended: the threads
/// hold no reference that would delay its end.
///
/// # Errors
/// A thread cannot be started.
pub(crate) fn start(
    latest: impl Fn() -> Option<Arc<Certificates>> + Clone + Send + 'static,
    process: &TlsProcess,
    phase: Receiver<Phase>,
) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot start watching certificates: {e}");
    let watched = latest.clone();
    let tickets = process.tickets.clone();
    let watch = move || {
        loop {
            if let Err(error) = tickets.rotate() {
                tracing::error!("session tickets: {error}. The previous keys stay in use");
            }
            match watched() {
                Some(certificates) => certificates.poll(),
                None => return,
            }
            thread::sleep(PAUSE);
        }
    };
    Builder::new().name("certificates".to_owned()).spawn(watch).map_err(failed)?;
    #[cfg(feature = "acme")]
    order(latest, process, phase).map_err(failed)?;
    #[cfg(not(feature = "acme"))]
    let _ = (latest, process, phase);
    Ok(())
}

/// Starts the thread that orders certificates.
#[cfg(feature = "acme")]
fn order(
    latest: impl Fn() -> Option<Arc<Certificates>> + Send + 'static,
    process: &TlsProcess,
    phase: Receiver<Phase>,
) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (alpn, http, on_demand) = (process.alpn.clone(), process.http.clone(), process.on_demand.clone());
    let renew = move || runtime.block_on(acme::run(latest, alpn, http, on_demand, phase));
    Builder::new().name("acme".to_owned()).spawn(renew).map(drop)
}
