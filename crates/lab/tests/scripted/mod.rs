//! A TLS server that a test controls, correct or faulty.
#![allow(dead_code, reason = "each test program uses a part")]

pub(crate) mod quic;

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sealion_lab::load::{Arrival, Extent, LoadPlan, Protocol, Read as ReadMode};
use sealion_testkit::PATIENCE;
use sealion_testkit::pki::{Pki, SERVER_NAME};

pub(crate) const READS: [ReadMode; 3] = [ReadMode::Verify, ReadMode::Decrypt, ReadMode::Drain];

/// Listens until the test program ends; each connection has a thread.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    pki: Pki,
}

/// A connection before its handshake.
pub(crate) struct Session {
    pub(crate) tls: StreamOwned<ServerConnection, TcpStream>,
}

impl Server {
    /// Responds to each request by `answer`, which gets the request's number, counted from 0 over all connections.
    /// After an error, or `Ok(false)`, the connection is dropped.
    pub(crate) fn answering(answer: impl Fn(&mut Session, u64) -> io::Result<bool> + Send + Sync + 'static) -> Self {
        let requests = AtomicU64::new(0);
        Self::start(move |mut session| {
            while session.request()? {
                if !answer(&mut session, requests.fetch_add(1, Ordering::SeqCst))? {
                    break;
                }
            }
            Ok(())
        })
    }

    /// Serves one body correctly.
    pub(crate) fn of(body: Vec<u8>) -> Self {
        Self::answering(move |session, _| session.respond(&body).map(|()| true))
    }

    /// Gives each connection to `serve`.
    pub(crate) fn start(serve: impl Fn(Session) -> io::Result<()> + Send + Sync + 'static) -> Self {
        let pki = Pki::ecdsa();
        let key = PrivateKeyDer::from_pem_file(pki.key_file()).expect("a key");
        let mut config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![CertificateDer::from_pem_file(pki.certificate_file()).expect("a certificate")], key)
            .expect("a key that fits");
        config.ticketer = rustls::crypto::aws_lc_rs::Ticketer::new().expect("a ticketer");
        let config = Arc::new(config);
        let address = listen(move |stream| {
            let connection = ServerConnection::new(config.clone()).expect("a configuration");
            serve(Session { tls: StreamOwned::new(connection, stream) })
        });
        Self { address, pki }
    }

    /// Three requests on one connection; tests change the rest.
    pub(crate) fn plan(&self, read: ReadMode) -> LoadPlan {
        LoadPlan { roots: Some(self.pki.certificate_file()), ..plan(self.address, read) }
    }
}

/// A plan without trust anchors.
pub(crate) fn plan(address: SocketAddr, read: ReadMode) -> LoadPlan {
    LoadPlan {
        address,
        server_name: SERVER_NAME.into(),
        roots: None,
        target: "/x".into(),
        protocol: Protocol::Http1,
        popularity: None,
        threads: 1,
        connections: 1,
        calls: None,
        resume: false,
        arrival: Arrival::Closed,
        extent: Extent::Requests(3),
        read,
        body_cap: None,
        suites: Vec::new(),
        timeout: PATIENCE,
        cores: Vec::new(),
    }
}

/// Passes each TCP connection to `serve`, in a separate thread.
pub(crate) fn listen(serve: impl Fn(TcpStream) -> io::Result<()> + Send + Sync + 'static) -> SocketAddr {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let serve = serve.clone();
            // Clients that give up are part of the tests.
            std::thread::spawn(move || {
                stream
                    .set_nodelay(true)
                    .and_then(|()| stream.set_read_timeout(Some(PATIENCE)))
                    .and_then(|()| serve(stream))
            });
        }
    });
    address
}

impl Session {
    /// Reads a request's head; `false`: the client closed.
    pub(crate) fn request(&mut self) -> io::Result<bool> {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            if self.tls.read(&mut byte)? == 0 {
                return Ok(false);
            }
            head.push(byte[0]);
        }
        // The lab as a process is given an address, which no resolver can change.
        let hosts = ["localhost", "127.0.0.1"].map(|host| format!("GET /x HTTP/1.1\r\nHost: {host}:"));
        let is_known = hosts.iter().any(|start| head.starts_with(start.as_bytes()));
        assert!(is_known, "{}", String::from_utf8_lossy(&head));
        Ok(true)
    }

    pub(crate) fn head(&mut self, len: usize) -> io::Result<()> {
        self.send(head(len).as_bytes())
    }

    /// In separate records.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.write_all(bytes)?;
        self.tls.flush()
    }

    pub(crate) fn respond(&mut self, body: &[u8]) -> io::Result<()> {
        self.send(&[head(body.len()).as_bytes(), body].concat())
    }

    /// Sends unsealed bytes.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.tls.sock.write_all(bytes)
    }

    /// Ends by a reset.
    pub(crate) fn reset(self) -> io::Result<()> {
        rustix::net::sockopt::set_socket_linger(&self.tls.sock, Some(Duration::ZERO))?;
        Ok(())
    }

    /// `close_notify` and the end.
    pub(crate) fn close(&mut self) -> io::Result<bool> {
        self.tls.conn.send_close_notify();
        self.tls.flush().map(|()| false)
    }
}

pub(crate) fn head(len: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: keep-alive\r\n\r\n")
}

/// The head of a connection's last response.
pub(crate) fn last_head(len: usize) -> String {
    format!("HTTP/1.1 200 OK\r\nContent-Length: {len}\r\nConnection: close\r\n\r\n")
}
