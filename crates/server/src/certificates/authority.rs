//! A local certificate authority, made by `sealion trust`. It issues the development certificate, so that programs that
//! trust its root need no exception. Its name constraints only cover this machine's own names, and the names given
//! at its making: a stolen key cannot impersonate another host.

use std::fmt;
use std::fs;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CidrSubnet, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    GeneralSubtree, IsCa, Issuer, KeyPair, KeyUsagePurpose, NameConstraints, SanType,
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
    /// Names beside this machine's own, a line for each.
    names: PathBuf,
}

impl Authority {
    fn within(directory: &Path) -> Self {
        Self {
            root: directory.join("authority.crt"),
            key: directory.join("authority.key"),
            names: directory.join("authority.names"),
        }
    }

    /// The authority in a directory, if `sealion trust` has made one there.
    pub(crate) fn find(directory: &Path) -> Option<Self> {
        let files = Self::within(directory);
        (files.root.exists() && files.key.exists()).then_some(files)
    }

    /// The names that it can vouch for beside this machine's own.
    pub(crate) fn names(&self) -> Vec<DevelopmentName> {
        let text = fs::read_to_string(&self.names).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Makes an authority for this machine and these names.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub(crate) fn make(directory: &Path, names: &[DevelopmentName]) -> io::Result<Self> {
        private_file::directory(directory)?;
        let files = Self::within(directory);
        let (root, key) = make(names).map_err(io::Error::other)?;
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        private_file::write(&files.names, lines.as_bytes())?;
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
        if self.names.exists() {
            fs::remove_file(&self.names)?;
        }
        [&self.key, &self.root].into_iter().try_for_each(fs::remove_file)
    }
}

/// A name that the development certificate has beside localhost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum DevelopmentName {
    /// In lower case; `*.` at the beginning stands for one label.
    Host(String),
    Address(IpAddr),
}

impl DevelopmentName {
    /// The name in a certificate.
    pub(super) fn subject(&self) -> Result<SanType, rcgen::Error> {
        Ok(match self {
            Self::Host(name) => SanType::DnsName(name.as_str().try_into()?),
            Self::Address(address) => SanType::IpAddress(*address),
        })
    }

    fn subtree(&self) -> GeneralSubtree {
        match self {
            Self::Host(name) => GeneralSubtree::DnsName(name.trim_start_matches("*.").to_owned()),
            Self::Address(IpAddr::V4(address)) => GeneralSubtree::IpAddress(CidrSubnet::V4(address.octets(), [255; 4])),
            Self::Address(IpAddr::V6(address)) => {
                GeneralSubtree::IpAddress(CidrSubnet::V6(address.octets(), [255; 16]))
            }
        }
    }
}

impl fmt::Display for DevelopmentName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Host(name) => f.write_str(name),
            Self::Address(address) => address.fmt(f),
        }
    }
}

impl FromStr for DevelopmentName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Ok(address) = text.parse::<IpAddr>() {
            let is_own = match address {
                IpAddr::V4(address) => address.is_private() || address.is_link_local() || address.is_loopback(),
                IpAddr::V6(address) => {
                    address.is_unique_local() || address.is_unicast_link_local() || address.is_loopback()
                }
            };
            let public = || {
                format!(
                    "{address} is not an address of a local network: an authority of the Internet has to vouch for it"
                )
            };
            return if is_own { Ok(Self::Address(address)) } else { Err(public()) };
        }
        let bare = text.strip_prefix("*.").unwrap_or(text);
        let is_label = |label: &str| {
            let is_of_label = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
            !label.is_empty() && label.len() < 64 && label.bytes().all(is_of_label)
        };
        let has_letter = bare.bytes().any(|byte| byte.is_ascii_alphabetic());
        match bare.split('.').all(is_label) && has_letter {
            true => Ok(Self::Host(text.to_ascii_lowercase())),
            false => Err(format!(
                "{text:?} is neither a name nor an address: write for instance app.test, *.app.test or 192.168.1.7"
            )),
        }
    }
}

fn make(names: &[DevelopmentName]) -> Result<(String, String), rcgen::Error> {
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
        permitted_subtrees: [
            GeneralSubtree::DnsName("localhost".to_owned()),
            GeneralSubtree::IpAddress(CidrSubnet::V4([127, 0, 0, 0], [255, 0, 0, 0])),
            GeneralSubtree::IpAddress(CidrSubnet::V6(1u128.to_be_bytes(), [255; 16])),
        ]
        .into_iter()
        .chain(names.iter().map(DevelopmentName::subtree))
        .collect(),
        excluded_subtrees: Vec::new(),
    });
    let now = SystemTime::now();
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + VALIDITY).into();
    Ok((params.self_signed(&key)?.pem(), key.serialize_pem()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_of_hosts_or_of_a_local_network() {
        for (text, expected) in [
            ("App.test", Ok("app.test")),
            ("*.app.test", Ok("*.app.test")),
            ("nas", Ok("nas")),
            ("192.168.1.7", Ok("192.168.1.7")),
            ("fd00::7", Ok("fd00::7")),
            ("8.8.8.8", Err("not an address of a local network")),
            ("2001:db8::1", Err("not an address of a local network")),
            ("a..b", Err("neither a name nor an address")),
            ("*.*.a", Err("neither a name nor an address")),
            ("*", Err("neither a name nor an address")),
            ("300.1.1.1", Err("neither a name nor an address")),
            ("https://a", Err("neither a name nor an address")),
            ("", Err("neither a name nor an address")),
        ] {
            match (text.parse::<DevelopmentName>(), expected) {
                (Ok(name), Ok(shown)) => assert_eq!(name.to_string(), shown),
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (got, _) => panic!("{text}: {got:?}"),
            }
        }
    }
}
