//! The variables of requests to servers of uwsgi.

use std::collections::BTreeMap;
use std::sync::Arc;

use percent_encoding::percent_decode_str;
use schemars::JsonSchema;
use sealion_http::{Protocol, Request};
use serde::{Deserialize, Serialize};

use super::fastcgi::further_variables;
use crate::upstream::{Inbound, Script};
use crate::values::{At, Problems, Secret};

/// Variables and modifiers of requests to an upstream with `protocol = "uwsgi"`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct UwsgiConfig {
    /// Further variables, for instance `{ UWSGI_SCHEME = "https" }`. SERVER_NAME replaces the host of the request.
    pub params: At<BTreeMap<String, Secret>>,
    /// First modifier of requests, which chooses the language: 0 is Python, 5 Perl, 7 Ruby.
    pub modifier1: u8,
    /// Second modifier of requests.
    pub modifier2: u8,
}

/// The variables and modifiers of a rule.
#[derive(Debug)]
pub(super) struct Uwsgi {
    params: Arc<[(String, Secret)]>,
    modifiers: [u8; 2],
}

/// The target of a request as the rule forwards it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Forwarding<'a> {
    /// The directory that the rule removes from the path, decoded, without a slash at its beginning. `None`: it removes none.
    pub(super) stripped: Option<&'a [u8]>,
    /// Path and query.
    pub(super) target: &'a str,
    /// Whether the rule stores responses: they depend on nothing that is not in their keys.
    pub(super) is_stored: bool,
}

impl UwsgiConfig {
    pub(super) fn build(&self, key: &str, problems: &mut Problems) -> Uwsgi {
        let params = further_variables(&self.params, key, problems);
        Uwsgi { params, modifiers: [self.modifier1, self.modifier2] }
    }
}

impl Uwsgi {
    /// The application that answers a request. Its path is decoded once, as servers of HTTP in front of WSGI and Rack do it.
    pub(super) fn script(&self, request: &Request<'_>, forwarding: Forwarding<'_>, inbound: &Inbound) -> Box<Script> {
        let Forwarding { stripped, target, is_stored } = forwarding;
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let name = stripped.map_or_else(Vec::new, |directory| [b"/", directory].concat());
        let encoded = percent_encoding::percent_encode(&name, sealion_http::path::OUTSIDE_PCHAR);
        let endpoints = inbound.endpoints.as_deref();
        let ends = endpoints.filter(|ends| Some(ends.client.ip()) == inbound.client);
        let port = endpoints.map(|ends| ends.local.port());
        Box::new(Script {
            root: None,
            request_uri: format!("{encoded}{target}"),
            name,
            path_info: percent_decode_str(path).collect(),
            query: query.to_owned(),
            scheme: inbound.scheme,
            protocol: if is_stored { Protocol::Http11 } else { inbound.protocol },
            authority: request.authority.unwrap_or_default().to_ascii_lowercase(),
            port: port.filter(|_| inbound.is_direct && !is_stored),
            client: inbound.client,
            ends: ends.map(|ends| (ends.client.port(), ends.local)),
            params: Arc::clone(&self.params),
            modifiers: self.modifiers,
        })
    }
}
