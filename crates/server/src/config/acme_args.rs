//! Options for a certificate of an authority: `--domain` and its companions.

use std::path::{Path, PathBuf};

use clap::Args;

use crate::certificates::{AcmeConfig, development};
use crate::listen::{Listen, ListenConfig};
use crate::values::SecretUrl;

/// Names of the site, whose certificate an authority issues (ACME).
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct AcmeArgs {
    /// Name of the site, whose certificate Let's Encrypt issues; may be repeated
    ///
    /// The certificate is renewed too. By the option you agree to the authority's terms of service. The server listens
    /// on ports 443 and 80 of all addresses, and sends clients of port 80 to HTTPS, unless --listen says otherwise.
    #[arg(long, value_name = "NAME", env = "SEALION_DOMAIN", value_delimiter = ',',
          conflicts_with_all = ["config", "cert", "port"])]
    pub domain: Vec<String>,

    /// Your address, for messages of the authority
    #[arg(long, value_name = "ADDRESS", env = "SEALION_EMAIL", requires = "domain")]
    pub email: Option<String>,

    /// Directory URL of another authority [default: Let's Encrypt's]
    #[arg(long, value_name = "URL", env = "SEALION_ACME_DIRECTORY", requires = "domain")]
    pub acme_directory: Option<String>,

    /// Root certificate of the authority's own HTTPS server, PEM, for a private authority [default: the system's]
    #[arg(long, value_name = "FILE", env = "SEALION_ACME_ROOT", requires = "domain")]
    pub acme_root: Option<PathBuf>,

    /// Directory for the account and the certificates [default: /var/lib/sealion/acme for root, else in
    /// $XDG_DATA_HOME/sealion]
    #[arg(long, value_name = "DIR", env = "SEALION_ACME_STATE", requires = "domain")]
    pub acme_state: Option<PathBuf>,
}

impl AcmeArgs {
    /// Whether a certificate is ordered.
    pub(super) fn is_given(&self) -> bool {
        !self.domain.is_empty()
    }

    /// The account that orders the certificate.
    pub(super) fn account(&self) -> AcmeConfig {
        let default = AcmeConfig::default();
        let state = self.acme_state.clone().unwrap_or_else(|| state(&default.state));
        AcmeConfig {
            directory: self.acme_directory.clone().map_or(default.directory, SecretUrl::from),
            contact: self.email.iter().map(|email| format!("mailto:{email}")).collect(),
            agree_to_terms: self.is_given(),
            root: self.acme_root.clone().map(Into::into),
            state: state.into(),
            ..AcmeConfig::default()
        }
    }

    /// The listeners of a site with a name: HTTPS, and the redirect to it.
    pub(super) fn listeners() -> Vec<ListenConfig> {
        let redirect = ListenConfig { tls: false.into(), ..ListenConfig::from(Listen::everywhere(80)) };
        vec![ListenConfig::from(Listen::everywhere(443)), redirect]
    }
}

/// Where this user keeps certificates: only root can write the system's directory.
fn state(of_system: &Path) -> PathBuf {
    let own = (!rustix::process::geteuid().is_root()).then(development::directory).flatten();
    own.map_or_else(|| of_system.to_owned(), |own| own.join("acme"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::ServeArgs;
    use crate::certificates::AcmeUse;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }

    fn parse(line: &str) -> Result<ServeArgs, clap::Error> {
        Line::try_parse_from(["serve"].into_iter().chain(line.split(' '))).map(|line| line.serve)
    }

    #[test]
    fn a_name_alone_makes_a_public_site() {
        let args = parse("/tmp --domain example.org,www.example.org --email a@example.org").unwrap();
        let (config, _) = args.configuration().unwrap();
        let names: Vec<&str> = config.site[0].names.iter().map(|name| name.as_str()).collect();
        assert_eq!((names, &*config.site[0].acme), (vec!["example.org", "www.example.org"], &AcmeUse::Default));
        assert_eq!(config.tls.acme.contact, ["mailto:a@example.org"]);
        assert!(config.tls.acme.agree_to_terms);
        let listeners: Vec<_> = config.listen.iter().map(|own| (own.address.name.as_str(), own.serves())).collect();
        assert_eq!(listeners, [("443", true), ("80", false)]);
    }

    #[test]
    fn other_listeners_replace_those_of_a_public_site_and_nothing_is_agreed_to_without_a_name() {
        let args = parse("/tmp --domain example.org --listen 127.0.0.1:8443").unwrap();
        let (config, _) = args.configuration().unwrap();
        assert_eq!(config.listen.len(), 1);
        assert_eq!(config.listen[0].address.name, "127.0.0.1:8443");
        assert!(!parse("/tmp").unwrap().configuration().unwrap().0.tls.acme.agree_to_terms);
        for line in [
            "/tmp --email a@example.org",
            "/tmp --domain example.org --cert c.pem --key k.pem",
            "/tmp --domain example.org --port 8443",
            "--config a.toml --domain example.org",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }
}
