//! `[http3]`

use std::time::Duration;

use schemars::JsonSchema;
use sealion_http::http1::head::HeadLimits;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::window::{MIN_RECEIVE_WINDOW, MIN_SEND_WINDOW};
use crate::exchange::Http3Limits;
use crate::limits::LimitsConfig;
use crate::values::{At, Bounded, Problems, Size, Timeout};

/// HTTP/3 on the listeners with TLS. The limits on heads, bodies and times in `[limits]` hold for it too. A reload changes none of these keys.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Http3Config {
    /// Whether listeners with TLS over TCP have HTTP/3, unless `listen.http3` says otherwise [default: listeners on port 443 have it]
    pub enabled: Option<bool>,

    /// Congestion control. `cubic`: by lost packets (RFC 9438). `bbr`: by bandwidth and round trip, and little by lost packets. Experimental.
    #[default(CongestionControl::Cubic)]
    pub congestion: CongestionControl,

    /// Requests that a client may have in progress at a time on one connection. RFC 9114 asks for 100 at least.
    // MEASURED: 100 or 128, as in HTTP/2? An idle connection has places for all of them: 5.4 kB with 100, 9 kB with 128, counted by DHAT, 2026-11-26. Void
    // where the transport makes places for streams as they come.
    #[default(const { Bounded::new(100).unwrap() })]
    pub max_streams: Bounded<1, 1000>,

    /// Bytes of one request's content that the client may send before an upstream takes them, between 16 KiB and 16 MiB.
    // GUESS: 40 Mbit/s of upload at a round trip of 50 ms.
    #[schemars(with = "Size")]
    #[default(Size(256 << 10).into())]
    pub stream_window: At<Size>,

    /// The same for all requests of a connection, at most 64 MiB. It has to be `stream_window` at least. The bytes beyond 64 KiB count against
    /// `limits.max_buffered`.
    #[schemars(with = "Size")]
    #[default(Size(1 << 20).into())]
    pub connection_window: At<Size>,

    /// Bytes of responses that one connection may have sent and the client not acknowledged, between 128 KiB and 256 MiB. The bytes beyond 128 KiB
    /// count against `limits.max_buffered`.
    #[schemars(with = "Size")]
    #[default(Size(8 << 20).into())]
    pub send_window: At<Size>,

    /// Time after which a connection whose client sends no packets is forgotten [default: 5 s more than the longest of `idle_timeout`,
    /// `request_timeout` and `stall_timeout` in `[limits]`]
    pub idle_timeout: Option<Timeout>,

    /// Most handshakes with clients whose address is not validated, at each UDP socket of a worker. Above, a new client has to prove its address by
    /// a Retry packet, which costs it a round trip. 0: every client has to.
    #[default(const { Bounded::new(128).unwrap() })]
    pub retry_above: Bounded<0, 65_536>,
}

/// A congestion control.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum CongestionControl {
    Cubic,
    Bbr,
}

impl From<CongestionControl> for sealion_quic::Congestion {
    fn from(control: CongestionControl) -> Self {
        match control {
            CongestionControl::Cubic => Self::Cubic,
            CongestionControl::Bbr => Self::Bbr,
        }
    }
}

/// Beyond the longest time of the server's own, which ends idle connections first.
const GONE: Duration = Duration::from_secs(5);

impl Http3Config {
    pub(crate) fn check(&self, problems: &mut Problems) {
        let ranges = [
            (&self.stream_window, "stream_window", 16 << 10, 16 << 20),
            (&self.connection_window, "connection_window", MIN_RECEIVE_WINDOW, 64 << 20),
            (&self.send_window, "send_window", MIN_SEND_WINDOW, 256 << 20),
        ];
        for (size, key, min, max) in ranges {
            if !(min..=max).contains(&size.0) {
                let what = format_args!("{} is not between {} and {}", size.value, Size(min), Size(max));
                problems.add(&size.span, &format!("http3.{key}"), what);
            }
        }
        if self.connection_window.value < self.stream_window.value {
            let what = "is smaller than stream_window: the window of a connection holds the windows of its requests";
            problems.add(&self.connection_window.span, "http3.connection_window", what);
        }
    }

    /// The limits. `connect_protocol`: whether a site permits WebSocket.
    pub(crate) fn limits(&self, limits: &LimitsConfig, head: &HeadLimits, connect_protocol: bool) -> Http3Limits {
        let streams = self.max_streams.get() as u32;
        let times = [limits.idle_timeout, limits.stall_timeout, limits.request_timeout].map(Timeout::duration);
        let longest = times.into_iter().max().unwrap_or_default();
        Http3Limits {
            protocol: sealion_h3::Limits {
                streams,
                head: head.head,
                fields: head.fields,
                connect_protocol,
                resets: 2 * streams,
            },
            transport: sealion_quic::Limits {
                unvalidated: self.retry_above.usize(),
                handshake: limits.handshake_timeout.duration(),
                idle: self.idle_timeout.map_or(longest + GONE, Timeout::duration),
                bidirectional_streams: streams,
                stream_window: self.stream_window.0 as u32,
                connection_window: MIN_RECEIVE_WINDOW as u32,
                send_window: MIN_SEND_WINDOW,
                congestion: self.congestion.into(),
                ..sealion_quic::Limits::default()
            },
            send_window: self.send_window.0,
            receive_window: self.connection_window.0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problems(text: &str) -> String {
        let mut problems = Problems::of_arguments();
        toml::from_str::<Http3Config>(text).expect("keys").check(&mut problems);
        problems.to_string()
    }

    #[test]
    fn windows_that_cannot_hold_are_refused() {
        for (text, words) in [
            ("", ""),
            ("stream_window = '16KiB'\nconnection_window = '64KiB'\nsend_window = '128KiB'", ""),
            ("stream_window = '1KiB'", "1KiB is not between 16KiB and 16MiB"),
            ("stream_window = '32MiB'\nconnection_window = '64MiB'", "32MiB is not between 16KiB and 16MiB"),
            ("connection_window = '65MiB'", "65MiB is not between 64KiB and 64MiB"),
            ("send_window = '64KiB'", "64KiB is not between 128KiB and 256MiB"),
            ("stream_window = '2MiB'", "is smaller than stream_window"),
        ] {
            let problems = problems(text);
            assert!(problems.contains(words) && problems.is_empty() == words.is_empty(), "{text}: {problems}");
        }
        for text in [
            "congestion = 'reno'",
            "max_streams = 0",
            "max_streams = 1001",
            "idle_timeout = '0s'",
            "retry_above = 65537",
            "other = 1",
        ] {
            assert!(toml::from_str::<Http3Config>(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_congestion_control_reaches_the_transport() {
        for (text, control) in [
            ("", sealion_quic::Congestion::Cubic),
            ("congestion = 'cubic'", sealion_quic::Congestion::Cubic),
            ("congestion = 'bbr'", sealion_quic::Congestion::Bbr),
        ] {
            let limits = LimitsConfig::default();
            let config: Http3Config = toml::from_str(text).expect("keys");
            assert_eq!(config.limits(&limits, &limits.head(), false).transport.congestion, control, "{text}");
        }
    }

    #[test]
    fn the_transport_outlasts_the_servers_own_times() {
        let limits = LimitsConfig::default();
        let made = Http3Config::default().limits(&limits, &limits.head(), false);
        assert!(made.transport.idle > limits.idle_timeout.duration());
        assert!(made.transport.idle > limits.stall_timeout.duration());
        assert_eq!(made.transport.bidirectional_streams, made.protocol.streams);
        let short = Http3Config { idle_timeout: Some(Timeout::seconds(3)), ..Http3Config::default() };
        assert_eq!(short.limits(&limits, &limits.head(), true).transport.idle, Duration::from_secs(3));
    }
}
