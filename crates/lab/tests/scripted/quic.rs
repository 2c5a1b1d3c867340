//! A server of HTTP/3 that a test controls, correct or faulty.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc;

use quinn::crypto::rustls::QuicServerConfig;
use quinn::{Endpoint, Incoming};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sealion_lab::load::{LoadPlan, Protocol, Read};
use sealion_testkit::pki::Pki;
use tokio::sync::Barrier;

/// Listens until the test program ends.
pub(crate) struct QuicServer {
    address: SocketAddr,
    pki: Pki,
}

/// The response to a request.
pub(crate) struct Reply {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ending: Ending,
}

/// How the stream of a response ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    Finish,
    /// The stream is reset.
    Reset,
    /// GOAWAY comes before the response.
    Goaway,
    /// The connection is closed instead.
    Close,
}

/// The protocol of a server, and the order of its replies.
#[derive(Clone, Copy)]
pub(crate) struct Manners {
    pub(crate) alpn: &'static [u8],
    /// Requests that must be open before any of them is answered.
    pub(crate) at_a_time: usize,
}

impl Default for Manners {
    fn default() -> Self {
        Self { alpn: b"h3", at_a_time: 1 }
    }
}

/// A frame with a length of four bytes.
pub(crate) fn frame(kind: u8, payload: &[u8]) -> Vec<u8> {
    let length = (payload.len() as u32 | 0x8000_0000).to_be_bytes();
    [&[kind][..], &length, payload].concat()
}

/// A head with status 200 and Content-Length, then the body in DATA frames.
pub(crate) fn response(body: &[u8]) -> Vec<u8> {
    let length = body.len().to_string();
    let head = frame(1, &[&[0, 0, 0xd9, 0x54, length.len() as u8], length.as_bytes()].concat());
    let data: Vec<u8> = body.chunks(10_000).flat_map(|part| frame(0, part)).collect();
    [head, data].concat()
}

impl Reply {
    pub(crate) fn of(body: &[u8]) -> Self {
        Self { bytes: response(body), ending: Ending::Finish }
    }
}

impl QuicServer {
    /// `reply` gets the request's number, counted from 0 over all connections.
    pub(crate) fn replying(reply: impl Fn(u64) -> Reply + Send + Sync + 'static) -> Self {
        Self::start(Manners::default(), reply)
    }

    pub(crate) fn start(manners: Manners, reply: impl Fn(u64) -> Reply + Send + Sync + 'static) -> Self {
        let pki = Pki::ecdsa();
        let key = PrivateKeyDer::from_pem_file(pki.key_file()).expect("a key");
        let certificate = CertificateDer::from_pem_file(pki.certificate_file()).expect("a certificate");
        let mut tls =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_protocol_versions(&[&rustls::version::TLS13])
                .expect("TLS 1.3")
                .with_no_client_auth()
                .with_single_cert(vec![certificate], key)
                .expect("a key that fits");
        tls.alpn_protocols = vec![manners.alpn.to_vec()];
        let config = quinn::ServerConfig::with_crypto(Arc::new(QuicServerConfig::try_from(tls).expect("a suite")));
        let served = Arc::new(Served {
            requests: AtomicU64::new(0),
            together: Barrier::new(manners.at_a_time),
            reply: Box::new(reply),
        });
        let (sender, address) = mpsc::channel();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
            runtime.block_on(async move {
                let endpoint = Endpoint::server(config, (Ipv4Addr::LOCALHOST, 0).into()).expect("a port");
                sender.send(endpoint.local_addr().expect("an address")).expect("the test waits");
                while let Some(incoming) = endpoint.accept().await {
                    tokio::spawn(connection(incoming, served.clone()));
                }
            });
        });
        Self { address: address.recv().expect("the server starts"), pki }
    }

    /// Three requests on one connection; tests change the rest.
    pub(crate) fn plan(&self, read: Read) -> LoadPlan {
        let roots = Some(self.pki.certificate_file());
        LoadPlan { roots, protocol: Protocol::Http3 { streams: 1 }, ..super::plan(self.address, read) }
    }
}

struct Served {
    requests: AtomicU64,
    together: Barrier,
    reply: Box<dyn Fn(u64) -> Reply + Send + Sync>,
}

async fn connection(incoming: Incoming, served: Arc<Served>) {
    let Ok(connection) = incoming.await else { return };
    let Ok(mut control) = connection.open_uni().await else { return };
    if control.write_all(&[0, 4, 0]).await.is_err() {
        return;
    }
    let control = Arc::new(tokio::sync::Mutex::new(control));
    while let Ok((mut send, mut receive)) = connection.accept_bi().await {
        let (served, control, connection) = (served.clone(), control.clone(), connection.clone());
        tokio::spawn(async move {
            let Ok(request) = receive.read_to_end(1 << 16).await else { return };
            assert!(request.ends_with(b"\x51\x02/x"), "{request:x?}");
            let number = served.requests.fetch_add(1, Ordering::SeqCst);
            served.together.wait().await;
            let Reply { bytes, ending } = (served.reply)(number);
            match ending {
                Ending::Close => return connection.close(7u32.into(), b"as the test wants"),
                // The identifier of the first request that is not served.
                Ending::Goaway => drop(control.lock().await.write_all(&[7, 1, 4]).await),
                Ending::Finish | Ending::Reset => {}
            }
            // Clients that give up are part of the tests.
            if send.write_all(&bytes).await.is_err() {
                return;
            }
            let _ = match ending {
                Ending::Reset => send.reset(0x102u32.into()).is_ok(),
                _ => send.finish().is_ok(),
            };
            let _ = send.stopped().await;
        });
    }
}
