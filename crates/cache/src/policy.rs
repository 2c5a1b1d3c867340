//! What an operator can set where RFC 9111 leaves a choice, or against it.

use http::HeaderName;

/// What an operator set for a rule. The default is RFC 9111 alone, but for Set-Cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Lifetimes in seconds by status, for responses to which the origin gives none. A status listed here may be stored even if it may not by
    /// default.
    pub default_ttl: Vec<(u16, u32)>,
    /// The longest lifetime in seconds that is guessed from Last-Modified: a tenth of the time since then (RFC 9111 §4.2.2). 0: none.
    pub heuristic_max: u32,
    /// Stores responses with Set-Cookie, and the field with them.
    pub store_set_cookie: bool,
    /// Ignores that a request must not be stored. Pass [`RequestDirectives::default`](crate::RequestDirectives) where a stored response is assessed.
    pub ignore_request_directives: bool,
    /// Fields of responses that are ignored: `cache-control`, with which the targeted fields are, `expires`, `x-accel-expires`, `set-cookie`,
    /// which is not stored then, and `vary`.
    pub ignore_response: Vec<HeaderName>,
    /// For how many seconds a stale response is sent while it is revalidated, where the origin gives a lifetime but does not say.
    pub stale_while_revalidate: Option<u32>,
    /// For how many seconds a stale response is sent if the origin fails, where it gives a lifetime but does not say.
    pub stale_if_error: Option<u32>,
}

impl Default for Policy {
    fn default() -> Self {
        Policy {
            default_ttl: Vec::new(),
            heuristic_max: 86_400,
            store_set_cookie: false,
            ignore_request_directives: false,
            ignore_response: Vec::new(),
            stale_while_revalidate: None,
            stale_if_error: None,
        }
    }
}

impl Policy {
    pub(crate) fn ignores(&self, name: &HeaderName) -> bool {
        self.ignore_response.contains(name)
    }

    pub(crate) fn ttl(&self, status: u16) -> Option<u32> {
        self.default_ttl.iter().find(|(of, _)| *of == status).map(|(_, seconds)| *seconds)
    }
}
