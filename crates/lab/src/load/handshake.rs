//! The handshake, by rustls, one record at a time: what follows the server's last handshake record is opened by us.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};
use sealion_tls::Version;
use sealion_tls::record::{HEADER_LEN, TrafficKeys};

use super::failure::{Failure, Kind};
use super::socket::Socket;

/// What the record layer needs to go on by itself.
pub(super) struct Established {
    pub(super) version: Version,
    /// As rustls calls it.
    pub(super) suite: &'static str,
    pub(super) resumed: bool,
    pub(super) tx: (TrafficKeys, u64),
    pub(super) rx: (TrafficKeys, u64),
    pub(super) schedule: KernelConnection<ClientConnectionData>,
    /// What came behind the handshake.
    pub(super) incoming: Vec<u8>,
}

pub(super) async fn shake_hands(
    socket: &Socket,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Established, Failure> {
    let mut connection = UnbufferedClientConnection::new(config, name).map_err(refused)?;
    let mut incoming = Vec::with_capacity(FIRST_READ);
    // How much of `incoming` rustls has been shown: whole records.
    let mut shown = 0;
    let mut outgoing = Vec::new();
    loop {
        let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut incoming[..shown]);
        let mut wants_more = false;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => encode(&mut data, &mut outgoing)?,
            Ok(ConnectionState::TransmitTlsData(data)) => {
                data.done();
                socket.send(&std::mem::take(&mut outgoing)).await.map_err(|e| lost(&e))?;
            }
            Ok(ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_)) => wants_more = true,
            Ok(other) => return Err(Failure::new(Kind::Handshake, format!("unexpected state {other:?}"))),
            Err(error) => return Err(refused(error)),
        }
        incoming.drain(..discard);
        shown -= discard;
        if wants_more && !connection.is_handshaking() {
            break;
        }
        if wants_more {
            shown += next_record(socket, &mut incoming, shown).await.map_err(|e| lost(&e))?;
        }
    }

    let version = match connection.protocol_version() {
        Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
        _ => Version::Tls13,
    };
    let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or_default();
    let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
    let (secrets, schedule) = connection.dangerous_into_kernel_connection().map_err(refused)?;
    let keys = |(sequence, secrets)| {
        let keys = sealion_tls::traffic_keys(version, &secrets).map_err(|e| Failure::new(Kind::Handshake, e))?;
        Ok((keys, sequence))
    };
    Ok(Established { version, suite, resumed, tx: keys(secrets.tx)?, rx: keys(secrets.rx)?, schedule, incoming })
}

/// Bytes asked of the socket at a time. GUESS: most servers' first flight.
const FIRST_READ: usize = 4096;

/// Waits for the record at `shown` and returns its length.
async fn next_record(socket: &Socket, incoming: &mut Vec<u8>, shown: usize) -> io::Result<usize> {
    loop {
        if let Some(&[_, _, _, hi, lo]) = incoming[shown..].first_chunk::<HEADER_LEN>() {
            let len = HEADER_LEN + usize::from(u16::from_be_bytes([hi, lo]));
            if incoming.len() - shown >= len {
                return Ok(len);
            }
        }
        socket.readable().await?;
        let at = incoming.len();
        incoming.resize(at + FIRST_READ, 0);
        let came = socket.receive(&mut incoming[at..])?;
        incoming.truncate(at + came.unwrap_or(0));
        if came == Some(0) {
            return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection"));
        }
    }
}

fn encode<T>(data: &mut EncodeTlsData<'_, T>, outgoing: &mut Vec<u8>) -> Result<(), Failure> {
    let at = outgoing.len();
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else {
        return Ok(());
    };
    outgoing.resize(at + needed.required_size, 0);
    data.encode(&mut outgoing[at..]).map(drop).map_err(|e| Failure::new(Kind::Handshake, e))
}

fn refused(error: rustls::Error) -> Failure {
    Failure::new(Kind::Handshake, error)
}

fn lost(error: &io::Error) -> Failure {
    Failure::io(Kind::Handshake, "handshake", error)
}
