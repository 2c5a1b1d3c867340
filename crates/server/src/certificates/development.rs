//! A certificate for localhost, made on first use and kept, so that a browser's exception for it lasts. It is
//! self-signed, or issued by the local authority after `sealion trust` has made one.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use std::{fs, io};

use rcgen::{CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, KeyPair, SanType};

use super::authority::Authority;
use super::private_file;

/// The longest validity that browsers accept for public certificates; some apply the limit to all certificates.
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
    /// Whether the local authority issued it.
    pub of_authority: bool,
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
        let authority = Authority::find(directory);
        let name = if authority.is_some() { "localhost-trusted" } else { "localhost" };
        let file = |extension| directory.join(name).with_extension(extension);
        let kept = Self { cert: file("crt"), key: file("key"), new: false, of_authority: authority.is_some() };
        let made = |path: &Path| fs::metadata(path).and_then(|file| file.modified()).ok();
        let age = made(&kept.cert).and_then(|made| SystemTime::now().duration_since(made).ok());
        // A certificate older than the authority was issued by an earlier authority that was removed.
        let is_current = authority.as_ref().is_none_or(|authority| made(&kept.cert) >= made(&authority.root));
        if kept.key.exists() && is_current && age.is_some_and(|age| age < RENEW_AFTER) {
            return Ok(kept);
        }
        private_file::directory(directory)?;
        let (cert, key) = make(authority.as_ref())?;
        // Writes the key first: only the certificate's age decides whether the pair is reused.
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

fn make(authority: Option<&Authority>) -> io::Result<(String, String)> {
    let mut params = CertificateParams::new(vec!["localhost".to_owned()]).map_err(io::Error::other)?;
    params.subject_alt_names.push(SanType::IpAddress([127, 0, 0, 1].into()));
    params.subject_alt_names.push(SanType::IpAddress([0u16, 0, 0, 0, 0, 0, 0, 1].into()));
    for name in authority.iter().flat_map(|authority| authority.names()) {
        params.subject_alt_names.push(name.subject().map_err(io::Error::other)?);
    }
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "localhost (Sealion development)");
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + VALIDITY).into();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(io::Error::other)?;
    let cert = match authority {
        Some(authority) => {
            params.use_authority_key_identifier_extension = true;
            authority.issue(&params, &key)?
        }
        None => params.self_signed(&key).map_err(io::Error::other)?.pem(),
    };
    Ok((cert, key.serialize_pem()))
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

    #[test]
    fn an_authority_issues_the_pair_until_it_is_removed_or_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let directory = directory.path();
        let before = DevCertificate::load_or_make_in(directory).unwrap();
        let authority = Authority::make(directory, &[]).unwrap();
        let issued = DevCertificate::load_or_make_in(directory).unwrap();
        assert!(issued.new && issued.of_authority && issued.cert != before.cert);
        assert!(!DevCertificate::load_or_make_in(directory).unwrap().new);
        assert_eq!(Authority::find(directory), Some(authority.clone()));
        authority.remove().unwrap();
        assert_eq!(DevCertificate::load_or_make_in(directory).unwrap(), DevCertificate { new: false, ..before });
        let names = ["app.test".parse().unwrap(), "10.0.0.7".parse().unwrap()];
        assert_eq!(Authority::make(directory, &names).unwrap().names(), names);
        assert!(DevCertificate::load_or_make_in(directory).unwrap().new, "of the authority that is gone");
        let mode = fs::metadata(directory.join("authority.key")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }
}
