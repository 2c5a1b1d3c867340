//! The parts that all scenarios share: the program, its certificate, its processes and the figures.

use std::fs;
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{Connector, Fault, Suite};

use super::figures::Figures;
use super::undo::Undo;

pub(super) struct World {
    pub(super) program: PathBuf,
    pub(super) figures: Figures,
    pki: Pki,
    /// The process group of all servers.
    servers: Undo,
}

/// The directory of one server: its configuration, the root of its site, its cache.
pub(super) struct Place(tempfile::TempDir);

impl Place {
    pub(super) fn new() -> io::Result<Self> {
        let directory = tempfile::tempdir()?;
        fs::create_dir(directory.path().join("root"))?;
        Ok(Self(directory))
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }
}

/// The configuration of a server with one site.
#[derive(Default)]
pub(super) struct Config {
    /// Keys of the listener.
    pub(super) listen: &'static str,
    /// Keys of the site.
    pub(super) site: &'static str,
    /// Further tables.
    pub(super) tables: String,
    /// Its limit on open files.
    pub(super) descriptors: Option<u32>,
}

impl Config {
    /// Forwards `/c/` to this URL with a cache in this directory, and serves files elsewhere. `keys`: keys of `[cache]`.
    pub(super) fn cached(origin: &str, directory: &Path, keys: &str) -> Self {
        let site = "route = [{ path = '/c/', proxy = { to = 'app', cache = { purge_from = ['127.0.0.1'] } } }]\n";
        let tables = format!("{}[cache]\ndirectories = [{directory:?}]\n{keys}\n", upstream(origin));
        Self { site, tables, ..Self::default() }
    }
}

/// The table of the upstream `app`.
pub(super) fn upstream(url: &str) -> String {
    format!("[[upstream]]\nname = 'app'\nservers = [{{ url = '{url}' }}]\n")
}

impl World {
    pub(super) fn new(program: PathBuf) -> io::Result<Self> {
        Ok(Self { program, figures: Figures::default(), pki: Pki::ecdsa(), servers: Undo::group()? })
    }

    pub(super) fn connector(&self) -> Connector {
        Connector::new(&self.pki, Suite::TLS13)
    }

    /// The number of the servers' process group.
    pub(super) fn group(&self) -> i32 {
        self.servers.number()
    }

    /// Starts a server.
    pub(super) fn start(&self, place: &Place, config: &Config) -> io::Result<Server> {
        let (cert, key) = (self.pki.certificate_file(), self.pki.key_file());
        let text = format!(
            "[[listen]]\naddress = '127.0.0.1:0'\n{}\n[[site]]\nroot = 'root'\n\
             certificates = [{{ cert = {cert:?}, key = {key:?} }}]\n{}\n{}\n",
            config.listen, config.site, config.tables
        );
        let file = place.path("sealion.toml");
        fs::write(&file, text)?;
        let mut command = match config.descriptors {
            None => Command::new(&self.program),
            Some(most) => {
                // prlimit(1) becomes the program.
                let mut command = Command::new("prlimit");
                command.arg(format!("--nofile={most}:{most}")).arg(&self.program);
                command
            }
        };
        command.args(["serve", "--access-log", "off", "--config"]).arg(file).process_group(self.group());
        Ok(Server::spawn(command))
    }

    /// Runs a command of the program with a server's number.
    pub(super) fn order(&self, order: &str, pid: i32) -> Result<(), Fault> {
        let output = Command::new(&self.program).args([order, "--pid", &pid.to_string()]).output();
        let output = output.map_err(|error| Fault::Broken(format!("sealion {order}: {error}")))?;
        if output.status.success() {
            return Ok(());
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        Err(Fault::Broken(format!("sealion {order}: {}: {said}", output.status)))
    }
}

/// The last lines of a server's log, as a fault shows them.
pub(super) fn log(server: &Server) -> String {
    let lines = server.lines();
    let last = lines.iter().rev().filter(|line| line.stderr).take(LINES).collect::<Vec<_>>();
    last.iter().rev().map(|line| format!("\n    | {}", line.text)).collect()
}

/// Enough to tell the cause.
const LINES: usize = 6;
