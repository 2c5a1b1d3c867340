//! Interim responses (1xx, RFC 9110 §15.2) of a server on their way to the client.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http::{HeaderMap, HeaderName, header};
use sealion_http::{ExtraFields, Status};
use tokio::sync::mpsc;

use super::answer_fields::passed_on;
use super::head::is_same_by_cgi;

/// Interim responses that a client gets for a request, and bytes of their heads together. Further ones are dropped: a server could send them without end.
const MOST: usize = 16;
const MOST_OCTETS: usize = 16 << 10;

/// An interim response as the client gets it.
#[derive(Debug)]
pub(crate) struct Interim {
    pub(crate) status: Status,
    pub(crate) fields: ExtraFields,
}

/// The interim responses to a request.
pub(crate) type InterimReceiver = mpsc::Receiver<Interim>;

/// Takes interim responses to a request.
#[derive(Clone)]
pub(crate) struct InterimSender {
    sender: mpsc::Sender<Interim>,
    left: Arc<AtomicUsize>,
    /// Fields that the client does not get from the server.
    hidden: Arc<[HeaderName]>,
}

impl fmt::Debug for InterimSender {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InterimSender").field("left", &self.left).finish_non_exhaustive()
    }
}

/// A way for the interim responses to a request.
pub(crate) fn interim_responses() -> (InterimSender, InterimReceiver) {
    let (sender, receiver) = mpsc::channel(MOST);
    (InterimSender { sender, left: Arc::new(AtomicUsize::new(MOST_OCTETS)), hidden: Arc::default() }, receiver)
}

impl InterimSender {
    /// Leaves out these fields.
    pub(crate) fn hiding(self, hidden: &Arc<[HeaderName]>) -> Self {
        InterimSender { hidden: Arc::clone(hidden), ..self }
    }

    /// Passes an interim response on, unless it concerns only this connection: 100, which the client got already, and 101.
    pub(super) fn pass(&self, code: u16, fields: &HeaderMap) {
        let Some(status) = Status::new(code).filter(|status| status.is_interim() && status.code() > 101) else {
            return;
        };
        let mut fields = fields.clone();
        // RFC 9110 §8.6.
        fields.remove(header::CONTENT_LENGTH);
        let is_hidden = |name: &HeaderName| self.hidden.iter().any(|own| is_same_by_cgi(own.as_str(), name.as_str()));
        let hidden: Vec<_> = fields.keys().filter(|name| is_hidden(name)).cloned().collect();
        for name in hidden {
            fields.remove(name);
        }
        let fields = passed_on(&fields).extra;
        // This bounds heads without fields too.
        let octets = fields.lines().len().max(MOST_OCTETS / MOST);
        let left = self.left.load(Ordering::Relaxed);
        match left.checked_sub(octets) {
            Some(left) => {
                self.left.store(left, Ordering::Relaxed);
                // A client that has left needs none.
                let _ = self.sender.try_send(Interim { status, fields });
            }
            None => {
                self.left.store(0, Ordering::Relaxed);
                tracing::debug!(
                    "an interim response ({status}) is dropped: a request has at most {MOST}, with {MOST_OCTETS} octets of fields"
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interim_responses_have_a_bound_in_number_and_octets() {
        let link = |octets: usize| HeaderMap::from_iter([(header::LINK, "x".repeat(octets).parse().unwrap())]);
        for (octets, expected) in [(1, 16), (1000, 16), (5000, 3), (20_000, 0)] {
            let (sender, mut receiver) = interim_responses();
            for _ in 0..40 {
                sender.pass(103, &link(octets));
            }
            let mut passed = 0;
            while receiver.try_recv().is_ok() {
                passed += 1;
            }
            assert_eq!(passed, expected, "{octets}");
            // Taking responses makes no room for more.
            sender.pass(103, &link(octets));
            assert!(receiver.try_recv().is_err(), "{octets}");
        }
    }
}
