//! Certificates for tests, made by every test program for itself.

use std::path::{Path, PathBuf};

use std::sync::Mutex;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyIdMethod, KeyPair, PKCS_RSA_SHA256, RevokedCertParams, RsaKeySize, SerialNumber,
};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// The name in every certificate made here.
pub const SERVER_NAME: &str = "localhost";

/// A certificate and its key, as PEM files in a directory of their own that is removed on drop.
/// Unless an [`Authority`] issued it, it is self-signed.
pub struct Pki {
    directory: tempfile::TempDir,
    certificate: CertificateDer<'static>,
    key: PrivateKeyDer<'static>,
}

/// A certificate authority; its own certificate is `certificate.pem` in its directory.
pub struct Authority {
    pki: Pki,
    issuer: Issuer<'static, KeyPair>,
    /// The names of its clients; the place is the serial number.
    clients: Mutex<Vec<String>>,
}

impl Authority {
    /// Makes an authority with this name.
    pub fn new(name: &str) -> Self {
        let key = rsa_or_ecdsa(false);
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        let certificate = params.self_signed(&key).expect("the key signs");
        let pki = Pki::write(&certificate, &key);
        Self { pki, issuer: Issuer::new(params, key), clients: Mutex::default() }
    }

    /// Its own certificate and key.
    pub fn pki(&self) -> &Pki {
        &self.pki
    }

    /// A certificate for a client.
    pub fn issue_client(&self, name: &str) -> Pki {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.extended_key_usages.push(ExtendedKeyUsagePurpose::ClientAuth);
        {
            let mut clients = self.clients.lock().expect("no test panics in it");
            params.serial_number = Some(SerialNumber::from(clients.len() as u64 + 1));
            clients.push(name.to_owned());
        }
        let key = rsa_or_ecdsa(false);
        let certificate = params.signed_by(&key, &self.issuer).expect("the authority signs");
        Pki::write(&certificate, &key)
    }

    /// Its list of revoked clients, PEM, to be renewed by `until`.
    pub fn revocation_list(&self, revoked: &[&str], until: SystemTime) -> String {
        let clients = self.clients.lock().expect("no test panics in it");
        let begun = until - Duration::from_secs(48 * 3600);
        let serial = |name: &&str| clients.iter().position(|client| client == name).expect("it is a client") as u64 + 1;
        let params = CertificateRevocationListParams {
            this_update: begun.into(),
            next_update: until.into(),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked
                .iter()
                .map(|name| RevokedCertParams {
                    serial_number: SerialNumber::from(serial(name)),
                    revocation_time: begun.into(),
                    reason_code: None,
                    invalidity_date: None,
                })
                .collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        params.signed_by(&self.issuer).expect("the authority signs").pem().expect("it has a PEM form")
    }
}

impl Pki {
    /// An ECDSA P-256 key: quick to make, and what most servers use.
    pub fn ecdsa() -> Self {
        Self::self_signed(params(&OWN_NAMES), &rsa_or_ecdsa(false))
    }

    /// An RSA key of 2048 bits.
    pub fn rsa() -> Self {
        Self::self_signed(params(&OWN_NAMES), &rsa_or_ecdsa(true))
    }

    /// An ECDSA key and a certificate for these names.
    pub fn for_names(names: &[&str]) -> Self {
        Self::self_signed(params(names), &rsa_or_ecdsa(false))
    }

    /// An RSA key and a certificate for these names.
    pub fn rsa_for_names(names: &[&str]) -> Self {
        Self::self_signed(params(names), &rsa_or_ecdsa(true))
    }

    /// An ECDSA key and a certificate for these names that is valid in this time alone.
    pub fn valid(names: &[&str], from: SystemTime, until: SystemTime) -> Self {
        let mut params = params(names);
        params.not_before = from.into();
        params.not_after = until.into();
        Self::self_signed(params, &rsa_or_ecdsa(false))
    }

    /// The certificate's PEM file.
    pub fn certificate_file(&self) -> PathBuf {
        self.directory().join("certificate.pem")
    }

    /// The private key's PEM file.
    pub fn key_file(&self) -> PathBuf {
        self.directory().join("key.pem")
    }

    /// The directory of the files; a test may add others.
    pub fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// The certificate, to be trusted by a client.
    pub fn certificate(&self) -> &CertificateDer<'static> {
        &self.certificate
    }

    /// The key, for a client that shows the certificate.
    pub fn key(&self) -> PrivateKeyDer<'static> {
        self.key.clone_key()
    }

    fn self_signed(params: CertificateParams, key: &KeyPair) -> Self {
        Self::write(&params.self_signed(key).expect("the key signs"), key)
    }

    fn write(certificate: &rcgen::Certificate, key: &KeyPair) -> Self {
        let directory = tempfile::tempdir().expect("a directory for the PEM files");
        let der = PrivateKeyDer::try_from(key.serialize_der()).expect("rcgen writes PKCS #8");
        let pki = Self { directory, certificate: certificate.der().clone(), key: der };
        std::fs::write(pki.certificate_file(), certificate.pem()).expect("the PEM file is written");
        std::fs::write(pki.key_file(), key.serialize_pem()).expect("the PEM file is written");
        pki
    }
}

/// The names in a certificate unless a test wants others.
const OWN_NAMES: [&str; 3] = [SERVER_NAME, "127.0.0.1", "::1"];

fn params(names: &[&str]) -> CertificateParams {
    let names: Vec<String> = names.iter().map(ToString::to_string).collect();
    CertificateParams::new(names).expect("the names are valid")
}

fn rsa_or_ecdsa(rsa: bool) -> KeyPair {
    let key = if rsa { KeyPair::generate_rsa_for(&PKCS_RSA_SHA256, RsaKeySize::_2048) } else { KeyPair::generate() };
    key.expect("aws-lc makes keys")
}
