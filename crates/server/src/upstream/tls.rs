//! TLS to servers: certificates are always verified.

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::TlsConnector;

use super::config::{Protocol, ServerUrl, UpstreamTlsConfig, UrlScheme};
use super::connect::{ALPN_HTTP2, Tls};
use crate::tls_client;
use crate::values::{At, Problems};

/// Makes the connectors of an upstream's servers, which share sessions.
pub(super) struct Connectors<'a> {
    config: &'a UpstreamTlsConfig,
    protocol: Protocol,
    key: String,
    /// `None`: not built yet. `Some(None)`: it cannot be.
    connector: Option<Option<TlsConnector>>,
}

impl<'a> Connectors<'a> {
    pub(super) fn new(config: &'a UpstreamTlsConfig, protocol: Protocol, key: &str) -> Self {
        Connectors { config, protocol, key: format!("{key}.tls"), connector: None }
    }

    /// `None`: the URL is without TLS, or a problem was added.
    pub(super) fn for_server(&mut self, url: &At<ServerUrl>, problems: &mut Problems) -> Option<Tls> {
        let ServerUrl::Tcp { host, scheme: UrlScheme::Https, .. } = &url.value else { return None };
        if self.connector.is_none() {
            self.connector = Some(self.build(problems));
        }
        let connector = self.connector.clone().flatten()?;
        let (name, span) = match &self.config.server_name {
            Some(name) => (name.value.clone(), &name.span),
            None => (host.clone(), &url.span),
        };
        match ServerName::try_from(name) {
            Ok(name) => Some(Tls { connector, name }),
            Err(error) => {
                problems.add(span, &format!("{}.server_name", self.key), error);
                None
            }
        }
    }

    fn build(&self, problems: &mut Problems) -> Option<TlsConnector> {
        let roots = self.config.roots.as_ref();
        let verified = match tls_client::verifying(roots.map(|file| problems.resolve(file)).as_deref()) {
            Ok(verified) => verified,
            Err(error) => {
                let span = roots.map_or(0..0, |file| file.span.clone());
                problems.add(&span, &format!("{}.roots", self.key), error);
                return None;
            }
        };
        let mut config = match (&self.config.cert, &self.config.key) {
            (None, None) => verified.with_no_client_auth(),
            (Some(cert), Some(key)) => {
                let chain = CertificateDer::pem_file_iter(problems.resolve(cert))
                    .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                    .map_err(|error| (cert, error.to_string()));
                let private =
                    PrivateKeyDer::from_pem_file(problems.resolve(key)).map_err(|error| (key, error.to_string()));
                let built = chain.and_then(|chain| {
                    let private = private?;
                    verified.with_client_auth_cert(chain, private).map_err(|error| (cert, error.to_string()))
                });
                match built {
                    Ok(config) => config,
                    Err((file, error)) => {
                        let what = format_args!("{}: {error}", file.value.display());
                        problems.add(&file.span, &format!("{}.cert", self.key), what);
                        return None;
                    }
                }
            }
            (Some(only), None) | (None, Some(only)) => {
                problems.add(&only.span, &self.key, "needs both cert and key: add the other");
                return None;
            }
        };
        if self.protocol == Protocol::Http2 {
            config.alpn_protocols = vec![ALPN_HTTP2.to_vec()];
        }
        Some(TlsConnector::from(Arc::new(config)))
    }
}
