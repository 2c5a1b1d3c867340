//! Loads and orders the certificates of sites while a configuration is built.

use std::sync::Arc;
use std::time::SystemTime;

use sealion_tls::{Certificate, ConfigError, SiteCertificates};

use super::config::{AcmeUse, SessionTicketsConfig};
use super::development::DevCertificate;
use super::ocsp::{self, Staples};
use super::pair::{Loaded, PairFiles, Watched};
use super::ticket_keys::TicketDirectory;
use super::{Account, CertifiedSite, OnDemand, Source, with_remedy};
use crate::values::{Problems, Reported};

/// State while sites are built.
pub(super) struct Building {
    pub(super) accounts: Vec<Account>,
    pub(super) watched: Vec<Watched>,
    pub(super) notes: Vec<String>,
    pub(super) staples: Option<Arc<Staples>>,
    pub(super) on_demand: Arc<OnDemand>,
}

impl Building {
    /// The certificates of a site. `None`: it has no certificates of its own, or the errors are in `problems`.
    pub(super) fn site(&mut self, site: &CertifiedSite<'_>, problems: &mut Problems) -> Option<Arc<SiteCertificates>> {
        let mut pairs = Vec::new();
        let mut complete = true;
        for pair in site.certificates {
            let files = PairFiles { cert: problems.resolve(&pair.cert), key: problems.resolve(&pair.key) };
            match Loaded::from(&files) {
                Ok(loaded) => pairs.push((files, loaded)),
                Err(error) => {
                    let of_key = matches!(&error, ConfigError::Unreadable { path, .. } if *path == files.key && files.key != files.cert);
                    let error = with_remedy(error);
                    match of_key {
                        true => problems.add(&pair.key.span, "site.certificates.key", error),
                        false => problems.add(&pair.cert.span, "site.certificates.cert", error),
                    }
                    complete = false;
                }
            }
        }
        let account = self.accounts.iter_mut().find(|account| account.choice == site.acme);
        let source = match (account, site.on_demand) {
            (Some(account), Some(on_demand)) => {
                Some(account.settings.on_demand(site, on_demand, &self.on_demand, problems)?)
            }
            (Some(account), None) => {
                if let Some((acme, loaded)) = account.settings.site(site, &mut self.notes, problems) {
                    pairs.push((acme.files(), loaded));
                    match account.sites.iter().find(|other| other.files() == acme.files()) {
                        Some(other) if *other != acme => {
                            let what = "another site with the same first name orders a certificate for other names: give both the same names";
                            problems.add(&site.span, "site.acme", what);
                        }
                        // The order covers both.
                        Some(_) => {}
                        None => account.sites.push(acme),
                    }
                }
                None
            }
            (None, Some(on_demand)) if site.acme == AcmeUse::No => {
                let what = "needs an account to order by: set `acme = true`, or `acme = \"NAME\"` for one of [[tls.acme_accounts]]";
                problems.add(&on_demand.ask.span, "site.acme_on_demand", what);
                return None;
            }
            // Its error is in `problems`.
            (None, _) => None,
        };
        match source {
            _ if !complete => None,
            None if pairs.is_empty() => None,
            Some(source) if pairs.is_empty() => match Source::placeholder() {
                Ok(certificates) => Some(Arc::new(certificates.with_source(Arc::new(source)))),
                Err(error) => {
                    problems.add(&site.span, "site.acme_on_demand", error);
                    None
                }
            },
            // Names that the certificates do not cover get certificates on demand.
            Some(source) => Some(self.add(site.label.clone(), Vec::new(), pairs, Some(source))),
            None => {
                // No certificate covers the others.
                let is_coverable = |name: &&String| !name.starts_with('~') && !name.ends_with(".*");
                let names = site.names.iter().filter(is_coverable).cloned().collect();
                Some(self.add(site.label.clone(), names, pairs, None))
            }
        }
    }

    fn add(
        &mut self,
        label: String,
        names: Vec<String>,
        pairs: Vec<(PairFiles, Loaded)>,
        source: Option<Source>,
    ) -> Arc<SiteCertificates> {
        let stapled = |certificate: Certificate| match &self.staples {
            Some(staples) => staples.staple(certificate),
            None => certificate,
        };
        let certificates: Vec<_> = pairs.iter().map(|(_, loaded)| stapled(loaded.certificate.clone())).collect();
        for (certificate, (files, _)) in certificates.iter().zip(&pairs) {
            self.notes.extend(ocsp::note(certificate).map(|note| format!("{files}: {note}")));
        }
        let set = SiteCertificates::new(certificates);
        let set = Arc::new(match source {
            Some(source) => set.with_source(Arc::new(source)),
            None => set,
        });
        let several = pairs.len() > 1;
        for (place, (files, loaded)) in pairs.into_iter().enumerate() {
            // With several certificates, each may cover only some of the names.
            let covered = |name: &String| !set.get().iter().any(|one| one.facts().covers(name));
            let to_cover =
                if several { names.iter().filter(|name| covered(name)).cloned().collect() } else { names.clone() };
            if files.cert.exists() {
                self.notes.extend(files.notes(loaded.certificate.facts(), &to_cover, SystemTime::now()));
            }
            self.watched.push(Watched::new(label.clone(), to_cover, files, set.clone(), place, &loaded));
        }
        set
    }

    pub(super) fn development(&mut self, problems: &mut Problems) -> Option<(Arc<SiteCertificates>, &'static str)> {
        let loaded = DevCertificate::load_or_make().and_then(|pair| {
            let files = PairFiles { cert: pair.cert, key: pair.key };
            let loaded = Loaded::from(&files).map_err(|error| error.to_string())?;
            Ok((files, loaded, (pair.new, pair.of_authority)))
        });
        match loaded {
            Ok((files, loaded, is)) => {
                let note = match is {
                    (true, false) => " (made now, for localhost only: `sealion trust` has browsers accept it)",
                    (false, false) => " (kept, for localhost only: `sealion trust` has browsers accept it)",
                    (true, true) => {
                        " (made now, for localhost and the names of `sealion trust`, issued by the authority of `sealion trust`)"
                    }
                    (false, true) => {
                        " (kept, for localhost and the names of `sealion trust`, issued by the authority of `sealion trust`)"
                    }
                };
                Some((self.add("default".to_owned(), Vec::new(), vec![(files, loaded)], None), note))
            }
            Err(error) => {
                problems.add(&(0..0), "site.certificates", error);
                None
            }
        }
    }

    /// The directory of shared ticket keys, if one is configured.
    pub(super) fn tickets(
        &mut self,
        config: &SessionTicketsConfig,
        problems: &mut Problems,
    ) -> Result<Option<TicketDirectory>, Reported> {
        let Some(path) = &config.keys else { return Ok(None) };
        let resolved = problems.resolve(path);
        let mut refuse = |what: &dyn std::fmt::Display| {
            problems.add(&path.span, "tls.session_tickets.keys", what);
            Reported
        };
        if !config.enabled {
            return Err(refuse(&"unused with `enabled = false`: remove one of the two"));
        }
        let directory = TicketDirectory::open(&resolved).map_err(|error| refuse(&error))?;
        self.notes.extend(directory.notes());
        Ok(Some(directory))
    }
}
