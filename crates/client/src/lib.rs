//! The client's side of a TLS handshake, by rustls and without I/O. The clients of the tests and of the lab use it with
//! their own record layers.
//!
//! ```text
//! loop { step() ─► Send(bytes)   write them
//!                 Receive        read into buffer(), then received(n)
//!                 Done           finish() ─► Established: secrets, sequence numbers, key schedule }
//! ```
//!
//! rustls gets one record at a time, so that it never opens a record after the server's last handshake record.

#![deny(unsafe_code)]

mod any_certificate;

use std::sync::Arc;

use rustls::client::{ClientConnectionData, UnbufferedClientConnection};
use rustls::kernel::KernelConnection;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::unbuffered::{ConnectionState, EncodeError, EncodeTlsData, UnbufferedStatus};
use rustls::{ClientConfig, Error, ExtractedSecrets, HandshakeKind, ProtocolVersion};
use sealion_tls::Version;
use sealion_tls::record::HEADER_LEN;

pub use any_certificate::AnyCertificate;

/// A handshake in progress.
pub struct Handshake {
    connection: UnbufferedClientConnection,
    /// Received bytes, followed by room for more from `filled` on.
    incoming: Vec<u8>,
    filled: usize,
    /// The number of bytes of `incoming` that rustls was given: whole records.
    shown: usize,
    outgoing: Vec<u8>,
}

/// The next step of a handshake.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// Send these bytes to the server.
    Send {
        /// One or more whole records.
        bytes: Vec<u8>,
        /// Whether they include the client's Finished, so that the client may send data and the handshake sends nothing
        /// more.
        last: bool,
    },
    /// Receive at least one byte into [`Handshake::buffer`].
    Receive,
    /// The handshake is complete: call [`Handshake::finish`].
    Done,
}

/// An established connection: everything that a record layer needs to continue it.
pub struct Established {
    /// The version that both sides agreed on.
    pub version: Version,
    /// The negotiated suite, by its rustls name.
    pub suite: &'static str,
    /// The agreed application protocol, if any.
    pub alpn: Option<Vec<u8>>,
    /// Whether an earlier session was resumed.
    pub resumed: bool,
    /// The server's certificate, from this handshake or from the one whose session is resumed.
    pub certificate: Option<CertificateDer<'static>>,
    /// Secrets of both directions, each with the sequence number of the next record.
    pub secrets: ExtractedSecrets,
    /// rustls' key schedule, for key updates and session tickets.
    pub schedule: KernelConnection<ClientConnectionData>,
    /// Bytes that were received after the server's last handshake record.
    pub incoming: Vec<u8>,
}

impl Handshake {
    /// Begins a handshake with the server `name`. `config` must allow the extraction of secrets.
    ///
    /// # Errors
    /// rustls rejects the configuration.
    pub fn new(config: Arc<ClientConfig>, name: ServerName<'static>) -> Result<Self, Error> {
        let connection = UnbufferedClientConnection::new(config, name)?;
        Ok(Self { connection, incoming: Vec::new(), filled: 0, shown: 0, outgoing: Vec::new() })
    }

    /// Continues to the next input or output.
    ///
    /// # Errors
    /// The server violated the protocol, or its certificate or parameters are rejected.
    pub fn step(&mut self) -> Result<Step, Error> {
        loop {
            let Self { connection, incoming, shown, outgoing, .. } = self;
            let UnbufferedStatus { discard, state } = connection.process_tls_records(&mut incoming[..*shown]);
            let mut step = None;
            let mut may_send_data = false;
            match state? {
                ConnectionState::EncodeTlsData(mut data) => encode(&mut data, outgoing)?,
                ConnectionState::TransmitTlsData(mut data) => {
                    let last = data.may_encrypt_app_data().is_some();
                    data.done();
                    step = Some(Step::Send { bytes: std::mem::take(outgoing), last });
                }
                ConnectionState::BlockedHandshake => step = Some(Step::Receive),
                ConnectionState::WriteTraffic(_) => {
                    step = Some(Step::Receive);
                    may_send_data = true;
                }
                other => return Err(Error::General(format!("unexpected state {other:?}"))),
            }
            self.incoming.drain(..discard);
            self.filled -= discard;
            self.shown -= discard;
            if may_send_data && !self.connection.is_handshaking() {
                return Ok(Step::Done);
            }
            match step {
                Some(Step::Receive) if self.show_next_record() => {}
                Some(step) => return Ok(step),
                None => {}
            }
        }
    }

    /// Room for received bytes.
    pub fn buffer(&mut self) -> &mut [u8] {
        self.incoming.resize(self.filled + READ, 0);
        &mut self.incoming[self.filled..]
    }

    /// Takes the first `len` bytes of [`Self::buffer`] as received, and returns them.
    ///
    /// # Panics
    /// The buffer is shorter.
    pub fn received(&mut self, len: usize) -> &[u8] {
        let from = self.filled;
        self.filled += len;
        &self.incoming[from..self.filled]
    }

    /// Ends the handshake after [`Step::Done`].
    ///
    /// # Errors
    /// rustls does not return the secrets: see [`Handshake::new`].
    pub fn finish(self) -> Result<Established, Error> {
        let Self { connection, mut incoming, filled, shown, .. } = self;
        if shown > 0 {
            return Err(Error::General("rustls left a part of the handshake unread".to_owned()));
        }
        incoming.truncate(filled);
        let version = match connection.protocol_version() {
            Some(ProtocolVersion::TLSv1_2) => Version::Tls12,
            Some(ProtocolVersion::TLSv1_3) => Version::Tls13,
            other => return Err(Error::General(format!("unexpected version {other:?}"))),
        };
        let suite = connection.negotiated_cipher_suite().and_then(|suite| suite.suite().as_str()).unwrap_or_default();
        let alpn = connection.alpn_protocol().map(<[u8]>::to_vec);
        let resumed = connection.handshake_kind() == Some(HandshakeKind::Resumed);
        let certificate = connection.peer_certificates().and_then(<[_]>::first).map(|first| first.clone().into_owned());
        let (secrets, schedule) = connection.dangerous_into_kernel_connection()?;
        Ok(Established { version, suite, alpn, resumed, certificate, secrets, schedule, incoming })
    }

    /// Passes one more record to rustls, if it has arrived completely.
    fn show_next_record(&mut self) -> bool {
        let rest = &self.incoming[self.shown..self.filled];
        let Some(&[_, _, _, high, low]) = rest.first_chunk::<HEADER_LEN>() else { return false };
        let len = HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
        let whole = rest.len() >= len;
        if whole {
            self.shown += len;
        }
        whole
    }
}

fn encode<T>(data: &mut EncodeTlsData<'_, T>, outgoing: &mut Vec<u8>) -> Result<(), Error> {
    let at = outgoing.len();
    let Err(EncodeError::InsufficientSize(needed)) = data.encode(&mut []) else {
        return Ok(());
    };
    outgoing.resize(at + needed.required_size, 0);
    data.encode(&mut outgoing[at..]).map(drop).map_err(|error| Error::General(error.to_string()))
}

/// Room for one read. Most servers' first flight fits.
const READ: usize = 4096;

#[cfg(test)]
mod tests {
    use std::io::Write;

    use rustls::pki_types::PrivateKeyDer;
    use rustls::{RootCertStore, ServerConfig, ServerConnection, SupportedProtocolVersion};

    use super::*;

    fn pair(version: &'static SupportedProtocolVersion) -> (Handshake, ServerConnection) {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("a certificate");
        let mut roots = RootCertStore::empty();
        roots.add(made.cert.der().clone()).expect("a trust anchor");
        let mut client = ClientConfig::builder_with_protocol_versions(&[version])
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let server = ServerConfig::builder_with_protocol_versions(&[version])
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("they belong together");
        let name = ServerName::try_from("localhost").expect("a name");
        let client = Handshake::new(Arc::new(client), name).expect("a good configuration");
        (client, ServerConnection::new(Arc::new(server)).expect("a good configuration"))
    }

    /// Runs the handshake with the server's data cut into pieces of `piece` bytes. Also returns which flights were
    /// last.
    fn run(version: &'static SupportedProtocolVersion, piece: usize) -> (Established, Vec<bool>) {
        let (mut client, mut server) = pair(version);
        // Leaves directly after the server's last handshake record.
        server.writer().write_all(b"early").expect("it is kept");
        let (mut wire, mut flights) = (Vec::new(), Vec::new());
        loop {
            match client.step().expect("the handshake succeeds") {
                Step::Send { bytes, last } => {
                    flights.push(last);
                    let mut bytes = bytes.as_slice();
                    while !bytes.is_empty() {
                        server.read_tls(&mut bytes).expect("it reads memory");
                        server.process_new_packets().expect("it is agreed");
                    }
                }
                Step::Receive => {
                    while server.wants_write() {
                        server.write_tls(&mut wire).expect("it writes memory");
                    }
                    let len = piece.min(wire.len()).min(client.buffer().len());
                    assert!(len > 0, "both wait");
                    client.buffer()[..len].copy_from_slice(&wire[..len]);
                    assert_eq!(client.received(len), &wire[..len]);
                    wire.drain(..len);
                }
                Step::Done => break,
            }
        }
        let established = client.finish().expect("secrets");
        (established, flights)
    }

    #[test]
    fn both_versions_agree_however_the_bytes_come() {
        for piece in [1, 7, usize::MAX] {
            let (tls13, flights) = run(&rustls::version::TLS13, piece);
            assert_eq!((tls13.version, tls13.resumed), (Version::Tls13, false));
            // Only the last flight is marked as last.
            assert_eq!(flights.iter().position(|&last| last), Some(flights.len() - 1), "{flights:?}");
            let (tls12, _) = run(&rustls::version::TLS12, piece);
            assert_eq!((tls12.version, tls12.certificate.is_some()), (Version::Tls12, true));
        }
    }

    #[test]
    fn data_behind_the_handshake_is_left_sealed() {
        let (established, _) = run(&rustls::version::TLS12, usize::MAX);
        let header = established.incoming.first_chunk::<HEADER_LEN>().expect("a record");
        assert_eq!(header[0], 23, "application data, RFC 5246 §6.2.1");
        assert_eq!(established.incoming.len(), HEADER_LEN + usize::from(u16::from_be_bytes([header[3], header[4]])));
    }
}
