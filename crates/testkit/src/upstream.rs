//! An upstream server for tests of the proxy. A function of the test serves each connection: it sees the received bytes
//! and writes any bytes.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use crate::PATIENCE;

/// A listening server. Its threads end with the connections.
pub struct Upstream {
    address: SocketAddr,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    connections: usize,
    ended: usize,
    requests: Vec<Received>,
}

/// A request as it arrived.
#[derive(Debug, Clone)]
pub struct Received {
    /// The request line and fields, as sent.
    pub head: String,
    /// The body, without its framing.
    pub body: Vec<u8>,
}

impl Received {
    /// The values of all fields of that name, in any case.
    pub fn all(&self, name: &str) -> Vec<&str> {
        let fields = self.head.lines().skip(1).filter_map(|line| line.split_once(": "));
        fields.filter(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value).collect()
    }

    /// The value of the only field of that name.
    ///
    /// # Panics
    /// The field is missing or repeated.
    #[track_caller]
    pub fn field(&self, name: &str) -> &str {
        match self.all(name)[..] {
            [value] => value,
            _ => panic!("not one {name} in {}", self.head),
        }
    }

    /// The request line without the version.
    pub fn line(&self) -> &str {
        self.head.lines().next().and_then(|line| line.strip_suffix(" HTTP/1.1")).expect("a request line")
    }
}

/// The maximum length of a body that a test reads.
const MAX_BODY: usize = 1 << 30;

/// An accepted connection.
pub struct Accepted {
    /// Its number, from 0.
    pub number: usize,
    io: BufReader<TcpStream>,
    seen: Arc<Mutex<Seen>>,
}

impl Upstream {
    /// Serves each connection by `serve` in a separate thread, and closes it afterwards.
    pub fn start(serve: impl Fn(&mut Accepted) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address");
        let seen = Arc::new(Mutex::new(Seen::default()));
        let (all, serve) = (Arc::clone(&seen), Arc::new(serve));
        thread::spawn(move || {
            for io in listener.incoming().map_while(Result::ok) {
                let number = {
                    let mut seen = all.lock().expect("no panic");
                    seen.connections += 1;
                    seen.connections - 1
                };
                io.set_read_timeout(Some(PATIENCE)).expect("a timeout");
                io.set_nodelay(true).expect("an option");
                let (seen, serve) = (Arc::clone(&all), Arc::clone(&serve));
                thread::spawn(move || {
                    let mut accepted = Accepted { number, io: BufReader::new(io), seen: Arc::clone(&seen) };
                    serve(&mut accepted);
                    drop(accepted);
                    seen.lock().expect("no panic").ended += 1;
                });
            }
        });
        Self { address, seen }
    }

    /// Responds to every request with the result of `answer`, until the client closes.
    pub fn answering(answer: impl Fn(&Received) -> Vec<u8> + Send + Sync + 'static) -> Self {
        Self::start(move |accepted| {
            while let Some(request) = accepted.request() {
                accepted.write(&answer(&request));
            }
        })
    }

    /// Responds to every request with 200 and the request's body.
    pub fn echo() -> Self {
        Self::answering(|request| ok(&request.body))
    }

    /// The URL of its root.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Its address, on 127.0.0.1.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// All requests so far.
    pub fn requests(&self) -> Vec<Received> {
        self.seen.lock().expect("no panic").requests.clone()
    }

    /// The last request.
    ///
    /// # Panics
    /// There was no request.
    #[track_caller]
    pub fn last(&self) -> Received {
        self.requests().pop().expect("a request came")
    }

    /// Whether `connections` connections were closed here, and their other ends have closed too (FIN-WAIT-1 and
    /// FIN-WAIT-2 are over).
    pub fn has_ended(&self, connections: usize) -> bool {
        let port = format!(":{:04X}", self.address.port());
        let table = std::fs::read_to_string("/proc/net/tcp").expect("a table of sockets");
        let waits = |line: &str| {
            let fields: Vec<_> = line.split_whitespace().take(4).collect();
            matches!(fields[..], [_, local, _, "04" | "05"] if local.ends_with(&port))
        };
        self.seen.lock().expect("no panic").ended == connections && !table.lines().any(waits)
    }

    /// The number of connections so far.
    pub fn connections(&self) -> usize {
        self.seen.lock().expect("no panic").connections
    }
}

/// A response 200 with this body.
pub fn ok(body: &[u8]) -> Vec<u8> {
    let mut response = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len()).into_bytes();
    response.extend_from_slice(body);
    response
}

impl Accepted {
    /// The next request with its body. `None`: the client has closed, or sent something else.
    pub fn request(&mut self) -> Option<Received> {
        let head = self.head()?;
        let mut request = Received { head, body: Vec::new() };
        if request.all("transfer-encoding") == ["chunked"] {
            request.body = self.chunked()?;
        } else if let [length] = request.all("content-length")[..] {
            request.body = vec![0; length.parse().ok()?];
            self.io.read_exact(&mut request.body).ok()?;
        }
        self.seen.lock().expect("no panic").requests.push(request.clone());
        Some(request)
    }

    /// The next request as its bytes, and its body.
    pub fn raw_request(&mut self) -> Option<(Vec<u8>, Vec<u8>)> {
        let head = self.head()?;
        let request = Received { head: head.clone(), body: Vec::new() };
        let mut raw = head.into_bytes();
        if request.all("transfer-encoding") == ["chunked"] {
            let body = self.chunked()?;
            // As one chunk: the original sizes are lost.
            raw.extend_from_slice(format!("{:x}\r\n", body.len()).as_bytes());
            raw.extend_from_slice(&body);
            raw.extend_from_slice(if body.is_empty() { b"\r\n" } else { b"\r\n0\r\n\r\n" });
            return Some((raw, body));
        }
        let mut body = Vec::new();
        if let [length] = request.all("content-length")[..] {
            body = self.read(length.parse().ok().filter(|length| *length < MAX_BODY)?)?;
            raw.extend_from_slice(&body);
        }
        Some((raw, body))
    }

    /// The head of the next request, without its body.
    pub fn head(&mut self) -> Option<String> {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") {
            if self.io.read_line(&mut head).ok()? == 0 {
                return None;
            }
        }
        Some(head)
    }

    fn chunked(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.io.read_line(&mut line).ok()?;
            let length = usize::from_str_radix(line.trim_end(), 16).ok()?;
            let start = body.len();
            body.resize(start + length, 0);
            self.io.read_exact(&mut body[start..]).ok()?;
            line.clear();
            self.io.read_line(&mut line).ok()?;
            if length == 0 {
                return Some(body);
            }
        }
    }

    /// Reads exactly `length` bytes. `None`: fewer arrived.
    pub fn read(&mut self, length: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; length];
        self.io.read_exact(&mut bytes).ok()?;
        Some(bytes)
    }

    /// Reads up to the end of the connection.
    pub fn read_to_end(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        let _ = self.io.read_to_end(&mut bytes);
        bytes
    }

    /// Writes, and ignores a client that has left.
    pub fn write(&mut self, bytes: &[u8]) {
        self.try_write(bytes);
    }

    /// Writes. `false`: the client has left.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.io.get_mut().write_all(bytes).is_ok()
    }

    /// Ends the writing direction.
    pub fn finish(&mut self) {
        let _ = self.io.get_ref().shutdown(Shutdown::Write);
    }

    /// Makes the connection end with a reset.
    pub fn reset(&mut self) {
        let linger = Some(std::time::Duration::ZERO);
        rustix::net::sockopt::set_socket_linger(self.io.get_ref(), linger).expect("an option");
    }
}
