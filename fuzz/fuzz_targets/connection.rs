//! A whole connection: bytes of a client over TLS, against the server in this process.
//!
//! Each request has one response, in order; a request that cannot be read has one that closes the connection. No response comes behind it, or without a
//! request.

#![no_main]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::OnceLock;
use std::time::Duration;

use libfuzzer_sys::fuzz_target;
use sealion_http::http1::body::{BodyDrain, Drained};
use sealion_http::http1::head::{Framing, HeadLimits, RequestHead, find};
use sealion_testkit::pki::Pki;
use sealion_testkit::{Connector, Suite};

/// `limits.max_discarded_body`.
const LONGEST_BODY: u64 = 1000;

struct Served {
    connector: Connector,
    address: SocketAddr,
    _pki: Pki,
    _directory: tempfile::TempDir,
}

impl Served {
    fn get() -> &'static Self {
        static SERVED: OnceLock<Served> = OnceLock::new();
        SERVED.get_or_init(Self::start)
    }

    fn start() -> Self {
        let (pki, directory) = (Pki::ecdsa(), tempfile::tempdir().expect("a directory"));
        let root = directory.path().join("root");
        std::fs::create_dir(&root).expect("a directory");
        std::fs::write(root.join("f"), "content").expect("a file");
        let free = TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port");
        let file = directory.path().join("sealion.toml");
        let text = format!(
            "[server]\nworkers = 1\nlog = 'off'\nktls = 'never'\n[access_log]\nto = 'off'\n[limits]\nmax_discarded_body = {LONGEST_BODY}\n\
             [privileges]\nno_new_privileges = false\n[[listen]]\naddress = '{free}'\n[[site]]\nroot = {root:?}\n\
             certificates = [{{ cert = {:?}, key = {:?} }}]\n",
            pki.certificate_file(),
            pki.key_file()
        );
        std::fs::write(&file, text).expect("a file");
        std::thread::spawn(move || sealion::fuzz::serve(&file).expect("it serves"));
        while TcpStream::connect(free).is_err() {
            std::thread::sleep(Duration::from_millis(10));
        }
        Self { connector: Connector::new(&pki, Suite::TLS13), address: free, _pki: pki, _directory: directory }
    }
}

/// A response that is due.
#[derive(Debug)]
enum Due {
    /// For a request that could be read.
    Answer { is_head: bool, ends: bool },
    /// For bytes that are no request.
    Refusal { is_head: bool },
}

/// The responses that are due, if the client sends `input` and then nothing more.
fn due(mut input: &[u8]) -> Vec<Due> {
    let mut due = Vec::new();
    loop {
        let line = input.iter().position(|octet| !b"\r\n".contains(octet)).map_or(input, |start| &input[start..]);
        let refusal = Due::Refusal { is_head: line.starts_with(b"HEAD ") };
        let span = match find(input, &HeadLimits::default()) {
            Ok(Some(span)) => span,
            Ok(None) => return due,
            Err(_) => {
                due.push(refusal);
                return due;
            }
        };
        let Ok(head) = RequestHead::parse(input, span) else {
            due.push(refusal);
            return due;
        };
        let is_head = head.request.method == sealion_http::Method::Head;
        input = &input[span.end..];
        let mut ends = !head.keep_alive || head.expect_continue;
        if head.framing != Framing::None && !ends {
            let mut drain = BodyDrain::new(head.framing, LONGEST_BODY);
            match if drain.is_too_long() { Drained::TooLong } else { drain.feed(input) } {
                // The client is gone before the end of its request.
                Drained::NeedMore => return due,
                Drained::Done { consumed } => input = &input[consumed..],
                Drained::TooLong => ends = true,
                Drained::Broken(_) => {
                    due.push(Due::Refusal { is_head });
                    return due;
                }
            }
        }
        due.push(Due::Answer { is_head, ends });
        if ends {
            return due;
        }
    }
}

fuzz_target!(|input: &[u8]| {
    let served = Served::get();
    let mut client = served.connector.connect(served.address);
    // The first byte says where the rest is split into two records.
    let (split, input) = input.split_first().map_or((0, input), |(split, rest)| (usize::from(*split), rest));
    let (first, second) = input.split_at(split.min(input.len()));
    let due = due(input);
    for part in [first, second] {
        // The server may have closed after the first.
        if !part.is_empty() && client.send(part).is_err() {
            break;
        }
    }
    let _ = client.close_notify();
    let Ok(ending) = client.read_to_end() else { return };
    check(&ending.data, &due);
});

fn check(mut received: &[u8], due: &[Due]) {
    for (n, due) in due.iter().enumerate() {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(received).expect("a well-formed response");
        let httparse::Status::Complete(end) = parsed else { panic!("response {n} is missing or cut: {due:?}") };
        let field = |name: &str| {
            let mut lines = response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
            let value = lines.next().map(|field| std::str::from_utf8(field.value).expect("text"));
            assert!(lines.next().is_none(), "{name} is repeated");
            value
        };
        let code = response.code.expect("a status");
        let (is_head, ends) = match due {
            Due::Answer { is_head, ends } => (*is_head, *ends),
            Due::Refusal { is_head } => {
                assert!((400..600).contains(&code), "{code}");
                (*is_head, true)
            }
        };
        let length: usize = field("content-length").map_or(0, |length| length.parse().expect("a length"));
        let length = if is_head || matches!(code, 204 | 304) { 0 } else { length };
        assert!(field("transfer-encoding").is_none() && received.len() - end >= length, "response {n} is cut");
        assert_eq!(field("connection") == Some("close"), ends, "response {n}: {due:?}");
        received = &received[end + length..];
    }
    assert!(received.is_empty(), "more than the responses that are due: {}", received.escape_ascii());
}
