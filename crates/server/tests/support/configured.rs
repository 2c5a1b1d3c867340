//! A site with a configuration file.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealion_testkit::http::Response;
use sealion_testkit::server::Server;

use super::{PROGRAM, Site, curl};

/// A site whose file has one listener, one site with a certificate, and what is given.
pub(crate) struct Configured {
    pub(crate) site: Site,
    pub(crate) server: Server,
}

impl Configured {
    /// Starts it. `rest`: keys of the site, then other tables.
    #[track_caller]
    pub(crate) fn serve(site: Site, rest: &str) -> Self {
        let file = write(&site, rest);
        let server = Server::start(PROGRAM.as_ref(), ["serve".as_ref(), "--config".as_ref(), file.as_os_str()]);
        Configured { site, server }
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

/// What `sealion check` says of such a file.
pub(crate) fn problems(site: &Site, rest: &str) -> String {
    let output = Command::new(PROGRAM).args(["check", "--config"]).arg(write(site, rest)).output().expect("it starts");
    String::from_utf8(output.stderr).expect("text")
}

fn write(site: &Site, rest: &str) -> PathBuf {
    let (cert, key) = (site.pki.certificate_file(), site.pki.key_file());
    let text = format!(
        "[server]\nktls = 'never'\n[[listen]]\naddress = '127.0.0.1:0'\n[[site]]\nroot = 'root'\n\
         certificates = [{{ cert = {cert:?}, key = {key:?} }}]\n{rest}"
    );
    let file = Path::new(site.outside()).join("sealion.toml");
    fs::write(&file, text).expect("the file is written");
    file
}
