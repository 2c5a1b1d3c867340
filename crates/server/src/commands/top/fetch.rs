//! Fetches the server's counters.

use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

use crate::commands::http_client::Request;
use crate::monitor::Summary;

/// A local server responds within a millisecond, an overloaded one within a few hundred.
const TIMEOUT: Duration = Duration::from_secs(5);

/// Fifty times the usual response.
const MAX_RESPONSE: u64 = 4 << 20;

/// The metrics listener of a server.
pub(super) struct Source {
    authority: String,
    token: Option<String>,
}

impl Source {
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, String> {
        let authority = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or(rest));
        let authority = authority.filter(|authority| authority.contains(':') && authority.is_ascii());
        let authority = authority
            .ok_or_else(|| format!("\"{url}\" is not http://HOST:PORT, for instance http://127.0.0.1:9443"))?;
        let token = match token_file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("{}: cannot be read: {error}", path.display()))?;
                text.lines().next().map(|line| line.trim().to_owned())
            }
        };
        Ok(Self { authority: authority.to_owned(), token })
    }

    pub(super) fn fetch(&self) -> Result<Summary, String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!(
                "http://{}: {error}: is the server running with --metrics on this address? --url names another",
                self.authority
            )
        };
        let address = self.authority.to_socket_addrs().map_err(|e| failed(&e))?.next();
        let request = Request {
            address: address.ok_or_else(|| failed(&"the host has no address"))?,
            authority: &self.authority,
            path: "/top",
            bearer_token: self.token.as_deref(),
            timeout: TIMEOUT,
            max_response: MAX_RESPONSE,
        };
        let response = request.send().map_err(|e| failed(&e))?;
        match response.status() {
            "200" => serde_json::from_str(&response.body)
                .map_err(|error| failed(&format!("unknown response format ({error})"))),
            "401" => {
                Err(format!("http://{}: the server requires a token: name its file with --token-file", self.authority))
            }
            _ => Err(failed(&response.status_line())),
        }
    }
}
