//! The rustls handshake, read record by record, so that later records stay in the socket for the kernel.

use std::io;
use std::os::fd::AsFd;
use std::sync::{Arc, OnceLock};

use ::tokio::io::AsyncRead;
use ::tokio::net::TcpStream;
use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::crypto::CryptoProvider;
use rustls::pki_types::ServerName;
use rustls::server::{ServerConnectionData, UnbufferedServerConnection};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, Connection, ExtractedSecrets, ServerConfig, ServerConnection, Side,
};

use super::kernel::Kernel;
use super::keys::{self, Keys, SecretLog};
use super::record_reader::RecordReader;
use super::user::User;
use super::{KtlsStream, Layer, Negotiated, broken};
use crate::probe::{Probe, probe};
use crate::{Cipher, CryptoInfo, Version, handover};

pub(super) async fn accept(socket: TcpStream, config: Arc<ServerConfig>) -> io::Result<KtlsStream> {
    demand_secrets(config.enable_secret_extraction)?;
    if config.max_early_data_size > 0 {
        return Err(invalid("early data cannot be read here: set max_early_data_size to 0"));
    }
    if !kernel_takes(&socket, config.crypto_provider()) {
        return in_user_space(socket, ServerConnection::new(config).map_err(broken)?.into()).await;
    }
    let mut connection = UnbufferedServerConnection::new(config).map_err(broken)?;
    let early = shake_hands(&socket, &mut connection).await?;
    let negotiated = Negotiated::of(&connection);
    let (secrets, connection) = connection.dangerous_into_kernel_connection().map_err(broken)?;
    hand_over(socket, version(connection.protocol_version())?, &secrets, Box::new(connection), early, negotiated)
}

pub(super) async fn connect(
    socket: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> io::Result<KtlsStream> {
    demand_secrets(config.enable_secret_extraction)?;
    if !kernel_takes(&socket, config.crypto_provider()) {
        return in_user_space(socket, ClientConnection::new(config, name).map_err(broken)?.into()).await;
    }
    let mut connection = UnbufferedClientConnection::new(config, name).map_err(broken)?;
    let early = shake_hands(&socket, &mut connection).await?;
    let negotiated = Negotiated::of(&connection);
    let (secrets, connection) = connection.dangerous_into_kernel_connection().map_err(broken)?;
    hand_over(socket, version(connection.protocol_version())?, &secrets, Box::new(connection), early, negotiated)
}

/// Continues after a handshake by rustls' buffered interface.
pub(super) async fn go_on(
    mut socket: RecordReader,
    mut connection: Connection,
    log: Option<&SecretLog>,
) -> io::Result<KtlsStream> {
    if connection.is_handshaking() {
        return Err(invalid("the handshake is not over"));
    }
    let suite = connection.negotiated_cipher_suite();
    let in_kernel = suite.is_some_and(|suite| kernel_knows(suite.suite()));
    let side = match connection {
        Connection::Client(_) => Side::Client,
        Connection::Server(_) => Side::Server,
    };
    let negotiated = Negotiated::of(&connection);
    // Completes the record that rustls has read in part, and sends rustls' pending data. rustls holds its reply to a
    // key update until the next write; the extraction would drop it although the key has changed.
    loop {
        let _ = io::Write::write(&mut connection.writer(), &[])?;
        write_all(socket.socket(), &mut connection).await?;
        if socket.at_boundary() {
            break;
        }
        let mut part = [0; 4096];
        let mut buffer = ::tokio::io::ReadBuf::new(&mut part);
        std::future::poll_fn(|cx| std::pin::Pin::new(&mut socket).poll_read(cx, &mut buffer)).await?;
        let mut bytes = buffer.filled();
        if bytes.is_empty() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        while !bytes.is_empty() {
            connection.read_tls(&mut bytes)?;
            connection.process_new_packets().map_err(broken)?;
        }
    }
    let Ok(socket) = socket.into_socket() else { return Err(invalid("a part of a record was read")) };
    // A peer that has closed its half prevents the handover.
    if !in_kernel || handover::attach(socket.as_fd()).is_err() {
        return Ok(KtlsStream { socket, layer: Layer::User(Box::new(User::new(connection))), negotiated });
    }
    let mut early = Vec::new();
    match io::Read::read_to_end(&mut connection.reader(), &mut early) {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
        // close_notify was already read. rustls remembers it, but the kernel would not.
        Ok(_) => return Err(invalid("the peer has closed the connection")),
        Err(error) => return Err(error),
    }
    let version = version(connection.protocol_version().ok_or(io::ErrorKind::InvalidInput)?)?;
    let secrets = match connection {
        Connection::Client(connection) => connection.dangerous_extract_secrets(),
        Connection::Server(connection) => connection.dangerous_extract_secrets(),
    };
    let secrets = secrets.map_err(broken)?;
    let keys = keys::logged(log, suite, side, &secrets);
    hand_over(socket, version, &secrets, keys, early, negotiated)
}

/// Hands both halves over to the kernel.
fn hand_over(
    socket: TcpStream,
    version: Version,
    secrets: &ExtractedSecrets,
    keys: Box<dyn Keys>,
    early: Vec<u8>,
    negotiated: Negotiated,
) -> io::Result<KtlsStream> {
    let info = |(sequence, secrets): &_| CryptoInfo::from_rustls(version, secrets, *sequence);
    let (sending, receiving) = (info(&secrets.tx)?, info(&secrets.rx)?);
    let tx = handover::tx(&socket, &sending).map_err(|refused| refused.error)?;
    let rx = handover::rx(&tx, &receiving)?;
    let ((_, tx), (_, rx)) = (tx.into_parts(), rx.into_parts());
    let kernel = Kernel::new(tx, rx, version, keys, early, secrets.tx.0);
    Ok(KtlsStream { socket, layer: Layer::Kernel(Box::new(kernel)), negotiated })
}

async fn in_user_space(socket: TcpStream, mut connection: Connection) -> io::Result<KtlsStream> {
    while connection.is_handshaking() {
        write_all(&socket, &mut connection).await?;
        if !connection.is_handshaking() {
            break;
        }
        socket.readable().await?;
        match connection.read_tls(&mut super::user::Io(&socket)) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(_) => {
                if let Err(error) = connection.process_new_packets() {
                    // The alert with the reason.
                    let _ = connection.write_tls(&mut super::user::Io(&socket));
                    return Err(broken(error));
                }
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    write_all(&socket, &mut connection).await?;
    let negotiated = Negotiated::of(&connection);
    Ok(KtlsStream { socket, layer: Layer::User(Box::new(User::new(connection))), negotiated })
}

/// Writes rustls' pending data.
async fn write_all(socket: &TcpStream, connection: &mut Connection) -> io::Result<()> {
    while connection.wants_write() {
        match connection.write_tls(&mut super::user::Io(socket)) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => socket.writable().await?,
            result => drop(result?),
        }
    }
    Ok(())
}

/// rustls' unbuffered connection, for client and server.
trait Handshake {
    type Data;

    fn is_handshaking(&self) -> bool;

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
}

impl Handshake for UnbufferedServerConnection {
    type Data = ServerConnectionData;

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

impl Handshake for UnbufferedClientConnection {
    type Data = ClientConnectionData;

    fn is_handshaking(&self) -> bool {
        (**self).is_handshaking()
    }

    fn process<'c, 'i>(&'c mut self, incoming: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(incoming)
    }
}

/// The next step of the handshake.
enum Next {
    Process,
    Write,
    Read,
    Done,
}

/// Performs the handshake. Returns the application data that came with it.
async fn shake_hands<H: Handshake>(socket: &TcpStream, connection: &mut H) -> io::Result<Vec<u8>> {
    let (mut incoming, mut outgoing, mut early) = (Vec::new(), Vec::new(), Vec::new());
    loop {
        let UnbufferedStatus { mut discard, state } = connection.process(&mut incoming);
        let next = match state {
            Ok(ConnectionState::EncodeTlsData(data)) => encode(data, &mut outgoing).map(|()| Next::Process)?,
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                Next::Write
            }
            Ok(ConnectionState::BlockedHandshake) => Next::Read,
            Ok(ConnectionState::WriteTraffic(_)) => Next::Done,
            Ok(ConnectionState::ReadTraffic(mut data)) => {
                while let Some(record) = data.next_record() {
                    let record = record.map_err(broken)?;
                    discard += record.discard;
                    early.extend_from_slice(record.payload);
                }
                Next::Process
            }
            Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Err(error) => {
                if let Ok(ConnectionState::EncodeTlsData(alert)) = connection.process(&mut []).state {
                    encode(alert, &mut outgoing)?;
                }
                // The peer may be gone; the returned error says more.
                let _ = send(socket, &outgoing).await;
                return Err(broken(error));
            }
        };
        incoming.drain(..discard);
        match next {
            Next::Process => {}
            Next::Write => {
                send(socket, &outgoing).await?;
                outgoing.clear();
            }
            Next::Done if !connection.is_handshaking() => {
                send(socket, &outgoing).await?;
                return Ok(early);
            }
            Next::Read | Next::Done => read_record(socket, &mut incoming).await?,
        }
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, outgoing: &mut Vec<u8>) -> io::Result<()> {
    let from = outgoing.len();
    outgoing.resize(from + 4096, 0);
    loop {
        match data.encode(&mut outgoing[from..]) {
            Ok(len) => {
                outgoing.truncate(from + len);
                return Ok(());
            }
            Err(EncodeError::InsufficientSize(error)) => outgoing.resize(from + error.required_size, 0),
            Err(error) => return Err(io::Error::other(error)),
        }
    }
}

async fn send(socket: &TcpStream, mut data: &[u8]) -> io::Result<()> {
    while !data.is_empty() {
        socket.writable().await?;
        match socket.try_write(data) {
            Ok(written) => data = &data[written..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Reads one record, and no byte of the next record.
async fn read_record(socket: &TcpStream, into: &mut Vec<u8>) -> io::Result<()> {
    let start = into.len();
    read_exact(socket, into, 5).await?;
    let len = u16::from_be_bytes([into[start + 3], into[start + 4]]);
    read_exact(socket, into, len.into()).await
}

async fn read_exact(socket: &TcpStream, into: &mut Vec<u8>, count: usize) -> io::Result<()> {
    let mut at = into.len();
    into.resize(at + count, 0);
    while at < into.len() {
        socket.readable().await?;
        match socket.try_read(&mut into[at..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(read) => at += read,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Whether the kernel seals and opens on this socket with every suite of `provider`.
///
/// It attaches the TLS layer now, because a peer that has sent everything and closed its half would prevent it later.
/// Without keys the layer passes all bytes unchanged.
fn kernel_takes(socket: &TcpStream, provider: &CryptoProvider) -> bool {
    provider.cipher_suites.iter().all(|suite| kernel_knows(suite.suite())) && handover::attach(socket.as_fd()).is_ok()
}

fn kernel_knows(suite: CipherSuite) -> bool {
    static PROBE: OnceLock<Probe> = OnceLock::new();
    let Some((version, cipher)) = kernel_suite(suite) else { return false };
    let probe = PROBE.get_or_init(probe);
    probe.tx(version, cipher).is_ok() && probe.rx(version, cipher).is_ok()
}

/// Version and cipher of a rustls suite.
fn kernel_suite(suite: CipherSuite) -> Option<(Version, Cipher)> {
    Some(match suite {
        CipherSuite::TLS13_AES_128_GCM_SHA256 => (Version::Tls13, Cipher::Aes128Gcm),
        CipherSuite::TLS13_AES_256_GCM_SHA384 => (Version::Tls13, Cipher::Aes256Gcm),
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256 => (Version::Tls13, Cipher::Chacha20Poly1305),
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256 | CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 => {
            (Version::Tls12, Cipher::Aes128Gcm)
        }
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384 | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => {
            (Version::Tls12, Cipher::Aes256Gcm)
        }
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => (Version::Tls12, Cipher::Chacha20Poly1305),
        _ => return None,
    })
}

fn version(version: rustls::ProtocolVersion) -> io::Result<Version> {
    Ok(Version::try_from(version)?)
}

fn demand_secrets(extraction: bool) -> io::Result<()> {
    if extraction { Ok(()) } else { Err(invalid("set enable_secret_extraction in the configuration")) }
}

fn invalid(what: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, what)
}
