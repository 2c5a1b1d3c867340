//! Options of an operator, where RFC 9111 leaves a choice, or contrary to it.

use http::HeaderName;

/// The options of a rule. The default is RFC 9111, except for Set-Cookie.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Lifetimes in seconds by status, for responses without a lifetime set by the origin. A status listed here may be
    /// stored even if it is not cacheable by default.
    pub default_ttl: Vec<(u16, u32)>,
    /// The maximum lifetime in seconds that is derived from Last-Modified, as a tenth of the time since then (RFC 9111
    /// §4.2.2). 0: none.
    pub heuristic_max: u32,
    /// Stores responses with Set-Cookie, including the field.
    pub store_set_cookie: bool,
    /// Ignores directives of requests that forbid storing. Also pass
    /// [`RequestDirectives::default`](crate::RequestDirectives) when assessing a stored response.
    pub ignore_request_directives: bool,
    /// Response fields to ignore: `cache-control` (including the targeted fields), `expires`, `x-accel-expires`,
    /// `set-cookie` (which is then not stored), and `vary`.
    pub ignore_response: Vec<HeaderName>,
    /// How many seconds a stale response is sent while it is revalidated, if the origin sets a lifetime but no
    /// stale-while-revalidate.
    pub stale_while_revalidate: Option<u32>,
    /// How many seconds a stale response is sent if the origin fails, if the origin sets a lifetime but no
    /// stale-if-error.
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
