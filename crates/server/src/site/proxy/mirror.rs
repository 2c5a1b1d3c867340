//! `mirror`: a copy of each forwarded request goes to another upstream.

use std::net::IpAddr;
use std::sync::Arc;

use http::header::{self, HeaderName, HeaderValue};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;

use super::config::FieldRule;
use super::{FieldChange, Host, ProxyConfig, apply, fill};
use crate::placeholders::{Asked, Known, Template, WHOLE, share_of};
use crate::upstream::{CopyBounds, Forwarded, MirrorOutcome, MirrorPlaces, Reading, Upstream, Upstreams, mirror};
use crate::values::{At, Bounded, Problems, SecretUrl, Size, Timeout, random_bits};

/// Copies requests to another upstream. Its answers are dropped, and no client waits for them.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct MirrorConfig {
    /// Name of an `[[upstream]]`, or the URL of a server.
    pub to: At<SecretUrl>,
    /// Share of the requests, chosen at random: `10%`.
    #[default("100%".to_owned().into())]
    pub share: At<String>,
    /// Host that the server gets: as in `proxy` [default: as the first server gets it; `upstream`, if that gets its own]
    pub host: Option<At<String>>,
    /// Fields to set in the copy; an empty value removes the field.
    pub request_headers: At<Vec<FieldRule>>,
    /// Whether the copy has the content of the request.
    #[default(true)]
    pub content: bool,
    /// Most bytes of a content that are copied. A request with more has no copy.
    #[default(Size(1 << 20))]
    pub max_body: Size,
    /// Most copies in progress. A request beyond them has no copy.
    #[default(const { Bounded::new(100).unwrap() })]
    pub max_requests: Bounded<1, 65_536>,
    /// Longest time of a copy, up to the end of its answer.
    #[default(Timeout::seconds(60))]
    pub timeout: Timeout,
}

/// Where copies of requests go.
#[derive(Debug)]
pub(super) struct Mirror {
    upstream: Arc<Upstream>,
    /// In ten thousandths.
    share: u64,
    host: MirrorHost,
    request: Vec<FieldChange>,
    /// Fields whose values have placeholders.
    request_values: Vec<(HeaderName, Template)>,
    /// `None`: copies have no content.
    content: Option<CopyBounds>,
    places: Arc<MirrorPlaces>,
}

/// The Host of copies.
#[derive(Debug)]
enum MirrorHost {
    /// That of the first request.
    Same,
    /// That of the server's URL.
    OfServer,
    Other(Host),
}

impl MirrorConfig {
    /// `None`: there are problems. `proxy`: the rule whose requests are copied, and its upstream.
    pub(super) fn build(
        &self,
        (proxy, first): (&ProxyConfig, Option<&Upstream>),
        known: Known<'_>,
        upstreams: &mut Upstreams,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Mirror> {
        let before = problems.len();
        let to_key = format!("{key}.to");
        let upstream = match self.to.reveal().is_empty() {
            true => {
                let what = "is missing: name an [[upstream]], or write the URL of a server, for instance http://127.0.0.1:3001";
                problems.add(&self.to.span, &to_key, what);
                None
            }
            false => upstreams.find(&self.to, &to_key, problems),
        };
        if let (Some(upstream), Some(first)) = (&upstream, first)
            && upstream.speaks_cgi()
            && upstream.protocol_name() != first.protocol_name()
        {
            let what = format_args!(
                "has protocol = {:?}, and the copied requests {:?}: name an upstream with the same, or with HTTP",
                upstream.protocol_name(),
                first.protocol_name()
            );
            problems.add(&self.to.span, &to_key, what);
        }
        let share = share_of(&self.share).filter(|share| *share > 0);
        if share.is_none() {
            let what = "write a share above 0 in per cent, for instance \"10%\" or \"0.5%\"";
            problems.add(&self.share.span, &format!("{key}.share"), what);
        }
        let of_server = |host: &At<String>| host.as_str() == "upstream";
        let host = match &self.host {
            Some(host) if of_server(host) => Some(MirrorHost::OfServer),
            None if proxy.host.as_ref().is_some_and(of_server) => Some(MirrorHost::OfServer),
            None => Some(MirrorHost::Same),
            Some(host) => Host::parse(Some(host), None, &format!("{key}.host"), problems).map(MirrorHost::Other),
        };
        let name = format!("{key}.request_headers");
        // A copy is for one request, whatever `cache` of the rule asks of the others.
        let (request, request_values) = ProxyConfig::default().fields(&self.request_headers, known, &name, problems);
        let waiting = Arc::clone(&upstreams.waiting);
        (problems.len() == before).then_some(())?;
        let upstream = upstream?;
        upstream.expect_mirrored();
        Some(Mirror {
            upstream,
            share: share?,
            host: host?,
            request,
            request_values,
            content: self.content.then_some(CopyBounds { most: self.max_body.0, waiting }),
            places: Arc::new(MirrorPlaces::new(self.max_requests.usize(), self.timeout.duration())),
        })
    }
}

impl Mirror {
    /// The name of its upstream.
    pub(super) fn upstream_name(&self) -> &str {
        &self.upstream.name
    }

    /// Has copies of two rules count against one `max_requests`.
    pub(super) fn share_places(&mut self, first: &Mirror) {
        self.places = Arc::clone(&first.places);
    }

    /// Whether a server learns the ends of a client's connection.
    pub(super) fn names_endpoints(&self) -> bool {
        self.upstream.names_endpoints()
    }

    /// In per cent.
    pub(super) fn share(&self) -> f64 {
        self.share as f64 * 100.0 / WHOLE as f64
    }

    /// Whether the next request is copied.
    fn is_chosen(&self) -> bool {
        let random = || random_bits().map_or(0, |bits| u64::from_le_bytes(bits[..8].try_into().unwrap_or_default()));
        self.share == WHOLE || random() % WHOLE < self.share
    }

    /// Copies a request that is about to be forwarded. `asked`: the values of the request.
    pub(super) fn copy(&self, first: &mut Forwarded, asked: &Asked<'_>, client: Option<IpAddr>) {
        // The bytes behind an Upgrade are of another protocol.
        if first.upgrade.is_some() || !self.is_chosen() {
            return;
        }
        let mut copy = Box::new(first.without_content());
        // Servers of another upstream, whose answers no client waits for.
        (copy.sticky, copy.reading) = (self.upstream.sticky_server(asked.request), Reading::Ahead);
        let fields = copy.fields.map_mut();
        fields.remove(header::TRAILER);
        match (&self.content, &first.kept) {
            (Some(bounds), Some(kept)) if kept.len() as u64 > bounds.most => {
                return self.upstream.count_mirrored(MirrorOutcome::TooLong);
            }
            (Some(_), _) => {}
            (None, kept) => {
                if kept.is_some() || first.content.is_some() {
                    fields.insert(header::CONTENT_LENGTH, HeaderValue::from_static("0"));
                }
                copy.kept = None;
            }
        }
        apply(&self.request, fields);
        if fill(&self.request_values, asked, fields).is_none() {
            return self.upstream.count_mirrored(MirrorOutcome::Failed);
        }
        match &self.host {
            MirrorHost::Same => {}
            MirrorHost::OfServer => copy.host = None,
            MirrorHost::Other(host) => copy.host = host.value(asked),
        }
        let content = match self.content.as_ref().zip(first.content.as_mut()) {
            None => None,
            Some((bounds, content)) => match content.copy(bounds, client) {
                Ok(receiver) => Some(receiver),
                Err(_) => return self.upstream.count_mirrored(MirrorOutcome::TooLong),
            },
        };
        mirror(&self.upstream, copy, content, &self.places);
    }
}
