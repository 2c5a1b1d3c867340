//! A client of HTTP/3, by quinn and the crate h3.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Request, StatusCode};
use quinn::ConnectionError;
use quinn::crypto::rustls::QuicClientConfig;
use rustls::RootCertStore;

use crate::support::Site;
use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;

/// A connection, with a runtime of its own.
pub(super) struct Http3 {
    runtime: tokio::runtime::Runtime,
    sender: SendRequest<OpenStreams, Bytes>,
    endpoint: quinn::Endpoint,
}

/// How a client connects.
pub(super) struct Options<'a> {
    /// The certificate that it trusts.
    pub(super) trusted: &'a Pki,
    /// The name that it asks for (SNI).
    pub(super) name: &'a str,
    /// Its own certificate.
    pub(super) certificate: Option<&'a Pki>,
    /// TLS of earlier connections, whose sessions it has. `None`: it has none.
    pub(super) known: Option<rustls::ClientConfig>,
    pub(super) transport: quinn::TransportConfig,
}

impl<'a> Options<'a> {
    pub(super) fn new(trusted: &'a Pki, name: &'a str) -> Self {
        Options { trusted, name, certificate: None, known: None, transport: quinn::TransportConfig::default() }
    }

    pub(super) fn tls(&self) -> rustls::ClientConfig {
        let mut roots = RootCertStore::empty();
        roots.add(self.trusted.certificate().clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots);
        let mut tls = match self.certificate {
            Some(own) => {
                builder.with_client_auth_cert(vec![own.certificate().clone()], own.key()).expect("a certificate")
            }
            None => builder.with_no_client_auth(),
        };
        tls.alpn_protocols = vec![b"h3".to_vec()];
        tls
    }
}

/// A connection of QUIC, with a runtime of its own.
pub(super) struct Quic {
    pub(super) runtime: tokio::runtime::Runtime,
    pub(super) connection: quinn::Connection,
    pub(super) endpoint: quinn::Endpoint,
}

impl Quic {
    pub(super) fn connect(address: SocketAddr, options: Options<'_>) -> Result<Self, ConnectionError> {
        let tls = QuicClientConfig::try_from(options.known.clone().unwrap_or_else(|| options.tls())).expect("a suite");
        let mut config = quinn::ClientConfig::new(Arc::new(tls));
        config.transport_config(Arc::new(options.transport));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (endpoint, connection) = runtime.block_on(async {
            let own = match address {
                SocketAddr::V4(_) => IpAddr::from(Ipv4Addr::LOCALHOST),
                SocketAddr::V6(_) => IpAddr::from(Ipv6Addr::LOCALHOST),
            };
            let mut endpoint = quinn::Endpoint::client(SocketAddr::new(own, 0)).expect("a socket");
            endpoint.set_default_client_config(config);
            let connection = endpoint.connect(address, options.name).expect("a name").await;
            (endpoint, connection)
        });
        Ok(Quic { runtime, connection: connection?, endpoint })
    }
}

/// A response, and how it ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Option<HeaderMap>,
    /// Interim responses before it.
    pub(super) interim: Vec<(StatusCode, HeaderMap)>,
    /// Why it is incomplete.
    pub(super) error: Option<String>,
}

impl Answer {
    #[track_caller]
    pub(super) fn field(&self, name: &str) -> &str {
        self.fields.get(name).unwrap_or_else(|| panic!("no {name}: {:?}", self.fields)).to_str().expect("ASCII")
    }
}

pub(super) type Streamed = RequestStream<BidiStream<Bytes>, Bytes>;

impl Http3 {
    #[track_caller]
    pub(super) fn connect(site: &Site, server: &Server) -> Self {
        Self::connect_with(site, server.address(), quinn::TransportConfig::default())
    }

    #[track_caller]
    pub(super) fn connect_with(site: &Site, address: SocketAddr, transport: quinn::TransportConfig) -> Self {
        let options = Options { transport, ..Options::new(&site.pki, "localhost") };
        Self::try_connect(address, options).expect("a connection")
    }

    /// Connects, and asks for HTTP/3.
    pub(super) fn try_connect(address: SocketAddr, options: Options<'_>) -> Result<Self, ConnectionError> {
        let Quic { runtime, connection, endpoint } = Quic::connect(address, options)?;
        let sender = runtime.block_on(async {
            let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await.expect("HTTP/3");
            tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
            sender
        });
        Ok(Http3 { runtime, sender, endpoint })
    }

    /// Goes on from another address (RFC 9000 §9), of the same machine.
    pub(super) fn migrate(&mut self) -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.2:0").expect("a socket");
        let address = socket.local_addr().expect("an address");
        let _entered = self.runtime.enter();
        self.endpoint.rebind(socket).expect("the endpoint takes it");
        address
    }

    /// Closes the connection, after what was received is acknowledged.
    pub(super) fn close(self) {
        let Http3 { runtime, sender, endpoint } = self;
        drop(sender);
        endpoint.close(0x100u32.into(), b"");
        runtime.block_on(endpoint.wait_idle());
    }

    /// Sends a request, with content if there is some.
    #[track_caller]
    pub(super) fn send(&mut self, request: Request<()>, content: Option<Vec<u8>>) -> Streamed {
        self.runtime.block_on(async {
            let mut stream = self.sender.send_request(request).await.expect("the request leaves");
            let sent = match content {
                Some(content) => stream.send_data(content.into()).await,
                None => Ok(()),
            };
            match sent {
                Ok(()) => stream.finish().await.expect("the stream ends"),
                // The response needs no more of the content (RFC 9114 §4.1).
                Err(StreamError::RemoteTerminate { code: Code::H3_NO_ERROR, .. }) => {}
                Err(error) => panic!("the content leaves: {error}"),
            }
            stream
        })
    }

    /// Sends a request with content and trailers.
    #[track_caller]
    pub(super) fn send_with_trailers(&mut self, request: Request<()>, content: &str, trailers: HeaderMap) -> Streamed {
        self.runtime.block_on(async {
            let mut stream = self.sender.send_request(request).await.expect("the request leaves");
            stream.send_data(content.to_owned().into()).await.expect("the content leaves");
            stream.send_trailers(trailers).await.expect("the trailers leave");
            stream.finish().await.expect("the stream ends");
            stream
        })
    }

    /// Reads two responses at a time. Returns the bytes of `other` that came before the end of `until`.
    #[track_caller]
    pub(super) fn received_until(&mut self, mut other: Streamed, mut until: Streamed) -> u64 {
        self.runtime.block_on(async {
            let mut received = 0;
            let ended = async {
                until.recv_response().await.expect("a head");
                while until.recv_data().await.expect("content").is_some() {}
            };
            let counted = async {
                other.recv_response().await.expect("a head");
                while let Some(piece) = other.recv_data().await.expect("content") {
                    received += piece.remaining() as u64;
                }
                std::future::pending().await
            };
            tokio::select! {
                () = ended => {}
                () = counted => {}
            }
            received
        })
    }

    /// Receives the response, to its end or to its error.
    #[track_caller]
    pub(super) fn receive(&mut self, mut stream: Streamed) -> Answer {
        self.runtime.block_on(async {
            let (mut head, mut interim) = (stream.recv_response().await.expect("a head"), Vec::new());
            while head.status().is_informational() {
                interim.push((head.status(), head.headers().clone()));
                head = stream.recv_response().await.expect("a head");
            }
            let (mut body, mut error) = (Vec::new(), None);
            loop {
                match stream.recv_data().await {
                    Ok(Some(mut piece)) => body.extend_from_slice(&piece.copy_to_bytes(piece.remaining())),
                    Ok(None) => break,
                    Err(broken) => {
                        error = Some(broken.to_string());
                        break;
                    }
                }
            }
            let trailers = if error.is_none() { stream.recv_trailers().await.expect("an end") } else { None };
            let (status, fields) = (head.status(), head.headers().clone());
            Answer { status, fields, body, trailers, interim, error }
        })
    }

    /// The error of a stream that ends without a response.
    #[track_caller]
    pub(super) fn failure(&mut self, mut stream: Streamed) -> String {
        let received = self.runtime.block_on(stream.recv_response());
        received.expect_err("no response").to_string()
    }

    /// Whether a response comes to its end. One that is reset may lose its head.
    pub(super) fn is_complete(&mut self, mut stream: Streamed) -> bool {
        self.runtime.block_on(async {
            if stream.recv_response().await.is_err() {
                return false;
            }
            loop {
                match stream.recv_data().await {
                    Ok(Some(_)) => {}
                    Ok(None) => return true,
                    Err(_) => return false,
                }
            }
        })
    }

    /// Receives the head of a response and the beginning of its content.
    #[track_caller]
    pub(super) fn begin(&mut self, mut stream: Streamed) -> Streamed {
        self.runtime.block_on(async {
            assert_eq!(stream.recv_response().await.expect("a head").status(), StatusCode::OK);
            assert!(stream.recv_data().await.expect("content").is_some());
            stream
        })
    }

    /// Receives the rest of content. `Err`: it broke off.
    pub(super) fn rest(&mut self, mut stream: Streamed) -> Result<u64, String> {
        self.runtime.block_on(async {
            let mut length = 0;
            loop {
                match stream.recv_data().await {
                    Ok(Some(piece)) => length += piece.remaining() as u64,
                    Ok(None) => return Ok(length),
                    Err(error) => return Err(error.to_string()),
                }
            }
        })
    }

    #[track_caller]
    pub(super) fn get(&mut self, path: &str, fields: &[(&str, &str)]) -> Answer {
        self.ask("GET", path, fields, None)
    }

    #[track_caller]
    pub(super) fn ask(
        &mut self,
        method: &str,
        path: &str,
        fields: &[(&str, &str)],
        content: Option<Vec<u8>>,
    ) -> Answer {
        let stream = self.send(request(method, path, fields), content);
        self.receive(stream)
    }
}

pub(super) fn request(method: &str, path: &str, fields: &[(&str, &str)]) -> Request<()> {
    let mut request = Request::builder().method(method).uri(format!("https://localhost{path}"));
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).expect("a request")
}

/// The configuration of a site with HTTP/3 on a free port. `keys`: of the site, and tables behind it.
pub(super) fn config(site: &Site, keys: &str) -> crate::support::config::Config {
    site.config(keys).listen("address = '127.0.0.1:0'\nhttp3 = true")
}
