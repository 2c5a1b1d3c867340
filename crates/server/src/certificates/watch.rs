//! The thread that looks at the files of certificates and keys, and the one that gets certificates.
//!
//! Files are looked at by stat(2), every two seconds, rather than by inotify(7): that finds every way in which certbot, Kubernetes and
//! an operator replace a file (rename, a link above it that is moved, a copy over it), on network file systems too, and a stat of a
//! thousand files takes a millisecond.

use std::sync::Weak;
use std::thread::{self, Builder};
use std::time::Duration;

use super::acme;
use crate::connection::Shared;

/// GUESS: soon enough for an operator who watches the log.
const PAUSE: Duration = Duration::from_secs(2);

/// Starts them. They hold nothing of the server that its end waits for.
///
/// # Errors
/// A line that says what could not be started.
pub(crate) fn start(shared: Weak<Shared>) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("cannot start watching certificates: {e}");
    let watched = shared.clone();
    let watch = move || {
        loop {
            thread::sleep(PAUSE);
            match watched.upgrade() {
                Some(shared) => shared.generations.latest().certificates.look(),
                None => return,
            }
        }
    };
    Builder::new().name("certificates".to_owned()).spawn(watch).map_err(failed)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
    Builder::new().name("acme".to_owned()).spawn(move || runtime.block_on(acme::run(shared))).map_err(failed)?;
    Ok(())
}
