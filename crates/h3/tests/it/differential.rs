//! The client of the crate `h3` against this server, over streams in memory: each side must understand the other in the
//! same way, however the bytes are split.

use std::collections::HashMap;

use bytes::{Buf, Bytes};
use h3::client::SendRequest;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use sealion_h3::{Command, Connection, Event, HeadBuffer, HeaderBlock, Limits, StreamId};

use crate::wire::{Opener, Wire};

/// A small generator whose seed reproduces a failure (xorshift64*).
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    fn fields(&mut self) -> HeaderMap {
        const NAMES: [&str; 10] = [
            "x-a",
            "accept",
            "user-agent",
            "x-long-name-of-a-field",
            "referer",
            "if-match",
            "authorization",
            "via",
            "content-type",
            "vary",
        ];
        const VALUES: [&str; 4] = ["text/css", "accept-encoding", "*/*", ""];
        let mut fields = HeaderMap::new();
        for _ in 0..self.below(12) {
            let length = if self.below(8) == 0 { self.below(1500) } else { self.below(40) };
            let random: Vec<u8> = (0..length)
                .map(|_| if self.below(20) == 0 { 0x80 + self.below(128) as u8 } else { b'!' + self.below(94) as u8 })
                .collect();
            let known = VALUES[self.below(VALUES.len())].as_bytes();
            let value = if self.below(4) == 0 { known } else { &random };
            let name = NAMES[self.below(NAMES.len())];
            fields.append(HeaderName::from_static(name), HeaderValue::from_bytes(value).unwrap());
        }
        fields
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.below(3) {
            0 => 0,
            1 => self.below(100),
            _ => self.below(100_000),
        };
        let first = self.next() as u8;
        (0..length).map(|at| first.wrapping_add((at % 251) as u8)).collect()
    }
}

/// Responds to each request with its own fields, content and trailers.
struct Echo {
    connection: Connection,
    head: HeadBuffer,
    random: Random,
    requests: HashMap<StreamId, Exchange>,
    wire: Wire,
}

#[derive(Default)]
struct Exchange {
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
    trailers: Option<Vec<(String, Vec<u8>)>>,
}

/// The server's control stream.
const CONTROL: u64 = 3;

impl Echo {
    async fn serve(mut self) -> Connection {
        let mut control = Vec::new();
        self.connection.write_control(&mut control);
        self.wire.send(CONTROL, &control, false);
        while let Some((stream, bytes, fin, is_new)) = self.wire.received().await {
            let id = StreamId::new(stream);
            if is_new {
                self.connection.open(id).unwrap();
            }
            let (mut rest, mut last) = (&bytes[..], false);
            while !last {
                let piece = (1 + self.random.below(2000)).min(rest.len());
                let (now, later) = rest.split_at(piece);
                rest = later;
                last = rest.is_empty();
                self.receive(id, now, fin && last);
            }
        }
        self.connection
    }

    fn fields(&self) -> Vec<(String, Vec<u8>)> {
        let owned = |(name, value): (&[u8], &[u8])| (String::from_utf8(name.to_vec()).unwrap(), value.to_vec());
        self.head.fields().iter().map(owned).collect()
    }

    fn receive(&mut self, id: StreamId, mut input: &[u8], fin: bool) {
        const KEPT: &str = "the client keeps the rules";
        while let Some(event) = self.connection.receive(id, &mut input, fin, &mut self.head).expect(KEPT) {
            match event {
                Event::Request { stream, end } => {
                    assert_eq!(self.head.request().path, Some("/b?c"));
                    let fields = self.fields();
                    self.requests.insert(stream, Exchange { fields, ..Exchange::default() });
                    if end {
                        self.respond(stream);
                    }
                }
                Event::Data { stream, data, end } => {
                    self.requests.get_mut(&stream).unwrap().content.extend_from_slice(data);
                    if end {
                        self.respond(stream);
                    }
                }
                Event::Trailers { stream } => {
                    self.requests.get_mut(&stream).unwrap().trailers = Some(self.fields());
                    self.respond(stream);
                }
                Event::Settings | Event::GoAway => {}
                other => panic!("{other:?}"),
            }
        }
        while let Some(command) = self.connection.next_command() {
            // The client opens a stream of a reserved type.
            let is_reserved = matches!(command, Command::Stop { stream, .. } if !stream.is_request());
            assert!(is_reserved || matches!(command, Command::Prioritize { .. }), "{command:?}");
        }
    }

    fn respond(&mut self, stream: StreamId) {
        let exchange = self.requests.remove(&stream).unwrap();
        let mut out = Vec::new();
        let mut block = HeaderBlock::response(200);
        exchange.fields.iter().for_each(|(name, value)| block.field(name, value));
        // A block in two parts, split anywhere.
        let (first, second) = block.as_bytes().split_at(self.random.below(block.as_bytes().len()));
        self.connection.respond(stream, &[first, second], false, &mut out).unwrap();
        let mut rest = &exchange.content[..];
        while !rest.is_empty() {
            let length = (1 + self.random.below(40_000)).min(rest.len());
            let (now, later) = rest.split_at(length);
            let last = later.is_empty() && exchange.trailers.is_none();
            self.connection.data(stream, length as u64, last, &mut out).unwrap();
            out.extend_from_slice(now);
            self.connection.sent(stream, length as u64);
            rest = later;
        }
        if let Some(trailers) = &exchange.trailers {
            let mut block = HeaderBlock::default();
            trailers.iter().for_each(|(name, value)| block.field(name, value));
            self.connection.trailers(stream, &[block.as_bytes()], &mut out).unwrap();
        } else if exchange.content.is_empty() {
            self.connection.data(stream, 0, true, &mut out).unwrap();
        }

        let mut at = 0;
        while at < out.len() {
            let length = (1 + self.random.below(9000)).min(out.len() - at);
            self.wire.send(stream.get(), &out[at..at + length], at + length == out.len());
            at += length;
        }
        self.connection.release(stream);
    }
}

/// The request that the client sends and expects back.
struct Expected {
    fields: HeaderMap,
    content: Vec<u8>,
    trailers: Option<HeaderMap>,
}

async fn exchange(mut client: SendRequest<Opener, Bytes>, expected: Expected, mut random: Random) {
    let mut request = Request::builder().method(Method::POST).uri("https://a.example/b?c").body(()).unwrap();
    *request.headers_mut() = expected.fields.clone();
    let stream = client.send_request(request).await.unwrap();
    let (mut upload, mut download) = stream.split();
    let sending = async {
        let mut rest = Bytes::from(expected.content.clone());
        while !rest.is_empty() {
            let length = (1 + random.below(30_000)).min(rest.len());
            upload.send_data(rest.split_to(length)).await.unwrap();
        }
        if let Some(trailers) = expected.trailers.clone() {
            upload.send_trailers(trailers).await.unwrap();
        }
        upload.finish().await.unwrap();
    };
    let receiving = async {
        let response = download.recv_response().await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(*response.headers(), expected.fields);
        let mut content = Vec::new();
        while let Some(mut piece) = download.recv_data().await.unwrap() {
            content.extend_from_slice(&piece.copy_to_bytes(piece.remaining()));
        }
        assert!(content == expected.content, "{} bytes instead of {}", content.len(), expected.content.len());
        assert_eq!(download.recv_trailers().await.unwrap(), expected.trailers);
    };
    tokio::join!(sending, receiving);
}

async fn converse(seed: u64, requests: usize) {
    let mut random = Random(seed);
    let (wire, transport) = Wire::new();
    let echo = Echo {
        connection: Connection::new(Limits::default()),
        head: HeadBuffer::default(),
        random: random.clone(),
        requests: HashMap::new(),
        wire,
    };
    let mut served = tokio::spawn(echo.serve());
    let (mut driver, client) =
        h3::client::builder().send_grease(seed.is_multiple_of(2)).build::<_, _, Bytes>(transport).await.unwrap();
    let driven = tokio::spawn(async move { std::future::poll_fn(|context| driver.poll_close(context)).await });
    let mut running = Vec::new();
    for _ in 0..requests {
        let trailers = (random.below(4) == 0).then(|| {
            let mut trailers = random.fields();
            trailers.insert("x-sum", HeaderValue::from_static("1"));
            trailers
        });
        let expected = Expected { fields: random.fields(), content: random.bytes(), trailers };
        running.push(tokio::spawn(exchange(client.clone(), expected, Random(random.next() | 1))));
    }
    let exchanged = async {
        for exchange in running {
            exchange.await.unwrap();
        }
    };
    tokio::select! {
        () = exchanged => {}
        ended = &mut served => panic!("the server ended before: {ended:?}"),
    }
    driven.abort();
    drop(client);
    let connection = served.await.unwrap();
    assert!(connection.is_idle());
    assert!(connection.peer_settings().is_some());
}

#[tokio::test]
async fn each_side_understands_the_other() {
    for seed in 1..60 {
        converse(seed, 1 + seed as usize % 12).await;
    }
}
