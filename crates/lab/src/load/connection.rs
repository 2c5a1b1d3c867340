//! A client's TLS connection: requests out, responses in.

use std::cell::RefCell;
use std::sync::Arc;
use std::time::Instant;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sealion_client::Established;
use sealion_tls::AlertDescription;
use sealion_tls::record::{ContentType, MAX_PLAINTEXT, Sealer};

use super::Protocol;
use super::failure::{Failure, Kind};
use super::handshake::shake_hands;
use super::http2::Answered;
use super::receiving::{Done, Reading, Receiving, Want};
use super::requests::Requests;
use super::socket::Socket;

/// State shared by all connections of a thread.
pub(super) struct Common {
    pub(super) address: std::net::SocketAddr,
    pub(super) name: ServerName<'static>,
    pub(super) config: Arc<ClientConfig>,
    pub(super) requests: RefCell<Requests>,
    pub(super) protocol: Protocol,
    /// The configuration of QUIC, for HTTP/3.
    pub(super) quic: Option<quinn::ClientConfig>,
    pub(super) reading: Reading,
    /// The thread's receive buffer; its content does not outlive a read.
    pub(super) buffer: RefCell<Vec<u8>>,
}

impl Common {
    fn is_http2(&self) -> bool {
        matches!(self.protocol, Protocol::Http2 { .. })
    }
}

/// Bytes of a thread's buffer: sixteen records, less than a core's second-level cache.
pub(super) const BUFFER: usize = 256 << 10;

pub(super) struct Connection {
    socket: Socket,
    sealer: Sealer,
    receiving: Receiving,
    outgoing: Vec<u8>,
}

/// Times and results of opening a connection.
pub(super) struct Opening {
    pub(super) begun: Instant,
    /// The end of the TCP connect; `None`: QUIC has none.
    pub(super) connected: Option<Instant>,
    pub(super) established: Instant,
    pub(super) resumed: bool,
    /// Version and suite by their IANA names.
    pub(super) suite: String,
}

/// A response with its times.
pub(super) struct Answer {
    pub(super) done: Done,
    pub(super) sent: Instant,
    pub(super) begun: Instant,
    /// The time of the first body byte, if bodies are opened.
    pub(super) body_began: Option<Instant>,
    pub(super) ended: Instant,
}

impl Connection {
    pub(super) async fn open(common: &Common) -> Result<(Self, Opening), Failure> {
        let begun = Instant::now();
        let socket = Socket::connect(common.address);
        let socket =
            socket.await.map_err(|e| Failure::io(Kind::Connect, &format!("connect to {}", common.address), &e))?;
        let connected = Instant::now();
        let shaken = shake_hands(&socket, common.config.clone(), common.name.clone()).await?;
        let established = Instant::now();
        let Established { version, suite, resumed, secrets, schedule, incoming, .. } = shaken;
        let keys = |(sequence, secrets)| match sealion_tls::traffic_keys(version, &secrets) {
            Ok(keys) => Ok((keys, sequence)),
            Err(error) => Err(Failure::new(Kind::Handshake, error)),
        };
        let (tx, rx) = (keys(secrets.tx)?, keys(secrets.rx)?);
        let suite = format!("TLSv1.{} {}", version as usize + 2, suite.replace("TLS13_", "TLS_"));
        let mut connection = Self {
            socket,
            sealer: Sealer::new(tx.0, tx.1, u64::MAX),
            receiving: Receiving::new(version, (&rx.0, rx.1), schedule, common.reading.clone(), incoming),
            outgoing: Vec::new(),
        };
        if common.is_http2() {
            connection.receiving.multiplex();
        }
        Ok((connection, Opening { begun, connected: Some(connected), established, resumed, suite }))
    }

    /// The failure if the connection ends now; `how` describes the end.
    pub(super) fn lost(&mut self, how: &str) -> Failure {
        self.receiving.lost(how)
    }

    /// Whether the connection cannot carry another request.
    pub(super) fn ended(&self) -> bool {
        self.receiving.ended()
    }

    pub(super) async fn request(&mut self, common: &Common) -> Result<Answer, Failure> {
        if common.is_http2() {
            self.ask(common, Instant::now());
            return loop {
                if let Some((answer, _)) = self.answers(common).await?.pop() {
                    break Ok(answer);
                }
            };
        }
        self.renew_keys();
        self.seal(ContentType::ApplicationData, common.requests.borrow_mut().next());
        self.receiving.expect();
        self.socket.send(&self.outgoing).await.map_err(|e| Failure::io(Kind::Io, "send", &e))?;
        self.outgoing.clear();
        let sent = Instant::now();
        let mut begun = None;
        let mut body_began = None;
        let mut steps = 0u64;
        loop {
            steps += 1;
            if steps.is_multiple_of(STEPS) {
                tokio::task::yield_now().await;
            }
            let step = self.step(&mut common.buffer.borrow_mut())?;
            match step {
                Step::Done(done) => {
                    let ended = Instant::now();
                    let (begun, opened) = (begun.unwrap_or(ended), self.receiving.opens_bodies());
                    let body_began = opened.then(|| body_began.unwrap_or(ended));
                    return Ok(Answer { done, sent, begun, body_began, ended });
                }
                Step::More => {
                    if begun.is_none() && self.receiving.begun() {
                        begun = Some(Instant::now());
                    }
                    if body_began.is_none() && self.receiving.body_began() {
                        body_began = Some(Instant::now());
                    }
                }
                Step::Empty => self.socket.readable().await.map_err(|e| Failure::io(Kind::Io, "receive", &e))?,
            }
        }
    }

    /// Puts a request on a new stream; [`Self::answers`] sends it. `due`: its intended start.
    pub(super) fn ask(&mut self, common: &Common, due: Instant) {
        if let Some(frames) = self.receiving.frames() {
            common.requests.borrow_mut().ask(frames, due);
        }
    }

    /// The number of requests made by [`Self::ask`] without a complete response.
    pub(super) fn open_streams(&mut self) -> usize {
        self.receiving.frames().map_or(0, |frames| frames.open())
    }

    /// Sends pending frames and waits for responses. Returns them with their intended starts.
    pub(super) async fn answers(&mut self, common: &Common) -> Result<Vec<(Answer, Instant)>, Failure> {
        let mut steps = 0u64;
        loop {
            self.renew_keys();
            let frames = self.receiving.frames().map(|frames| (frames.take_answered(), frames.take_outgoing()));
            let (answered, outgoing) = frames.unwrap_or_default();
            if !outgoing.is_empty() {
                for record in outgoing.chunks(MAX_PLAINTEXT) {
                    self.seal(ContentType::ApplicationData, record);
                }
                self.socket.send(&self.outgoing).await.map_err(|e| Failure::io(Kind::Io, "send", &e))?;
                self.outgoing.clear();
            }
            if !answered.is_empty() {
                let ended = Instant::now();
                let opened = self.receiving.opens_bodies();
                let answer = |Answered { due, sent, begun, body_began, done }| {
                    let body_began = opened.then(|| body_began.unwrap_or(ended));
                    (Answer { done, sent, begun, body_began, ended }, due)
                };
                return Ok(answered.into_iter().map(answer).collect());
            }
            steps += 1;
            if steps.is_multiple_of(STEPS) {
                tokio::task::yield_now().await;
            }
            let step = self.step(&mut common.buffer.borrow_mut())?;
            if let Step::Empty = step {
                self.socket.readable().await.map_err(|e| Failure::io(Kind::Io, "receive", &e))?;
            }
        }
    }

    /// Sends `close_notify` if the socket accepts it at once, and closes.
    pub(super) fn close(mut self) {
        if !self.receiving.ended() {
            self.seal(ContentType::Alert, &AlertDescription::CLOSE_NOTIFY.to_wire());
            self.socket.send_now(&self.outgoing);
        }
    }

    /// Reads once and processes the records received.
    fn step(&mut self, buffer: &mut [u8]) -> Result<Step, Failure> {
        let receiving = &mut self.receiving;
        let at = receiving.carried();
        let want = receiving.want();
        let came = match want {
            Want::Bytes => self.socket.receive(&mut buffer[at..]),
            Want::Header(bytes) => self.socket.receive(&mut buffer[at..at + bytes]),
            Want::Discard(bytes) => self.socket.discard(&mut buffer[..bytes]),
        };
        let done = match came.map_err(|e| receiving.lost(&e.to_string()))? {
            None => return Ok(Step::Empty),
            Some(0) => return Err(receiving.end()),
            Some(came) if matches!(want, Want::Discard(_)) => receiving.discarded(came)?,
            Some(came) => receiving.receive(&mut buffer[..at + came])?,
        };
        Ok(done.map_or(Step::More, Step::Done))
    }

    fn renew_keys(&mut self) {
        if let Some((keys, sequence)) = self.receiving.take_new_keys() {
            // RFC 8446 §4.6.3: an update that requests none in return, under the old keys.
            self.seal(ContentType::Handshake, &[24, 0, 0, 1, 0]);
            self.sealer = Sealer::new(keys, sequence, u64::MAX);
        }
    }

    fn seal(&mut self, content_type: ContentType, payload: &[u8]) {
        let at = self.outgoing.len();
        self.outgoing.resize(at + self.sealer.sealed_len(payload.len()), 0);
        let record = &mut self.outgoing[at..];
        let prefix = self.sealer.prefix_len();
        record[prefix..prefix + payload.len()].copy_from_slice(payload);
        self.sealer.seal(content_type, record).expect("this key has no limit");
    }
}

/// The number of reads before the thread's other clients get a turn, about a tenth of a millisecond: a server may send
/// a large body as fast as it is read.
const STEPS: u64 = 32;

enum Step {
    Done(Done),
    More,
    /// The socket has no data.
    Empty,
}
