//! A path in both of its forms.

use sealion_http::path::SitePath;

/// A path that a route acts on: decoded, as guards and files know it, and encoded, as servers get it. The two travel together, so that no server gets another
/// path than guards have seen.
#[derive(Debug, Clone, Copy)]
pub(super) struct ForwardedPath<'a> {
    decoded: &'a SitePath<'a>,
    raw: &'a str,
    origin: Origin,
}

/// Where a path comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Origin {
    Request,
    Rewrite,
}

impl<'a> ForwardedPath<'a> {
    /// The path of a request, as the client wrote it.
    pub(super) fn requested(raw: &'a str, decoded: &'a SitePath<'a>) -> Self {
        ForwardedPath { decoded, raw, origin: Origin::Request }
    }

    /// A path that a rewrite, an application or an error page leads to.
    pub(super) fn rewritten(raw: &'a str, decoded: &'a SitePath<'a>) -> Self {
        ForwardedPath { decoded, raw, origin: Origin::Rewrite }
    }

    pub(super) fn decoded(self) -> &'a SitePath<'a> {
        self.decoded
    }

    /// The encoded path, before a rule strips its prefix.
    pub(super) fn raw(self) -> &'a str {
        self.raw
    }

    /// Whether the client asked for another path.
    pub(super) fn is_rewritten(self) -> bool {
        self.origin == Origin::Rewrite
    }
}
