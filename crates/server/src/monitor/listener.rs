//! The metrics listener: plain HTTP/1, one request per connection, on a separate thread, so that busy workers do not
//! delay a scrape and a slow client does not delay a worker.

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener as StdListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use aws_lc_rs::constant_time;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle as TaskHandle, yield_now};
use tokio::time::{sleep, timeout};

use super::{Summary, exposition, text};
use crate::exchange::Shared;
use crate::listen::{Address, Held, Inherited, Purpose};
use crate::observe::messages;
use crate::observe::metrics::MetricsConfig;
use crate::values::{Phase, Problems};

/// The maximum number of clients; one more evicts the oldest client that has not sent its request. A probe sends its
/// request right after the TCP handshake, so it is read long before 64 others have arrived.
const CLIENTS: usize = 64;

/// The timeout of a request and its response: the default `scrape_timeout` of Prometheus.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of a request head, several times the length of a scraper's head. 64 clients use at most 512 KiB.
const MAX_HEAD: usize = 8 << 10;

/// A bound socket, not yet served.
pub(crate) struct Listener {
    socket: StdListener,
    token: Option<String>,
    address: SocketAddr,
    /// The configured address.
    wanted: Address,
}

impl Listener {
    /// Binds the configured address, or takes its inherited socket; `None` without a configured address.
    ///
    /// # Errors
    /// One line with the remedy.
    pub(crate) fn bind(
        config: &MetricsConfig,
        problems: &mut Problems,
        inherited: &mut Inherited,
    ) -> Result<Option<Self>, String> {
        let Some(address) = config.listen else { return Ok(None) };
        let token = config.token(problems);
        if !problems.is_empty() {
            return Err(problems.to_string());
        }
        let hint = "name an address of this machine and a free port, for instance 127.0.0.1:9443";
        let failed = |error| format!("metrics: cannot listen on {address}: {error}: {hint}");
        let wanted = Address::Tcp(address);
        let socket = match inherited.take(Purpose::Metrics, &wanted).pop() {
            Some(socket) => socket.into(),
            None => StdListener::bind(address).map_err(failed)?,
        };
        socket.set_nonblocking(true).map_err(failed)?;
        let address = socket.local_addr().map_err(failed)?;
        Ok(Some(Self { socket, token, address, wanted }))
    }

    /// A duplicate of the socket, for a successor.
    ///
    /// # Errors
    /// One line: the descriptor could not be duplicated.
    pub(crate) fn held(&self) -> Result<Held, String> {
        let socket = self.socket.try_clone().map_err(|e| format!("metrics: {}: {e}", self.address))?;
        Ok(Held { purpose: Purpose::Metrics, wanted: self.wanted.clone(), socket: socket.into() })
    }

    /// Prints the address, and warns if anyone on the network may read the metrics.
    pub(crate) fn announce(&self) {
        messages::print(tracing::Level::INFO, format_args!("metrics on http://{}/metrics", self.address));
        if let Some(note) = note(self.address, self.token.is_some()) {
            tracing::warn!("{note}");
        }
    }

    /// Serves until the process ends or a successor has taken over. In the latter case the thread first serves the
    /// accepted connections. It only holds a weak reference, so that the server's end does not wait for it.
    ///
    /// # Errors
    /// One line: the thread could not be started.
    pub(crate) fn start(self, shared: &Arc<Shared>) -> Result<JoinHandle<()>, String> {
        let failed = |error| format!("metrics: cannot start: {error}");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let listener = {
            let _entered = runtime.enter();
            TcpListener::from_std(self.socket).map_err(failed)?
        };
        let shared = Arc::downgrade(shared);
        let run = move || runtime.block_on(serve(listener, shared, self.token.map(Arc::from)));
        std::thread::Builder::new().name("metrics".to_owned()).spawn(run).map_err(failed)
    }
}

/// Serves until a successor has taken over.
async fn serve(listener: TcpListener, shared: Weak<Shared>, token: Option<Arc<str>>) {
    let Some(mut phase) = shared.upgrade().map(|shared| shared.phase.clone()) else { return };
    let mut clients = VecDeque::new();
    tokio::select! {
        biased;
        _ = phase.wait_for(|phase| *phase == Phase::HandedOver) => {}
        () = accept(&listener, &mut clients, &shared, token) => {}
    }
    drop(listener);
    // The successor cannot serve connections that were accepted here. Each has its deadline.
    for client in clients {
        let _ = client.task.await;
    }
}

/// An accepted connection.
struct Client {
    task: TaskHandle<()>,
    /// Its request was received.
    has_asked: Arc<AtomicBool>,
}

async fn accept(
    listener: &TcpListener,
    clients: &mut VecDeque<Client>,
    shared: &Weak<Shared>,
    token: Option<Arc<str>>,
) {
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                clients.retain(|client| !client.task.is_finished());
                // Idle clients must not block health probes. A response takes a millisecond.
                if clients.len() == CLIENTS {
                    let is_silent = |client: &Client| !client.has_asked.load(Ordering::Relaxed);
                    let oldest = clients.iter().position(is_silent).unwrap_or(0);
                    if let Some(oldest) = clients.remove(oldest) {
                        oldest.task.abort();
                    }
                }
                let (shared, token) = (shared.clone(), token.clone());
                let has_asked = Arc::new(AtomicBool::new(false));
                let asked = Arc::clone(&has_asked);
                let task = tokio::spawn(async move {
                    // A client that is too slow or gone gets no response.
                    let _ = timeout(TIMEOUT, answer(stream, &shared, token.as_deref(), &asked)).await;
                });
                clients.push_back(Client { task, has_asked });
                // Reads requests between accepts, however many connections wait in the queue.
                yield_now().await;
            }
            // Out of descriptors. The workers get the same error and log it.
            Err(_) => sleep(Duration::from_millis(100)).await,
        }
    }
}

async fn answer(
    mut stream: TcpStream,
    shared: &Weak<Shared>,
    token: Option<&str>,
    has_asked: &AtomicBool,
) -> std::io::Result<()> {
    let mut head = Vec::with_capacity(1024);
    while !head.windows(4).any(|end| end == b"\r\n\r\n") {
        if head.len() >= MAX_HEAD || stream.read_buf(&mut head).await? == 0 {
            return Ok(());
        }
    }
    has_asked.store(true, Ordering::Relaxed);
    // The server has ended.
    let Some(shared) = shared.upgrade() else { return Ok(()) };
    let Reply { status, kind, extra_fields, body } = reply(&head, &shared, token);
    drop(shared);
    let headers = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: no-store\r\n{extra_fields}Connection: close\r\n\r\n",
        body.len()
    );
    // RFC 9110 §9.3.2
    let body = if head.starts_with(b"HEAD ") { "" } else { &body };
    stream.write_all(&[headers.as_bytes(), body.as_bytes()].concat()).await?;
    stream.shutdown().await
}

struct Reply {
    status: &'static str,
    kind: &'static str,
    /// Fields that the status requires, each with its line end.
    extra_fields: &'static str,
    body: String,
}

impl Reply {
    fn text(status: &'static str, body: &str) -> Self {
        Reply { status, kind: "text/plain; charset=utf-8", extra_fields: "", body: format!("{body}\n") }
    }

    fn with(self, extra_fields: &'static str) -> Self {
        Reply { extra_fields, ..self }
    }
}

fn reply(head: &[u8], shared: &Shared, token: Option<&str>) -> Reply {
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    if !request.parse(head).is_ok_and(|parsed| parsed.is_complete()) {
        return Reply::text("400 Bad Request", "not an HTTP request");
    }
    if !matches!(request.method, Some("GET" | "HEAD")) {
        // RFC 9110 §15.5.6
        return Reply::text("405 Method Not Allowed", "use GET or HEAD").with("Allow: GET, HEAD\r\n");
    }
    let path = request.path.unwrap_or_default().split('?').next().unwrap_or_default();
    let allowed = match token {
        None => true,
        Some(token) => request.headers.iter().any(|field| {
            field.name.eq_ignore_ascii_case("authorization")
                && field
                    .value
                    .strip_prefix(b"Bearer ")
                    .is_some_and(|sent| constant_time::verify_slices_are_equal(sent, token.as_bytes()).is_ok())
        }),
    };
    match path {
        "/health" => health(shared),
        "/ready" => ready(shared),
        // RFC 9110 §15.5.2
        "/metrics" | "/top" if !allowed => Reply::text("401 Unauthorized", "send the token as Authorization: Bearer")
            .with("WWW-Authenticate: Bearer\r\n"),
        "/metrics" => Reply {
            status: "200 OK",
            kind: text::CONTENT_TYPE,
            extra_fields: "",
            body: text::page(&exposition::collect(shared)),
        },
        "/top" => match serde_json::to_string(&Summary::of(shared)) {
            Ok(body) => Reply { status: "200 OK", kind: "application/json", extra_fields: "", body },
            Err(error) => Reply::text("500 Internal Server Error", &error.to_string()),
        },
        _ => Reply::text("404 Not Found", "the paths are /metrics, /health, /ready and /top"),
    }
}

/// Whether the process serves and continues.
fn health(shared: &Shared) -> Reply {
    match *shared.phase.borrow() {
        // A connection accepted before the upgrade asks about the service, which continues.
        Phase::Serving | Phase::HandedOver => Reply::text("200 OK", "serving"),
        Phase::Draining => Reply::text("503 Service Unavailable", "draining"),
        Phase::Stopping => Reply::text("503 Service Unavailable", "stopping"),
    }
}

/// Whether another connection would be served now.
fn ready(shared: &Shared) -> Reply {
    if !shared.is_serving() {
        return health(shared);
    }
    if shared.metrics.short.load(Ordering::Relaxed) > 0 {
        return Reply::text("503 Service Unavailable", "cannot accept connections, for lack of descriptors or memory");
    }
    // Idle connections can make room: clients that do nothing do not make the server unavailable.
    if shared.slots.available_permits() == 0 && !shared.idle.any() {
        return Reply::text("503 Service Unavailable", "at the limit on open connections, and none is idle");
    }
    Reply::text("200 OK", "ready")
}

/// A warning, if anyone on the network may read the metrics.
pub(crate) fn note(address: SocketAddr, has_token: bool) -> Option<String> {
    (!has_token && !address.ip().is_loopback()).then(|| {
        format!(
            "metrics: any client that reaches {address} can read them, requested paths included: listen on 127.0.0.1, or set metrics.token_file"
        )
    })
}
