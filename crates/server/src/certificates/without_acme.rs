//! Replaces `acme/` in a program without the feature `acme`: rejects sites that use ACME. Its other types have no
//! values, so that nothing is left to do at run time.

use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;

use sealion_tls::{Certificate, CertificateSource, NoCertificate, SiteCertificates};

use super::CertifiedSite;
use super::config::{AcmeConfig, AcmeOnDemandConfig, ChallengeKind};
use super::pair::{Loaded, PairFiles};
use crate::values::{Problems, features};

#[derive(Debug)]
pub(super) enum Settings {}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum AcmeSite {}

#[derive(Debug)]
pub(super) enum Source {}

/// Certificates ordered when a client asks for them: none.
#[derive(Debug, Default)]
pub(crate) struct OnDemand;

/// Responses to HTTP-01 validations: none.
#[derive(Debug, Default)]
pub(crate) struct HttpChallenges;

impl Settings {
    /// `None`; the sites that use the account are in `problems`.
    pub(super) fn new(_: &AcmeConfig, _: &str, sites: &[&CertifiedSite<'_>], problems: &mut Problems) -> Option<Self> {
        for site in sites {
            problems.add(&site.acme_span, "site.acme", features::left_out("acme", "set `certificates` instead"));
        }
        None
    }

    pub(super) fn challenge(&self) -> ChallengeKind {
        match *self {}
    }

    pub(super) fn site(
        &self,
        _: &CertifiedSite<'_>,
        _: &mut Vec<String>,
        _: &mut Problems,
    ) -> Option<(AcmeSite, Loaded)> {
        match *self {}
    }

    pub(super) fn on_demand(
        &self,
        _: &CertifiedSite<'_>,
        _: &AcmeOnDemandConfig,
        _: &OnDemand,
        _: &mut Problems,
    ) -> Option<Source> {
        match *self {}
    }

    pub(super) fn make_directory(&self) -> Result<Vec<PathBuf>, String> {
        match *self {}
    }
}

impl Source {
    pub(super) fn placeholder() -> Result<SiteCertificates, String> {
        Err(features::left_out("acme", "set `certificates` instead").to_string())
    }
}

impl CertificateSource for Source {
    fn certificate(
        &self,
        _: &str,
        _: Option<IpAddr>,
    ) -> Pin<Box<dyn Future<Output = Result<Certificate, NoCertificate>> + Send + '_>> {
        match *self {}
    }
}

impl AcmeSite {
    pub(super) fn files(&self) -> PairFiles {
        match *self {}
    }
}

impl HttpChallenges {
    pub(crate) fn answer(&self, _: &str) -> Option<String> {
        None
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::config::AcmeUse;
    use super::*;

    #[test]
    fn a_site_that_asks_for_acme_is_refused_with_what_to_do() {
        let site = CertifiedSite {
            label: "a.test".to_owned(),
            names: vec!["a.test".to_owned()],
            reject_handshake: false,
            span: 0..0,
            default: true,
            certificates: &[],
            acme: AcmeUse::Default,
            acme_span: 0..0,
            on_demand: None,
            client_auth: None,
            expired_lists: Default::default(),
            http2: true,
        };
        let mut problems = Problems::of_file(Path::new("sealion.toml"), "");
        assert!(Settings::new(&AcmeConfig::default(), "tls.acme", &[&site], &mut problems).is_none());
        let text = problems.to_string();
        assert!(text.contains("site.acme") && text.contains("without the feature `acme`"), "{text}");
        assert!(text.contains("set `certificates` instead"), "{text}");
    }
}
