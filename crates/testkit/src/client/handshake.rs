//! The handshake, by rustls, one record at a time: what follows the server's last handshake record
//! is opened by us.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::ServerName;
use rustls::unbuffered::{ConnectionState, EncodeError, UnbufferedStatus};
use rustls::{ClientConfig, HandshakeKind, ProtocolVersion};
use sealion_tls::Version;

use super::receive::Receiving;
use super::seal::HandSealer;
use super::{Client, Info};
use crate::Tap;

pub(super) fn run(
    mut io: TcpStream,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    hold_last_flight: bool,
) -> io::Result<Client> {
    let mut connection = UnbufferedClientConnection::new(config, name).map_err(failed)?;
    let mut tap = Tap::default();
    let mut incoming = Vec::new();
    // How much of `incoming` rustls has been shown: whole records.
    let mut shown = 0;
    let mut outgoing = Vec::new();
    loop {
        let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut incoming[..shown]);
        let mut wants_more = false;
        let mut done = false;
        match state {
            Ok(ConnectionState::EncodeTlsData(mut data)) => match data.encode(&mut []) {
                Err(EncodeError::InsufficientSize(size)) => {
                    let at = outgoing.len();
                    outgoing.resize(at + size.required_size, 0);
                    data.encode(&mut outgoing[at..]).map_err(io::Error::other)?;
                }
                other => drop(other.map_err(io::Error::other)?),
            },
            Ok(ConnectionState::TransmitTlsData(mut data)) => {
                let last = data.may_encrypt_app_data().is_some();
                data.done();
                if !(last && hold_last_flight) {
                    io.write_all(&std::mem::take(&mut outgoing))?;
                }
            }
            Ok(ConnectionState::BlockedHandshake) => wants_more = true,
            Ok(ConnectionState::WriteTraffic(_)) => done = true,
            Ok(other) => return Err(io::Error::other(format!("unexpected state {other:?}"))),
            Err(error) => return Err(failed(error)),
        }
        incoming.drain(..discard);
        shown -= discard;
        if done && !connection.is_handshaking() {
            break;
        }
        if wants_more || done {
            shown += read_record(&mut io, &mut tap, &mut incoming, shown)?;
        }
    }
    assert_eq!(shown, 0, "rustls has consumed every handshake record");

    let info = info(&connection);
    let (secrets, schedule) = connection.dangerous_into_kernel_connection().map_err(failed)?;
    let (tx_sequence, tx) = secrets.tx;
    let (rx_sequence, rx) = secrets.rx;
    let rx = sealion_tls::traffic_keys(info.version, &rx).map_err(io::Error::other)?;
    Ok(Client {
        sealer: HandSealer::new(info.version, &tx, tx_sequence),
        receiving: Receiving::new(&rx, rx_sequence, incoming),
        io,
        info,
        schedule,
        held: outgoing,
        tap,
    })
}

/// Waits for the record at `shown` and returns its length.
fn read_record(io: &mut TcpStream, tap: &mut Tap, incoming: &mut Vec<u8>, shown: usize) -> io::Result<usize> {
    loop {
        if let Some(&[_, _, _, hi, lo]) = incoming[shown..].first_chunk::<5>() {
            let len = 5 + usize::from(u16::from_be_bytes([hi, lo]));
            if incoming.len() - shown >= len {
                return Ok(len);
            }
        }
        let mut buffer = [0; 4096];
        match io.read(&mut buffer)? {
            0 => return Err(io::ErrorKind::UnexpectedEof.into()),
            came => {
                tap.pass(&buffer[..came]);
                incoming.extend_from_slice(&buffer[..came]);
            }
        }
    }
}

fn info(connection: &UnbufferedClientConnection) -> Info {
    Info {
        version: match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            other => panic!("the handshake is over and the version is {other:?}"),
        },
        suite: connection
            .negotiated_cipher_suite()
            .and_then(|suite| suite.suite().as_str())
            .unwrap_or_default()
            .to_owned(),
        alpn: connection.alpn_protocol().map(<[u8]>::to_vec),
        resumed: connection.handshake_kind() == Some(HandshakeKind::Resumed),
        certificate: connection.peer_certificates().and_then(<[_]>::first).map(|first| first.clone().into_owned()),
    }
}

fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
