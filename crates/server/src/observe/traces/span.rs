//! A span, from its identifiers to the data to send.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sealion_http::{Method, Request, Target};
use tokio::sync::mpsc::{Receiver, Sender, channel};

use super::{Ended, parse_traceparent};
use crate::values::random_bits;

/// The number of spans that may wait to be sent. More are dropped and counted.
const QUEUE: usize = 2048;

/// The maximum length of an attribute that a client chooses. Longer values are cut.
const MAX_ATTRIBUTE: usize = 1024;

/// The flag of traceparent that tells later servers that the spans of a trace are recorded.
const SAMPLED: u8 = 1;

/// The bits of a trace that decide whether it is sampled: the random bits by level 2 of Trace Context.
const RANDOM_BITS: u64 = (1 << 56) - 1;

/// Creates the spans of requests.
#[derive(Debug)]
pub(crate) struct Tracer {
    /// The trace is sampled if its random bits are below this.
    below: u64,
    queue: Sender<Finished>,
}

/// Spans to send.
pub(crate) type Spans = Receiver<Finished>;

/// The identifiers of a request's span.
#[derive(Debug)]
pub(crate) struct Span {
    pub(crate) trace: u128,
    pub(crate) id: u64,
    /// The span of a trusted proxy, the parent of this span.
    pub(crate) parent: Option<u64>,
    is_sampled: bool,
    pub(crate) scheme: &'static str,
}

/// A span that has ended.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) span: Arc<Span>,
    pub(crate) start: SystemTime,
    pub(crate) took: Duration,
    /// `None`: the method is not registered.
    pub(crate) method: Option<&'static str>,
    pub(crate) original_method: Option<Box<str>>,
    pub(crate) path: Box<str>,
    /// The server's name and port, as sent by the client.
    pub(crate) authority: Option<Box<str>>,
    pub(crate) user_agent: Option<Box<str>>,
    /// The HTTP version.
    pub(crate) version: &'static str,
    pub(crate) client: std::net::SocketAddr,
    pub(crate) status: u16,
    pub(crate) upstream: Option<Box<str>>,
    pub(crate) aborted: Option<Box<str>>,
}

impl Tracer {
    /// A tracer that samples this share of new traces, and the receiving end of its queue.
    pub(crate) fn new(share: f64) -> (Self, Spans) {
        let (queue, spans) = channel(QUEUE);
        (Tracer { below: (share * (RANDOM_BITS + 1) as f64) as u64, queue }, spans)
    }

    /// Begins the span of a request. `is_trusted`: its trace and sampling decision, if any, come from a trusted proxy.
    /// `None`: the system provides no random numbers.
    pub(crate) fn begin(&self, request: &Request<'_>, is_trusted: bool, scheme: &'static str) -> Option<Span> {
        let bits = random_bits()?;
        let mut given = request.fields.all("traceparent").filter(|_| is_trusted);
        let parent = match (given.next(), given.next()) {
            (Some(one), None) => parse_traceparent(one),
            _ => None,
        };
        let random = u128::from_be_bytes(bits);
        let span = match parent {
            Some((trace, parent, flags)) => {
                let is_sampled = flags & SAMPLED != 0;
                Span { trace, id: random as u64, parent: Some(parent), is_sampled, scheme }
            }
            None => {
                let is_sampled = (random as u64) & RANDOM_BITS < self.below;
                let id = u64::from_be_bytes(*random_bits()?.first_chunk()?);
                Span { trace: random, id, parent: None, is_sampled, scheme }
            }
        };
        // Both zero values mean "none".
        (span.trace != 0 && span.id != 0).then_some(span)
    }

    /// Queues a span for sending. `false`: it is dropped, because the queue is full.
    pub(crate) fn end(&self, span: &Arc<Span>, ended: &Ended<'_>) -> bool {
        let Ended { request, protocol, client, status, took, upstream, aborted } = *ended;
        // Reserves a place first, so that no copy is wasted.
        let Ok(place) = self.queue.try_reserve() else { return false };
        let (method, original_method) = match request.method {
            Method::Get => (Some("GET"), None),
            Method::Head => (Some("HEAD"), None),
            Method::Other(token) => (Some(token), None),
            Method::Unknown(token) => (None, Some(cut(token))),
        };
        let path = match request.target {
            Target::Path { path, .. } => path,
            Target::Asterisk => "*",
        };
        place.send(Finished {
            span: Arc::clone(span),
            start: SystemTime::now().checked_sub(took).unwrap_or(SystemTime::UNIX_EPOCH),
            took,
            method,
            original_method,
            path: cut(path),
            authority: request.authority.map(cut),
            user_agent: request.fields.first("user-agent").and_then(|agent| std::str::from_utf8(agent).ok()).map(cut),
            version: protocol.as_str().trim_start_matches("HTTP/"),
            client,
            status,
            upstream: upstream.map(Box::from),
            aborted: aborted.map(|error| error.to_string().into()),
        });
        true
    }
}

impl Span {
    /// Whether it is sent to the collector.
    pub(crate) fn is_sampled(&self) -> bool {
        self.is_sampled
    }

    /// Whether it continues the trace of a trusted proxy.
    pub(crate) fn continues(&self) -> bool {
        self.parent.is_some()
    }

    /// The field that makes the spans of later servers children of this span.
    pub(crate) fn traceparent(&self) -> String {
        format!("00-{:032x}-{:016x}-{:02x}", self.trace, self.id, u8::from(self.is_sampled))
    }
}

fn cut(text: &str) -> Box<str> {
    text[..text.floor_char_boundary(MAX_ATTRIBUTE)].into()
}

#[cfg(test)]
mod tests {
    use sealion_http::{FieldSection, Protocol};

    use super::*;

    const PARENT: &str = "traceparent: 00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01\r\n";

    fn request(fields: &str) -> Request<'_> {
        Request {
            method: Method::Get,
            target: Target::Path { path: "/a", query: Some("secret") },
            raw_target: "/a?secret",
            authority: Some("a.test:8443"),
            conditions: Default::default(),
            fields: FieldSection::from_lines(fields.as_bytes()),
        }
    }

    #[test]
    fn the_trace_of_a_trusted_proxy_goes_on_and_that_of_a_client_does_not() {
        let (tracer, _spans) = Tracer::new(1.0);
        let span = tracer.begin(&request(PARENT), true, "https").unwrap();
        assert_eq!((span.trace, span.parent), (0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736, Some(0x00f0_67aa_0ba9_02b7)));
        assert!(span.is_sampled() && span.continues());
        let field = span.traceparent();
        assert_eq!(parse_traceparent(field.as_bytes()), Some((span.trace, span.id, 1)));
        let twice = [PARENT, PARENT].concat();
        for (fields, is_trusted) in [(PARENT, false), ("traceparent: x\r\n", true), (&twice, true), ("", true)] {
            let own = tracer.begin(&request(fields), is_trusted, "https").unwrap();
            assert!(!own.continues() && own.trace != span.trace, "{fields}");
        }
    }

    #[test]
    fn the_share_is_that_of_traces_that_begin_here() {
        let count = |share: f64| {
            let (tracer, _spans) = Tracer::new(share);
            let sampled = |_: &u32| tracer.begin(&request(""), true, "https").unwrap().is_sampled();
            (0..4000).filter(sampled).count()
        };
        assert_eq!((count(0.0), count(1.0)), (0, 4000));
        // Wider than twelve standard deviations of 27.
        assert!((650..=1350).contains(&count(0.25)));
        let (tracer, _spans) = Tracer::new(1e-9);
        assert!(tracer.begin(&request(PARENT), true, "https").unwrap().is_sampled());
        let not = PARENT.replace("-01", "-00");
        let (tracer, _spans) = Tracer::new(1.0);
        assert!(!tracer.begin(&request(&not), true, "https").unwrap().is_sampled());
    }

    #[test]
    fn what_does_not_fit_the_queue_is_dropped_and_what_is_long_is_cut() {
        let (tracer, mut spans) = Tracer::new(1.0);
        let agent = format!("user-agent: {}\r\n", "é".repeat(MAX_ATTRIBUTE));
        let request = request(&agent);
        let span = Arc::new(tracer.begin(&request, false, "https").unwrap());
        let ended = Ended {
            request: &request,
            protocol: Protocol::Http11,
            client: ([127, 0, 0, 1], 1).into(),
            status: 200,
            took: Duration::from_millis(1),
            upstream: None,
            aborted: None,
        };
        assert!((0..QUEUE).all(|_| tracer.end(&span, &ended)));
        assert!(!tracer.end(&span, &ended));
        let first = spans.try_recv().unwrap();
        assert!(tracer.end(&span, &ended));
        assert_eq!((&*first.path, first.version), ("/a", "1.1"));
        assert_eq!(first.user_agent.unwrap().len(), MAX_ATTRIBUTE);
    }
}
