//! Tests how long sessions can be resumed, with real handshakes and a test clock.

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, UNIX_EPOCH};

use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use rustls::compress::{CertDecompressor, DecompressionFailed};
use rustls::pki_types::UnixTime;
use rustls::quic;
use rustls::server::Acceptor;
use rustls::time_provider::TimeProvider;
use rustls::{
    AlertDescription, CertificateCompressionAlgorithm, ClientConfig, ClientConnection, RootCertStore,
    SupportedProtocolVersion,
};
use sealion_testkit::PATIENCE;
use sealion_testkit::pki::{Authority, Pki};

use super::certificate::Certificate;
use super::client_auth::{ClientAuth, ClientAuthMode};
use super::config::{Limits, ServerConfig, SiteTls, TlsOptions};
use super::key_log::KeyLogFile;
use super::resolver::{CertificateSource, NoCertificate, Obtaining, SiteCertificates};
use super::tickets::{TICKET_LIFETIME, TicketKeys, TicketSecret};
use super::{HandshakeInfo, accept};
use crate::error::HandshakeError;
use crate::socket::Socket;
use crate::{Part, TlsStream};

const START: u64 = 1_800_000_000;
const HOUR: u64 = 3600;
const LIFETIME: u64 = TICKET_LIFETIME.as_secs();
const VERSIONS: [&SupportedProtocolVersion; 2] = [&rustls::version::TLS13, &rustls::version::TLS12];

/// Seconds since [`START`].
#[derive(Debug)]
struct Clock(AtomicU64);

impl Clock {
    fn set(&self, seconds: u64) {
        self.0.store(seconds, Ordering::Relaxed);
    }
}

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_secs(START + self.0.load(Ordering::Relaxed))))
    }
}

/// Servers with one certificate, one clock and one ticket key.
struct Fleet {
    pki: Pki,
    clock: Arc<Clock>,
    keys: Arc<TicketKeys>,
}

impl Fleet {
    fn new() -> Self {
        let keys = TicketKeys::shared(&TicketSecret::generate().unwrap(), &[]);
        Self { pki: Pki::ecdsa(), clock: Arc::new(Clock(AtomicU64::new(0))), keys: Arc::new(keys) }
    }

    fn server(&self, client_auth: Option<ClientAuth>) -> ServerConfig {
        self.server_with_suites(client_auth, &[])
    }

    fn server_with_suites(&self, client_auth: Option<ClientAuth>, suites: &[&str]) -> ServerConfig {
        let certificate = Certificate::from_pem_files(&self.pki.certificate_file(), &self.pki.key_file()).unwrap();
        let certificates = Arc::new(SiteCertificates::new(vec![certificate]));
        let site = SiteTls { names: Vec::new(), certificates, client_auth, alpn: None };
        let options = TlsOptions {
            suites: suites.iter().map(ToString::to_string).collect(),
            tickets: Some(self.keys.clone()),
            ..TlsOptions::new(&[]).unwrap()
        };
        ServerConfig::with_time(&site, &[], &options, Limits::default(), self.clock.clone()).unwrap()
    }

    /// A client that keeps sessions.
    fn client(&self, version: &'static SupportedProtocolVersion, own: Option<&Pki>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(self.pki.certificate().clone()).unwrap();
        let builder = ClientConfig::builder_with_protocol_versions(&[version]).with_root_certificates(roots);
        Arc::new(match own {
            Some(own) => builder.with_client_auth_cert(vec![own.certificate().clone()], own.key()).unwrap(),
            None => builder.with_no_client_auth(),
        })
    }

    /// A handshake at this time.
    fn at(
        &self,
        seconds: u64,
        server: &ServerConfig,
        client: &Arc<ClientConfig>,
    ) -> Result<HandshakeInfo, HandshakeError> {
        self.clock.set(seconds);
        self.both_ends(server, client).0
    }

    /// The outcome of a handshake at both ends.
    fn both_ends(
        &self,
        server: &ServerConfig,
        client: &Arc<ClientConfig>,
    ) -> (Result<HandshakeInfo, HandshakeError>, io::Result<()>) {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let client = client.clone();
        let client = std::thread::spawn(move || connect(client, theirs, || {}));
        let info = block_on(async { accept_one(ours, server).await });
        (info, client.join().unwrap())
    }

    /// The alert that a client gets instead of a handshake.
    fn alert(&self, server: &ServerConfig, client: &Arc<ClientConfig>) -> Option<AlertDescription> {
        let error = self.both_ends(server, client).1.err()?;
        match error.get_ref()?.downcast_ref() {
            Some(rustls::Error::AlertReceived(alert)) => Some(*alert),
            _ => None,
        }
    }

    #[track_caller]
    fn resumes(&self, seconds: u64, server: &ServerConfig, client: &Arc<ClientConfig>) -> bool {
        self.at(seconds, server, client).unwrap().resumed
    }
}

fn block_on<T>(task: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(task)
}

/// The socket closes when the handshake ends, so that the client knows when it has all tickets.
async fn accept_one(io: UnixStream, server: &ServerConfig) -> Result<HandshakeInfo, HandshakeError> {
    io.set_nonblocking(true).unwrap();
    let mut io = Socket::from(tokio::net::UnixStream::from_std(io).unwrap());
    let finished = accept(&mut io, server, Some(CLIENT)).await?;
    io.try_write(&finished.held).unwrap();
    Ok(finished.info)
}

/// Performs the handshake and receives the tickets. `before_last` runs before the client's last flight.
fn connect(config: Arc<ClientConfig>, mut io: UnixStream, before_last: impl FnOnce()) -> io::Result<()> {
    io.set_read_timeout(Some(PATIENCE))?;
    let mut client = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut before_last = Some(before_last);
    loop {
        if !client.is_handshaking()
            && let Some(before_last) = before_last.take()
        {
            before_last();
        }
        while client.wants_write() {
            client.write_tls(&mut io)?;
        }
        if client.read_tls(&mut io)? == 0 {
            return Ok(());
        }
        let processed = client.process_new_packets();
        if let Err(error) = processed {
            let _ = client.write_tls(&mut io);
            return Err(io::Error::other(error));
        }
    }
}

/// A self-signed client certificate, valid until this time.
fn client_certificate(until: u64) -> Pki {
    let [from, until] = [START - HOUR, START + until].map(|seconds| UNIX_EPOCH + Duration::from_secs(seconds));
    Pki::valid(&["client.test"], from, until)
}

fn client_auth(root: &Pki, mode: ClientAuthMode) -> Option<ClientAuth> {
    Some(ClientAuth::from_pem_file(&root.certificate_file(), mode).unwrap())
}

/// Returns its certificate for one name and one client, after a pause.
#[derive(Debug)]
struct OneName(&'static str, Certificate, NoCertificate);

/// The client of [`Fleet::at`].
const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

impl CertificateSource for OneName {
    fn certificate(&self, name: &str, client: Option<IpAddr>) -> Obtaining<'_> {
        assert_eq!(client, Some(CLIENT));
        let given = if name == self.0 { Ok(self.1.clone()) } else { Err(self.2) };
        Box::pin(async {
            tokio::time::sleep(Duration::from_millis(1)).await;
            given
        })
    }
}

#[test]
fn a_source_gives_the_certificate_of_a_name_that_none_covers() {
    let load = |pki: &Pki| Certificate::from_pem_files(&pki.certificate_file(), &pki.key_file()).unwrap();
    let fleet = Fleet::new();
    let other = Pki::for_names(&["other.test"]);
    for version in VERSIONS {
        use NoCertificate::{NotAllowed, Unavailable};
        for (name, reason, alert) in [
            ("localhost", NotAllowed, None),
            ("unknown.test", NotAllowed, Some(AlertDescription::UnrecognisedName)),
            ("unknown.test", Unavailable, Some(AlertDescription::InternalError)),
        ] {
            let is_there = alert.is_none();
            let certificates = SiteCertificates::new(vec![load(&other)]);
            let certificates = Arc::new(certificates.with_source(Arc::new(OneName(name, load(&fleet.pki), reason))));
            let site = SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None };
            let options = TlsOptions { tickets: Some(fleet.keys.clone()), ..TlsOptions::new(&[]).unwrap() };
            let server = ServerConfig::with_time(&site, &[], &options, Limits::default(), fleet.clock.clone()).unwrap();
            let client = fleet.client(version, None);
            match fleet.at(0, &server, &client) {
                Ok(info) => assert!(is_there && info.server_name.as_deref() == Some("localhost"), "{name}"),
                Err(HandshakeError::NoCertificate { name, why }) => {
                    assert_eq!((is_there, name.as_str(), why), (false, "localhost", reason));
                }
                Err(other) => panic!("{name}: {other}"),
            }
            match alert {
                None => assert!(fleet.resumes(1, &server, &client)),
                Some(_) => assert_eq!(fleet.alert(&server, &client), alert),
            }
        }
    }
}

#[derive(Debug)]
struct Silent;

impl CertificateSource for Silent {
    fn certificate(&self, _name: &str, _client: Option<IpAddr>) -> Obtaining<'_> {
        Box::pin(std::future::pending())
    }
}

/// Has its certificate at hand.
#[derive(Debug)]
struct AtHand(Certificate);

impl CertificateSource for AtHand {
    fn certificate(&self, _name: &str, _client: Option<IpAddr>) -> Obtaining<'_> {
        let certificate = self.0.clone();
        Box::pin(async move { Ok(certificate) })
    }
}

/// Nothing waits there. A client that sees the certificate of another name uses TCP.
#[test]
fn over_quic_a_certificate_on_demand_is_shown_where_it_is_at_hand() {
    let load = |pki: &Pki| Certificate::from_pem_files(&pki.certificate_file(), &pki.key_file()).unwrap();
    let (fleet, other) = (Fleet::new(), Pki::for_names(&["other.test"]));
    let sources: [(Arc<dyn CertificateSource>, bool); 2] =
        [(Arc::new(AtHand(load(&fleet.pki))), true), (Arc::new(Silent), false)];
    for (source, is_shown) in sources {
        let certificates = Arc::new(SiteCertificates::new(vec![load(&other)]).with_source(source));
        let site = SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None };
        let server = ServerConfig::new(&site, &[], &TlsOptions::new(&[]).unwrap(), Limits::default()).unwrap();
        match over_quic(&server, fleet.client(VERSIONS[0], None)) {
            Ok(info) => assert!(is_shown && info.server_name.as_deref() == Some("localhost")),
            Err(error) => assert!(!is_shown, "{error}"),
        }
    }
}

/// A handshake over QUIC, whose messages need no packets.
fn over_quic(server: &ServerConfig, client: Arc<ClientConfig>) -> Result<HandshakeInfo, rustls::Error> {
    let name = "localhost".try_into().unwrap();
    let mut client = quic::ClientConnection::new(client, quic::Version::V1, name, Vec::new())?;
    let mut hello = Vec::new();
    let _ = client.write_hs(&mut hello);
    let mut acceptor = Acceptor::default();
    let record = [&[22, 3, 1], &(hello.len() as u16).to_be_bytes()[..], &hello].concat();
    acceptor.read_tls(&mut &record[..]).unwrap();
    let accepted = acceptor.accept().unwrap().expect("a whole ClientHello");
    let mut handshake = server.begin_quic(Some(&accepted.client_hello()));
    let config = Arc::clone(handshake.rustls());
    let mut connection = quic::ServerConnection::new(config, quic::Version::V1, Vec::new())?;
    handshake.read(&mut connection, &hello)?;
    loop {
        // Up to the next change of keys.
        let mut flight = Vec::new();
        let keys = handshake.write(&mut connection, &mut flight);
        client.read_hs(&flight)?;
        if keys.is_none() {
            break;
        }
    }
    loop {
        let mut flight = Vec::new();
        let keys = client.write_hs(&mut flight);
        handshake.read(&mut connection, &flight)?;
        if keys.is_none() {
            break;
        }
    }
    Ok(handshake.info(&connection).expect("the handshake has ended"))
}

/// The handshake would wait for its certificate for ever.
#[test]
fn a_client_that_leaves_while_its_certificate_is_obtained_is_noticed() {
    let fleet = Fleet::new();
    let other = Pki::for_names(&["other.test"]);
    let other = Certificate::from_pem_files(&other.certificate_file(), &other.key_file()).unwrap();
    let certificates = Arc::new(SiteCertificates::new(vec![other]).with_source(Arc::new(Silent)));
    let site = SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None };
    let server = ServerConfig::new(&site, &[], &TlsOptions::new(&[]).unwrap(), Limits::default()).unwrap();
    // The client sends its ClientHello, then nothing, or bytes of a further record.
    for further in [&b""[..], b"\x14\x03\x03\0\x01\x01"] {
        let (ours, mut theirs) = UnixStream::pair().unwrap();
        let client = fleet.client(VERSIONS[0], None);
        let mut client = ClientConnection::new(client, "localhost".try_into().unwrap()).unwrap();
        client.write_tls(&mut theirs).unwrap();
        theirs.write_all(further).unwrap();
        drop(theirs);
        let ended = block_on(async {
            ours.set_nonblocking(true).unwrap();
            let mut io = Socket::from(tokio::net::UnixStream::from_std(ours).unwrap());
            accept(&mut io, &server, None).await
        });
        assert!(matches!(ended, Err(HandshakeError::Truncated)), "{:?}", ended.err());
    }
}

/// A client's side of RFC 8879, which counts.
#[derive(Debug)]
struct Counting(AtomicU64);

impl CertDecompressor for Counting {
    fn decompress(&self, input: &[u8], output: &mut [u8]) -> Result<(), DecompressionFailed> {
        self.0.fetch_add(1, Ordering::Relaxed);
        brotli::Decompressor::new(input, 4096).read_exact(output).map_err(|_| DecompressionFailed)
    }

    fn algorithm(&self) -> CertificateCompressionAlgorithm {
        CertificateCompressionAlgorithm::Brotli
    }
}

#[test]
fn clients_that_can_read_them_get_compressed_certificates_over_tcp_and_quic() {
    static READ: Counting = Counting(AtomicU64::new(0));
    let names: Vec<String> = (0..40).map(|n| format!("{n}.shop.example.org")).chain(["localhost".to_owned()]).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let fleet = Fleet { pki: Pki::for_names(&names), ..Fleet::new() };
    let server = fleet.server(None);
    let connect = |client: &Arc<ClientConfig>| fleet.at(0, &server, client).unwrap();
    let plain = fleet.client(VERSIONS[0], None);
    connect(&plain);
    assert_eq!(READ.0.load(Ordering::Relaxed), 0);
    let reader = || {
        let mut client = ClientConfig::clone(&fleet.client(VERSIONS[0], None));
        client.cert_decompressors = vec![&READ];
        Arc::new(client)
    };
    connect(&reader());
    connect(&reader());
    assert_eq!(READ.0.load(Ordering::Relaxed), 2);
    over_quic(&server, reader()).unwrap();
    assert_eq!(READ.0.load(Ordering::Relaxed), 3);
}

#[test]
fn secrets_are_written_for_the_file_that_was_asked_for_and_for_no_other() {
    let fleet = Fleet::new();
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("keys");
    let file = Arc::new(KeyLogFile::open(&path).unwrap());
    assert_eq!(file_mode(&path), 0o600);
    let certificates = Arc::new(SiteCertificates::new(vec![
        Certificate::from_pem_files(&fleet.pki.certificate_file(), &fleet.pki.key_file()).unwrap(),
    ]));
    let site = SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None };
    let options = TlsOptions { key_log: Some(file), ..TlsOptions::new(&[]).unwrap() };
    let server = ServerConfig::with_time(&site, &[], &options, Limits::default(), fleet.clock.clone()).unwrap();
    fleet.at(0, &fleet.server(None), &fleet.client(VERSIONS[0], None)).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "");
    for version in VERSIONS {
        fleet.at(0, &server, &fleet.client(version, None)).unwrap();
    }
    let text = std::fs::read_to_string(&path).unwrap();
    for label in [
        "CLIENT_HANDSHAKE_TRAFFIC_SECRET",
        "SERVER_HANDSHAKE_TRAFFIC_SECRET",
        "CLIENT_TRAFFIC_SECRET_0",
        "SERVER_TRAFFIC_SECRET_0",
        "CLIENT_RANDOM",
    ] {
        let words = text.lines().map(|line| line.split(' ').collect::<Vec<_>>()).find(|words| words[0] == label);
        let words = words.unwrap_or_else(|| panic!("{label}: {text}"));
        assert!(words.len() == 3 && words[1].len() == 64 && words[2].len() >= 64, "{text}");
    }
    // A file that others can read is refused.
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(KeyLogFile::open(&path).unwrap_err().to_string().contains("chmod 600"));
}

fn file_mode(path: &std::path::Path) -> u32 {
    std::fs::metadata(path).unwrap().permissions().mode() & 0o777
}

/// RFC 8446 §5.5: AES-GCM has a limit, ChaCha20-Poly1305 has not.
#[test]
fn a_key_seals_as_many_records_as_its_suite_allows() {
    let fleet = Fleet::new();
    for suite in super::config::suites() {
        let server = fleet.server_with_suites(None, &[suite]);
        let version = if suite.contains("_WITH_") { &rustls::version::TLS12 } else { &rustls::version::TLS13 };
        // This suite would need a certificate with an RSA key.
        if suite.contains("_RSA_") {
            continue;
        }
        let limit = records_per_key(&server, &fleet.client(version, None));
        let has_none = suite.contains("CHACHA20");
        assert_eq!(limit == u64::MAX, has_none, "{suite}: {limit}");
        assert!(has_none || (1 << 23..=1 << 24).contains(&limit), "{suite}: {limit}");
    }
}

fn records_per_key(server: &ServerConfig, client: &Arc<ClientConfig>) -> u64 {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let client = client.clone();
    let client = std::thread::spawn(move || connect(client, theirs, || {}));
    let finished = block_on(async {
        ours.set_nonblocking(true).unwrap();
        let mut io = Socket::from(tokio::net::UnixStream::from_std(ours).unwrap());
        accept(&mut io, server, None).await
    });
    let _ = client.join().unwrap();
    finished.unwrap().records_per_key
}

#[test]
fn renewed_tickets_end_twelve_hours_after_the_full_handshake() {
    let fleet = Fleet::new();
    let authority = Authority::new("clients");
    let alice = authority.issue_client("alice");
    let open = fleet.server(None);
    let closed = fleet.server(client_auth(authority.pki(), ClientAuthMode::Require));
    let request = fleet.server(client_auth(authority.pki(), ClientAuthMode::Request));
    for version in VERSIONS {
        for (server, own) in [(&open, None), (&closed, Some(&alice)), (&request, None)] {
            let client = fleet.client(version, own);
            for (seconds, resumed) in [
                (0, false),
                (5 * HOUR, true),
                (10 * HOUR, true),
                (LIFETIME - 1, true),
                (LIFETIME, false),
                // The lifetime counts from that handshake.
                (LIFETIME + 11 * HOUR, true),
                (2 * LIFETIME - 1, true),
                (2 * LIFETIME, false),
            ] {
                assert_eq!(fleet.resumes(seconds, server, &client), resumed, "{version:?} at {seconds}");
            }
        }
    }
}

#[test]
fn a_session_ends_with_the_clients_certificate() {
    let fleet = Fleet::new();
    let alice = client_certificate(HOUR);
    for mode in [ClientAuthMode::Require, ClientAuthMode::Request] {
        let server = fleet.server(client_auth(&alice, mode));
        for version in VERSIONS {
            let client = fleet.client(version, Some(&alice));
            for (seconds, resumed) in [(0, false), (HOUR / 2, true), (HOUR - 1, true), (HOUR, true)] {
                let info = fleet.at(seconds, &server, &client).unwrap();
                assert_eq!(info.resumed, resumed, "{version:?} at {seconds}");
                assert!(info.client_certificate.is_some());
            }
            // The full handshake that replaces the resumption rejects the certificate.
            match fleet.at(HOUR + 1, &server, &client) {
                Err(HandshakeError::ClientCertificate(why)) => assert!(why.contains("expired"), "{why}"),
                other => panic!("{version:?}: {other:?}"),
            }
        }
    }
}

/// The ticket opens, but its session has a suite that the second server lacks.
#[test]
fn a_full_handshake_after_an_opened_ticket_counts_from_now() {
    let fleet = Fleet::new();
    let server = |suites| fleet.server_with_suites(None, suites);
    let first = server(&["TLS_AES_128_GCM_SHA256", "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"]);
    let second = server(&["TLS_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256"]);
    for version in VERSIONS {
        let client = fleet.client(version, None);
        assert!(!fleet.resumes(0, &first, &client));
        assert!(!fleet.resumes(11 * HOUR, &second, &client));
        assert!(fleet.resumes(13 * HOUR, &second, &client), "{version:?}");
        assert!(!fleet.resumes(11 * HOUR + LIFETIME, &second, &client), "{version:?}");
    }
}

/// A handshake resumes a session. Within it, on the same thread, a full handshake runs from start to end.
#[test]
fn interleaved_handshakes_keep_their_own_times() {
    let fleet = Fleet::new();
    let server = fleet.server(None);
    for version in VERSIONS {
        let [old, new] = [(); 2].map(|()| fleet.client(version, None));
        assert!(!fleet.resumes(0, &server, &old));
        fleet.clock.set(11 * HOUR);
        let [(old_io, old_peer), (new_io, new_peer)] = [(); 2].map(|()| UnixStream::pair().unwrap());
        let (old_waits, new_starts) = mpsc::channel();
        let (new_ends, old_goes_on) = mpsc::channel::<()>();
        let outer = std::thread::spawn({
            let old = old.clone();
            move || {
                connect(old, old_peer, move || {
                    old_waits.send(()).unwrap();
                    old_goes_on.recv().unwrap();
                })
            }
        });
        let inner = std::thread::spawn({
            let new = new.clone();
            move || {
                new_starts.recv().unwrap();
                let done = connect(new, new_peer, || {});
                new_ends.send(()).unwrap();
                done
            }
        });
        let (resumed, full) =
            block_on(async { tokio::join!(accept_one(old_io, &server), accept_one(new_io, &server)) });
        for client in [outer, inner] {
            client.join().unwrap().unwrap();
        }
        assert_eq!((resumed.unwrap().resumed, full.unwrap().resumed), (true, false), "{version:?}");
        assert!(!fleet.resumes(13 * HOUR, &server, &old), "{version:?}");
        assert!(fleet.resumes(13 * HOUR, &server, &new), "{version:?}");
    }
}

/// A connection that keeps the data of separate system calls apart.
fn packets() -> [UnixStream; 2] {
    let (ours, theirs) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    let pair: [OwnedFd; 2] = [ours, theirs];
    pair.map(UnixStream::from)
}

/// Sends a request, with its Finished or once it has tickets. Returns the number of packets, the number of tickets, and
/// the data.
fn ask(config: Arc<ClientConfig>, mut io: UnixStream, at_once: bool) -> (usize, u32, Vec<u8>) {
    io.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut client = ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut asked = false;
    let (mut packets, mut data) = (0, Vec::new());
    loop {
        if !asked && (at_once || client.tls13_tickets_received() > 0) {
            asked = true;
            client.writer().write_all(b"ping").unwrap();
        }
        while client.wants_write() {
            client.write_tls(&mut io).unwrap();
        }
        if client.read_tls(&mut io).unwrap() == 0 {
            return (packets, client.tls13_tickets_received(), data);
        }
        packets += 1;
        client.process_new_packets().unwrap();
        // An error means that no more data is available now.
        let _ = client.reader().read_to_end(&mut data);
    }
}

#[test]
fn tickets_leave_with_the_first_response_unless_the_server_waits_for_the_request() {
    let fleet = Fleet::new();
    let server = Arc::new(fleet.server(None));
    let client = fleet.client(&rustls::version::TLS13, None);
    for (at_once, tickets) in [(true, 2), (false, 1), (true, 1)] {
        let [ours, theirs] = packets();
        let client = client.clone();
        let client = std::thread::spawn(move || ask(client, theirs, at_once));
        block_on(async {
            ours.set_nonblocking(true).unwrap();
            let mut stream = TlsStream::accept(tokio::net::UnixStream::from_std(ours).unwrap(), &server).await.unwrap();
            stream.read_more().await.unwrap();
            assert_eq!(stream.buffered(), b"ping");
            stream.respond(&[Part::Bytes(b"pong")]).await.unwrap();
        });
        // The server's flight, the tickets, the response.
        let packets = if at_once { 2 } else { 3 };
        assert_eq!(client.join().unwrap(), (packets, tickets, b"pong".to_vec()));
    }
}
