//! The TLS configurations of listeners.

use std::sync::Arc;

use sealion_tls::{ConfigError, Limits, NameFinder, ServerConfig, SiteCertificates, SiteTls, TlsOptions};

/// Everything that connections need before their first request.
pub(crate) struct Handshakes {
    /// By the place of the listener.
    pub(super) listeners: Vec<OfListener>,
    /// The bounds of every connection.
    pub(crate) bounds: Arc<Limits>,
}

impl Handshakes {
    /// The configuration for the listener at this place. `None`: it has no TLS.
    pub(crate) fn of(&self, listener: usize) -> Option<&Arc<ServerConfig>> {
        self.listeners.get(listener)?.tcp.as_ref()
    }

    /// The configuration for HTTP/3 of the listener at this place.
    pub(crate) fn quic(&self, listener: usize) -> Option<&Arc<ServerConfig>> {
        self.listeners.get(listener)?.quic.as_ref()
    }

    /// Whether a listener has a configuration for HTTP/3.
    pub(crate) fn has_quic(&self) -> bool {
        self.listeners.iter().any(|listener| listener.quic.is_some())
    }

    /// Whether there are certificates for listeners with TLS.
    pub(crate) fn has_tls(&self) -> bool {
        self.listeners.iter().any(|listener| listener.tcp.is_some())
    }
}

/// The configurations of a listener.
#[derive(Default, Clone)]
pub(super) struct OfListener {
    /// `None`: it has no TLS.
    tcp: Option<Arc<ServerConfig>>,
    /// For HTTP/3. `None`: it has none, or no suite is one of TLS 1.3.
    quic: Option<Arc<ServerConfig>>,
}

/// A listener with TLS.
#[derive(Debug, Clone)]
pub(crate) struct TlsListener {
    /// Equal for listeners with the same sites.
    pub(crate) table: usize,
    /// The places of its sites, that for unknown names first.
    pub(crate) sites: Vec<usize>,
    /// Which of them has a name.
    pub(crate) names: NameFinder,
    pub(crate) http2: bool,
    pub(crate) http3: bool,
}

/// The configurations of listeners while they are made.
pub(super) struct ListenerConfigs<'a> {
    /// By place.
    pub(super) sites: &'a [SiteTls],
    /// The certificates of a listener that no site is served on.
    pub(super) shared: &'a Arc<SiteCertificates>,
    pub(super) options: &'a TlsOptions,
    pub(super) bounds: &'a Arc<Limits>,
    /// Listeners with the same sites and protocols share a configuration.
    pub(super) made: Vec<(&'a TlsListener, OfListener)>,
}

impl<'a> ListenerConfigs<'a> {
    pub(super) fn of(&mut self, listener: Option<&'a TlsListener>) -> Result<OfListener, ConfigError> {
        let Some(listener) = listener else { return Ok(OfListener::default()) };
        let kind = |listener: &TlsListener| (listener.table, listener.http2, listener.http3);
        if let Some((_, made)) = self.made.iter().find(|(other, _)| kind(other) == kind(listener)) {
            return Ok(made.clone());
        }
        let mut sites: Vec<SiteTls> = listener.sites.iter().map(|place| self.sites[*place].clone()).collect();
        if sites.is_empty() {
            let certificates = self.shared.clone();
            sites.push(SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None });
        }
        let options = TlsOptions { names: Some(listener.names.clone()), ..self.options.clone() };
        let options = if listener.http2 { options } else { TlsOptions { alpn: without_http2(), ..options } };
        let tcp = Some(Arc::new(ServerConfig::new(&sites[0], &sites[1..], &options, self.bounds.clone())?));
        let quic = if listener.http3 { self.quic(&sites, &options) } else { None };
        let made = OfListener { tcp, quic };
        self.made.push((listener, made.clone()));
        Ok(made)
    }

    /// The configuration for HTTP/3, with the same certificates. `None`: no suite is one of TLS 1.3.
    fn quic(&self, sites: &[SiteTls], options: &TlsOptions) -> Option<Arc<ServerConfig>> {
        let sites: Vec<SiteTls> = sites.iter().map(|site| SiteTls { alpn: None, ..site.clone() }).collect();
        let options = TlsOptions {
            alpn: vec![b"h3".to_vec()],
            min_version: sealion_tls::Version::Tls13,
            challenges: None,
            ..options.clone()
        };
        ServerConfig::new(&sites[0], &sites[1..], &options, self.bounds.clone()).map(Arc::new).ok()
    }
}

/// The protocols of a site or a listener without HTTP/2.
pub(super) fn without_http2() -> Vec<Vec<u8>> {
    vec![b"http/1.1".to_vec(), b"http/1.0".to_vec()]
}
