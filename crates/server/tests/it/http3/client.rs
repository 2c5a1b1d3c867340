//! A client of HTTP/3, by quinn and the crate h3.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, Bytes};
use h3::client::{RequestStream, SendRequest};
use h3::error::{Code, StreamError};
use h3_quinn::{BidiStream, OpenStreams};
use http::{HeaderMap, Request, StatusCode};
use quinn::crypto::rustls::QuicClientConfig;
use rustls::RootCertStore;

use crate::support::Site;
use sealion_testkit::server::Server;

/// A connection, with a runtime of its own.
pub(super) struct Http3 {
    runtime: tokio::runtime::Runtime,
    sender: SendRequest<OpenStreams, Bytes>,
    endpoint: quinn::Endpoint,
}

/// A response, and how it ended.
#[derive(Debug)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    pub(super) fields: HeaderMap,
    pub(super) body: Vec<u8>,
    pub(super) trailers: Option<HeaderMap>,
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
        let mut roots = RootCertStore::empty();
        roots.add(site.pki.certificate().clone()).expect("a certificate");
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let mut tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])
            .expect("TLS 1.3")
            .with_root_certificates(roots)
            .with_no_client_auth();
        tls.alpn_protocols = vec![b"h3".to_vec()];
        let mut config = quinn::ClientConfig::new(Arc::new(QuicClientConfig::try_from(tls).expect("a suite")));
        config.transport_config(Arc::new(transport));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (sender, endpoint) = runtime.block_on(async {
            let mut endpoint = quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0))).expect("a socket");
            endpoint.set_default_client_config(config);
            let connection = endpoint.connect(address, "localhost").expect("a name").await.expect("a handshake");
            let (mut driver, sender) = h3::client::new(h3_quinn::Connection::new(connection)).await.expect("HTTP/3");
            tokio::spawn(async move { std::future::poll_fn(|cx| driver.poll_close(cx)).await });
            (sender, endpoint)
        });
        Http3 { runtime, sender, endpoint }
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

    /// Receives the response, to its end or to its error.
    #[track_caller]
    pub(super) fn receive(&mut self, mut stream: Streamed) -> Answer {
        self.runtime.block_on(async {
            let mut head = stream.recv_response().await.expect("a head");
            while head.status().is_informational() {
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
            Answer { status, fields, body, trailers, error }
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
