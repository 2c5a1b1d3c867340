//! Upstreams: servers that requests are forwarded to.
//!
//! ```text
//! site/proxy.rs ─► head.rs (fields) ─► forward.rs ─► balance.rs, pool.rs, connect.rs ─► http1/, http2.rs, cgi/ ─► server
//!                                          │
//! driver ◄─ response ◄─ reply.rs, tunnel.rs ◄┘            driver ─► content.rs ─► the same (content of the request)
//! ```

mod answer_fields;
mod balance;
mod cgi;
mod collect;
mod config;
mod connect;
mod content;
mod copy;
mod counts;
mod forward;
mod gate;
mod head;
mod head_room;
mod health;
mod http1;
mod http2;
mod interim;
mod lazy_fields;
mod lazy_timer;
mod message;
mod mirrored;
mod names;
mod pieces;
mod pool;
mod protocol;
mod proxy_header;
mod reply;
mod similar_names;
mod spool;
mod spool_disk;
mod sticky;
mod tls;
mod tunnel;
mod waiting;
mod websocket;

use std::fmt::Display;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use http::{HeaderName, HeaderValue};
use sealion_http::Request;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use crate::limits::{BufferBudget, LimitsConfig};
use crate::observe::Warnings;
use crate::observe::traces::Span;
use crate::values::{At, Problems, SecretUrl};

pub(crate) use answer_fields::passed_on;
pub(crate) use cgi::Script;
#[cfg(fuzzing)]
pub(crate) use cgi::fuzz as cgi_fuzz;
pub(crate) use collect::{NotCollected, collect, read_whole};
pub(crate) use config::{AdminState, ServerConfig, ServerUrl, UpstreamConfig};
pub(crate) use content::{ContentWriter, Grant, RequestContent, Room, lines, pipe};
pub(crate) use copy::CopyBounds;
pub(crate) use counts::{CLASSES, FailureKind};
pub(crate) use forward::{Failure, Forwarded, forward};
pub(crate) use head::{
    Hop, MadeHere, RequestFields, Trace, is_hop_by_hop, is_loop, is_same_by_cgi, made_here, request_fields,
    takes_trailers,
};
pub(crate) use head_room::HeadRoom;
pub(crate) use health::check_health;
#[cfg(fuzzing)]
pub(crate) use http1::fuzz as http1_fuzz;
pub(crate) use interim::{Interim, InterimReceiver, InterimSender, interim_responses};
pub(crate) use message::{Reading, Upgrade};
pub(crate) use mirrored::{MirrorOutcome, MirrorPlaces, mirror};

pub(crate) use pieces::without_room;
pub(crate) use proxy_header::Endpoints;
pub(crate) use reply::{Patience, Reply};
pub(crate) use spool::{BufferConfig, Buffered, DIRECTORY_FOR_SCRIPTS, Rest, Spooling};
pub(crate) use waiting::Waiting;
pub(crate) use websocket::{Key as WebSocketKey, WEBSOCKET};

use balance::{Balancer, FailureRule};
use config::{Protocol, ProxyProtocol};
use connect::Tls;
use counts::{Counted, Counts};
use gate::{Budget, Gate};
use head::end_of_head;
use health::Health;
use http2::HeadSize;
use mirrored::MirrorCounts;
use names::Names;
use pool::Pool;
pub(crate) use pool::bound_idle_connections;
use sticky::Sticky;

/// A request that may be forwarded, as the driver of its protocol knows it.
#[derive(Debug, Default)]
pub(crate) struct Inbound {
    /// Its content, if it has any, or, with `upgrade`, the client's bytes in another protocol.
    pub(crate) content: Option<RequestContent>,
    /// Whether the request had content that a server has got.
    pub(crate) content_is_gone: bool,
    /// Whether the client asks for another protocol.
    pub(crate) upgrade: bool,
    /// Whether it does so by CONNECT of HTTP/2, with WebSocket (RFC 8441).
    pub(crate) is_connect: bool,
    /// The other end of the connection; `None`: a Unix socket.
    pub(crate) remote: Option<IpAddr>,
    /// Whether that is a trusted proxy.
    pub(crate) is_trusted: bool,
    /// Whether the client connected to this server, and not to a proxy in front.
    pub(crate) is_direct: bool,
    /// Whether its X-Forwarded-Proto and X-Forwarded-Host are passed on.
    pub(crate) takes_x_forwarded: bool,
    /// The client and the proxies behind it, if a trusted proxy names them.
    pub(crate) chain: Option<Arc<[IpAddr]>>,
    /// The client; `None`: unknown behind a Unix socket.
    pub(crate) client: Option<IpAddr>,
    /// The ends of its connection, where a server learns them by the PROXY protocol.
    pub(crate) endpoints: Option<Box<Endpoints>>,
    /// `https` or `http`.
    pub(crate) scheme: &'static str,
    /// The protocol of the client.
    pub(crate) protocol: sealion_http::Protocol,
    /// Fields that the server gets instead of the client's; `None`: neither.
    pub(crate) fields: Vec<(HeaderName, Option<HeaderValue>)>,
    /// Takes interim responses to it. `None`: the client wants none.
    pub(crate) interim: Option<InterimSender>,
    /// The user whose password was checked.
    pub(crate) user: Option<Box<str>>,
    /// The script that answers it, where servers speak FastCGI.
    pub(crate) script: Option<Box<Script>>,
    /// Its sender is dropped when the client leaves: forwarding ends then. `None`: no sign comes.
    pub(crate) gone: Option<oneshot::Receiver<()>>,
    /// Its span, if there is a tracer.
    pub(crate) span: Option<Arc<Span>>,
    /// How much of the response is read before the client takes it.
    pub(crate) reading: Reading,
    /// Whether its head is read before the client takes others. `None`: it is.
    pub(crate) heads: Option<Arc<HeadRoom>>,
    /// Whether its route compresses responses of applications.
    pub(crate) is_compressed: bool,
}

impl Inbound {
    /// Takes the part that the server of a request gets. The rest is for another server.
    pub(crate) fn take_for_server(&mut self) -> Self {
        let rest = Inbound { gone: self.gone.take(), ..self.without_content() };
        std::mem::replace(self, rest)
    }

    /// The same for another server, which gets neither content, nor another protocol, nor interim responses.
    pub(crate) fn without_content(&self) -> Self {
        Inbound {
            content: None,
            content_is_gone: self.content_is_gone || self.content.is_some(),
            upgrade: false,
            is_connect: false,
            remote: self.remote,
            is_trusted: self.is_trusted,
            is_direct: self.is_direct,
            takes_x_forwarded: self.takes_x_forwarded,
            chain: self.chain.clone(),
            client: self.client,
            endpoints: self.endpoints.clone(),
            scheme: self.scheme,
            protocol: self.protocol,
            fields: Vec::new(),
            interim: None,
            user: None,
            script: None,
            gone: None,
            span: self.span.clone(),
            reading: self.reading,
            heads: self.heads.clone(),
            is_compressed: self.is_compressed,
        }
    }

    /// The client whose contents share a bound. `None`: it is unknown, or the address belongs to a proxy, which has many clients.
    pub(crate) fn bounded_client(&self) -> Option<IpAddr> {
        self.client.filter(|client| !(self.is_trusted && self.remote == Some(*client)))
    }

    /// The connection, as a server learns of it. `host`: the requested host.
    pub(crate) fn hop<'a>(&self, host: Option<&'a str>) -> Hop<'a> {
        let Inbound { remote, is_trusted, takes_x_forwarded, client, scheme, .. } = *self;
        let (chain, endpoints) = (self.chain.clone(), self.endpoints.as_deref().copied());
        Hop { remote, is_trusted, takes_x_forwarded, chain, client, endpoints, scheme, host, span: self.span.clone() }
    }
}

/// Ends when the client has left. `gone`: see [`Inbound::gone`].
pub(crate) fn poll_gone(gone: &mut Option<oneshot::Receiver<()>>, cx: &mut Context<'_>) -> Poll<()> {
    let Some(gone) = gone else { return Poll::Pending };
    let _ = ready!(Pin::new(&mut *gone).poll(cx));
    // A receiver that has ended must not be polled again. This one ends at once.
    *gone = oneshot::channel().1;
    Poll::Ready(())
}

/// Servers that can answer the same requests.
#[derive(Debug)]
pub(crate) struct Upstream {
    /// Its configuration.
    config: UpstreamConfig,
    pub(crate) name: Box<str>,
    servers: Box<[Server]>,
    balancer: Balancer,
    sticky: Option<Sticky>,
    health: Option<Health>,
    tries: usize,
    connect_timeout: Duration,
    answer_timeout: Duration,
    stall_timeout: Duration,
    tunnel_timeout: Duration,
    idle_timeout: Duration,
    timeout: Option<Duration>,
    budget: Budget,
    /// Copies of requests that it got, or should have got. Unset: no rule copies requests to it.
    mirrored: OnceLock<MirrorCounts>,
}

#[derive(Debug)]
struct Server {
    /// As configured, for log and metrics.
    name: Arc<str>,
    url: ServerUrl,
    protocol: Protocol,
    proxy_protocol: Option<ProxyProtocol>,
    tls: Option<Tls>,
    names: Names,
    pool: Pool,
    counts: Counts,
    /// Over HTTP/2.
    head_size: Arc<HeadSize>,
    /// Bounds requests in progress.
    gate: Option<Gate>,
    warnings: Warnings,
}

/// A server as metrics show it.
pub(crate) struct ServerState<'a> {
    pub(crate) name: &'a str,
    pub(crate) counted: Counted,
    /// Requests in progress.
    pub(crate) active: usize,
    /// Whether it is not left out.
    pub(crate) is_up: bool,
    /// The state that an operator gave it.
    pub(crate) state: AdminState,
}

/// A request that a server is answering.
#[derive(Debug)]
struct InProgress {
    upstream: Arc<Upstream>,
    /// Its index.
    server: usize,
    /// Its place, where they are bounded.
    place: Option<OwnedSemaphorePermit>,
    /// When the response must have ended.
    deadline: Option<Instant>,
}

impl InProgress {
    fn name(&self) -> &str {
        &self.upstream.servers[self.server].name
    }

    /// Counts bytes of the content of its response.
    fn received(&self, bytes: usize) {
        self.counts().received(bytes);
    }

    fn counts(&self) -> &Counts {
        &self.upstream.servers[self.server].counts
    }

    /// Keeps a connection whose request has been answered, if it may have another.
    fn keep(&self, released: http1::Released) {
        let server = &self.upstream.servers[self.server];
        match released {
            // A connection that names a client is for that client alone.
            http1::Released::Open(_) if server.proxy_protocol.is_some() => {}
            http1::Released::Open(connection) => server.pool.keep(connection, self.upstream.idle_timeout),
            http1::Released::Unasked => server.pool.distrust(),
            http1::Released::Closed => {}
        }
    }
}

impl Drop for InProgress {
    fn drop(&mut self) {
        self.upstream.balancer.ended(self.server);
    }
}

/// The suffix that counts the failures without a line of their own.
pub(crate) const OTHER_REQUESTS: &str = "more requests failed since the last such line";

impl Upstream {
    fn succeeded(&self, server: usize) {
        if self.balancer.succeeded(server) {
            tracing::info!("upstream {}: {} answers again", self.name, self.servers[server].name);
        }
    }

    fn failed(&self, server: usize, failure: &Failure) {
        if self.balancer.failed(server) && self.servers.len() > 1 {
            let name = &self.servers[server].name;
            let time = self.config.fail_time;
            tracing::warn!("upstream {}: {name} is left out for {time}: {failure}", self.name);
        }
    }

    /// Whether a request may be asked again.
    fn may_ask_again(&self) -> bool {
        let asked = self.servers.iter().map(|server| server.counts.requests()).sum();
        let is_permitted = self.budget.spend(asked, Instant::now());
        if !is_permitted {
            tracing::debug!("upstream {}: a fifth of its requests were asked again: this one is not", self.name);
        }
        is_permitted
    }

    /// Its servers, in their order.
    pub(crate) fn servers(&self) -> impl Iterator<Item = ServerState<'_>> {
        self.servers.iter().enumerate().map(|(index, server)| {
            let (active, is_up) = self.balancer.state(index);
            let state = self.balancer.admin_state(index);
            ServerState { name: &server.name, counted: server.counts.read(), active, is_up, state }
        })
    }

    /// Gives the server of this URL or id a state, by order of an operator.
    ///
    /// # Errors
    /// The reason why it has not.
    pub(crate) fn set_state(&self, server: &str, state: AdminState) -> Result<(), String> {
        let url = server.parse::<ServerUrl>().ok();
        let is_it = |config: &ServerConfig| {
            url.as_ref() == Some(&config.url.value) || config.id.as_ref().is_some_and(|id| id.value == server)
        };
        let name = &self.name;
        let Some(index) = self.config.servers.iter().position(is_it) else {
            let shown = |(config, server): (&ServerConfig, &Server)| match &config.id {
                Some(id) => format!("{} ({})", id.value, server.name),
                None => server.name.to_string(),
            };
            let names: Vec<String> = self.config.servers.iter().zip(&self.servers).map(shown).collect();
            return Err(format!("upstream {name} has no such server: it has {}", names.join(", ")));
        };
        if !self.balancer.set_admin_state(index, state) {
            return Err(format!("upstream {name} has no other server that takes new clients: make one ready first"));
        }
        tracing::info!("upstream {name}: {} is in state {} by order", self.servers[index].name, state.name());
        Ok(())
    }

    /// Keeps the states that an operator gave servers of the upstream before, unless the configuration has another state for them now.
    fn keep_states(&self, before: &Upstream) {
        for (index, config) in self.config.servers.iter().enumerate() {
            let is_same = |other: &ServerConfig| other.url == config.url && other.state == config.state;
            if let Some(other) = before.config.servers.iter().position(is_same) {
                self.balancer.set_admin_state(index, before.balancer.admin_state(other));
            }
        }
    }

    /// Whether its servers learn the ends of a client's connection.
    pub(crate) fn names_endpoints(&self) -> bool {
        self.config.proxy_protocol.is_some() || self.speaks_cgi()
    }

    /// Whether its servers are asked over HTTP/1.1: the others can have neither Upgrade nor interim responses.
    pub(crate) fn speaks_http1(&self) -> bool {
        self.config.protocol == Protocol::Http1
    }

    /// Whether its servers run scripts.
    pub(crate) fn speaks_fastcgi(&self) -> bool {
        self.config.protocol == Protocol::Fastcgi
    }

    /// Whether its servers are asked by uwsgi.
    pub(crate) fn speaks_uwsgi(&self) -> bool {
        self.config.speaks_uwsgi()
    }

    /// Whether its servers get the variables of CGI.
    pub(crate) fn speaks_cgi(&self) -> bool {
        self.config.protocol.gateway().is_some()
    }

    /// How the configuration spells its protocol.
    pub(crate) fn protocol_name(&self) -> &'static str {
        self.config.protocol.name()
    }

    /// The index of the server that the cookie of a client names.
    pub(crate) fn sticky_server(&self, request: &Request<'_>) -> Option<usize> {
        self.sticky.as_ref()?.server(request.fields)
    }

    /// The value of Set-Cookie that keeps the client with the server that answered. `None`: the client has it already, or clients stay with no server.
    /// `is_plain`: whether the client came without TLS.
    pub(crate) fn sticky_cookie(&self, asked: &Forwarded, is_plain: bool) -> Option<HeaderValue> {
        let answered_by = asked.answered_by.filter(|answered| asked.sticky != Some(*answered))?;
        self.sticky.as_ref()?.set_cookie(answered_by, is_plain)
    }

    /// The same for the server of this name.
    pub(crate) fn sticky_cookie_of(&self, request: &Request<'_>, server: &str, is_plain: bool) -> Option<HeaderValue> {
        let sticky = self.sticky.as_ref()?;
        let answered_by = self.servers.iter().position(|own| *own.name == *server)?;
        let is_new = sticky.server(request.fields) != Some(answered_by);
        is_new.then(|| sticky.set_cookie(answered_by, is_plain))?
    }

    /// The line about a request that failed at the server of this name, if there is such a server now. Without a server, there is always a line.
    pub(crate) fn line_about(&self, name: &str, what: impl Display) -> Option<String> {
        match self.servers.iter().find(|server| *server.name == *name) {
            Some(server) => server.warnings.line(what, OTHER_REQUESTS),
            None => Some(what.to_string()),
        }
    }

    /// Hosts with ports, as answers may name its servers.
    pub(crate) fn authorities(&self) -> impl Iterator<Item = String> {
        self.servers.iter().map(|server| server.url.authority())
    }

    /// The Host of requests that do not keep the client's.
    pub(crate) fn authority(&self) -> String {
        self.servers[0].url.authority()
    }
}

/// The upstreams of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Upstreams {
    all: Vec<Arc<Upstream>>,
    /// The upstreams of the configuration before. An unchanged one keeps its connections, and the knowledge of its servers.
    before: Vec<Arc<Upstream>>,
    /// The memory of all contents that wait.
    pub(crate) waiting: Arc<Waiting>,
}

impl Upstreams {
    /// Bounds all contents that wait for a slow side.
    pub(crate) fn with_limits(self, limits: &LimitsConfig, budget: &Arc<BufferBudget>) -> Self {
        Upstreams { waiting: Arc::new(Waiting::new(limits, budget)), ..self }
    }

    /// Builds all upstreams. Errors are in `problems`. `before`: the upstreams in use.
    pub(crate) fn build(configs: &[UpstreamConfig], before: Vec<Arc<Upstream>>, problems: &mut Problems) -> Self {
        let mut upstreams = Upstreams { all: Vec::new(), before, waiting: Arc::default() };
        for config in configs {
            if config.name.is_empty() || config.name.contains("://") || config.name.starts_with("unix:") {
                let what = "is not a name: write a word, for instance app";
                problems.add(&config.name.span, "upstream.name", what);
            } else if upstreams.all.iter().any(|other| *other.name == *config.name.value) {
                problems.add(&config.name.span, "upstream.name", "is the name of two upstreams: rename one");
            }
            upstreams.add(config, "upstream", problems);
        }
        upstreams
    }

    fn add(&mut self, config: &UpstreamConfig, key: &str, problems: &mut Problems) -> Option<Arc<Upstream>> {
        // Files of TLS are read again.
        let is_same =
            |other: &&Arc<Upstream>| other.config == *config && config.tls == config::UpstreamTlsConfig::default();
        let built = match self.before.iter().find(is_same) {
            Some(same) => Arc::clone(same),
            None => {
                let built = config.build(key, problems)?;
                if let Some(former) = self.before.iter().find(|other| other.name == built.name) {
                    built.keep_states(former);
                }
                Arc::new(built)
            }
        };
        self.all.push(Arc::clone(&built));
        Some(built)
    }

    /// All of them.
    pub(crate) fn into_all(self) -> Vec<Arc<Upstream>> {
        self.all
    }

    /// The names of the upstreams that speak FastCGI, or of the others.
    pub(crate) fn names(&self, are_fastcgi: bool) -> Vec<Box<str>> {
        let named = self.all.iter().filter(|upstream| !upstream.name.contains(':'));
        named
            .filter(|upstream| upstream.speaks_fastcgi() == are_fastcgi)
            .map(|upstream| upstream.name.clone())
            .collect()
    }

    /// The upstream with this name, or a new one for the URL of a server.
    pub(crate) fn find(&mut self, name: &At<SecretUrl>, key: &str, problems: &mut Problems) -> Option<Arc<Upstream>> {
        if let Some(found) = self.all.iter().find(|upstream| *upstream.name == *name.reveal()) {
            return Some(Arc::clone(found));
        }
        if !name.reveal().contains(':') {
            let what = format_args!(
                "there is no [[upstream]] with the name {:?}: add it, or write the URL of a server",
                name.value
            );
            problems.add(&name.span, key, what);
            return None;
        }
        match name.reveal().parse::<ServerUrl>() {
            Ok(url) => {
                let server = ServerConfig::of(At { value: url, span: name.span.clone() });
                self.add(&UpstreamConfig::of(name.reveal(), vec![server]), key, problems)
            }
            Err(error) => {
                problems.add(&name.span, key, error);
                None
            }
        }
    }
}

impl UpstreamConfig {
    fn build(&self, key: &str, problems: &mut Problems) -> Option<Upstream> {
        let before = problems.len();
        if self.servers.is_empty() {
            let what =
                format_args!("is empty for upstream {}: add {{ url = \"http://127.0.0.1:3000\" }}", self.name.value);
            problems.add(&self.servers.span, &format!("{key}.servers"), what);
        } else if self.servers.iter().all(|server| server.backup) {
            let what = "has only backups: remove backup = true from one";
            problems.add(&self.servers.span, &format!("{key}.servers"), what);
        } else if self.servers.iter().all(|server| server.state == AdminState::Drain) {
            let what = "drains all of its servers: remove state = \"drain\" from one";
            problems.add(&self.servers.span, &format!("{key}.servers"), what);
        }
        for server in self.servers.iter().filter(|server| !server.url.may_speak(self.protocol)) {
            let what = match self.protocol {
                Protocol::Fastcgi => {
                    "is not a server of FastCGI: write fastcgi://host:port, or another protocol than \"fastcgi\""
                }
                Protocol::Uwsgi => {
                    "is not a server of uwsgi: write uwsgi://host:port, or another protocol than \"uwsgi\""
                }
                _ => {
                    "is not a server of HTTP: add protocol = \"fastcgi\" or \"uwsgi\" to the upstream, or write http://host:port"
                }
            };
            problems.add(&server.url.span, &format!("{key}.servers"), format_args!("{} {what}", server.url.value));
        }
        if let (Some(_), Some(version)) = (self.protocol.gateway(), &self.proxy_protocol) {
            let what =
                "is only for HTTP: servers of FastCGI and uwsgi get the client's address by REMOTE_ADDR: remove it";
            problems.add(&version.span, &format!("{key}.proxy_protocol"), what);
        }
        if let (Some(_), Some(health)) = (self.protocol.gateway(), &self.health) {
            let what = "asks over HTTP, which servers of FastCGI and uwsgi do not speak: remove it";
            problems.add(&health.path.span, &format!("{key}.health"), what);
        }
        for (name, why) in self.without_effect() {
            problems.add(&self.name.span, &format!("{key}.{name}"), format_args!("has no effect: {why}: remove it"));
        }
        let mut connector = tls::Connectors::new(&self.tls, self.protocol, key);
        let max_idle = usize::try_from(self.idle_connections()).unwrap_or(usize::MAX);
        if let (None, Some(queue)) = (self.max_connections, &self.queue) {
            let what = "has no effect without max_connections: add it, or remove queue";
            problems.add(&queue.span, &format!("{key}.queue"), what);
        }
        if let (Protocol::Http2, Some(version)) = (self.protocol, &self.proxy_protocol) {
            let what = "names one client for a connection, and a connection of HTTP/2 is for many: remove it, or protocol = \"http2\"";
            problems.add(&version.span, &format!("{key}.proxy_protocol"), what);
        }
        let queue = self.queue.as_ref().map_or(config::QUEUE, |queue| queue.value.usize());
        let server = |config: &ServerConfig| {
            let tls = connector.for_server(&config.url, problems);
            let name: Arc<str> = config.url.to_string().into();
            Server {
                pool: Pool::new(name.clone(), max_idle, self.connection_age.duration()),
                name,
                url: config.url.value.clone(),
                protocol: self.protocol,
                proxy_protocol: self.proxy_protocol.as_ref().map(|version| version.value),
                tls,
                names: Names::default(),
                counts: Counts::default(),
                head_size: Arc::default(),
                gate: self.max_connections.map(|most| Gate::new(most.usize(), queue)),
                warnings: Warnings::default(),
            }
        };
        let servers = self.servers.iter().map(server).collect();
        let failure = FailureRule {
            max_fails: u32::try_from(self.max_fails.get()).unwrap_or(u32::MAX),
            fail_time: self.fail_time.duration(),
            slow_start: self.slow_start.0,
        };
        let health =
            self.health.as_ref().map(|health| health.build(self.servers.len(), &format!("{key}.health"), problems));
        let sticky = Sticky::build(self, key, problems);
        let loads = self.servers.iter().map(|server| (server.weight.get() as u32, server.backup, server.state));
        (problems.len() == before).then(|| Upstream {
            config: self.clone(),
            health: health.flatten(),
            name: self.name.as_str().into(),
            servers,
            balancer: Balancer::new(self.balance, failure, loads),
            sticky,
            tries: self.tries.usize(),
            connect_timeout: self.connect_timeout.duration(),
            answer_timeout: self.answer_timeout.duration(),
            stall_timeout: self.stall_timeout.duration(),
            tunnel_timeout: self.tunnel_timeout.duration(),
            idle_timeout: self.idle_timeout.duration(),
            timeout: self.timeout.map(|timeout| timeout.duration()),
            budget: Budget::new(Instant::now()),
            mirrored: OnceLock::new(),
        })
    }
}
