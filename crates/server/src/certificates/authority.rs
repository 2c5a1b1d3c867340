//! A local certificate authority, made by `sealion trust`. It issues the development certificate, so that programs that
//! trust its root need no exception. Its name constraints only cover this machine's own names: a stolen key cannot
//! impersonate another host.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints,
};

use super::private_file;

/// Ten years. The name constraints limit the damage of a lost key, and each new root has to be added to all stores.
const VALIDITY: Duration = Duration::from_secs(3650 * 24 * 3600);

/// The files of the authority.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Authority {
    /// The root certificate for stores, PEM.
    pub(crate) root: PathBuf,
    /// PEM, mode 0600.
    key: PathBuf,
}

impl Authority {
    fn within(directory: &Path) -> Self {
        Self { root: directory.join("authority.crt"), key: directory.join("authority.key") }
    }

    /// The authority in a directory, if `sealion trust` has made one there.
    pub(crate) fn find(directory: &Path) -> Option<Self> {
        let files = Self::within(directory);
        (files.root.exists() && files.key.exists()).then_some(files)
    }

    /// Finds the authority in a directory, or makes it.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn find_or_make(directory: &Path) -> io::Result<Self> {
        if let Some(found) = Self::find(directory) {
            return Ok(found);
        }
        private_file::directory(directory)?;
        let files = Self::within(directory);
        let (root, key) = make().map_err(io::Error::other)?;
        // Writes the key first: a root without its key is not found.
        private_file::write(&files.key, key.as_bytes())?;
        private_file::write(&files.root, root.as_bytes())?;
        Ok(files)
    }

    /// Signs a certificate. The result is PEM.
    pub(super) fn issue(&self, params: &CertificateParams, key: &KeyPair) -> io::Result<String> {
        let own = KeyPair::from_pem(&fs::read_to_string(&self.key)?).map_err(io::Error::other)?;
        let issuer = Issuer::from_ca_cert_pem(&fs::read_to_string(&self.root)?, own).map_err(io::Error::other)?;
        Ok(params.signed_by(key, &issuer).map_err(io::Error::other)?.pem())
    }

    /// Removes its files.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn remove(&self) -> io::Result<()> {
        [&self.key, &self.root].into_iter().try_for_each(fs::remove_file)
    }
}

fn make() -> Result<(String, String), rcgen::Error> {
    let mut params = CertificateParams::default();
    let key = KeyPair::generate()?;
    let system = rustix::system::uname();
    let host = system.nodename().to_string_lossy();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::OrganizationName, "Sealion local authority");
    params.distinguished_name.push(DnType::CommonName, format!("Sealion local authority of {host}"));
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    params.name_constraints = Some(NameConstraints {
        permitted_subtrees: vec![
            GeneralSubtree::DnsName("localhost".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::V4([127, 0, 0, 0], [255, 0, 0, 0])),
            GeneralSubtree::IpAddress(CidrSubnet::V6(1u128.to_be_bytes(), [255; 16])),
        ],
        excluded_subtrees: Vec::new(),
    });
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + VALIDITY).into();
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}
