//! HTTP/2 clients that take nothing: each connection holds its streams, over files, proxied responses and idle tunnels.
//! Other clients do not notice, and in the end the streams deliver the correct content.

use std::collections::BTreeSet;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::thread;
use std::time::Instant;

use sealion_testkit::http;
use sealion_testkit::http2::{
    DATA, END_STREAM, Ended, Got, Http2, INITIAL_WINDOW_SIZE, PING, block, frame, headers, settings_frame,
    window_update,
};
use sealion_testkit::random::Random;
use sealion_testkit::upstream::{Accepted, Received, Upstream, ok};
use sealion_testkit::websocket::{connect_block, switch};
use sealion_testkit::{Client, Connector, Fault, content};

use super::files::{self, failed};
use super::world::{Config, Place, World, log, upstream};
use super::{Outcome, joined, watch};

const CONNECTIONS: usize = 12;

/// The limit of the server (`http2.max_streams`).
const STREAMS: usize = 128;

/// Fewer than all streams together would take.
const DESCRIPTORS: u32 = 1500;

/// A response of a stalled stream.
const LENGTH: u64 = 400_000;

/// Memory that each stalled connection may add, and the server itself meanwhile.
const OF_A_CONNECTION: u64 = 2 << 20;
const OF_THE_SERVER: u64 = 16 << 20;

/// The work that the streams of a wave hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Over {
    Files,
    Proxied,
    Tunnels,
}

pub(super) fn round(world: &World, until: Instant) -> Outcome {
    let place = Place::new()?;
    files::make(&place.path("root"));
    content::write(&place.path("root/stalled"), LENGTH);
    let app = Upstream::start(serve);
    let config = Config {
        // Each client has an address of its own.
        listen: "proxy_protocol = true\ntrusted_proxies = ['127.0.0.0/8']",
        site: "route = [{ path = '/up/', proxy = { to = 'app' } }]",
        tables: upstream(&app.url()),
        descriptors: Some(DESCRIPTORS),
    };
    let server = world.start(&place, &config)?;
    let stage = Stage { world, connector: world.connector(), address: server.address(), pid: server.pid() };
    // A fault of one kind does not hide the others.
    let first = Random::new().below(3);
    let outcome = stage.honest().and_then(|()| {
        for over in [Over::Files, Over::Proxied, Over::Tunnels].into_iter().cycle().skip(first) {
            stage.wave(over)?;
            if Instant::now() > until {
                break;
            }
        }
        Ok(())
    });
    outcome.map_err(|fault| fault.with(&log(&server)))
}

/// The upstream: bodies of one length, and tunnels that echo.
fn serve(accepted: &mut Accepted) {
    while let Some(head) = accepted.head() {
        let request = Received { head, body: Vec::new() };
        if request.all("upgrade").is_empty() {
            accepted.write(&ok(&content::bytes(0..LENGTH)));
            continue;
        }
        accepted.write(switch(&request).as_bytes());
        while let Some(byte) = accepted.read(1) {
            accepted.write(&byte);
        }
        return;
    }
}

/// The server, as its clients see it.
struct Stage<'a> {
    world: &'a World,
    connector: Connector,
    address: SocketAddr,
    pid: u32,
}

impl Stage<'_> {
    /// A connection of the client with this address.
    fn connect(&self, connector: &Connector, client: &str) -> io::Result<Client> {
        let mut io = connector.open(self.address)?;
        io.write_all(format!("PROXY TCP4 {client} 192.0.2.1 8080 443\r\n").as_bytes())?;
        connector.handshake(io)
    }

    /// Stalls connections while other clients send requests. Then half of the connections leave, and the others take
    /// their responses.
    fn wave(&self, over: Over) -> Outcome {
        let before = watch::memory(self.pid);
        let stalled: Vec<Http2> = thread::scope(|scope| {
            let stall = |n| scope.spawn(move || self.stall(n, over));
            let threads: Vec<_> = (0..CONNECTIONS).map(stall).collect();
            // The server may refuse a connection rather than others.
            threads.into_iter().filter_map(|thread| thread.join().ok()?.ok()).collect()
        });
        self.honest()
            .map_err(|fault| fault.with(&format!(" ({} connections stalled over {over:?})", stalled.len())))?;
        let grown = watch::memory(self.pid).saturating_sub(before);
        let most = OF_A_CONNECTION * stalled.len() as u64 + OF_THE_SERVER;
        if grown > most {
            let text = format!("{} connections stalled over {over:?} take {} MiB", stalled.len(), grown >> 20);
            return Err(Fault::Broken(text));
        }
        let stay: Vec<Http2> = stalled.into_iter().step_by(2).collect();
        thread::scope(|scope| {
            let take = |http| scope.spawn(move || self.take(http, over));
            let threads: Vec<_> = stay.into_iter().map(take).collect();
            threads.into_iter().map(joined).collect::<Result<Vec<()>, Fault>>().map(drop)
        })
    }

    /// A connection whose streams have no window, once the server has read all requests.
    fn stall(&self, number: usize, over: Over) -> io::Result<Http2> {
        let connector = self.connector.clone().alpn(&[b"h2"]);
        let mut http = Http2::over(self.connect(&connector, &format!("198.51.100.{}", number + 1))?);
        http.credit = 0;
        http.greet(&[(INITIAL_WINDOW_SIZE, 0)])?;
        // A tunnel may be requested once the server has said so (RFC 8441 §3).
        while http.settings.is_empty() {
            http.read()?;
        }
        let block = match over {
            Over::Files => block("GET", "/stalled", &[]),
            Over::Proxied => block("GET", "/up/stalled", &[]),
            Over::Tunnels => connect_block("/up/tunnel", "websocket", &[]),
        };
        let mut frames = Vec::new();
        for _ in 0..STREAMS {
            let stream = http.stream();
            http.streams.insert(stream, Got::default());
            frames.extend(headers(stream, over != Over::Tunnels, &block));
        }
        frames.extend(frame(PING, 0, 0, b"stalled!"));
        http.client.send(&frames)?;
        while http.pongs == 0 {
            http.read()?;
        }
        Ok(http)
    }

    /// Opens all windows and verifies each stream. A stream may be refused or reset.
    fn take(&self, mut http: Http2, over: Over) -> Outcome {
        let opened = [settings_frame(&[(INITIAL_WINDOW_SIZE, 1 << 20)]), window_update(0, 1 << 30)].concat();
        let mut broken = http.client.send(&opened).err();
        let mut said = BTreeSet::new();
        while broken.is_none() && http.streams.values().any(|got| got.ended.is_none()) {
            let next = match over {
                Over::Tunnels => say(&mut http, &mut said),
                Over::Files | Over::Proxied => Ok(()),
            };
            broken = next.and_then(|()| http.read()).err();
        }
        if let Some(error) = &broken
            && matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut)
        {
            let open = http.streams.values().filter(|got| got.ended.is_none()).count();
            return Err(Fault::Failed(format!("{open} streams over {over:?} got nothing with open windows: {error}")));
        }
        http.streams.iter().try_for_each(|(stream, got)| self.judge(over, *stream, got))
    }

    fn judge(&self, over: Over, stream: u32, got: &Got) -> Outcome {
        let figures = &self.world.figures;
        let expected = match over {
            Over::Files | Over::Proxied => content::bytes(0..LENGTH),
            Over::Tunnels => word(stream),
        };
        match (got.ended, got.status) {
            (Some(Ended::Whole), 200) if got.body == expected => figures.verified(got.body.len()),
            (Some(Ended::Whole), 200) => {
                let came = got.body.len();
                return Err(Fault::Wrong(format!(
                    "stream {stream} over {over:?}: {came} bytes that are not its content"
                )));
            }
            // Refused.
            (Some(Ended::Whole), 503) => figures.requests.add(1),
            (Some(Ended::Whole), status) => {
                return Err(Fault::Failed(format!("stream {stream} over {over:?}: status {status}")));
            }
            (Some(Ended::Reset(_)) | None, _) => figures.cuts.add(1),
        }
        Ok(())
    }

    /// Another client: each of its requests has to succeed.
    fn honest(&self) -> Outcome {
        for n in 0..5 {
            let connected = self.connect(&self.connector, "203.0.113.9");
            let mut client = connected.map_err(|error| failed("a connection of another client", &error))?;
            for length in files::LENGTHS {
                files::ask(&self.world.figures, &mut client, length)?;
            }
            let target = format!("/up/{n}");
            let response = http::get(&mut client, &target).map_err(|error| failed(&target, &error))?;
            files::check(&target, &response, LENGTH)?;
            self.world.figures.verified(response.body.len());
        }
        Ok(())
    }
}

/// Says a word in each tunnel that has opened meanwhile, and ends that direction.
fn say(http: &mut Http2, said: &mut BTreeSet<u32>) -> io::Result<()> {
    let is_open = |got: &Got| got.status == 200 && got.ended.is_none();
    let open: Vec<u32> = http.streams.iter().filter(|(_, got)| is_open(got)).map(|(stream, _)| *stream).collect();
    let mut frames = Vec::new();
    for stream in open.into_iter().filter(|stream| said.insert(*stream)) {
        frames.extend(frame(DATA, END_STREAM, stream, &word(stream)));
    }
    if frames.is_empty() { Ok(()) } else { http.client.send(&frames) }
}

fn word(stream: u32) -> Vec<u8> {
    format!("soak {stream}").into_bytes()
}
