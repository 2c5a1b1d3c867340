//! `[cache]`, and `cache` of a proxy rule.

use std::collections::BTreeMap;
use std::path::PathBuf;

use http::HeaderName;
use ipnet::IpNet;
use schemars::JsonSchema;
use sealion_cache::Policy;
use sealion_http::extra_fields::is_name;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use crate::placeholders::{Known, Tables, Template};
use crate::values::{At, Bounded, Problems, SecretUrl, Size, Time, parse_network};

/// The cache of responses.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CacheConfig {
    /// Directories of stored responses, one for each disk. Each belongs to one server, and is empty or has been its cache before.
    pub directories: At<Vec<PathBuf>>,
    /// Most bytes that stored responses take in each directory.
    #[default(Size(1_000_000_000))]
    pub size: Size,
    /// Most responses in each directory.
    #[default(const { Bounded::new(10_000_000).unwrap() })]
    pub objects: Bounded<1, 1_000_000_000>,
    /// Bytes that stay free on each file system. Where it has less, the responses that are worth least are removed until it has.
    #[default(Size(256 << 20))]
    pub free: Size,
    /// Memory for responses that are asked for often, for each worker.
    #[default(Size(32 << 20))]
    pub memory: Size,
    /// A stream of Valkey or Redis that has the nodes of a fleet purge together: `redis://HOST:PORT/KEY`.
    pub purge_stream: Option<At<SecretUrl>>,
    /// File whose first line is the password for that server, or a user and the password with a space between.
    pub purge_stream_password: Option<At<PathBuf>>,
}

/// How a rule stores responses. Without settings, as the origin says in Cache-Control or Expires (RFC 9111).
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct CacheRuleConfig {
    /// How long a response is fresh if the origin does not say, by status: `{ 200 = "10m", 404 = "1m" }`.
    pub ttl: At<BTreeMap<String, Time>>,
    /// Whether a response with Last-Modified is fresh for a tenth of its age, a day at most, if neither the origin nor `ttl` says how long.
    /// `false`: it is validated for each request.
    #[default(true)]
    pub heuristic: bool,
    /// Largest body that is stored.
    #[default(Size(10 << 30))]
    pub max_object: Size,
    /// Size of the slices of larger responses. Each slice is fetched with a Range request and stored, so that only the requested part of a response is fetched.
    /// `max_object` bounds the whole response [default: responses are fetched and stored whole]
    pub slice: Option<At<Size>>,
    /// Which part of the query belongs to the key.
    pub query: Query,
    /// Parameters of the query that are removed, for the server too; `*` at the end stands for any: `["utm_*", "fbclid"]`.
    pub drop_parameters: Vec<String>,
    /// Whether a response with No-Vary-Search answers requests whose query differs in the order or the parameters that the field names.
    pub no_vary_search: bool,
    /// Request fields that belong to the key.
    pub key_headers: At<Vec<String>>,
    /// Cookies that belong to the key.
    pub key_cookies: Vec<String>,
    /// Values that belong to the key, with placeholders, for instance `{map.device}`. The client's address is not allowed.
    pub key_values: Vec<At<String>>,
    /// Longest content of a request with the method QUERY whose response is stored, at most 64KiB. The content, its type and its coding belong to the key
    /// [default: no response to QUERY is stored]
    pub query_content: Option<At<Size>>,
    /// Cookies that have a request go to the server, whose response is then not stored; `*` at the end stands for any: `["session", "wp_*"]`.
    pub bypass_cookies: Vec<String>,
    /// Requests for a response before it is stored.
    #[default(const { Bounded::new(1).unwrap() })]
    pub min_uses: Bounded<1, 100>,
    /// Fields of the server's response that are ignored: `cache-control`, `expires`, `set-cookie`, `vary`, `x-accel-expires`.
    pub ignore: At<Vec<String>>,
    /// Whether Cache-Control and Pragma of requests are ignored: clients cannot have a response fetched again then.
    pub ignore_request: bool,
    /// Whether responses with Set-Cookie are stored. Every client gets the cookie then.
    pub store_set_cookie: bool,
    /// How long a stale response may be sent while it is fetched again, if the origin does not say.
    pub stale_while_revalidate: Option<Time>,
    /// How long a stale response may be sent when the servers fail, if the origin does not say.
    pub stale_if_error: Option<Time>,
    /// Most responses of one URL that differ by Vary. Beyond, the least recently requested one is removed.
    #[default(const { Bounded::new(64).unwrap() })]
    pub variants: Bounded<1, 1000>,
    /// Whether a response is fetched to its end after all of its clients have left.
    #[default(true)]
    pub finish: bool,
    /// Whether responses carry Cache-Status (RFC 9211).
    #[default(true)]
    pub status_header: bool,
    /// Networks that may remove a URL by the method PURGE. From all others it is refused (403), and never forwarded.
    pub purge_from: Vec<At<String>>,
    /// Whether a request with an unsafe method (POST, PUT, DELETE …) removes the stored responses for its URL if the server answers without an error
    /// (RFC 9111 §4.4). `false`: they stay until they are stale, whatever clients write.
    #[default(true)]
    pub invalidate: bool,
}

/// The part of a query that belongs to a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Query {
    /// As the client wrote it.
    #[default]
    Whole,
    /// Its parameters in alphabetical order. The server gets them so too.
    Sorted,
    /// None. The server gets none either.
    None,
}

impl CacheRuleConfig {
    /// The policy on which responses may be stored.
    pub(super) fn policy(&self, key: &str, problems: &mut Problems) -> Policy {
        let mut policy = Policy {
            store_set_cookie: self.store_set_cookie,
            ignore_request_directives: self.ignore_request,
            stale_while_revalidate: self.stale_while_revalidate.map(seconds),
            stale_if_error: self.stale_if_error.map(seconds),
            ..Policy::default()
        };
        if !self.heuristic {
            policy.heuristic_max = 0;
        }
        for (status, time) in &self.ttl.value {
            match status.parse() {
                Ok(status @ 200..=599) => policy.default_ttl.push((status, seconds(*time))),
                _ => {
                    let what = format_args!("{status:?} is not a status: write for instance {{ 200 = \"10m\" }}");
                    problems.add(&self.ttl.span, &format!("{key}.ttl"), what);
                }
            }
        }
        for name in self.ignore.iter() {
            match name.to_ascii_lowercase().as_str() {
                lower @ ("cache-control" | "expires" | "set-cookie" | "vary" | "x-accel-expires") => {
                    policy.ignore_response.push(HeaderName::try_from(lower).expect("a name of HTTP"));
                }
                _ => {
                    let what = format_args!(
                        "{name:?} does not decide what is stored: write cache-control, expires, set-cookie, vary or x-accel-expires"
                    );
                    problems.add(&self.ignore.span, &format!("{key}.ignore"), what);
                }
            }
        }
        if let Some(wrong) = self.key_headers.iter().find(|name| !is_name(name)) {
            problems.add(
                &self.key_headers.span,
                &format!("{key}.key_headers"),
                format_args!("{wrong:?} is not a name of a field"),
            );
        }
        policy
    }

    /// The keys, with their values, that select among different responses for one URL.
    pub(crate) fn selecting(&self) -> impl Iterator<Item = (&'static str, String)> {
        let headers = self.key_headers.iter().map(|name| ("key_headers", name.to_ascii_lowercase()));
        let cookies = self.key_cookies.iter().map(|name| ("key_cookies", name.clone()));
        let values = self.key_values.iter().map(|text| ("key_values", text.value.clone()));
        let ignored = self.ignore.iter().map(|name| ("ignore", name.to_ascii_lowercase()));
        let with_cookies = self.store_set_cookie.then(|| ("store_set_cookie", String::new()));
        let searches = self.no_vary_search.then(|| ("no_vary_search", String::new()));
        headers.chain(cookies).chain(values).chain(ignored).chain(with_cookies).chain(searches)
    }

    /// The values of keys.
    pub(super) fn values(&self, tables: &Tables, key: &str, problems: &mut Problems) -> Box<[Template]> {
        let known = Known::of_request(None, tables);
        let key = format!("{key}.key_values");
        let mut parse = |text: &At<String>| {
            let template = Template::parse(text, known, &key, problems)?;
            if template.names_client(tables) {
                let what = "depends on the client's address, which no key has: choose by a field or a cookie";
                problems.add(&text.span, &key, what);
            }
            Some(template)
        };
        self.key_values.iter().filter_map(&mut parse).collect()
    }

    /// Bytes of a slice.
    pub(super) fn slice(&self, key: &str, problems: &mut Problems) -> Option<u64> {
        let slice = self.slice.as_ref()?;
        let octets = slice.value.0;
        if !(LEAST_SLICE..=self.max_object.0).contains(&octets) {
            let what = format_args!(
                "is {}: write 64KiB or more, and not more than max_object, which bounds whole responses",
                slice.value
            );
            problems.add(&slice.span, &format!("{key}.slice"), what);
        }
        Some(octets)
    }

    /// Longest content of QUERY whose response is stored; 0: none is.
    pub(super) fn query_content(&self, key: &str, problems: &mut Problems) -> u64 {
        let Some(most) = &self.query_content else { return 0 };
        if !(1..=MAX_QUERY).contains(&most.value.0) {
            let what =
                format_args!("is {}: write 64KiB or less, or remove it: contents are read into memory", most.value);
            problems.add(&most.span, &format!("{key}.query_content"), what);
        }
        most.value.0
    }

    /// The networks that may purge.
    pub(super) fn purgers(&self, key: &str, problems: &mut Problems) -> Box<[IpNet]> {
        let mut parse = |text: &At<String>| {
            let network = parse_network(text);
            if network.is_none() {
                let what =
                    format_args!("{:?} is not a network: write for instance 10.0.0.0/8 or 192.0.2.7", text.value);
                problems.add(&text.span, &format!("{key}.purge_from"), what);
            }
            network
        };
        self.purge_from.iter().filter_map(&mut parse).collect()
    }
}

/// As much of each content is kept on its way to a server anyway.
const MAX_QUERY: u64 = 64 << 10;

/// Each slice is a request to the origin, and a file.
const LEAST_SLICE: u64 = 64 << 10;

fn seconds(time: Time) -> u32 {
    u32::try_from(time.0.as_secs()).unwrap_or(u32::MAX)
}
