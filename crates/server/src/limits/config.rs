//! `[limits]`

use std::net::IpAddr;

use clap::Args;
use schemars::JsonSchema;
use sealion_http::http1::head::HeadLimits;
use sealion_tls::{LeastRate, Limits};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::values::{Bounded, Size, Timeout, overridable};

/// Limits on connections, requests and time.
#[derive(Debug, Clone, PartialEq, SmartDefault, Args, Serialize, Deserialize, JsonSchema)]
#[command(next_help_heading = "Limits")]
#[serde(deny_unknown_fields, default)]
pub(crate) struct LimitsConfig {
    // INHERITED: nginx' worker_connections are 512 to 1024 per worker. 10,000 is the magnitude of a small machine's
    // memory at 5 to 75 kB per connection.
    /// Concurrent connections. At the limit, the server closes the longest idle connection to admit a new one, if it
    /// has been idle for at least a second; otherwise the new connection waits [default: 10000, or what the limit on
    /// open files allows]
    #[arg(long, value_name = "N", env = "SEALION_MAX_CONNECTIONS")]
    pub max_connections: Option<Bounded<1, { u32::MAX as u64 }>>,

    /// Concurrent connections of one client, an IPv4 address or an IPv6 /64; more are closed before the handshake
    /// [default: a quarter of max_connections, at least 64; unlimited for loopback addresses]
    #[arg(long, value_name = "N", env = "SEALION_MAX_CONNECTIONS_PER_ADDRESS")]
    pub max_connections_per_address: Option<Bounded<1, { u32::MAX as u64 }>>,

    /// Time for the TLS handshake.
    #[arg(long, value_name = "TIME", env = "SEALION_HANDSHAKE_TIMEOUT", default_value_t = Self::default().handshake_timeout)]
    // INHERITED: the magnitude of nginx' client_header_timeout and ssl_handshake_timeout (60 s). They are
    // shorter here, because a client that needs longer for a few kilobytes holds a connection that others wait
    // for.
    #[default(Timeout::seconds(10))]
    pub handshake_timeout: Timeout,

    /// Time from the first byte of a request to the end of its head, and again to the end of its body. For a body that
    /// is forwarded, the time to its next piece.
    #[arg(long, value_name = "TIME", env = "SEALION_REQUEST_TIMEOUT", default_value_t = Self::default().request_timeout)]
    #[default(Timeout::seconds(10))]
    pub request_timeout: Timeout,

    /// Time a connection may stay idle between requests.
    #[arg(long, value_name = "TIME", env = "SEALION_IDLE_TIMEOUT", default_value_t = Self::default().idle_timeout)]
    // INHERITED: nginx' keepalive_timeout as distributions ship it.
    #[default(Timeout::seconds(65))]
    pub idle_timeout: Timeout,

    /// Time a client may go without taking any byte of a response.
    #[arg(long, value_name = "TIME", env = "SEALION_STALL_TIMEOUT", default_value_t = Self::default().stall_timeout)]
    #[default(Timeout::seconds(Limits::default().stall.as_secs()))]
    pub stall_timeout: Timeout,

    /// Minimum bytes per second that a client sends of a body that is buffered completely (`buffer_request`, bodies for
    /// scripts, and bodies in keys of the cache), averaged over `min_send_rate_window`. Slower requests get 408. 0: no
    /// minimum.
    #[arg(long, value_name = "BYTES", env = "SEALION_MIN_RECEIVE_RATE", default_value_t = Self::default().min_receive_rate)]
    // GUESS: as in the other direction.
    #[default(within(240))]
    pub min_receive_rate: Bounded<0, 1_048_576>,

    /// Minimum bytes per second that a client reads while data waits for it, averaged over `min_send_rate_window`.
    /// Slower connections are closed. Time in which the server has nothing to send does not count. 0: no minimum.
    #[arg(long, value_name = "BYTES", env = "SEALION_MIN_SEND_RATE", default_value_t = Self::default().min_send_rate)]
    // INHERITED: IIS' minBytesPerSecond. The slowest GPRS has four times as much. Over five minutes the rate
    // makes 72 kB. A phone that loses its signal repeatedly, each time for less than the stall timeout, takes
    // as much in one of the intervals with signal.
    #[default(within(240))]
    pub min_send_rate: Bounded<0, MAX_MIN_RATE>,

    /// Time over which `min_send_rate` and `min_receive_rate` are averaged. It should exceed the time that a mobile
    /// client may be without signal.
    #[arg(long, value_name = "TIME", env = "SEALION_MIN_SEND_RATE_WINDOW", default_value_t = Self::default().min_send_rate_window)]
    #[default(Timeout::seconds(300))]
    pub min_send_rate_window: Timeout,

    /// Time to wait for the client to close a connection after the server has closed its side.
    #[arg(long, value_name = "TIME", env = "SEALION_LINGER_TIMEOUT", default_value_t = Self::default().linger_timeout)]
    #[default(Timeout::seconds(Limits::default().linger.as_secs()))]
    pub linger_timeout: Timeout,

    /// Time for pending responses to finish after SIGINT or SIGTERM.
    #[arg(long, value_name = "TIME", env = "SEALION_GRACE", default_value_t = Self::default().grace)]
    // A hundred megabytes at a few megabytes per second.
    #[default(Timeout::seconds(30))]
    pub grace: Timeout,

    /// Time for pending responses, uploads and tunnels to finish in a process that an upgrade has replaced [default:
    /// unlimited]
    #[arg(long, value_name = "TIME", env = "SEALION_UPGRADE_GRACE")]
    pub upgrade_grace: Option<Timeout>,

    /// Requests on one connection [default: unlimited]
    #[arg(long, value_name = "N", env = "SEALION_MAX_REQUESTS")]
    pub max_requests: Option<Bounded<1, { u64::MAX }>>,

    /// Bytes of a request line; longer ones get 414.
    #[arg(long, value_name = "BYTES", env = "SEALION_MAX_REQUEST_LINE", default_value_t = Self::default().max_request_line)]
    #[default(within(HeadLimits::default().request_line as u64))]
    pub max_request_line: Bounded<256, 1_048_576>,

    /// Bytes of a request head; longer ones get 431.
    #[arg(long, value_name = "BYTES", env = "SEALION_MAX_HEAD", default_value_t = Self::default().max_head)]
    #[default(within(HeadLimits::default().head as u64))]
    pub max_head: Bounded<256, 1_048_576>,

    /// Fields of a request head; requests with more get 431.
    #[arg(long, value_name = "N", env = "SEALION_MAX_FIELDS", default_value_t = Self::default().max_fields)]
    #[default(within(HeadLimits::default().fields as u64))]
    pub max_fields: Bounded<1, { HeadLimits::MAX_FIELDS as u64 }>,

    /// Bytes of a request body that no application takes, which are read and discarded to keep the connection; a longer body closes it. `max_body` of
    /// `proxy` bounds what an application gets.
    #[arg(long, value_name = "SIZE", env = "SEALION_MAX_DISCARDED_BODY", default_value_t = Self::default().max_discarded_body)]
    // Bodies sent by mistake with a GET are small.
    #[default(Size(64 << 10))]
    pub max_discarded_body: Size,

    /// Memory for all bodies that wait for a slow side (`buffer`, `buffer_request` and bodies for scripts), for
    /// windows of HTTP/2 and HTTP/3 beyond their first size, and for encoders of `compress`. Beyond it bodies wait in
    /// files if the route has any; other bodies are passed on as they are taken, and requests for scripts get 503.
    /// Beyond half of it responses of applications are not compressed.
    #[arg(long, value_name = "SIZE", env = "SEALION_MAX_BUFFERED", default_value_t = Self::default().max_buffered)]
    // 256 bodies of the length that a rule buffers by default.
    #[default(Size(256 << 20))]
    pub max_buffered: Size,

    /// The part of `max_buffered` that one client, an IPv4 address or an IPv6 /64, may use [default: a quarter of
    /// max_buffered, at least 1MiB; unlimited for loopback addresses]
    #[arg(long, value_name = "SIZE", env = "SEALION_MAX_BUFFERED_PER_ADDRESS")]
    pub max_buffered_per_address: Option<Size>,

    /// Ranges in one request; a request with more gets the whole file.
    #[arg(long, value_name = "N", env = "SEALION_MAX_RANGES", default_value_t = Self::default().max_ranges)]
    // PDF viewers and download managers request up to this many at once.
    #[default(within(16))]
    pub max_ranges: Bounded<0, 1000>,

    /// Records sealed under one key before the key is changed or the connection closed. The suite's own limit also
    /// applies: at most 2^24 with AES-GCM, none with ChaCha20-Poly1305 (RFC 8446, 5.5) [default: the suite's limit]
    #[arg(long, value_name = "N", env = "SEALION_MAX_RECORDS_PER_KEY")]
    pub max_records_per_key: Option<Bounded<64, { 1 << 24 }>>,
}

/// The maximum of `min_send_rate`: half of the lowest bandwidth that a site may give its clients.
const MAX_MIN_RATE: u64 = super::site::MIN_BANDWIDTH / 2;

overridable!(LimitsConfig {
    max_connections,
    max_connections_per_address,
    handshake_timeout,
    request_timeout,
    idle_timeout,
    stall_timeout,
    min_receive_rate,
    min_send_rate,
    min_send_rate_window,
    linger_timeout,
    grace,
    upgrade_grace,
    max_requests,
    max_request_line,
    max_head,
    max_fields,
    max_discarded_body,
    max_buffered,
    max_buffered_per_address,
    max_ranges,
    max_records_per_key,
});

impl LimitsConfig {
    /// Concurrent connections of one client. `None`: unlimited. `max_connections`: the limit for all clients.
    ///
    /// By default at least four clients are needed to take every slot. A quarter of ten thousand is more than the users
    /// behind one carrier address have open at a time, and more than a proxy keeps. 64 are several browsers with six
    /// connections each. Loopback addresses belong to the machine's own proxies.
    pub(crate) fn connections_per_address(&self, address: IpAddr, max_connections: usize) -> Option<u32> {
        match self.max_connections_per_address {
            Some(most) => Some(most.get() as u32),
            None if address.is_loopback() => None,
            None => Some(u32::try_from(max_connections / 4).unwrap_or(u32::MAX).max(64)),
        }
    }

    /// The part of `max_buffered` for the bodies of one client. `None`: all of it.
    ///
    /// By default at least four clients are needed to take all of it, and each has room for one body of the length that
    /// a rule buffers.
    pub(crate) fn buffered_per_address(&self, address: IpAddr) -> Option<Size> {
        match self.max_buffered_per_address {
            Some(most) => Some(most),
            None if address.to_canonical().is_loopback() => None,
            None => Some(Size((self.max_buffered.0 / 4).max(1 << 20))),
        }
    }

    /// Limits of a request head.
    pub(crate) fn head(&self) -> HeadLimits {
        HeadLimits {
            request_line: self.max_request_line.usize(),
            head: self.max_head.usize(),
            fields: self.max_fields.usize(),
        }
    }

    /// The rate at which a client has to read. `None`: any.
    pub(crate) fn least_rate(&self) -> Option<LeastRate> {
        let (bytes_per_second, window) = (self.min_send_rate.get(), self.min_send_rate_window.duration());
        (bytes_per_second > 0).then_some(LeastRate { bytes_per_second, window })
    }

    /// Limits of a TLS connection.
    pub(crate) fn tls(&self, kernel_rekeys: bool) -> Limits {
        Limits {
            records_per_key: self.max_records_per_key.map_or(u64::MAX, Bounded::get),
            stall: self.stall_timeout.duration(),
            least_rate: self.least_rate(),
            linger: self.linger_timeout.duration(),
            kernel_rekeys,
        }
    }
}

const fn within<const MIN: u64, const MAX: u64>(number: u64) -> Bounded<MIN, MAX> {
    match Bounded::new(number) {
        Some(bounded) => bounded,
        None => panic!("a default lies outside its own bounds"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_client_cannot_take_every_slot() {
        let (far, near) = ("192.0.2.1".parse().unwrap(), "::1".parse().unwrap());
        let mut limits = LimitsConfig::default();
        for (all, expected) in [(10_000, 2500), (300, 75), (5, 64)] {
            assert_eq!(limits.connections_per_address(far, all), Some(expected));
            assert_eq!(limits.connections_per_address(near, all), None);
        }
        limits.max_connections_per_address = Bounded::new(7);
        assert_eq!([far, near].map(|address| limits.connections_per_address(address, 10_000)), [Some(7); 2]);
    }
}
