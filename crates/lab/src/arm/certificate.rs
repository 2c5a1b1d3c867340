//! The certificate of all servers of a run, made for that run.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rcgen::{CertificateParams, KeyPair};

/// A self-signed ECDSA P-256 certificate and its key, as PEM files.
#[derive(Debug, Clone)]
pub(crate) struct Certificate {
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Certificate {
    /// The name in it.
    pub(crate) const NAME: &str = "localhost";

    /// Makes a certificate and key in `directory`.
    ///
    /// # Errors
    /// The files cannot be written.
    pub(crate) fn make(directory: &Path) -> Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let names = [Self::NAME, "127.0.0.1", "::1"].map(str::to_owned);
        let certificate = CertificateParams::new(names).and_then(|p| p.self_signed(&key));
        let certificate = certificate.context("cannot make a certificate")?;
        let made = Self { certificate: directory.join("certificate.pem"), key: directory.join("key.pem") };
        std::fs::write(&made.certificate, certificate.pem())
            .and_then(|()| std::fs::write(&made.key, key.serialize_pem()))
            .with_context(|| format!("cannot write to {}", directory.display()))?;
        Ok(made)
    }
}
