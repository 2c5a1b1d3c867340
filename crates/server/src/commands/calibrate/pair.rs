//! A loopback connection within this process: one end sends as the server does, the other reads without decrypting.

use std::net::{Ipv4Addr, SocketAddr, TcpStream as StdStream};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use rustix::net::RecvFlags;
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use sealion_tls::record::Aead;
use sealion_tls::{Limits, SealedBy as SendPath, ServerConfig, TlsStream, Version};
use tokio::net::TcpListener;

use super::cpus::Cpus;
use crate::certificates::development::DevCertificate;
use crate::listen::{Address, Inherited, Listen, ListenConfig, Listeners, ListeningSocket};

/// A thousand times the usual duration on loopback.
const TIMEOUT: Duration = Duration::from_secs(30);

/// Accepts connections from this process.
pub(super) struct Host {
    listener: TcpListener,
    address: SocketAddr,
    server: Arc<ServerConfig>,
    certificate: CertificateDer<'static>,
    cpus: Cpus,
}

pub(super) struct Pair {
    /// The sending end, whose cost is measured.
    pub(super) stream: TlsStream,
    read: Arc<AtomicU64>,
}

impl Host {
    /// Listens with the socket options of the server, and makes a certificate in `directory`. Call it inside a runtime.
    pub(super) fn new(directory: &Path, cpus: Cpus) -> Result<Self, String> {
        let pair = DevCertificate::load_or_make_in(directory)
            .map_err(|error| format!("cannot make a certificate in {}: {error}", directory.display()))?;
        let certificate = CertificateDer::from_pem_file(&pair.cert).map_err(|e| e.to_string())?;
        let server = ServerConfig::from_pem_files(&pair.cert, &pair.key, &[], Limits::default());
        let loopback =
            Listen { name: "loopback".to_owned(), addresses: vec![Address::Tcp((Ipv4Addr::LOCALHOST, 0).into())] };
        let mut listeners = Listeners::bind(&[ListenConfig::from(loopback)], 1, None, &mut Inherited::default())?;
        let listener = listeners.sets.pop().and_then(|mut set| set.pop()).map(|listener| listener.socket);
        let (Some((Address::Tcp(address), _)), Some(ListeningSocket::Tcp(listener))) =
            (listeners.addresses.pop(), listener)
        else {
            return Err("there is no loopback address here".to_owned());
        };
        Ok(Self {
            address,
            listener: TcpListener::from_std(listener).map_err(|e| e.to_string())?,
            server: Arc::new(server.map_err(|e| e.to_string())?),
            certificate,
            cpus,
        })
    }

    /// Connects with this version and AEAD, and moves the sending side to `path`. Returns the duration of the move.
    pub(super) async fn connect(
        &self,
        version: Version,
        aead: Aead,
        path: SendPath,
    ) -> Result<(Pair, Option<Duration>), String> {
        let client = self.client(version, aead)?;
        let read = Arc::new(AtomicU64::new(0));
        let (address, cpus, counter) = (self.address, self.cpus.clone(), Arc::clone(&read));
        std::thread::Builder::new()
            .name("reader".to_owned())
            .spawn(move || {
                cpus.leave_to_sender();
                // Failures surface at the sending end.
                let _ = read_to_end(address, client, &counter);
            })
            .map_err(|e| format!("cannot start a thread: {e}"))?;
        let shake = async {
            let (socket, _) = self.listener.accept().await.map_err(|e| e.to_string())?;
            TlsStream::accept(socket, &self.server).await.map_err(|e| e.to_string())
        };
        let mut stream = tokio::time::timeout(TIMEOUT, shake).await.map_err(|_| "no handshake over loopback")??;
        let took = match path {
            SendPath::Nobody | SendPath::User => None,
            SendPath::Kernel => {
                Some(stream.move_to_kernel(0).await.map_err(|e| format!("the kernel refuses the move: {e}"))?)
            }
        };
        Ok((Pair { stream, read }, took))
    }

    fn client(&self, version: Version, aead: Aead) -> Result<ClientConnection, String> {
        let mut provider = aws_lc_rs::default_provider();
        let name = match aead {
            Aead::Aes128Gcm => "AES_128_GCM",
            Aead::Aes256Gcm => "AES_256_GCM",
            Aead::Chacha20Poly1305 => "CHACHA20_POLY1305",
        };
        provider.cipher_suites.retain(|suite| suite.suite().as_str().is_some_and(|suite| suite.contains(name)));
        let versions = match version {
            Version::Tls12 => [&rustls::version::TLS12],
            Version::Tls13 => [&rustls::version::TLS13],
        };
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone()).map_err(|e| e.to_string())?;
        let config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&versions)
            .map_err(|e| e.to_string())?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = ServerName::try_from("localhost").map_err(|e| e.to_string())?;
        ClientConnection::new(Arc::new(config), name).map_err(|e| e.to_string())
    }
}

impl Pair {
    /// The number of sealed bytes that the other end has read.
    pub(super) fn read(&self) -> u64 {
        self.read.load(Ordering::Relaxed)
    }

    /// Waits until the other end has read `bytes` in total.
    pub(super) fn wait_until_read(&self, bytes: u64) -> Result<(), String> {
        let began = Instant::now();
        while self.read() < bytes {
            if began.elapsed() > TIMEOUT {
                return Err("loopback delivers no data".to_owned());
            }
            std::thread::sleep(Duration::from_micros(50));
        }
        Ok(())
    }
}

/// Completes the handshake, then counts received bytes. With MSG_TRUNC, TCP discards them without a copy, so that the
/// reader is never the bottleneck.
fn read_to_end(address: SocketAddr, mut client: ClientConnection, read: &AtomicU64) -> std::io::Result<()> {
    let mut socket = StdStream::connect(address)?;
    socket.set_nodelay(true)?;
    while client.is_handshaking() || client.wants_write() {
        client.complete_io(&mut socket)?;
    }
    let mut buffer = vec![0; 1 << 20];
    loop {
        match rustix::net::recv(&socket, &mut buffer[..], RecvFlags::TRUNC) {
            Ok((_, 0)) => return Ok(()),
            Ok((_, came)) => read.fetch_add(came as u64, Ordering::Relaxed),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(error.into()),
        };
    }
}
