//! A site that is served by a configuration file, and curl in front of it.

use sealion_testkit::http::Response;
use sealion_testkit::server::Server;

use super::{Site, curl};

pub(crate) struct Configured {
    pub(crate) site: Site,
    pub(crate) server: Server,
}

impl Configured {
    /// Serves [`Site::config`] with `keys`, sealing in user space.
    #[track_caller]
    pub(crate) fn serve(site: Site, keys: &str) -> Self {
        Self { server: site.config(keys).serve_from_user_space(), site }
    }

    /// Asks with curl.
    #[track_caller]
    pub(crate) fn get(&self, target: &str, options: &[&str]) -> Response {
        curl::get(&self.site.pki, self.server.address(), target, options)
    }

    /// The status, and Location if there is one.
    #[track_caller]
    pub(crate) fn way(&self, target: &str, options: &[&str]) -> (u16, Option<String>) {
        let response = self.get(target, options);
        (response.status, response.field("location").map(str::to_owned))
    }
}
