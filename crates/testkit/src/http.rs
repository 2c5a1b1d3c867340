//! A minimal HTTP/1.1 client for tests of a file server.

use std::io;

use crate::Client;

/// A response with its whole body.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    /// The status code of the status line.
    pub status: u16,
    /// The reason phrase, or an empty string.
    pub reason: String,
    /// Fields in order: names as received, values without surrounding blanks.
    pub fields: Vec<(String, String)>,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Response {
    /// The value of the first field of that name, in any case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let named = |(n, _): &&(String, String)| n.eq_ignore_ascii_case(name);
        self.fields.iter().find(named).map(|(_, value)| value.as_str())
    }

    /// The SHA-256 of the body in hexadecimal digits, as `sha256sum` prints it.
    pub fn sha256(&self) -> String {
        sha256(&self.body)
    }
}

/// The SHA-256 in hexadecimal digits, as `sha256sum` prints it.
pub fn sha256(bytes: &[u8]) -> String {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    digest.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Sends a GET request in one record and reads the response.
///
/// # Errors
/// As [`read_response`].
pub fn get(client: &mut Client, target: &str) -> io::Result<Response> {
    request(client, "GET", target, &[])
}

/// Sends a request without a body in one record and reads the response.
///
/// # Errors
/// As [`read_response`].
pub fn request(client: &mut Client, method: &str, target: &str, fields: &[(&str, &str)]) -> io::Result<Response> {
    client.send(head(method, target, fields).as_bytes())?;
    read_response(client, method)
}

/// The head of a request, with a Host field unless `fields` has one.
pub fn head(method: &str, target: &str, fields: &[(&str, &str)]) -> String {
    let mut head = format!("{method} {target} HTTP/1.1\r\n");
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        head.push_str("Host: localhost\r\n");
    }
    for (name, value) in fields {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    head + "\r\n"
}

/// Reads one response to a request with `method`. If neither the status nor Content-Length determines the body's
/// length, it ends with `close_notify` (RFC 9112 §6.3).
///
/// # Errors
/// The connection's errors, and `InvalidData` for a malformed response.
pub fn read_response(client: &mut Client, method: &str) -> io::Result<Response> {
    let head = client.read_until(b"\r\n\r\n")?;
    let mut response = parse_head(&head)?;
    let without_body = method == "HEAD" || matches!(response.status, 100..=199 | 204 | 304);
    if without_body {
        return Ok(response);
    }
    if let Some(coding) = response.field("transfer-encoding") {
        if coding != "chunked" {
            return Err(invalid(format!("the transfer coding {coding} is not read here")));
        }
        response.body = read_chunks(client)?;
        return Ok(response);
    }
    response.body = match response.field("content-length") {
        Some(len) => {
            let len = len.parse().map_err(|_| invalid(format!("Content-Length: {len}")))?;
            client.read(len)?
        }
        None => {
            let ending = client.read_to_end()?;
            ending.assert_orderly();
            ending.data
        }
    };
    Ok(response)
}

/// Reads chunks and drops trailers (RFC 9112 §7.1).
fn read_chunks(client: &mut Client) -> io::Result<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let line = client.read_until(b"\r\n")?;
        let size = std::str::from_utf8(&line).ok().and_then(|line| usize::from_str_radix(line.trim_end(), 16).ok());
        let size = size.ok_or_else(|| invalid(format!("a chunk of {} bytes", String::from_utf8_lossy(&line))))?;
        if size == 0 {
            while client.read_until(b"\r\n")? != b"\r\n" {}
            return Ok(body);
        }
        body.extend_from_slice(&client.read(size)?);
        if client.read(2)? != b"\r\n" {
            return Err(invalid("a chunk is longer than its size".to_owned()));
        }
    }
}

fn parse_head(head: &[u8]) -> io::Result<Response> {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut parsed = httparse::Response::new(&mut fields);
    match parsed.parse(head) {
        Ok(httparse::Status::Complete(_)) => {}
        other => return Err(invalid(format!("{other:?}: {}", String::from_utf8_lossy(head)))),
    }
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    Ok(Response {
        status: parsed.code.expect("a complete head has a status"),
        reason: parsed.reason.unwrap_or_default().to_owned(),
        fields: parsed.headers.iter().map(|f| (f.name.to_owned(), text(f.value))).collect(),
        body: Vec::new(),
    })
}

fn invalid(what: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what)
}
