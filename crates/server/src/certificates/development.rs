//! A self-signed certificate for localhost, made on first use and kept, so that a browser's exception for it lasts.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair, SanType};

use crate::certificates::private_file;

/// The longest validity that browsers accept of public certificates; some apply the limit to all certificates.
const VALIDITY: Duration = Duration::from_secs(397 * 24 * 3600);

/// An older certificate is replaced.
const RENEW_AFTER: Duration = Duration::from_secs(365 * 24 * 3600);

/// Files of the development certificate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct DevCertificate {
    /// PEM.
    pub cert: PathBuf,
    /// Private key, PEM, mode 0600.
    pub key: PathBuf,
    /// Whether this call made the pair.
    pub new: bool,
}

impl DevCertificate {
    /// Loads the pair from `$XDG_DATA_HOME/sealion` or `~/.local/share/sealion`, or makes one there.
    ///
    /// # Errors
    /// The directory cannot be determined or written; the message names it and the remedy.
    pub(crate) fn load_or_make() -> Result<Self, String> {
        let directory = directory().ok_or(
            "no directory for the development certificate: set HOME or XDG_DATA_HOME, or give --cert and --key",
        )?;
        Self::load_or_make_in(&directory).map_err(|error| {
            format!(
                "cannot write a development certificate to {}: {error}. Make the directory writable, or give --cert and --key",
                directory.display()
            )
        })
    }

    /// As [`Self::load_or_make`], in `directory`.
    pub(crate) fn load_or_make_in(directory: &Path) -> io::Result<Self> {
        let kept = Self { cert: directory.join("localhost.crt"), key: directory.join("localhost.key"), new: false };
        let age = fs::metadata(&kept.cert)
            .and_then(|m| m.modified())
            .ok()
            .and_then(|made| SystemTime::now().duration_since(made).ok());
        if kept.key.exists() && age.is_some_and(|age| age < RENEW_AFTER) {
            return Ok(kept);
        }
        private_file::directory(directory)?;
        let (cert, key) = make().map_err(io::Error::other)?;
        // The key first: the age of the certificate alone decides whether the pair is reused.
        private_file::write(&kept.key, key.as_bytes())?;
        private_file::write(&kept.cert, cert.as_bytes())?;
        Ok(Self { new: true, ..kept })
    }
}

pub(crate) fn directory() -> Option<PathBuf> {
    let absolute = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let data = absolute("XDG_DATA_HOME").or_else(|| Some(absolute("HOME")?.join(".local/share")))?;
    Some(data.join("sealion"))
}

fn make() -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()])?;
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    params.subject_alt_names.push(SanType::IpAddress([0u16, 0, 0, 0, 0, 0, 0, 1].into()));
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "localhost (Sealion development)");
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + VALIDITY).into();
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?;
    Ok((cert.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn the_pair_is_kept_and_private() {
        let directory = std::env::temp_dir().join(format!("sealion-dev-certificate-{}", std::process::id()));
        let first = DevCertificate::load_or_make_in(&directory).unwrap();
        assert!(first.new);
        let text = fs::read(&first.cert).unwrap();
        let second = DevCertificate::load_or_make_in(&directory).unwrap();
        assert!(!second.new);
        assert_eq!(fs::read(&second.cert).unwrap(), text);
        assert_eq!(fs::metadata(&second.key).unwrap().permissions().mode() & 0o777, 0o600);
        fs::remove_dir_all(&directory).unwrap();
    }
}
