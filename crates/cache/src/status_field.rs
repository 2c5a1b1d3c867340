//! Cache-Status (RFC 9211): how a request was handled.

use sealion_http::write_decimal;

/// A member of Cache-Status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CacheStatus {
    /// A stored response was sent without asking the origin.
    Hit {
        /// How many seconds the response stays fresh; negative if it is stale.
        ttl: i64,
    },
    /// The request was forwarded.
    Forwarded {
        /// The reason.
        why: Forward,
        /// The origin's status, if it differs from the status sent. `None`: it does not differ, or no response arrived.
        status: Option<u16>,
        /// Whether the response was stored.
        stored: bool,
        /// Whether the request shared another request in progress.
        collapsed: bool,
        /// A reason for people, such as [`NotStored::as_str`](crate::NotStored::as_str): a token.
        detail: Option<&'static str>,
    },
}

/// The reason for forwarding a request (RFC 9211 §2.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forward {
    /// The cache was configured not to handle it.
    Bypass,
    /// The cache does not handle its method.
    Method,
    /// No response is stored for its URI.
    UriMiss,
    /// A response is stored for its URI, but not for its fields.
    VaryMiss,
    /// Its directives require a newer response.
    Request,
    /// The stored response is stale.
    Stale,
    /// Only part of the requested range is stored.
    Partial,
}

impl Forward {
    /// The token of `fwd`.
    pub fn as_str(self) -> &'static str {
        match self {
            Forward::Bypass => "bypass",
            Forward::Method => "method",
            Forward::UriMiss => "uri-miss",
            Forward::VaryMiss => "vary-miss",
            Forward::Request => "request",
            Forward::Stale => "stale",
            Forward::Partial => "partial",
        }
    }
}

impl CacheStatus {
    /// Appends the member. Members of other caches stay in front of it.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(b"sealion; ");
        match *self {
            CacheStatus::Hit { ttl } => {
                out.extend_from_slice(b"hit; ttl=");
                if ttl < 0 {
                    out.push(b'-');
                }
                // An integer of a structured field has at most 15 digits.
                write_decimal(out, ttl.unsigned_abs().min(999_999_999_999_999));
            }
            CacheStatus::Forwarded { why, status, stored, collapsed, detail } => {
                out.extend_from_slice(b"fwd=");
                out.extend_from_slice(why.as_str().as_bytes());
                if let Some(status) = status {
                    out.extend_from_slice(b"; fwd-status=");
                    write_decimal(out, status.into());
                }
                if stored {
                    out.extend_from_slice(b"; stored");
                }
                if collapsed {
                    out.extend_from_slice(b"; collapsed");
                }
                if let Some(detail) = detail {
                    out.extend_from_slice(b"; detail=");
                    out.extend_from_slice(detail.as_bytes());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_are_items_with_parameters() {
        let written = |status: CacheStatus| {
            let mut out = Vec::new();
            status.write(&mut out);
            let list: sfv::List = sfv::Parser::new(&out).parse().unwrap();
            assert_eq!(list.len(), 1);
            String::from_utf8(out).unwrap()
        };
        let forwarded =
            |why| CacheStatus::Forwarded { why, status: None, stored: false, collapsed: false, detail: None };
        assert_eq!(written(CacheStatus::Hit { ttl: 60 }), "sealion; hit; ttl=60");
        assert_eq!(written(CacheStatus::Hit { ttl: -5 }), "sealion; hit; ttl=-5");
        assert_eq!(written(CacheStatus::Hit { ttl: i64::MIN }), "sealion; hit; ttl=-999999999999999");
        for (why, expected) in [
            (Forward::Bypass, "sealion; fwd=bypass"),
            (Forward::Method, "sealion; fwd=method"),
            (Forward::UriMiss, "sealion; fwd=uri-miss"),
            (Forward::VaryMiss, "sealion; fwd=vary-miss"),
            (Forward::Request, "sealion; fwd=request"),
            (Forward::Stale, "sealion; fwd=stale"),
            (Forward::Partial, "sealion; fwd=partial"),
        ] {
            assert_eq!(written(forwarded(why)), expected);
        }
        let all = CacheStatus::Forwarded {
            why: Forward::Stale,
            status: Some(304),
            stored: true,
            collapsed: true,
            detail: Some(crate::NotStored::NoStore.as_str()),
        };
        assert_eq!(written(all), "sealion; fwd=stale; fwd-status=304; stored; collapsed; detail=no-store");
    }
}
