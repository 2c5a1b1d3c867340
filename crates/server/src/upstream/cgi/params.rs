//! The variables that an application gets: the variables of CGI (RFC 3875), and the fields as `HTTP_…`.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use http::HeaderMap;
use sealion_http::Protocol;

use crate::upstream::Forwarded;
use crate::values::Secret;

/// The script or application that answers a request, and the variables that it gets beside the fields.
#[derive(Debug, Clone)]
pub(crate) struct Script {
    /// The directory of scripts, without a slash at its end. `None`: the application is no file.
    pub(crate) root: Option<Arc<[u8]>>,
    /// The path of the script beneath the root, or the path of the application; with a slash at the beginning unless it is empty.
    pub(crate) name: Vec<u8>,
    /// The path behind `name`: empty, or with a slash at the beginning.
    pub(crate) path_info: Vec<u8>,
    /// Path and query as the client wrote them.
    pub(crate) request_uri: String,
    pub(crate) query: String,
    /// `https` or `http`.
    pub(crate) scheme: &'static str,
    pub(crate) protocol: Protocol,
    /// The host that was asked for, with its port.
    pub(crate) authority: String,
    /// The port that the client connected to. `None`: it is unknown, and the port of the host counts.
    pub(crate) port: Option<u16>,
    pub(crate) client: Option<IpAddr>,
    /// The client's port, and where it connected to.
    pub(crate) ends: Option<(u16, SocketAddr)>,
    /// Variables that the rule sets.
    pub(crate) params: Arc<[(String, Secret)]>,
    /// The two modifiers of a request of uwsgi.
    pub(crate) modifiers: [u8; 2],
}

impl Script {
    /// Calls `set` with each variable and its value. `length`: the length of the content, if there is any.
    pub(super) fn variables(&self, request: &Forwarded, length: Option<u64>, mut set: impl FnMut(&str, &[u8])) {
        set("GATEWAY_INTERFACE", b"CGI/1.1");
        set("SERVER_SOFTWARE", b"sealion");
        set("SERVER_PROTOCOL", self.protocol.as_cgi().as_bytes());
        set("REQUEST_METHOD", request.method.as_str().as_bytes());
        set("REQUEST_SCHEME", self.scheme.as_bytes());
        if self.scheme == "https" {
            set("HTTPS", b"on");
        }
        set("REQUEST_URI", self.request_uri.as_bytes());
        set("QUERY_STRING", self.query.as_bytes());
        if let Some(root) = &self.root {
            set("DOCUMENT_ROOT", root);
            set("SCRIPT_FILENAME", &[root, self.name.as_slice()].concat());
            // PHP may be built to run only files that a server names.
            set("REDIRECT_STATUS", b"200");
        }
        set("SCRIPT_NAME", &self.name);
        set("PATH_INFO", &self.path_info);
        set("DOCUMENT_URI", &[self.name.as_slice(), &self.path_info].concat());
        set("CONTENT_TYPE", request.fields.get("content-type").map_or(b"", |value| value.as_bytes()));
        let length = length.map(|length| length.to_string());
        set("CONTENT_LENGTH", length.as_deref().unwrap_or_default().as_bytes());
        let (host, port) = self.server();
        if !self.params.iter().any(|(name, _)| name == "SERVER_NAME") {
            set("SERVER_NAME", host.as_bytes());
        }
        // RFC 3875 §4.1.15: where the request came in.
        let own = self.port.map(|port| port.to_string());
        set("SERVER_PORT", own.as_deref().unwrap_or(port).as_bytes());
        if let Some(client) = self.client {
            set("REMOTE_ADDR", client.to_canonical().to_string().as_bytes());
        }
        if let Some((port, local)) = self.ends {
            set("REMOTE_PORT", port.to_string().as_bytes());
            set("SERVER_ADDR", local.ip().to_canonical().to_string().as_bytes());
        }
        if let Some(host) = &request.host {
            set("HTTP_HOST", host.as_bytes());
        }
        for (name, value) in of_fields(&request.fields) {
            set(&name, &value);
        }
        for (name, value) in self.params.iter() {
            set(name, value.reveal().as_bytes());
        }
    }

    /// The host that was asked for without its port, and the port.
    fn server(&self) -> (&str, &str) {
        let of_scheme = if self.scheme == "https" { "443" } else { "80" };
        let (host, port) = match self.authority.rsplit_once(':') {
            Some((host, port)) if !port.contains(']') => (host, port),
            _ => (self.authority.as_str(), ""),
        };
        let is_port = !port.is_empty() && port.bytes().all(|octet| octet.is_ascii_digit());
        (host, if is_port { port } else { of_scheme })
    }
}

/// The fields as variables. Fields whose CGI names another field could have are left out. So is `Proxy`, which programs would take for the
/// setting HTTP_PROXY (CVE-2016-5385).
fn of_fields(fields: &HeaderMap) -> impl Iterator<Item = (String, Vec<u8>)> {
    let is_plain = |name: &str| name.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
    let is_passed = move |name: &str| is_plain(name) && !matches!(name, "proxy" | "content-type" | "content-length");
    fields.keys().filter(move |name| is_passed(name.as_str())).map(|name| {
        let separator: &[u8] = if name == "cookie" { b"; " } else { b", " };
        let values: Vec<_> = fields.get_all(name).iter().map(|value| value.as_bytes()).collect();
        let name = name.as_str().to_ascii_uppercase().replace('-', "_");
        (format!("HTTP_{name}"), values.join(separator))
    })
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};

    use super::*;

    #[test]
    fn fields_become_variables_that_no_other_field_can_forge() {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("accept", "a"),
            ("accept", "b"),
            ("cookie", "c=1"),
            ("cookie", "d=2"),
            ("x-real-ip", "192.0.2.1"),
            ("x_real_ip", "forged"),
            ("x.real.ip", "forged"),
            ("proxy", "http://evil.example/"),
            ("content-type", "text/plain"),
            ("content-length", "0"),
            ("authorization", "Bearer x"),
        ] {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let mut found: Vec<_> =
            of_fields(&fields).map(|(name, value)| format!("{name}={}", String::from_utf8_lossy(&value))).collect();
        found.sort_unstable();
        assert_eq!(
            found,
            ["HTTP_ACCEPT=a, b", "HTTP_AUTHORIZATION=Bearer x", "HTTP_COOKIE=c=1; d=2", "HTTP_X_REAL_IP=192.0.2.1"]
        );
    }
}
