//! Applications that answer with the request they got.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::support::port::free_port;

pub(super) struct Origins {
    origin: SocketAddr,
    other: SocketAddr,
    php: SocketAddr,
    dead: u16,
}

impl Origins {
    pub(super) fn start() -> Self {
        Origins {
            origin: listen(|io| http("origin", io)),
            other: listen(|io| http("other", io)),
            php: listen(fastcgi),
            dead: free_port(),
        }
    }

    /// The text with the addresses in it.
    pub(super) fn write(&self, text: &str) -> String {
        text.replace("@ORIGIN@", &self.origin.to_string())
            .replace("@OTHER@", &self.other.to_string())
            .replace("@PHP@", &self.php.to_string())
            .replace("@DEAD@", &format!("127.0.0.1:{}", self.dead))
            .replace("@ORIGIN_PORT@", &self.origin.port().to_string())
            .replace("@OTHER_PORT@", &self.other.port().to_string())
    }
}

/// Serves each connection on a thread of its own.
fn listen(serve: impl Fn(TcpStream) -> Option<()> + Copy + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for io in listener.incoming().flatten() {
            std::thread::spawn(move || serve(io));
        }
    });
    address
}

/// A request as it arrived over HTTP/1.
struct Arrived {
    method: String,
    target: String,
    fields: BTreeMap<String, String>,
    content: String,
}

/// The next request of a connection. `None`: the connection has ended.
fn read_request(io: &mut TcpStream, octets: &mut Vec<u8>) -> Option<Arrived> {
    let end = loop {
        if let Some(at) = octets.windows(4).position(|end| end == b"\r\n\r\n") {
            break at + 4;
        }
        read_more(io, octets)?;
    };
    let head = String::from_utf8_lossy(&octets[..end]).into_owned();
    octets.drain(..end);
    let mut lines = head.lines();
    let mut words = lines.next()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let fields = lines.filter_map(|line| line.split_once(": "));
    let fields: BTreeMap<String, String> =
        fields.map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned())).collect();
    let content = match fields.get("content-length").and_then(|length| length.parse::<usize>().ok()) {
        Some(length) => {
            while octets.len() < length {
                read_more(io, octets)?;
            }
            octets.drain(..length).collect()
        }
        None if fields.contains_key("transfer-encoding") => read_chunks(io, octets)?,
        None => Vec::new(),
    };
    Some(Arrived { method, target, fields, content: String::from_utf8_lossy(&content).into_owned() })
}

fn read_chunks(io: &mut TcpStream, octets: &mut Vec<u8>) -> Option<Vec<u8>> {
    let mut content = Vec::new();
    loop {
        let line = loop {
            match octets.windows(2).position(|end| end == b"\r\n") {
                Some(at) => break octets.drain(..at + 2).collect::<Vec<u8>>(),
                None => read_more(io, octets)?,
            }
        };
        let size = usize::from_str_radix(std::str::from_utf8(&line).ok()?.trim(), 16).ok()?;
        while octets.len() < size + 2 {
            read_more(io, octets)?;
        }
        content.extend(octets.drain(..size));
        octets.drain(..2);
        if size == 0 {
            return Some(content);
        }
    }
}

fn read_more(io: &mut TcpStream, octets: &mut Vec<u8>) -> Option<()> {
    let mut part = [0; 4096];
    match io.read(&mut part) {
        Ok(0) | Err(_) => None,
        Ok(read) => {
            octets.extend_from_slice(&part[..read]);
            Some(())
        }
    }
}

/// Answers with name, method, target and fields. Words in the target choose the response: `status-404`, `redirect`, `accel`, `accel-to`, `cookie`, `sign-in`, `long`, and
/// `forwarded` for the fields about the client, which this server sends in any case.
fn http(name: &str, mut io: TcpStream) -> Option<()> {
    let mut octets = Vec::new();
    loop {
        let request = read_request(&mut io, &mut octets)?;
        let Arrived { method, target, fields, content } = &request;
        let mut body = format!("{name} {method} {target}\n");
        for (name, value) in fields.iter().filter(|(name, _)| is_shown(name, target)) {
            body.push_str(&format!("{name}: {value}\n"));
        }
        body.push_str(content);
        if target.contains("long") {
            body.push_str(&"a long text\n".repeat(200));
        }
        let status = target.split("status-").nth(1).and_then(|rest| rest.get(..3)).unwrap_or("200");
        let host = fields.get("host").map_or("", String::as_str);
        let (status, more) = match target {
            target if target.contains("sign-in") => {
                ("401", "Location: https://login.test/?rd=x\r\nSet-Cookie: sso=1; Path=/\r\n".to_owned())
            }
            target if target.contains("redirect") => ("302", format!("Location: http://{host}/moved\r\n")),
            target if target.contains("accel-") => ("200", accel(target)),
            target if target.contains("accel") => ("200", "X-Accel-Redirect: /protected/a.txt\r\n".to_owned()),
            target if target.contains("cookie") => ("200", "Set-Cookie: s=1; Path=/\r\n".to_owned()),
            _ => (status, String::new()),
        };
        let length = body.len();
        let head = format!(
            "HTTP/1.1 {status} X\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nX-Powered-By: {name}\r\nX-Origin: yes\r\n{more}\r\n"
        );
        io.write_all(head.as_bytes()).ok()?;
        if method != "HEAD" {
            io.write_all(body.as_bytes()).ok()?;
        }
    }
}

/// The fields that lead to a file: `accel-to` and the target behind it, `accel-loop` to the same path, `accel-kept` with fields beside.
fn accel(target: &str) -> String {
    const BESIDE: &str = "Set-Cookie: s=1; Path=/\r\nContent-Disposition: attachment\r\nX-Secret: 1\r\nETag: \"app\"\r\nContent-Language: de\r\n";
    let to = match target.split_once("accel-to") {
        Some((_, to)) => to.replace("SLASH", "%2F").replace("DOTS", "..").replace("ESCAPED", "%2e%2e"),
        None if target.contains("accel-loop") => target.to_owned(),
        None => "/protected/docs/a.txt".to_owned(),
    };
    let beside = if target.contains("accel-kept") { BESIDE } else { "" };
    format!("X-Accel-Redirect: {to}\r\nX-Accel-Expires: 0\r\nX-Accel-Buffering: no\r\n{beside}")
}

fn is_shown(name: &str, target: &str) -> bool {
    match name {
        "x-forwarded-for" | "x-forwarded-proto" | "x-real-ip" => target.contains("forwarded"),
        "x-forwarded-host" | "x-forwarded-port" | "x-request-id" => false,
        "host" | "cookie" | "authorization" | "content-length" | "content-type" | "user-agent" | "accept-language" => {
            true
        }
        name => name.starts_with("x-"),
    }
}

/// Answers with the variables that decide which script runs.
fn fastcgi(mut io: TcpStream) -> Option<()> {
    let (mut pairs, mut content) = (Vec::new(), Vec::new());
    loop {
        let mut head = [0; 8];
        io.read_exact(&mut head).ok()?;
        let mut record = vec![0; usize::from(u16::from_be_bytes([head[4], head[5]]))];
        io.read_exact(&mut record).ok()?;
        io.read_exact(&mut vec![0; usize::from(head[6])]).ok()?;
        match (head[1], record.is_empty()) {
            (4, _) => pairs.extend(record),
            (5, true) => break,
            (5, false) => content.extend(record),
            _ => {}
        }
    }
    let params = params(&pairs);
    let mut body = String::from("php\n");
    for name in ["REQUEST_METHOD", "SCRIPT_FILENAME", "SCRIPT_NAME", "PATH_INFO", "QUERY_STRING", "REQUEST_URI"] {
        // An empty variable and none are one to a script.
        if let Some(value) = params.get(name).filter(|value| !value.is_empty()) {
            body.push_str(&format!("{name}={value}\n"));
        }
    }
    body.push_str(&String::from_utf8_lossy(&content));
    let body = format!("Content-Type: text/plain\r\n\r\n{body}");
    let [high, low] = u16::try_from(body.len()).ok()?.to_be_bytes();
    let stdout = [&[1, 6, 0, 1, high, low, 0, 0], body.as_bytes()].concat();
    let end = [&[1, 6, 0, 1, 0, 0, 0, 0][..], &[1, 3, 0, 1, 0, 8, 0, 0], &[0; 8]].concat();
    io.write_all(&[stdout, end].concat()).ok()
}

fn params(mut pairs: &[u8]) -> BTreeMap<String, String> {
    let mut params = BTreeMap::new();
    while let Some((name, rest)) = length(pairs) {
        let Some((value, rest)) = length(rest) else { break };
        let text = |octets: &[u8]| String::from_utf8_lossy(octets).into_owned();
        params.insert(text(&rest[..name]), text(&rest[name..][..value]));
        pairs = &rest[name + value..];
    }
    params
}

fn length(octets: &[u8]) -> Option<(usize, &[u8])> {
    match *octets {
        [short, ref rest @ ..] if short < 128 => Some((usize::from(short), rest)),
        [first, second, third, fourth, ref rest @ ..] => {
            Some((u32::from_be_bytes([first & 127, second, third, fourth]) as usize, rest))
        }
        _ => None,
    }
}
