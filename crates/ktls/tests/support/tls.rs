//! rustls for either end, limited to one version and cipher, with a new certificate.
#![allow(dead_code, reason = "each test program uses a part")]

use std::sync::Arc;

use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{CipherSuite, ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};
use rustls::{SupportedProtocolVersion, crypto};
use sealion_ktls::{Cipher, Version};

/// The configurations of a client and of a server that it trusts.
pub(crate) struct Tls {
    pub(crate) client: Arc<ClientConfig>,
    pub(crate) server: Arc<ServerConfig>,
    /// Certificate and key, as PEM.
    pub(crate) pem: (String, String),
}

impl Tls {
    pub(crate) fn new(version: Version, cipher: Cipher) -> Self {
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = rcgen::CertificateParams::new(["localhost".to_owned()])
            .expect("the name is valid")
            .self_signed(&key)
            .expect("the key signs");
        let pem = (certificate.pem(), key.serialize_pem());
        let certificate: CertificateDer<'static> = certificate.der().clone();

        let mut provider = crypto::aws_lc_rs::default_provider();
        provider.cipher_suites.retain(|suite| suite.suite() == wanted(version, cipher));
        let provider = Arc::new(provider);
        let versions = [protocol(version)];
        let mut roots = RootCertStore::empty();
        roots.add(certificate.clone()).expect("a root");
        let mut client = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&versions)
            .expect("the version has a suite")
            .with_root_certificates(roots)
            .with_no_client_auth();
        client.enable_secret_extraction = true;
        let key = PrivateKeyDer::try_from(key.serialize_der()).expect("a key");
        let mut server = ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&versions)
            .expect("the version has a suite")
            .with_no_client_auth()
            .with_single_cert(vec![certificate], key)
            .expect("the certificate's own key");
        server.enable_secret_extraction = true;
        Self { client: Arc::new(client), server: Arc::new(server), pem }
    }

    pub(crate) fn client(&self) -> ClientConnection {
        let name = ServerName::try_from("localhost").expect("a name");
        ClientConnection::new(Arc::clone(&self.client), name).expect("a client")
    }

    pub(crate) fn server(&self) -> ServerConnection {
        ServerConnection::new(Arc::clone(&self.server)).expect("a server")
    }
}

fn protocol(version: Version) -> &'static SupportedProtocolVersion {
    match version {
        Version::Tls12 => &rustls::version::TLS12,
        Version::Tls13 => &rustls::version::TLS13,
    }
}

fn wanted(version: Version, cipher: Cipher) -> CipherSuite {
    match (version, cipher) {
        (Version::Tls12, Cipher::Aes128Gcm) => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        (Version::Tls12, Cipher::Aes256Gcm) => CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        (Version::Tls12, Cipher::Chacha20Poly1305) => CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        (Version::Tls13, Cipher::Aes128Gcm) => CipherSuite::TLS13_AES_128_GCM_SHA256,
        (Version::Tls13, Cipher::Aes256Gcm) => CipherSuite::TLS13_AES_256_GCM_SHA384,
        (Version::Tls13, Cipher::Chacha20Poly1305) => CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
        (_, other) => panic!("rustls has no {other}"),
    }
}
