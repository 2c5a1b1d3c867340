//! The thread that looks at the files of certificates and keys, and the one that gets certificates.
//!
//! Files are looked at by stat(2), every two seconds, rather than by inotify(7): that finds every way in which certbot, Kubernetes and
//! an operator replace a file (rename, a link above it that is moved, a copy over it), on network file systems too, and a stat of a
//! thousand files takes a millisecond.

use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::Duration;

use tokio::sync::watch::Receiver;

use super::{Certificates, TlsProcess, acme};
use crate::values::Phase;

/// GUESS: soon enough for an operator who watches the log.
const PAUSE: Duration = Duration::from_secs(2);

/// Starts both threads. `latest` gives the certificates in use, `None` once the server has ended: the threads hold nothing that its end
/// waits for.
///
/// # Errors
/// A line that says what could not be started.
pub(crate) fn start(
    latest: impl Fn() -> Option<Arc<Certificates>> + Clone + Send + 'static,
    process: &TlsProcess,
    phase: Receiver<Phase>,
) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot start watching certificates: {e}");
    let watched = latest.clone();
    let watch = move || {
        loop {
            thread::sleep(PAUSE);
            match watched() {
                Some(certificates) => certificates.look(),
                None => return,
            }
        }
    };
    Builder::new().name("certificates".to_owned()).spawn(watch).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    let (alpn, http) = (process.alpn.clone(), process.http.clone());
    let renew = move || runtime.block_on(acme::run(latest, alpn, http, phase));
    Builder::new().name("acme".to_owned()).spawn(renew).map_err(failed)?;
    Ok(())
}
