//! TLS of this server as a client: of upstreams, and for requests on its own account.

use std::any::Any;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use rustls::client::WantsClientCert;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ConfigBuilder, RootCertStore};
use rustls_platform_verifier::BuilderVerifierExt;
use sealion_tls::Pipe;
use tokio::io::{AsyncRead, AsyncWrite, Interest};
use tokio::net::{TcpStream, UnixStream};

/// The bytes of a connection, with TLS or without.
pub(crate) trait Io: AsyncRead + AsyncWrite + Unpin + Send + Sync + Any {}

impl<T: AsyncRead + AsyncWrite + Unpin + Send + Sync + Any> Io for T {}

/// The socket of a connection without TLS.
#[derive(Debug, Clone, Copy)]
pub(crate) enum BareSocket<'a> {
    Tcp(&'a TcpStream),
    Unix(&'a UnixStream),
}

impl dyn Io {
    /// `None`: the connection has TLS.
    pub(crate) fn bare_socket(&self) -> Option<BareSocket<'_>> {
        let any: &dyn Any = self;
        let tcp = any.downcast_ref().map(BareSocket::Tcp);
        tcp.or_else(|| any.downcast_ref().map(BareSocket::Unix))
    }
}

impl BareSocket<'_> {
    /// Moves bytes that come into the empty pipe, at most `most`. 0: the other side has closed the connection.
    pub(crate) fn poll_fill(self, cx: &mut Context<'_>, pipe: &mut Pipe, most: u64) -> Poll<io::Result<usize>> {
        loop {
            let filled = match self {
                BareSocket::Tcp(socket) => {
                    ready!(socket.poll_read_ready(cx))?;
                    socket.try_io(Interest::READABLE, || pipe.fill(socket, most))
                }
                BareSocket::Unix(socket) => {
                    ready!(socket.poll_read_ready(cx))?;
                    socket.try_io(Interest::READABLE, || pipe.fill(socket, most))
                }
            };
            match filled {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                filled => return Poll::Ready(filled),
            }
        }
    }
}

/// TLS of a client that shows no certificate. `roots`: as of [`verifying`].
///
/// # Errors
/// As of [`verifying`].
#[cfg(any(feature = "acme", feature = "otlp"))]
pub(crate) fn connector(roots: Option<&Path>) -> Result<tokio_rustls::TlsConnector, String> {
    Ok(tokio_rustls::TlsConnector::from(Arc::new(verifying(roots)?.with_no_client_auth())))
}

/// A configuration that verifies servers by the certificates in a file, or by the system's.
///
/// # Errors
/// The file or the system's roots cannot be read; with the remedy.
pub(crate) fn verifying(roots: Option<&Path>) -> Result<ConfigBuilder<ClientConfig, WantsClientCert>, String> {
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(provider);
    let builder = builder.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    let Some(file) = roots else {
        let verified = builder.with_platform_verifier();
        return verified.map_err(|error| format!("the system's roots cannot be read: {error}: set roots"));
    };
    let failed = |error: String| format!("{}: {error}: name a file with certificates in PEM", file.display());
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| failed(error.to_string()))? {
        let added = certificate
            .map_err(|error| error.to_string())
            .and_then(|certificate| store.add(certificate).map_err(|error| error.to_string()));
        added.map_err(failed)?;
    }
    if store.is_empty() {
        return Err(failed("no certificate in it".to_owned()));
    }
    Ok(builder.with_root_certificates(store))
}
