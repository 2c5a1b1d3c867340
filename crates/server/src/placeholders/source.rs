//! The values that placeholders name.

use std::borrow::Cow;
use std::net::IpAddr;
use std::time::SystemTime;

use http::HeaderName;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};
use sealion_http::cookie;
use sealion_http::path::OUTSIDE_PCHAR;

use super::{Asked, Form, Tables, Unfit};

/// A value of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Source {
    Host,
    /// The field Host as the client wrote it, with its port; without one, the authority of the target.
    Authority,
    /// The decoded path, encoded again.
    Path,
    /// The decoded path.
    DecodedPath,
    Query,
    /// `?` or `&` where there is a query.
    QueryMark(u8),
    /// Path and query as the client wrote them.
    Uri,
    /// The same, encoded as one value of a query.
    EncodedUri,
    Scheme,
    Method,
    Client,
    /// The other end of the connection.
    Remote,
    Port,
    /// The time of the request: UTC, RFC 3339 with milliseconds.
    Time,
    /// The same in seconds since 1970, with milliseconds.
    UnixTime,
    /// A parameter of the query, decoded; the first of its name.
    Parameter(Box<str>),
    /// The same as the client wrote it; its name has no case.
    RawParameter(Box<str>),
    /// A field of the request; its lines are one list.
    Field(Box<str>),
    Cookie(Box<str>),
    /// A group of the route's expression.
    Group(usize),
    NamedGroup(Box<str>),
    /// A table `[[map]]`, by its place.
    Map(usize),
    /// A table `[[split]]`, by its place.
    Split(usize),
    /// The user whose password was checked; empty without one.
    User,
    /// A field of the server's response.
    UpstreamField(HeaderName),
    /// The media type of the response; empty before there is one.
    MediaType,
}

impl Source {
    /// Whether its values are parts of URLs as they stand.
    pub(super) fn is_url(&self) -> bool {
        match self {
            Self::Host
            | Self::Authority
            | Self::Path
            | Self::Query
            | Self::RawParameter(_)
            | Self::QueryMark(_)
            | Self::Uri
            | Self::EncodedUri
            | Self::Scheme => true,
            Self::Client | Self::Remote | Self::Port | Self::Time | Self::UnixTime => true,
            // The operator wrote them.
            Self::Map(_) | Self::Split(_) => true,
            Self::Method
            | Self::DecodedPath
            | Self::Parameter(_)
            | Self::Field(_)
            | Self::Cookie(_)
            | Self::Group(_)
            | Self::NamedGroup(_)
            | Self::User
            | Self::UpstreamField(_)
            | Self::MediaType => false,
        }
    }

    /// Whether a URL may begin with its values: no client names a host by them.
    pub(super) fn may_begin_url(&self, tables: &Tables) -> bool {
        match self {
            Self::Map(place) => tables.map_begins_urls(*place),
            _ => matches!(self, Self::Path | Self::Uri | Self::Scheme | Self::Split(_)),
        }
    }

    /// Whether its values may have a query.
    pub(super) fn may_have_query(&self) -> bool {
        matches!(self, Self::Uri | Self::Query | Self::QueryMark(_) | Self::Map(_))
    }

    /// Whether its values come only from tables, as the operator wrote them.
    pub(super) fn is_constant(&self, tables: &Tables) -> bool {
        match self {
            Self::Map(place) => tables.texts(*place).is_some(),
            Self::Split(_) => true,
            _ => false,
        }
    }

    /// Appends the value, and says whether it is a part of URLs as it stands. A missing value is empty.
    pub(super) fn append(&self, asked: &Asked<'_>, form: Form, out: &mut Vec<u8>) -> Result<bool, Unfit> {
        match self {
            Self::Host => out.extend_from_slice(asked.host().as_bytes()),
            Self::Path => out.extend(percent_encode(asked.path.full(), OUTSIDE_PCHAR).flat_map(str::bytes)),
            Self::DecodedPath => out.extend_from_slice(asked.path.full()),
            Self::Authority => {
                let authority = asked.request.authority.unwrap_or_default().as_bytes();
                out.extend_from_slice(asked.request.fields.first("host").unwrap_or(authority));
            }
            Self::QueryMark(_) if asked.query.is_none_or(str::is_empty) => {}
            Self::QueryMark(mark) => out.push(*mark),
            Self::Time => {
                out.extend_from_slice(humantime::format_rfc3339_millis(SystemTime::now()).to_string().as_bytes())
            }
            Self::UnixTime => {
                let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                out.extend_from_slice(format!("{}.{:03}", since.as_secs(), since.subsec_millis()).as_bytes());
            }
            Self::Query => out.extend_from_slice(asked.query.unwrap_or_default().as_bytes()),
            Self::Uri => out.extend(asked.uri()),
            Self::EncodedUri => {
                let uri: Vec<u8> = asked.uri().collect();
                out.extend(percent_encode(&uri, RESERVED).flat_map(str::bytes));
            }
            Self::Scheme => out.extend_from_slice(asked.scheme().as_bytes()),
            Self::Method => out.extend_from_slice(asked.request.method.as_str().as_bytes()),
            Self::Client => add_address(asked.client, out),
            Self::Remote => add_address(asked.remote, out),
            Self::Port => {
                let named = asked.request.authority.and_then(|authority| authority.rsplit_once(':'));
                let named = named.map(|(_, port)| port).filter(|port| port.parse::<u16>().is_ok());
                out.extend_from_slice(named.unwrap_or(if asked.is_plain { "80" } else { "443" }).as_bytes());
            }
            Self::Parameter(name) => out.extend(parameters(asked.query, name).next().into_iter().flatten()),
            Self::RawParameter(name) => out.extend_from_slice(raw_parameter(asked.query, name).as_bytes()),
            Self::Field(name) => {
                for (n, line) in asked.request.fields.all(name).enumerate() {
                    out.extend_from_slice(if n > 0 { b", " } else { b"" });
                    out.extend_from_slice(line);
                }
            }
            Self::Cookie(name) => out.extend_from_slice(cookies(asked, name).next().unwrap_or_default()),
            Self::Group(number) => return Ok(append_group(asked, out, |captures| captures.get(*number))),
            Self::NamedGroup(name) => return Ok(append_group(asked, out, |captures| captures.name(name))),
            Self::Map(place) => asked.tables.append_mapped(*place, asked, form, out)?,
            Self::MediaType => out.extend_from_slice(asked.media_type.unwrap_or_default()),
            Self::User => out.extend_from_slice(asked.user.unwrap_or_default().as_bytes()),
            Self::Split(place) => asked.tables.append_share(*place, asked, out)?,
            Self::UpstreamField(name) => {
                let values = asked.upstream.into_iter().flat_map(|fields| fields.get_all(name));
                for (n, value) in values.enumerate() {
                    out.extend_from_slice(if n > 0 { b", " } else { b"" });
                    out.extend_from_slice(value.as_bytes());
                }
            }
        }
        Ok(self.is_url())
    }
}

/// Appends a group, and says whether it is a part of URLs as it stands.
fn append_group(
    asked: &Asked<'_>,
    out: &mut Vec<u8>,
    group: impl for<'h> Fn(&regex::bytes::Captures<'h>) -> Option<regex::bytes::Match<'h>>,
) -> bool {
    let Some(groups) = asked.groups else { return false };
    let full = asked.looked_up.unwrap_or_else(|| asked.path.full());
    if let Some(found) = groups.path.as_ref().and_then(|regex| regex.captures(full)).and_then(|all| group(&all)) {
        out.extend_from_slice(found.as_bytes());
        return groups.is_of_url;
    }
    let host = asked.host();
    if let Some(found) = groups.hosts.iter().find_map(|regex| group(&regex.captures(host.as_bytes())?)) {
        out.extend_from_slice(found.as_bytes());
        return false;
    }
    // Each value is rendered once, and those behind it see it: a value that names groups of others would render them again.
    let mut known = asked.known.to_vec();
    for (place, own) in groups.values.iter().enumerate() {
        if place == known.len() {
            let before = Asked { groups: Some(&own.before), known: &known, ..*asked };
            let value = own.value.render(&before, Form::Plain).ok().map(Cow::into_owned);
            known.push(value);
        }
        let Some(value) = &known[place] else { continue };
        if let Some(found) = own.expression.captures(value).and_then(|all| group(&all)) {
            out.extend_from_slice(found.as_bytes());
            // A group of `{uri}` is encoded as that is.
            return own.value.is_url();
        }
    }
    false
}

/// The values of a parameter, decoded.
pub(crate) fn parameters<'a>(query: Option<&'a str>, name: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    let pairs = query.unwrap_or_default().split('&');
    pairs.filter_map(move |pair| {
        let (own, value) = pair.split_once('=').unwrap_or((pair, ""));
        (decoded(own) == name.as_bytes()).then(|| decoded(value))
    })
}

/// All but the unreserved characters of URLs (RFC 3986 §2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

fn add_address(address: Option<IpAddr>, out: &mut Vec<u8>) {
    out.extend(address.iter().flat_map(|address| address.to_canonical().to_string().into_bytes()));
}

/// The value of the first parameter that has this name in any case, as the client wrote it. A name without `=` has none.
fn raw_parameter<'a>(query: Option<&'a str>, name: &str) -> &'a str {
    let mut pairs = query.unwrap_or_default().split('&').filter_map(|pair| pair.split_once('='));
    pairs.find(|(own, _)| own.eq_ignore_ascii_case(name)).map_or("", |(_, value)| value)
}

/// As forms are decoded: applications that are asked read `+` as a space.
fn decoded(text: &str) -> Vec<u8> {
    let spaced: Vec<u8> = text.bytes().map(|byte| if byte == b'+' { b' ' } else { byte }).collect();
    percent_decode(&spaced).collect()
}

/// The values of a cookie.
pub(crate) fn cookies<'a>(asked: &Asked<'a>, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
    cookie::values_of(asked.request.fields, name.as_bytes())
}
