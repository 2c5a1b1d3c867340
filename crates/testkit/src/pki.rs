//! Certificates for tests, made anew by every test program.

use std::path::{Path, PathBuf};

use rcgen::{CertificateParams, KeyPair, PKCS_RSA_SHA256, RsaKeySize};
use rustls::pki_types::CertificateDer;

/// The name in every certificate made here.
pub const SERVER_NAME: &str = "localhost";

/// A self-signed certificate and its key, as PEM files in a directory of their own that is removed
/// on drop.
pub struct Pki {
    directory: tempfile::TempDir,
    certificate: CertificateDer<'static>,
}

impl Pki {
    /// An ECDSA P-256 key: quick to make, and what most servers use.
    pub fn ecdsa() -> Self {
        Self::from_key(&KeyPair::generate().expect("aws-lc makes P-256 keys"))
    }

    /// An RSA key of 2048 bits.
    pub fn rsa() -> Self {
        let key = KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048);
        Self::from_key(&key.expect("aws-lc makes RSA keys"))
    }

    /// The certificate's PEM file.
    pub fn certificate_file(&self) -> PathBuf {
        self.directory().join("certificate.pem")
    }

    /// The private key's PEM file.
    pub fn key_file(&self) -> PathBuf {
        self.directory().join("key.pem")
    }

    /// Where the files lie; a test may put more there.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The certificate, to be trusted by a client.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    fn from_key(key: &KeyPair) -> Self {
        let names = [SERVER_NAME, "127.0.0.1", "::1"].map(str::to_owned);
        let params = CertificateParams::new(names).expect("the names are valid");
        let certificate = params.self_signed(key).expect("the key signs");
        let directory = tempfile::tempdir().expect("a directory for the PEM files");
        let pki = Self { directory, certificate: certificate.der().clone() };
        std::fs::write(pki.certificate_file(), certificate.pem()).expect("the PEM file is written");
        std::fs::write(pki.key_file(), key.serialize_pem()).expect("the PEM file is written");
        pki
    }
}
