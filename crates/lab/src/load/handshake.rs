//! The handshake on the runtime's socket.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use sealion_client::{Established, Handshake, Step};

use super::failure::{Failure, Kind};
use super::socket::Socket;

pub(super) async fn shake_hands(
    socket: &Socket,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Established, Failure> {
    let mut handshake = Handshake::new(config, name).map_err(refused)?;
    loop {
        match handshake.step().map_err(refused)? {
            Step::Send { bytes, .. } => socket.send(&bytes).await.map_err(|e| lost(&e))?,
            Step::Receive => receive(socket, &mut handshake).await.map_err(|e| lost(&e))?,
            Step::Done => return handshake.finish().map_err(refused),
        }
    }
}

async fn receive(socket: &Socket, handshake: &mut Handshake) -> io::Result<()> {
    loop {
        socket.readable().await?;
        match socket.receive(handshake.buffer())? {
            None => {}
            Some(0) => return Err(io::Error::new(ErrorKind::UnexpectedEof, "the server closed the connection")),
            Some(len) => {
                handshake.received(len);
                return Ok(());
            }
        }
    }
}

fn refused(error: rustls::Error) -> Failure {
    Failure::new(Kind::Handshake, error)
}

fn lost(error: &io::Error) -> Failure {
    Failure::io(Kind::Handshake, "handshake", error)
}
