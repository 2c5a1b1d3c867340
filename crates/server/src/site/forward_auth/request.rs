//! The request that asks another server: its Host and fields.

use http::header::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::path::SitePath;
use sealion_http::{FieldSection, Request, Target};

use super::ForwardAuthConfig;
use crate::placeholders::{Asked, Known, Template};
use crate::site::proxy::{FieldChange, Host, ProxyConfig, apply, fill};
use crate::site::{Client, Site};
use crate::upstream::{Hop, RequestFields, Trace, request_fields};
use crate::values::Problems;

/// Differences of the request from the client's.
#[derive(Debug)]
pub(super) struct AuthRequest {
    /// `None`: the host of the server's URL.
    host: Option<Host>,
    passes_fields: bool,
    constant: Vec<FieldChange>,
    /// Fields whose values have placeholders.
    filled: Vec<(HeaderName, Template)>,
}

/// A request and its client, for placeholders.
pub(super) struct Values<'a> {
    pub(super) site: &'a Site,
    pub(super) request: &'a Request<'a>,
    pub(super) client: Client,
}

impl AuthRequest {
    /// `None`: there are problems.
    pub(super) fn build(
        config: &ForwardAuthConfig,
        known: Known<'_>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let before = problems.len();
        let own = config.host.as_ref().filter(|host| host.as_str() != "upstream");
        let host = own.and_then(|host| Host::parse(Some(host), None, &format!("{key}.host"), problems));
        // Several routes inherit the guard, and each has groups of its own.
        let known = Known { groups: None, ..known };
        let name = format!("{key}.request_headers");
        let (constant, filled) = ProxyConfig::default().fields(&config.request_headers, known, &name, problems);
        (problems.len() == before).then_some(Self { host, passes_fields: config.pass_fields, constant, filled })
    }

    /// The fields of the client that the server gets, and the fields that are made for each request.
    pub(super) fn fields(&self, request: &Request<'_>, hop: &Hop<'_>) -> RequestFields {
        match self.passes_fields {
            true => request_fields(request, hop, Trace::OfClient),
            false => {
                request_fields(&Request { fields: FieldSection::default(), ..request.clone() }, hop, Trace::OfClient)
            }
        }
    }

    /// Sets the fields of `request_headers`. Returns the Host, unless it is the server's own.
    ///
    /// # Errors
    /// A field has a value that no field may have.
    pub(super) fn change(&self, values: &Values<'_>, fields: &mut HeaderMap) -> Result<Option<HeaderValue>, ()> {
        apply(&self.constant, fields);
        if self.host.is_none() && self.filled.is_empty() {
            return Ok(None);
        }
        let Target::Path { path, query } = values.request.target else { return Err(()) };
        let path = SitePath::parse(path, true).or_else(|_| SitePath::parse_forwarded(path)).map_err(drop)?;
        let asked: Asked<'_> = values.site.asked(values.request, &path, query, values.client);
        fill(&self.filled, &asked, fields).ok_or(())?;
        Ok(self.host.as_ref().and_then(|host| host.value(&asked)))
    }
}
