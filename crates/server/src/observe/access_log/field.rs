//! Fields of a line: name, value, and whether a line has the field by default.

use schemars::JsonSchema;
use sealion_tls::Version;
use serde::{Deserialize, Serialize};

use super::entry::{Entry, Requested};
use super::stamp::Stamp;
use super::value::Value;
use crate::values::labels;

/// Defines the fields, one per row: documentation, name, [`Shown`], value.
macro_rules! fields {
    ($($(#[doc = $doc:literal])+ $field:ident = $name:literal, $shown:ident, |$line:ident| $value:expr;)*) => {
        labels! {
            /// A field of a line.
            #[derive(Serialize, Deserialize, JsonSchema, clap::ValueEnum)]
            #[serde(rename_all = "snake_case")]
            #[value(rename_all = "snake_case")]
            pub(crate) Field { $($(#[doc = $doc])+ $field = $name,)* }
        }

        impl Field {
            /// Whether a line has the field by default.
            pub(super) fn shown(self) -> Shown {
                match self { $(Field::$field => Shown::$shown),* }
            }

            /// The value in a line.
            pub(super) fn value<'a>(self, line: &Line<'a, '_>) -> Value<'a> {
                match self {
                    $(Field::$field => {
                        let $line = line;
                        $value
                    })*
                }
            }

            #[cfg(test)]
            fn doc(self) -> &'static str {
                match self { $(Field::$field => concat!($($doc),+).trim_ascii()),* }
            }
        }
    };
}

fields! {
    /// When the response ended: UTC, RFC 3339 with milliseconds.
    Time = "time", Always, |line| Value::Time(line.stamp);
    /// The same in local time, as the combined format has it.
    TimeLocal = "time_local", IfChosen, |line| Value::CombinedTime(line.stamp);
    /// The client's address and port; port 0 if a trusted proxy names the client without one.
    Peer = "peer", Always, |line| Value::Peer(line.entry.peer);
    /// The client's address.
    Address = "address", IfChosen, |line| Value::Address(line.entry.peer.ip());
    /// The name of the site that served the request.
    Site = "site", IfChosen, |line| text(line.request().map(|requested| requested.site).filter(|site| !site.is_empty()));
    /// The name of the route that answered, or its path.
    Route = "route", IfChosen, |line| text(line.request().and_then(|requested| requested.route));
    /// The host named by the request.
    Host = "host", IfChosen, |line| text(line.request().and_then(|requested| requested.request.authority));
    /// The server name in the client's handshake (SNI).
    Sni = "sni", IfChosen, |line| text(line.entry.tls.and_then(|tls| tls.server_name.as_deref()));
    /// The authenticated user.
    User = "user", IfChosen, |line| text(line.entry.outcome.user);
    /// The method; `-` if no request could be read.
    Method = "method", Always, |line| {
        line.request().map_or(Value::Absent, |requested| Value::Token(requested.request.method.as_str().as_bytes()))
    };
    /// The request-target as received, including the query.
    Target = "target", Always, |line| {
        // Quoted even if no request could be read.
        Value::Text(line.request().map_or(b"-", |requested| requested.request.raw_target.as_bytes()))
    };
    /// `HTTP/3`, `HTTP/2`, `HTTP/1.1` or `HTTP/1.0`; `-` if no request could be read.
    Protocol = "protocol", IfChosen, |line| {
        line.request().map_or(Value::Absent, |requested| Value::Word(requested.protocol.as_str()))
    };
    /// The number of the HTTP/2 stream, in the order of a connection's requests: 1, 3, 5 and so on.
    Stream = "stream", IfChosen, |line| line.entry.outcome.stream.map_or(Value::Absent, Value::Number);
    /// The status of the response.
    Status = "status", Always, |line| Value::Number(line.entry.outcome.status.code().into());
    /// Bytes of the body sent.
    Bytes = "bytes", Always, |line| Value::Number(line.entry.outcome.body);
    /// The body's Content-Encoding.
    Encoding = "encoding", IfChosen, |line| {
        line.entry.outcome.encoding.map_or(Value::Absent, |coding| Value::Token(coding.token().as_bytes()))
    };
    /// Milliseconds from the end of the request's head to the response's last byte.
    Ms = "ms", Always, |line| Value::Millis(line.entry.duration.as_micros() as u64);
    /// The same in seconds.
    Seconds = "seconds", IfChosen, |line| Value::Seconds(line.entry.duration.as_micros() as u64);
    /// The TLS version; `-`, as in the next three fields, on a listener without TLS.
    Tls = "tls", Always, |line| line.entry.tls.map_or(Value::Absent, |tls| Value::Word(match tls.version {
        Version::Tls12 => "1.2",
        Version::Tls13 => "1.3",
    }));
    /// The cipher suite.
    Suite = "suite", Always, |line| line.entry.tls.map_or(Value::Absent, |tls| Value::Word(tls.suite));
    /// The group of the key exchange; `X25519MLKEM768` resists quantum computers.
    Group = "group", Always, |line| {
        line.entry.tls.and_then(|tls| tls.group).map_or(Value::Absent, |group| Value::Word(group.as_str()))
    };
    /// Whether the handshake resumed a session: `yes` or `no`.
    Resumed = "resumed", Always, |line| {
        line.entry.tls.map_or(Value::Absent, |tls| Value::Flag(tls.resumed))
    };
    /// Where the response was sealed: `user` or `kernel`; `plain` without TLS.
    Path = "path", Always, |line| Value::Word(line.entry.outcome.path.as_str());
    /// The reason for that path: see below.
    Why = "why", Always, |line| line.entry.outcome.reason.map_or(Value::Absent, |why| Value::Word(why.label()));
    /// Bytes of responses sent on the connection before it moved into the kernel.
    MovedAt = "moved_at", IfChosen, |line| line.entry.outcome.moved_at.map_or(Value::Absent, Value::Number);
    /// Microseconds that the move took, in the line of the response before which the connection moved.
    SetupUs = "setup_us", IfPresent, |line| {
        line.entry.outcome.set_up.map_or(Value::Absent, |took| Value::Number(took.as_micros() as u64))
    };
    /// The server that the request was forwarded to.
    Upstream = "upstream", IfPresent, |line| text(line.entry.outcome.upstream.map(|trace| &*trace.server));
    /// The status of its response; absent if there was no response.
    UpstreamStatus = "upstream_status", IfPresent, |line| {
        line.entry.outcome.upstream.and_then(|trace| trace.status).map_or(Value::Absent, |status| Value::Number(status.into()))
    };
    /// Milliseconds to the head of its response, including all tries.
    UpstreamMs = "upstream_ms", IfPresent, |line| {
        line.entry.outcome.upstream.map_or(Value::Absent, |trace| Value::Millis(trace.took.as_micros() as u64))
    };
    /// The same in seconds.
    UpstreamSeconds = "upstream_seconds", IfChosen, |line| {
        line.entry.outcome.upstream.map_or(Value::Absent, |trace| Value::Seconds(trace.took.as_micros() as u64))
    };
    /// Tries, if there was more than one.
    Tries = "tries", IfPresent, |line| {
        let tries = line.entry.outcome.upstream.map(|trace| trace.tries).filter(|tries| *tries > 1);
        tries.map_or(Value::Absent, |tries| Value::Number(tries.into()))
    };
    /// The cache's result: `hit`, `miss`, `expired` (stale, and fetched again), `stale` (sent although stale),
    /// `revalidated`, `bypass`.
    Cache = "cache", IfPresent, |line| line.entry.outcome.cache.map_or(Value::Absent, |cache| Value::Word(cache.outcome.label()));
    /// The reason why it was not a hit, or why the response was not stored; `collapsed`: the request shared another
    /// request's fetch.
    CacheReason = "cache_reason", IfPresent, |line| {
        line.entry.outcome.cache.and_then(|cache| cache.reason).map_or(Value::Absent, Value::Word)
    };
    /// Seconds since the origin made the response.
    Age = "age", IfPresent, |line| line.entry.outcome.cache.and_then(|cache| cache.age).map_or(Value::Absent, Value::Number);
    /// The error that cut the response short.
    Aborted = "aborted", IfPresent, |line| line.entry.outcome.aborted.map_or(Value::Absent, Value::Message);
    /// The page that the request came from, as stated by the client.
    Referer = "referer", IfChosen, |line| line.field_of_request("referer");
    /// The client's program, as stated by the client.
    UserAgent = "user_agent", IfChosen, |line| line.field_of_request("user-agent");
}

/// Whether a line has a field by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// Every line has it.
    Always,
    /// Lines have it if it has a value.
    IfPresent,
    /// Only lines with chosen fields have it.
    IfChosen,
}

/// How the lines of a log name the site by default.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Naming {
    /// Not at all: there is only one site.
    Nothing,
    /// By the host: the log belongs to one site with several names.
    Host,
    /// By the site and the host.
    SiteAndHost,
}

impl Field {
    /// The default fields of a line.
    pub(super) fn usual(naming: Naming) -> Vec<Field> {
        let is_usual = |field: &Field| match field {
            Field::Site => naming == Naming::SiteAndHost,
            Field::Host => naming != Naming::Nothing,
            other => other.shown() != Shown::IfChosen,
        };
        Field::ALL.iter().copied().filter(is_usual).collect()
    }
}

/// The data for the values.
pub(super) struct Line<'a, 'e> {
    pub(super) entry: &'a Entry<'e>,
    pub(super) stamp: &'a Stamp,
}

impl<'a> Line<'a, '_> {
    fn request(&self) -> Option<Requested<'a>> {
        self.entry.request
    }

    /// The first value of a field of the request.
    pub(super) fn field_of_request(&self, name: &str) -> Value<'a> {
        self.request().and_then(|requested| requested.field(name)).map_or(Value::Absent, Value::Text)
    }
}

impl<'a> Line<'a, '_> {
    /// The first value of a cookie.
    pub(super) fn cookie(&self, name: &str) -> Value<'a> {
        let Some(requested) = self.request() else { return Value::Absent };
        let pairs = requested.request.fields.all("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
        let mut values = pairs.filter_map(|pair| pair.trim_ascii().strip_prefix(name.as_bytes())?.strip_prefix(b"="));
        values.next().map_or(Value::Absent, Value::Text)
    }
}

fn text(text: Option<&str>) -> Value<'_> {
    text.map_or(Value::Absent, |text| Value::Text(text.as_bytes()))
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;

    use super::*;

    #[test]
    fn a_field_has_one_name() {
        for field in Field::value_variants() {
            assert_eq!(serde_json::to_value(field).unwrap(), field.label());
            assert_eq!(Field::from_str(field.label(), false), Ok(*field));
        }
    }

    /// `SEALION_UPDATE=1 cargo test -p sealion --lib the_page_lists_every_field` writes the table.
    #[test]
    fn the_page_lists_every_field() {
        const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/logs.md");
        const HEAD: &str = "| field | | |\n|---|---|---|\n";
        let rows = Field::ALL.iter().map(|field| {
            let usual = if field.shown() == Shown::IfChosen { "" } else { "· " };
            let doc = field.doc().trim_end_matches('.');
            format!("| `{}` | {usual}| {doc} |\n", field.label())
        });
        let table: String = rows.collect();
        let page = std::fs::read_to_string(PAGE).unwrap();
        let (before, rest) = page.split_once(HEAD).expect("the page has the table");
        let (kept, after) = rest.split_at(rest.find("\n\n").expect("the table ends") + 1);
        if std::env::var_os("SEALION_UPDATE").is_some() {
            std::fs::write(PAGE, format!("{before}{HEAD}{table}{after}")).unwrap();
        } else {
            assert!(
                kept == table,
                "docs/logs.md lists other fields than the code: write it again with SEALION_UPDATE=1"
            );
        }
    }
}
