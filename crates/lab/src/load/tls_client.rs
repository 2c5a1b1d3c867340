//! The clients' TLS configuration: suites, trust anchors and sessions.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::aws_lc_rs;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CipherSuite, ClientConfig, NamedGroup, RootCertStore, SupportedCipherSuite};
use sealion_client::AnyCertificate;

use super::{LoadPlan, Protocol, Suite};

/// The key exchange is always X25519, so that servers are compared on the same exchange.
pub(super) fn config(plan: &LoadPlan) -> Result<Arc<ClientConfig>> {
    let mut provider = aws_lc_rs::default_provider();
    provider.kx_groups = vec![aws_lc_rs::kx_group::X25519];
    let is_quic = matches!(plan.protocol, Protocol::Http3 { .. });
    // quinn does not tell which suite was agreed on, so that QUIC offers one.
    let only = if is_quic && plan.suites.is_empty() { &[Suite::Aes128Gcm][..] } else { &plan.suites };
    if !only.is_empty() {
        provider.cipher_suites = in_order(only, &provider.cipher_suites);
    }
    let mut versions = Vec::new();
    for version in rustls::ALL_VERSIONS {
        if provider.cipher_suites.iter().any(|suite| suite.version() == *version) {
            versions.push(*version);
        }
    }
    if versions.as_slice() == [&rustls::version::TLS12] {
        // In TLS 1.2 the list of groups also restricts a certificate's curves (RFC 8422 §5.1): without P-256 OpenSSL
        // refuses to use the certificate. Servers still prefer the first.
        provider.kx_groups.push(aws_lc_rs::kx_group::SECP256R1);
    }
    let provider = Arc::new(provider);
    let builder = ClientConfig::builder_with_provider(provider.clone()).with_protocol_versions(&versions)?;
    let mut config = match &plan.roots {
        Some(file) => {
            let mut roots = RootCertStore::empty();
            let cannot = || format!("cannot read certificates from {}", file.display());
            for certificate in CertificateDer::pem_file_iter(file).with_context(cannot)? {
                roots.add(certificate.with_context(cannot)?).with_context(cannot)?;
            }
            builder.with_root_certificates(roots).with_no_client_auth()
        }
        None => {
            let any = Arc::new(AnyCertificate(provider));
            builder.dangerous().with_custom_certificate_verifier(any).with_no_client_auth()
        }
    };
    config.alpn_protocols = plan.protocol.alpn().map(<[u8]>::to_vec).into_iter().collect();
    config.enable_secret_extraction = true;
    config.resumption =
        if plan.resume { Resumption::store(Arc::new(Sessions::default())) } else { Resumption::disabled() };
    Ok(Arc::new(config))
}

fn in_order(wanted: &[Suite], known: &[SupportedCipherSuite]) -> Vec<SupportedCipherSuite> {
    let of = |suite: &Suite| -> &[CipherSuite] {
        match suite {
            Suite::Aes128Gcm => &[CipherSuite::TLS13_AES_128_GCM_SHA256],
            Suite::Aes256Gcm => &[CipherSuite::TLS13_AES_256_GCM_SHA384],
            Suite::Chacha20Poly1305 => &[CipherSuite::TLS13_CHACHA20_POLY1305_SHA256],
            Suite::Tls12Aes128Gcm => &[
                CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
            ],
            Suite::Tls12Aes256Gcm => &[
                CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
            ],
        }
    };
    let ids = wanted.iter().flat_map(of);
    ids.filter_map(|id| known.iter().find(|suite| suite.suite() == *id).copied()).collect()
}

/// Sessions of all connections of a load. A TLS 1.3 ticket is used once (RFC 8446 appendix C.4). Without an unused
/// ticket a connection makes a full handshake, which brings new tickets.
#[derive(Debug, Default)]
struct Sessions {
    tickets: Mutex<VecDeque<Tls13ClientSessionValue>>,
    tls12: Mutex<Option<Tls12ClientSessionValue>>,
    group: Mutex<Option<NamedGroup>>,
}

/// The maximum number of tickets kept, a few for each of 2,000 connections. The oldest are dropped first.
const MAX_TICKETS: usize = 8192;

const HELD: &str = "no holder of the lock panics";

impl ClientSessionStore for Sessions {
    fn set_kx_hint(&self, _: ServerName<'static>, group: NamedGroup) {
        *self.group.lock().expect(HELD) = Some(group);
    }

    fn kx_hint(&self, _: &ServerName<'_>) -> Option<NamedGroup> {
        *self.group.lock().expect(HELD)
    }

    fn set_tls12_session(&self, _: ServerName<'static>, value: Tls12ClientSessionValue) {
        *self.tls12.lock().expect(HELD) = Some(value);
    }

    fn tls12_session(&self, _: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.tls12.lock().expect(HELD).clone()
    }

    fn remove_tls12_session(&self, _: &ServerName<'static>) {
        *self.tls12.lock().expect(HELD) = None;
    }

    fn insert_tls13_ticket(&self, _: ServerName<'static>, value: Tls13ClientSessionValue) {
        let mut tickets = self.tickets.lock().expect(HELD);
        if tickets.len() == MAX_TICKETS {
            tickets.pop_front();
        }
        tickets.push_back(value);
    }

    fn take_tls13_ticket(&self, _: &ServerName<'static>) -> Option<Tls13ClientSessionValue> {
        self.tickets.lock().expect(HELD).pop_front()
    }
}
