//! The handshake on a blocking socket.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sealion_client::{Established, Handshake, Step};

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
    let mut handshake = Handshake::new(config, name).map_err(failed)?;
    let mut tap = Tap::default();
    let mut held = Vec::new();
    loop {
        match handshake.step().map_err(failed)? {
            Step::Send { bytes, last } if last && hold_last_flight => held = bytes,
            Step::Send { bytes, .. } => io.write_all(&bytes)?,
            Step::Receive => match io.read(handshake.buffer()) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(len) => tap.pass(handshake.received(len)),
                // A signal interrupted the call: with a timeout, the system does not repeat it (signal(7)).
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            },
            Step::Done => break,
        }
    }
    let Established { version, suite, alpn, resumed, certificate, secrets, schedule, incoming } =
        handshake.finish().map_err(failed)?;
    let (tx_sequence, tx) = secrets.tx;
    let (rx_sequence, rx) = secrets.rx;
    let rx = sealion_tls::traffic_keys(version, &rx).map_err(io::Error::other)?;
    Ok(Client {
        sealer: HandSealer::new(version, &tx, tx_sequence),
        receiving: Receiving::new(&rx, rx_sequence, incoming),
        io,
        info: Info { version, suite: suite.to_owned(), alpn, resumed, certificate },
        schedule,
        held,
        tap,
    })
}

fn failed(error: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}
