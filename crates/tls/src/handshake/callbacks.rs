//! State shared by the driver of a handshake and the callbacks that rustls makes for it.
//!
//! The certificate resolver, the verifier of client certificates, the ticketer and the key log serve all connections,
//! and rustls 0.23 does not tell them which connection a call is for. The driver therefore puts the state of its
//! handshake into a thread-local during each call into rustls. rustls never suspends, so handshakes that interleave on
//! one thread cannot see each other's state.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::SystemTime;

use rustls::KeyLog;

use super::certificate::Certificate;
use super::key_log::KeyLogFile;
use super::key_schedule::TrafficSecrets;
use super::tickets::Authentication;

/// Information that callbacks have collected during one handshake.
#[derive(Default)]
pub(super) struct CallbackState {
    /// The host name in the ClientHello. The unbuffered connections of rustls 0.23 do not provide it.
    pub(super) server_name: Option<Box<str>>,
    /// Whether the site with that name has no certificate.
    pub(super) is_refused: bool,
    /// The certificate that a [`CertificateSource`](super::resolver::CertificateSource) returned for this handshake.
    pub(super) obtained: Option<Certificate>,
    /// The authentication in the last ticket opened. If rustls resumes a session, it is this ticket's: it tries no
    /// further ticket.
    pub(super) opened_ticket: Option<Authentication>,
    /// Whether a ticket was issued.
    pub(super) issued_ticket: bool,
    /// The end of validity of the client's certificate in this handshake.
    pub(super) client_not_after: Option<SystemTime>,
    /// The context under which the client's certificate or ticket was verified. Tickets are bound to it, not to lists
    /// loaded since.
    pub(super) ticket_context: Option<[u8; 32]>,
    /// The TLS 1.3 secrets that rustls has derived.
    pub(super) secrets: TrafficSecrets,
}

/// Captures the traffic secrets of the current handshake. It writes them only to the file that was asked for.
#[derive(Debug)]
pub(super) struct SecretTap {
    pub(super) file: Option<Arc<KeyLogFile>>,
}

impl KeyLog for SecretTap {
    fn will_log(&self, label: &str) -> bool {
        self.file.is_some() || TrafficSecrets::has(label)
    }

    fn log(&self, label: &str, client_random: &[u8], secret: &[u8]) {
        if let Some(file) = &self.file {
            file.write(label, client_random, secret);
            if !TrafficSecrets::has(label) {
                return;
            }
        }
        with_current(|state| state.secrets.take(label, secret));
    }
}

thread_local! {
    static CURRENT: RefCell<Option<CallbackState>> = const { RefCell::new(None) };
}

impl CallbackState {
    /// Makes a call into rustls whose callbacks see this state.
    pub(super) fn during<T>(&mut self, call: impl FnOnce() -> T) -> T {
        CURRENT.replace(Some(std::mem::take(self)));
        let result = call();
        // A panic leaves this state behind; the next call replaces it.
        *self = CURRENT.take().unwrap_or_default();
        result
    }
}

/// The state of the handshake in progress; `None` outside [`CallbackState::during`].
pub(super) fn with_current<T>(access: impl FnOnce(&mut CallbackState) -> T) -> Option<T> {
    CURRENT.with_borrow_mut(|current| current.as_mut().map(access))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name() -> Option<Box<str>> {
        with_current(|state| state.server_name.clone()).flatten()
    }

    #[test]
    fn states_are_apart_and_gone_after_the_call() {
        let [mut a, mut b] = [CallbackState::default(), CallbackState::default()];
        a.during(|| with_current(|state| state.server_name = Some("a".into())));
        assert!(with_current(|_| ()).is_none());
        b.during(|| {
            assert_eq!(name(), None);
            with_current(|state| state.server_name = Some("b".into()));
        });
        assert_eq!(a.during(name).as_deref(), Some("a"));
        assert_eq!(b.server_name.as_deref(), Some("b"));
    }

    #[test]
    fn a_panic_leaves_nothing_to_the_next_handshake() {
        let panicked = std::panic::catch_unwind(|| {
            let mut state = CallbackState { server_name: Some("a".into()), ..CallbackState::default() };
            state.during(|| panic!("in a callback"));
        });
        assert!(panicked.is_err());
        assert_eq!(CallbackState::default().during(name), None);
    }
}
