//! `[http2]`

use clap::Args;
use schemars::JsonSchema;
use sealion_h2::Limits;
use sealion_http::http1::head::HeadLimits;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::values::{Bounded, overridable};

/// HTTP/2 on all listeners with TLS. The limits on heads, bodies and times in `[limits]` hold for it too.
#[derive(Debug, Clone, PartialEq, SmartDefault, Args, Serialize, Deserialize, JsonSchema)]
#[command(next_help_heading = "HTTP/2")]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Http2Config {
    /// Whether clients are offered HTTP/2 (ALPN `h2`). Without it they use HTTP/1.1.
    #[arg(long = "http2", id = "http2_enabled", value_name = "BOOL", env = "SEALION_HTTP2", action = clap::ArgAction::Set,
          default_value_t = Self::default().enabled)]
    #[default(true)]
    pub enabled: bool,

    /// Requests that a client may have in progress at a time on one connection (SETTINGS_MAX_CONCURRENT_STREAMS). RFC 9113 asks for 100 at
    /// least.
    // INHERITED: nginx' http2_max_concurrent_streams.
    #[arg(long = "http2-max-streams", id = "http2_max_streams", value_name = "NUMBER", env = "SEALION_HTTP2_MAX_STREAMS",
          default_value_t = Self::default().max_streams)]
    #[default(const { Bounded::new(128).unwrap() })]
    pub max_streams: Bounded<1, 1000>,
}

overridable!(Http2Config { enabled = "http2_enabled", max_streams = "http2_max_streams" });

impl Http2Config {
    /// The limits of one client on a connection. `head`: the bounds of a request head. `forwards`: whether content of requests is passed on.
    /// `connect_protocol`: whether a site permits WebSocket. If no site does, an announcement would have browsers ask to no avail where HTTP/1.1 serves them.
    pub(crate) fn limits(&self, head: &HeadLimits, forwards: bool, connect_protocol: bool) -> Limits {
        let streams = self.max_streams.get() as u32;
        let limits = Limits { streams, head: head.head, fields: head.fields, connect_protocol, ..Limits::default() };
        // Where content is discarded, larger windows would only let clients send more of it. Where it is passed on, they grow with the
        // bandwidth-delay product of the client's network: this much waits at most for a server, on a connection.
        Limits { largest_window: if forwards { 1 << 20 } else { limits.stream_window }, ..limits }
    }
}
