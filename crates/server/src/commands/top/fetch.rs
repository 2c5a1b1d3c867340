//! Asks the server.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::path::Path;
use std::time::Duration;

use crate::monitor::Summary;

/// GUESS: a server on this machine answers in a millisecond; one that is overloaded in some hundred.
const PATIENCE: Duration = Duration::from_secs(5);

/// Bytes of an answer. GUESS: fifty times what a server says.
const MOST: u64 = 4 << 20;

/// A server.
pub(super) struct Source {
    authority: String,
    token: Option<String>,
}

impl Source {
    pub(super) fn new(url: &str, token_file: Option<&Path>) -> Result<Self, String> {
        let authority = url.strip_prefix("http://").map(|rest| rest.split('/').next().unwrap_or(rest));
        let authority = authority.filter(|authority| authority.contains(':') && authority.is_ascii());
        let authority = authority.ok_or_else(|| format!("\"{url}\": write for instance http://127.0.0.1:9443"))?;
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

    /// The numbers now.
    pub(super) fn fetch(&self) -> Result<Summary, String> {
        let failed = |error: &dyn std::fmt::Display| {
            format!("http://{}: {error}: is the server started with --metrics, on this address?", self.authority)
        };
        let address = self.authority.to_socket_addrs().map_err(|e| failed(&e))?.next().ok_or("no such host")?;
        let mut stream = TcpStream::connect_timeout(&address, PATIENCE).map_err(|e| failed(&e))?;
        stream.set_read_timeout(Some(PATIENCE)).map_err(|e| failed(&e))?;
        let authorization = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let request =
            format!("GET /top HTTP/1.0\r\nHost: {}\r\n{}\r\n", self.authority, authorization.unwrap_or_default());
        stream.write_all(request.as_bytes()).map_err(|e| failed(&e))?;
        let mut answer = Vec::new();
        stream.take(MOST).read_to_end(&mut answer).map_err(|e| failed(&e))?;
        let text = String::from_utf8_lossy(&answer);
        let (head, body) = text.split_once("\r\n\r\n").ok_or_else(|| failed(&"the answer is no HTTP"))?;
        match head.split(' ').nth(1) {
            Some("200") => serde_json::from_str(body)
                .map_err(|error| failed(&format!("the answer is not what this version understands ({error})"))),
            Some("401") => {
                Err(format!("http://{}: the server asks for a token: name its file with --token-file", self.authority))
            }
            _ => Err(failed(&head.lines().next().unwrap_or("no answer"))),
        }
    }
}
