//! A minimal HTTP client for the metrics listener: one GET request per connection.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

pub(super) struct Request<'a> {
    pub(super) address: SocketAddr,
    /// Value of the Host field.
    pub(super) authority: &'a str,
    pub(super) path: &'a str,
    pub(super) bearer_token: Option<&'a str>,
    /// Bounds the connection attempt, each read and each write.
    pub(super) timeout: Duration,
    /// Bytes of head and body; a longer response is truncated.
    pub(super) max_response: u64,
}

pub(super) struct Response {
    head: String,
    pub(super) body: String,
}

impl Request<'_> {
    /// Sends the request and reads the response up to the end of the connection.
    ///
    /// # Errors
    /// The connection fails or times out, or the response has no head.
    pub(super) fn send(&self) -> io::Result<Response> {
        let mut stream = TcpStream::connect_timeout(&self.address, self.timeout)?;
        stream.set_read_timeout(Some(self.timeout))?;
        stream.set_write_timeout(Some(self.timeout))?;
        stream.write_all(self.text().as_bytes())?;
        let mut response = Vec::new();
        stream.take(self.max_response).read_to_end(&mut response)?;
        let response = String::from_utf8_lossy(&response);
        let (head, body) = response
            .split_once("\r\n\r\n")
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the response is not HTTP"))?;
        Ok(Response { head: head.to_owned(), body: body.to_owned() })
    }

    fn text(&self) -> String {
        let authorization = self.bearer_token.map(|token| format!("Authorization: Bearer {token}\r\n"));
        format!(
            "GET {} HTTP/1.1\r\nHost: {}\r\n{}Connection: close\r\n\r\n",
            self.path,
            self.authority,
            authorization.unwrap_or_default()
        )
    }
}

impl Response {
    pub(super) fn status_line(&self) -> &str {
        self.head.lines().next().unwrap_or_default()
    }

    /// The three digits of the status.
    pub(super) fn status(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn one_request_and_its_response() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                stream.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            stream.write_all(b"HTTP/1.1 503 Service Unavailable\r\nX: y\r\n\r\ndraining\n").unwrap();
            String::from_utf8(request).unwrap()
        });
        let request = Request {
            address,
            authority: "a.test:1",
            path: "/ready",
            bearer_token: Some("secret"),
            timeout: Duration::from_secs(5),
            max_response: 1 << 10,
        };
        let response = request.send().unwrap();
        assert_eq!(response.status_line(), "HTTP/1.1 503 Service Unavailable");
        assert_eq!((response.status(), response.body.as_str()), ("503", "draining\n"));
        assert_eq!(
            server.join().unwrap(),
            "GET /ready HTTP/1.1\r\nHost: a.test:1\r\nAuthorization: Bearer secret\r\nConnection: close\r\n\r\n"
        );
    }
}
