//! TLS to servers: certificates are always verified.

use std::sync::Arc;

use rustls::ClientConfig;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls_platform_verifier::BuilderVerifierExt;
use tokio_rustls::TlsConnector;

use super::config::{Protocol, ServerUrl, UpstreamTlsConfig, UrlScheme};
use super::connect::{ALPN_HTTP2, Tls};
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
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().ok()?;
        let verified = match &self.config.roots {
            None => builder.with_platform_verifier(),
            Some(file) => {
                let mut roots = rustls::RootCertStore::empty();
                let read = CertificateDer::pem_file_iter(problems.resolve(file)).map_err(|e| e.to_string());
                let added = read.and_then(|certificates| {
                    for certificate in certificates {
                        roots.add(certificate.map_err(|e| e.to_string())?).map_err(|e| e.to_string())?;
                    }
                    if roots.is_empty() { Err("no certificate in it".to_owned()) } else { Ok(()) }
                });
                if let Err(error) = added {
                    let what = format_args!("{}: {error}: name a file with certificates in PEM", file.value.display());
                    problems.add(&file.span, &format!("{}.roots", self.key), what);
                    return None;
                }
                Ok(builder.with_root_certificates(roots))
            }
        };
        let verified = match verified {
            Ok(verified) => verified,
            Err(error) => {
                let what = format_args!("the system's roots cannot be read: {error}: set roots");
                problems.add(&(0..0), &format!("{}.roots", self.key), what);
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
