//! One HTTP/1.1 request per connection, over TLS without verification: both servers are on loopback, with the certificates of another machine.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::aws_lc_rs;
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use sealion_client::AnyCertificate;

use super::requests::Request;

/// A response with its whole content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Response {
    pub(super) status: u16,
    /// Names in lower case.
    pub(super) fields: Vec<(String, String)>,
    pub(super) content: Vec<u8>,
}

impl Response {
    /// The value of the first field of that name.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find(|(other, _)| other == name).map(|(_, value)| value.as_str())
    }
}

pub(super) struct Client {
    tls: Arc<ClientConfig>,
}

impl Client {
    /// # Errors
    /// TLS cannot be set up.
    pub(super) fn new() -> Result<Self, String> {
        let provider = Arc::new(aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider.clone());
        let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
        let verifier = Arc::new(AnyCertificate(provider));
        let mut config = builder.dangerous().with_custom_certificate_verifier(verifier).with_no_client_auth();
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Client { tls: Arc::new(config) })
    }

    /// Sends the request to a port of 127.0.0.1.
    ///
    /// # Errors
    /// There is no whole response; the reason.
    pub(super) fn ask(&self, request: &Request, port: u16) -> Result<Response, String> {
        self.exchange(request, port).map_err(|error| error.to_string())
    }

    fn exchange(&self, request: &Request, port: u16) -> io::Result<Response> {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port))?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        if !request.is_https {
            return send_and_read(stream, request);
        }
        let host = request.host.trim_matches(['[', ']']).to_owned();
        let name = ServerName::try_from(host).map_err(io::Error::other)?;
        let connection = ClientConnection::new(self.tls.clone(), name).map_err(io::Error::other)?;
        send_and_read(StreamOwned::new(connection, stream), request)
    }
}

/// For each read and each write.
const TIMEOUT: Duration = Duration::from_secs(30);

fn send_and_read(mut stream: impl Read + Write, request: &Request) -> io::Result<Response> {
    let mut octets = head(request).into_bytes();
    octets.extend_from_slice(&request.content);
    // A server that refuses the content may close before it has read it, and its response still comes.
    let sent = stream.write_all(&octets).and_then(|()| stream.flush());
    let mut received = Vec::new();
    let mut part = [0; 16 << 10];
    loop {
        if let Some(response) = parse(&received, &request.method, false)? {
            return Ok(response);
        }
        match stream.read(&mut part) {
            Ok(0) => break,
            Ok(read) => received.extend_from_slice(&part[..read]),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if received.is_empty() => return Err(sent.err().unwrap_or(error)),
            Err(_) => break,
        }
    }
    parse(&received, &request.method, true)?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
}

fn head(request: &Request) -> String {
    let mut head = format!("{} {} HTTP/1.1\r\n", request.method, request.target);
    let mut default = |name: &str, value: &str| {
        if request.field(name).is_none() {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
    };
    default("Host", &request.authority);
    default("Connection", "close");
    default("Accept", "*/*");
    default("User-Agent", "sealion-compare");
    if !request.content.is_empty() {
        default("Content-Length", &request.content.len().to_string());
        default("Content-Type", "application/x-www-form-urlencoded");
    }
    for (name, value) in &request.fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}

/// The final response, once `octets` have all of it. `is_end`: nothing follows.
///
/// # Errors
/// This is no HTTP/1.1.
fn parse(octets: &[u8], method: &str, is_end: bool) -> io::Result<Option<Response>> {
    let mut fields = [httparse::EMPTY_HEADER; 200];
    let mut parsed = httparse::Response::new(&mut fields);
    let length = match parsed.parse(octets).map_err(io::Error::other)? {
        httparse::Status::Complete(length) => length,
        httparse::Status::Partial => return Ok(None),
    };
    let status = parsed.code.unwrap_or_default();
    let rest = &octets[length..];
    if (100..200).contains(&status) && status != 101 {
        return parse(rest, method, is_end);
    }
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    let fields =
        parsed.headers.iter().map(|field| (field.name.to_ascii_lowercase(), text(field.value))).collect::<Vec<_>>();
    let mut response = Response { status, fields, content: Vec::new() };
    let length = response.field("content-length").and_then(|length| length.parse::<usize>().ok());
    let is_chunked = response.field("transfer-encoding").is_some();
    let content = match length {
        _ if method == "HEAD" || matches!(status, 101 | 204 | 304) => Some(Vec::new()),
        _ if is_chunked => chunks(rest)?,
        Some(length) => rest.get(..length).map(<[u8]>::to_vec),
        None => is_end.then(|| rest.to_vec()),
    };
    Ok(content.map(|content| {
        response.content = content;
        response
    }))
}

/// The content of chunks (RFC 9112 §7.1). `None`: more follows.
fn chunks(mut octets: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let mut content = Vec::new();
    loop {
        let (start, size) = match httparse::parse_chunk_size(octets) {
            Ok(httparse::Status::Complete((start, size))) => (start, usize::try_from(size).unwrap_or(usize::MAX)),
            Ok(httparse::Status::Partial) => return Ok(None),
            Err(_) => return Err(io::Error::other("a chunk without a size")),
        };
        if size == 0 {
            return Ok(Some(content));
        }
        let Some(end) = start.checked_add(size).filter(|end| end + 2 <= octets.len()) else { return Ok(None) };
        content.extend_from_slice(&octets[start..end]);
        octets = &octets[end + 2..];
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn content(octets: &str, is_end: bool) -> Option<String> {
        let response = parse(octets.as_bytes(), "GET", is_end).unwrap()?;
        Some(String::from_utf8(response.content).unwrap())
    }

    #[test]
    fn a_response_ends_where_its_framing_says() {
        assert_eq!(content("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nab", false).unwrap(), "ab");
        assert_eq!(content("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab", true), None);
        assert_eq!(content("HTTP/1.1 200 OK\r\n\r\nab", false), None);
        assert_eq!(content("HTTP/1.1 200 OK\r\n\r\nab", true).unwrap(), "ab");
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x\r\nc\r\n";
        assert_eq!(content(chunked, true), None);
        assert_eq!(content(&format!("{chunked}0\r\n\r\n"), false).unwrap(), "abc");
        assert_eq!(content("HTTP/1.1 103 X\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n", false).unwrap(), "");
    }
}
