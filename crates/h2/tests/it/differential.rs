//! The client of the crate `h2` against this server: each side must understand the other in the same way, however the
//! data is split.

use std::collections::HashMap;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use sealion_h2::{Connection, ErrorCode, Event, HeadBuffer, HeaderBlock, Limits, StreamId};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::support::RECORD;

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
        const NAMES: [&str; 8] =
            ["x-a", "accept", "user-agent", "x-long-name-of-a-field", "referer", "if-match", "authorization", "via"];
        let mut fields = HeaderMap::new();
        for _ in 0..self.below(12) {
            let length = if self.below(8) == 0 { self.below(1500) } else { self.below(40) };
            let value: Vec<u8> = (0..length)
                .map(|_| if self.below(20) == 0 { 0x80 + self.below(128) as u8 } else { b'!' + self.below(94) as u8 })
                .collect();
            let name = NAMES[self.below(NAMES.len())];
            fields.append(HeaderName::from_static(name), HeaderValue::from_bytes(&value).unwrap());
        }
        fields
    }

    fn bytes(&mut self) -> Vec<u8> {
        let length = match self.below(4) {
            0 => 0,
            1 => self.below(100),
            2 => self.below(40_000),
            _ => 16_375 * self.below(8),
        };
        let first = self.next() as u8;
        (0..length).map(|at| first.wrapping_add((at % 251) as u8)).collect()
    }
}

/// Responds to each request with its own fields, content and trailers. A request without content gets a response
/// without content.
struct Echo {
    connection: Connection,
    head: HeadBuffer,
    random: Random,
    requests: HashMap<StreamId, Exchange>,
    out: Vec<u8>,
}

#[derive(Default)]
struct Exchange {
    fields: Vec<(String, Vec<u8>)>,
    content: Vec<u8>,
    sent: usize,
    trailers: Option<Vec<(String, Vec<u8>)>>,
}

impl Echo {
    /// Continues to read while the client does not, as a driver must: the client may do the same.
    async fn serve(mut self, io: DuplexStream) -> Connection {
        let (mut reader, mut writer) = tokio::io::split(io);
        let mut piece = vec![0; 20_000];
        loop {
            if self.out.len() < 50_000 {
                self.write();
            }
            let most = if self.random.below(2) == 0 { 1 + self.random.below(30) } else { piece.len() };
            tokio::select! {
                written = writer.write(&self.out), if !self.out.is_empty() => match written {
                    Ok(length) => drop(self.out.drain(..length)),
                    Err(_) => return self.connection,
                },
                length = reader.read(&mut piece[..most]), if self.connection.wants_read() => match length {
                    Ok(length) if length > 0 => self.receive(&piece[..length]),
                    _ => return self.connection,
                },
            }
        }
    }

    fn fields(&self) -> Vec<(String, Vec<u8>)> {
        let owned = |(name, value): (&[u8], &[u8])| (String::from_utf8(name.to_vec()).unwrap(), value.to_vec());
        self.head.fields().iter().map(owned).collect()
    }

    fn receive(&mut self, mut input: &[u8]) {
        while let Some(event) = self.connection.receive(&mut input, &mut self.head).expect("the client keeps the rules")
        {
            match event {
                Event::Request { stream, end } => {
                    let fields = self.fields();
                    self.requests.insert(stream, Exchange { fields, ..Exchange::default() });
                    if end {
                        self.answer(stream);
                    }
                }
                Event::Data { stream, data, end } => {
                    self.connection.consume(stream, data.len());
                    self.requests.get_mut(&stream).unwrap().content.extend_from_slice(data);
                    if end {
                        self.answer(stream);
                    }
                }
                Event::Trailers { stream } => {
                    self.requests.get_mut(&stream).unwrap().trailers = Some(self.fields());
                    self.answer(stream);
                }
                Event::Reset { stream, .. } => {
                    self.requests.remove(&stream);
                    self.connection.release(stream);
                }
                Event::SettingsAcknowledged | Event::WindowOpened { .. } | Event::GoAway { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }

    fn answer(&mut self, stream: StreamId) {
        let exchange = &self.requests[&stream];
        let mut block = HeaderBlock::response(200);
        exchange.fields.iter().for_each(|(name, value)| block.field(name, value));
        let length = exchange.content.len() as u64;
        // A block in two parts, split anywhere.
        let (first, second) = block.as_bytes().split_at(self.random.below(block.as_bytes().len()));
        self.connection.respond(stream, &[first, second], false, &mut self.out).unwrap();
        self.connection.offer(stream, length, exchange.trailers.is_none()).unwrap();
    }

    fn write(&mut self) {
        self.connection.write_control(&mut self.out);
        while let Some(frame) = self.connection.next_frame(10 + self.random.below(2 * RECORD)) {
            let exchange = self.requests.get_mut(&frame.stream).unwrap();
            self.out.extend_from_slice(&frame.header);
            self.out.extend_from_slice(&exchange.content[exchange.sent..exchange.sent + frame.length]);
            exchange.sent += frame.length;
            if frame.end {
                self.requests.remove(&frame.stream);
                self.connection.release(frame.stream);
            }
        }
        let ended = |exchange: &Exchange| exchange.trailers.is_some() && exchange.sent == exchange.content.len();
        let with_trailers: Vec<_> =
            self.requests.iter().filter(|(_, exchange)| ended(exchange)).map(|(stream, _)| *stream).collect();
        for stream in with_trailers {
            let exchange = self.requests.remove(&stream).unwrap();
            let mut block = HeaderBlock::default();
            exchange.trailers.iter().flatten().for_each(|(name, value)| block.field(name, value));
            self.connection.trailers(stream, &[block.as_bytes()], &mut self.out).unwrap();
            self.connection.release(stream);
        }
        self.connection.write_control(&mut self.out);
    }
}

/// The request that the client sends and expects back.
struct Expected {
    fields: HeaderMap,
    content: Vec<u8>,
    trailers: Option<HeaderMap>,
}

async fn exchange(mut client: h2::client::SendRequest<Bytes>, expected: Expected, mut random: Random) {
    let mut request = Request::builder().method(Method::POST).uri("https://a.example/b?c").body(()).unwrap();
    *request.headers_mut() = expected.fields.clone();
    let ends = expected.content.is_empty() && expected.trailers.is_none();
    std::future::poll_fn(|context| client.poll_ready(context)).await.unwrap();
    let (response, mut upload) = client.send_request(request, ends).unwrap();
    let sending = async {
        let mut rest = Bytes::from(expected.content.clone());
        while !rest.is_empty() {
            upload.reserve_capacity(rest.len());
            // Waits for more capacity, not just for any.
            while upload.capacity() == 0 {
                std::future::poll_fn(|context| upload.poll_capacity(context)).await.unwrap().unwrap();
            }
            let room = upload.capacity();
            let piece = rest.split_to(room.min(1 + random.below(30_000)).min(rest.len()));
            upload.send_data(piece, rest.is_empty() && expected.trailers.is_none()).unwrap();
        }
        if let Some(trailers) = expected.trailers.clone() {
            upload.send_trailers(trailers).unwrap();
        }
    };
    let receiving = async {
        let (head, mut body) = response.await.unwrap().into_parts();
        assert_eq!(head.headers, expected.fields);
        let mut content = Vec::new();
        while let Some(piece) = body.data().await {
            let piece = piece.unwrap();
            content.extend_from_slice(&piece);
            body.flow_control().release_capacity(piece.len()).unwrap();
        }
        assert!(content == expected.content, "{} bytes instead of {}", content.len(), expected.content.len());
        assert_eq!(body.trailers().await.unwrap(), expected.trailers);
    };
    tokio::join!(sending, receiving);
}

async fn converse(seed: u64, requests: usize) {
    let mut random = Random(seed);
    let (ours, theirs) = tokio::io::duplex(1 + random.below(100_000));
    let echo = Echo {
        connection: Connection::new(Limits {
            connection_window: 65_535 + random.below(100_000) as u32,
            ..Limits::default()
        }),
        head: HeadBuffer::default(),
        random: random.clone(),
        requests: HashMap::new(),
        out: Vec::new(),
    };
    let window = 1 + random.below(200_000) as u32;
    let mut builder = h2::client::Builder::new();
    builder
        .initial_window_size(window)
        .initial_connection_window_size(window.max(65_535))
        .max_frame_size(16_384 + random.below(50_000) as u32);
    let served = tokio::spawn(echo.serve(ours));
    let (client, connection) = builder.handshake::<_, Bytes>(theirs).await.unwrap();
    let driven = tokio::spawn(connection);
    let mut running = Vec::new();
    for _ in 0..requests {
        let trailers = (random.below(4) == 0).then(|| {
            let mut trailers = random.fields();
            trailers.insert("x-sum", HeaderValue::from_static("1"));
            trailers
        });
        let expected = Expected { fields: random.fields(), content: random.bytes(), trailers };
        let one = Random(random.next() | 1);
        running.push(tokio::spawn(exchange(client.clone(), expected, one)));
        if running.len() > random.below(20) {
            for task in running.drain(..) {
                task.await.unwrap();
            }
        }
    }
    for task in running {
        task.await.unwrap();
    }
    drop(client);
    driven.await.unwrap().unwrap();
    let connection = served.await.unwrap();
    assert!(connection.is_idle(), "every slot is given back");
}

#[test]
fn what_is_said_is_understood_in_both_directions() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for seed in 1..=40 {
        runtime.block_on(converse(seed * 0x9e37_79b9, 30));
    }
}

/// The client's reset and GOAWAY, as written by the other implementation.
#[test]
fn a_dropped_response_is_a_reset() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let (mut ours, theirs) = tokio::io::duplex(100_000);
        let (mut client, connection) = h2::client::handshake(theirs).await.unwrap();
        let driven = tokio::spawn(connection);
        let (response, _) = client.send_request(Request::get("https://a.example/").body(()).unwrap(), true).unwrap();
        let (mut connection, mut head) = (Connection::new(Limits::default()), HeadBuffer::default());
        let mut seen = Vec::new();
        let mut response = Some(response);
        let mut client = Some(client);
        let mut bytes = vec![0; 10_000];
        loop {
            let length = ours.read(&mut bytes).await.unwrap();
            if length == 0 {
                break;
            }
            let mut input = &bytes[..length];
            while let Some(event) = connection.receive(&mut input, &mut head).unwrap() {
                match event {
                    Event::Request { .. } => drop(response.take()),
                    Event::Reset { stream, code, .. } => {
                        seen.push(code);
                        connection.release(stream);
                        client.take();
                    }
                    Event::GoAway { code } => seen.push(code),
                    _ => {}
                }
            }
            let mut out = Vec::new();
            connection.write_control(&mut out);
            ours.write_all(&out).await.unwrap();
        }
        assert_eq!(seen, [ErrorCode::CANCEL, ErrorCode::NO_ERROR]);
        driven.await.unwrap().unwrap();
    });
}
