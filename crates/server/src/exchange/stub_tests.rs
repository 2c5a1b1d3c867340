//! A driver without a protocol answers requests from memory, only by the two seams.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::time::Duration;

use sealion_http::http1::head::{HeadLimits, RequestHead, find};
use sealion_ktls::probe;
use sealion_tls::record::Aead;
use sealion_tls::{HandshakeInfo, MoveError, Part, SealedBy};
use tokio::sync::{Semaphore, oneshot, watch};
use tokio_util::task::TaskTracker;

use super::*;
use crate::certificates::TlsProcess;
use crate::config::Config;
use crate::limits::{IdleConnections, PacingRate, StreamPlaces};
use crate::observe::Warnings;
use crate::observe::access_log::{AccessLogPlans, AccessLogs, SiteLogs, Writers};
use crate::observe::metrics::Metrics;
use crate::passing::{Driver, Files, Line, UnderWay};
use crate::path::costs::Costs;
use crate::path::offer::KernelOffer;
use crate::process;
use crate::response::{Cursor, Piece, Segment};
use crate::upstream::InterimReceiver;
use crate::values::{Phase, Problems};

/// A connection, and the stream of its request. Sent bytes stay in memory.
#[derive(Default)]
struct Memory {
    sent: Vec<u8>,
    here: Option<oneshot::Sender<()>>,
}

impl Connection for Memory {
    fn tls(&self) -> Option<&HandshakeInfo> {
        None
    }

    fn aead(&self) -> Option<Aead> {
        None
    }

    fn path(&self) -> SealedBy {
        SealedBy::Nobody
    }

    fn local_address(&self) -> Option<SocketAddr> {
        None
    }

    fn is_tcp(&self) -> bool {
        false
    }

    fn pace(&self, _: PacingRate) {}

    fn has_undelivered(&self) -> bool {
        false
    }

    fn sent(&self) -> u64 {
        self.sent.len() as u64
    }

    async fn offload(&mut self, _: u64) -> Result<Duration, MoveError> {
        Err(MoveError::NoTls)
    }
}

impl Stream for Memory {
    fn connection(&self) -> &impl Connection {
        self
    }

    fn has_content(&self) -> bool {
        false
    }

    fn is_connect(&self) -> bool {
        false
    }

    fn takes_interim(&self) -> bool {
        true
    }

    fn interim(&mut self, interim: &Interim) {
        self.sent.extend_from_slice(&[b"103 ", interim.fields.lines()].concat());
    }

    fn attach(&mut self, inbound: Inbound, _: Awaited, _: Option<InterimReceiver>) -> Inbound {
        let (here, gone) = oneshot::channel();
        self.here = Some(here);
        Inbound { gone: Some(gone), ..inbound }
    }
}

impl Memory {
    fn put(&mut self, part: Part<'_>) {
        match part {
            Part::Bytes(bytes) => self.sent.extend_from_slice(bytes),
            Part::File { file, range } => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                std::os::unix::fs::FileExt::read_exact_at(file, &mut bytes, range.start).unwrap();
                self.sent.extend_from_slice(&bytes);
            }
        }
    }
}

/// Answers one request, whose head is `text`. Returns the status and the content that were sent.
async fn serve(context: &Context<'_>, text: &str) -> String {
    let span = find(text.as_bytes(), &HeadLimits::default()).unwrap().unwrap();
    let head = RequestHead::parse(text.as_bytes(), span).unwrap();
    let (current, now, mut stream) = (context.shared.generations.current(), now(), Memory::default());
    let peer = context.peer(head.request.fields, Protocol::Http2);
    let mut exchange = Exchange::begin(context, &current, peer, Some(&head.request));
    exchange.admit(&mut Permit::default(), &stream);
    let mut response = match exchange.answer_at_once(&stream, now) {
        Some(response) => response,
        None => {
            let inbound = exchange.inbound(&mut stream, now);
            *exchange.answer(inbound, now).await
        }
    };
    let framing = exchange.answered(&mut response);
    let mut choice = PathChoice::default();
    choice.make(&mut stream, 0, exchange.path_policy()).await.unwrap();
    stream.put(Part::Bytes(format!("{} ", response.status).as_bytes()));
    let before = stream.sent();
    let mut content = Cursor::new(std::mem::replace(&mut response.body, Body::Empty));
    if framing.has_content() {
        content.segments().map(Segment::part).for_each(|part| stream.put(part));
        while let Some(piece) = poll_fn(|cx| content.poll_source(cx)).await.unwrap() {
            match piece {
                Piece::Bytes(bytes) => stream.put(Part::Bytes(&bytes)),
                Piece::File { file, range } => stream.put(file.part(&range)),
            }
        }
    }
    let body = stream.sent() - before;
    let outcome = Outcome::of(&response, (body, stream.sent()), stream.path(), &choice, None);
    exchange.finish(None, &outcome);
    exchange.finish(None, &outcome);
    String::from_utf8(stream.sent).unwrap()
}

/// A site of `directory`, with its log there too. `site`: further keys of it.
fn shared(directory: &Path, site: &str) -> (Shared, Writers, watch::Sender<Phase>) {
    let text = format!(
        "[access_log]\nto = \"{0}/log\"\n[[listen]]\naddress = \"127.0.0.1:1\"\ntls = false\nplain = \"serve\"\n\
         [[site]]\nroot = \"{0}/root\"\n{site}\n",
        directory.display()
    );
    let (config, problems) = Config::parse(&directory.join("sealion.toml"), &text).unwrap();
    let logs = SiteLogs::new(&config.access_log, config.site_logs(), &mut Problems::of_arguments());
    let plans = AccessLogPlans::new(&config.access_log, &logs, false, &problems);
    let tls = TlsProcess::new(None).unwrap();
    let generation =
        process::build(&config, problems, &tls, false, None).unwrap_or_else(|problems| panic!("{problems}"));
    let (phase, receiver) = watch::channel(Phase::Serving);
    let (access_log, writers) = AccessLogs::open(&plans).unwrap();
    let shared = Shared {
        generations: Generations::new(generation),
        tls,
        kernel: Arc::new(KernelOffer::new(probe::probe())),
        costs: Costs::shipped("a test".into()),
        access_log,
        metrics: Metrics::new(false),
        tracer: None,
        slots: Arc::new(Semaphore::new(1)),
        streams: StreamPlaces::new(0),
        ahead: Arc::default(),
        addresses: Arc::default(),
        idle: IdleConnections::default(),
        most_connections: 1,
        phase: receiver,
        giver: std::sync::OnceLock::new(),
        proxies_refused: AtomicU64::new(0),
        certificates_refused: Warnings::default(),
        cut: AtomicUsize::new(0),
        predecessors: Arc::default(),
        busy: TaskTracker::new(),
    };
    (shared, writers, phase)
}

/// Has `requests` use a connection of a site with these keys. Returns the lines of the access log.
fn with_context(site: &str, requests: impl AsyncFnOnce(&Context<'_>)) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    std::fs::create_dir(directory.path().join("root")).unwrap();
    std::fs::write(directory.path().join("root/letters.txt"), "abcdefghijklmnopqrstuvwxyz").unwrap();
    let (shared, writers, _phase) = shared(directory.path(), site);
    let listener = Listener {
        place: 0,
        name: "stub".into(),
        to_https: None,
        forwarding: None,
        is_tls: false,
        has_proxy_protocol: false,
        scheme: Scheme::Https,
        alternative: None,
    };
    let remote = "192.0.2.7:4711".parse().unwrap();
    let context = Context { shared: &shared, listener: &listener, remote, auth: None, server_name: None };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(requests(&context));
    writers.finish();
    let log = std::fs::read_to_string(directory.path().join("log")).unwrap();
    log.lines().map(str::to_owned).collect()
}

#[test]
fn a_stub_of_a_protocol_answers_requests_by_the_two_seams() {
    for site in ["", "limits = { site_bandwidth = \"1GB\" }"] {
        let lines = with_context(site, async |context| {
            let letters = "GET /letters.txt HTTP/1.1\r\nHost: a\r\n";
            for (fields, expected) in [
                ("", "200 abcdefghijklmnopqrstuvwxyz"),
                // From the cache of files.
                ("", "200 abcdefghijklmnopqrstuvwxyz"),
                ("Range: bytes=2-4\r\n", "206 cde"),
            ] {
                assert_eq!(serve(context, &format!("{letters}{fields}\r\n")).await, expected, "{site}");
            }
            let none = "HEAD /none HTTP/1.1\r\nHost: a\r\n\r\n";
            assert_eq!(serve(context, none).await, "404 ", "{site}");
        });
        let has = |line: &String, what: &str| line.contains(what);
        assert_eq!(lines.len(), 4, "a line each: {lines:?}");
        assert!(has(&lines[0], "status=200") && has(&lines[0], "bytes=26"), "{lines:?}");
        assert!(has(&lines[2], "status=206") && has(&lines[3], "status=404"), "{lines:?}");
    }
}

#[test]
fn early_hints_go_before_a_response_that_has_to_be_waited_for() {
    let hints = "early_hints = [\"</a.css>; rel=preload\"]";
    with_context(hints, async |context| {
        let request = "GET /none.txt HTTP/1.1\r\nHost: a\r\nSec-Fetch-Mode: navigate\r\n\r\n";
        assert_eq!(serve(context, request).await, "103 Link: </a.css>; rel=preload\r\n404 404 Not Found\n");
    });
}

#[test]
fn a_request_that_is_dropped_has_a_line_and_one_that_is_abandoned_has_none() {
    let lines = with_context("", async |context| {
        let text = b"GET /letters.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        let span = find(text, &HeadLimits::default()).unwrap().unwrap();
        let head = RequestHead::parse(text, span).unwrap();
        let current = context.shared.generations.current();
        let peer = context.peer(head.request.fields, Protocol::Http2);
        let begin = || Exchange::begin(context, &current, peer, Some(&head.request));
        drop(begin());
        drop(begin().park());
        begin().abandon();
    });
    assert_eq!(lines.len(), 2, "{lines:?}");
    assert!(lines[0].contains("letters.txt") && lines.iter().all(|line| line.contains("status=503")), "{lines:?}");
    assert!(lines.iter().all(|line| line.contains("the time of grace ended")), "{lines:?}");
}

#[test]
fn exchanges_of_a_connection_that_is_lost_on_its_way_have_their_lines() {
    let lines = with_context("", async |context| {
        let text = b"GET /letters.txt HTTP/1.1\r\nHost: a\r\n\r\n";
        let line = Line { status: 200, counts: (100, 40), ..Line::awaited(Some(Instant::now())) };
        let under_way = UnderWay {
            request: text.to_vec(),
            persists: true,
            line,
            rest: Vec::new(),
            relayed: None,
            files: Files::default(),
        };
        let lost = LostConnection { context, tls: None, path: SealedBy::Nobody, sent: 150 };
        lost.finish(Driver::Http1(Some(Box::new(under_way))));
        lost.finish(Driver::Http1(None));
    });
    assert_eq!(lines.len(), 1, "{lines:?}");
    for part in ["letters.txt", "status=200", "bytes=10", "the connection was lost on its way to another process"] {
        assert!(lines[0].contains(part), "{part}: {lines:?}");
    }
}
