//! nginx and this server, on loopback, beside the servers in production.

use std::fs;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use sealion_import_nginx::{Moved, on_loopback};
use tempfile::TempDir;
use toml::{Table, Value};

use super::client::Response;

/// The configurations and programs of both servers.
pub(super) struct Setup<'a> {
    pub(super) nginx_config: &'a Path,
    pub(super) sealion_config: &'a str,
    pub(super) nginx: PathBuf,
}

/// Both servers, which end with this.
pub(super) struct Started {
    pub(super) nginx: Server,
    pub(super) sealion: Server,
    _directory: TempDir,
}

/// A server that ends with this.
pub(super) struct Server {
    child: Child,
    listeners: Vec<Moved>,
}

impl Server {
    /// The port of 127.0.0.1 that stands for a port.
    pub(super) fn at(&self, port: u16) -> Option<u16> {
        let mut listeners = self.listeners.iter().filter(|listener| listener.port == port);
        let first = listeners.clone().next();
        listeners.find(|listener| listener.host == "*").or(first).map(|listener| listener.to)
    }

    /// The ports that it has in production.
    pub(super) fn ports(&self) -> Vec<String> {
        let mut ports: Vec<u16> = self.listeners.iter().map(|listener| listener.port).collect();
        ports.sort_unstable();
        ports.dedup();
        ports.iter().map(u16::to_string).collect()
    }

    /// The response that the server in production would send: with its ports in the place of loopback's.
    pub(super) fn with_original_ports(&self, mut response: Response) -> Response {
        let original = |text: &str| {
            self.listeners.iter().fold(text.to_owned(), |text, listener| {
                let port = match listener.port {
                    80 | 443 => String::new(),
                    port => format!(":{port}"),
                };
                text.replace(&format!(":{}", listener.to), &port)
            })
        };
        for (_, value) in &mut response.fields {
            *value = original(value);
        }
        if let Ok(text) = std::str::from_utf8(&response.content) {
            response.content = original(text).into_bytes();
        }
        response
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx' workers would outlive a kill of their master.
        let _ = kill_process(Pid::from_child(&self.child), Signal::TERM);
        let _ = self.child.wait();
    }
}

/// nginx where packages put it, or by the search path.
pub(super) fn find_nginx() -> PathBuf {
    let known = ["/usr/sbin/nginx", "/usr/local/sbin/nginx", "/usr/local/nginx/sbin/nginx"].map(PathBuf::from);
    known.into_iter().find(|path| path.exists()).unwrap_or_else(|| PathBuf::from("nginx"))
}

/// Starts both, again if another process took a port meanwhile.
///
/// # Errors
/// A configuration cannot be read, or a server does not start; the message has its output.
pub(super) fn start(setup: &Setup<'_>) -> Result<Started, String> {
    let mut tries = 0;
    loop {
        tries += 1;
        match start_once(setup) {
            Err(error) if tries < MAX_TRIES && error.to_ascii_lowercase().contains("address already in use") => {}
            result => return result,
        }
    }
}

const MAX_TRIES: u32 = 5;

fn start_once(setup: &Setup<'_>) -> Result<Started, String> {
    let failed = |error: std::io::Error| format!("no temporary directory: {error}");
    let directory = tempfile::tempdir().map_err(failed)?;
    let at = directory.path();
    // nginx' workers run as another user.
    fs::set_permissions(at, PermissionsExt::from_mode(0o755)).map_err(failed)?;
    let mut ports = Ports::default();
    let nginx_config = on_loopback(setup.nginx_config, at, &mut || ports.next())?;
    let (sealion_config, moved) = moved(setup.sealion_config, at, &mut ports)?;
    let (nginx_file, sealion_file) = (at.join("nginx.conf"), at.join("sealion.toml"));
    write(&nginx_file, &nginx_config.text)?;
    write(&sealion_file, &sealion_config)?;
    let program = std::env::current_exe().map_err(|error| format!("cannot find this program: {error}"))?;
    drop(ports);
    let mut command = Command::new(&setup.nginx);
    command.args(["-e", "stderr", "-c"]).arg(&nginx_file);
    let nginx = spawn("nginx", command, at, nginx_config.moved)?;
    let mut command = Command::new(program);
    command.args(["serve", "--config"]).arg(&sealion_file);
    let sealion = spawn("sealion", command, at, moved)?;
    Ok(Started { nginx, sealion, _directory: directory })
}

fn write(file: &Path, text: &str) -> Result<(), String> {
    fs::write(file, text).map_err(|error| format!("cannot write {}: {error}", file.display()))
}

/// Starts a server and waits until it listens.
fn spawn(name: &str, mut command: Command, directory: &Path, listeners: Vec<Moved>) -> Result<Server, String> {
    let said = directory.join(format!("{name}.out"));
    let output = fs::File::create(&said).map_err(|error| format!("cannot write {}: {error}", said.display()))?;
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(output);
    command.env_remove("NOTIFY_SOCKET").env_remove("LISTEN_FDS").env_remove("LISTEN_PID");
    let program = command.get_program().to_string_lossy().into_owned();
    let child = command.spawn().map_err(|error| format!("{program} does not start: {error}"))?;
    let mut server = Server { child, listeners };
    let started = Instant::now();
    // Another process may have taken the port and answer there: sealion itself says when it listens.
    let says_so = || name != "sealion" || fs::read_to_string(&said).is_ok_and(|said| said.contains("serving "));
    for listener in server.listeners.clone() {
        while !says_so() || TcpStream::connect((Ipv4Addr::LOCALHOST, listener.to)).is_err() {
            let ended = server.child.try_wait().ok().flatten();
            if ended.is_some() || started.elapsed() > START_TIMEOUT {
                let said = fs::read_to_string(&said).unwrap_or_default();
                let how = ended.map_or_else(|| "does not listen".to_owned(), |status| format!("ended ({status})"));
                let said = if said.trim().is_empty() { "it wrote no message" } else { said.trim_end() };
                return Err(format!("{name} does not start: {program} {how}: {said}"));
            }
            thread::sleep(Duration::from_millis(5));
        }
    }
    // nginx waits for a port that another process took, and that process answered.
    let said = fs::read_to_string(&said).unwrap_or_default();
    if said.contains("Address already in use") {
        return Err(format!("{name} does not start: {}", said.trim_end()));
    }
    Ok(server)
}

const START_TIMEOUT: Duration = Duration::from_secs(60);

/// Ports of loopback, held until the servers start. They lie below the range from which the kernel serves connections and binds to port 0
/// (ip_local_port_range, from 32768), so that no connection takes one between its release and the server's start.
#[derive(Default)]
struct Ports {
    held: Vec<TcpListener>,
    tried: u32,
}

impl Ports {
    fn next(&mut self) -> Result<u16, String> {
        // Several comparisons at once begin at different ports.
        let start = std::process::id().wrapping_mul(PORTS_PER_PROCESS);
        while self.tried < PORT_COUNT {
            let port = FIRST_PORT + (start.wrapping_add(self.tried) % PORT_COUNT) as u16;
            self.tried += 1;
            if let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
                self.held.push(listener);
                return Ok(port);
            }
        }
        Err("no free port on 127.0.0.1".to_owned())
    }
}

const FIRST_PORT: u16 = 10_000;
const PORT_COUNT: u32 = 10_000;
const PORTS_PER_PROCESS: u32 = 32;

/// sealion.toml with its listeners on loopback, and nothing that reaches out of `directory`.
fn moved(text: &str, directory: &Path, ports: &mut Ports) -> Result<(String, Vec<Moved>), String> {
    let mut config: Table = text.parse().map_err(|error| format!("sealion.toml: {error}"))?;
    if config.contains_key("include") {
        return Err("sealion.toml: include: a configuration in one file can be compared".to_owned());
    }
    for table in ["metrics", "otlp", "privileges"] {
        config.remove(table);
    }
    config.insert("access_log".to_owned(), Value::Table(Table::from_iter([("to".to_owned(), "off".into())])));
    if let Some(Value::Table(cache)) = config.get_mut("cache") {
        let at = directory.join("cache").display().to_string();
        cache.insert("directories".to_owned(), Value::Array(vec![at.into()]));
    }
    let server = config.entry("server").or_insert_with(|| Value::Table(Table::new()));
    if let Value::Table(server) = server {
        server.insert("workers".to_owned(), Value::Integer(1));
    }
    let mut moved: Vec<Moved> = Vec::new();
    let mut names: Vec<(String, String)> = Vec::new();
    for listener in tables(&mut config, "listen") {
        let Some(Value::String(address)) = listener.get_mut("address") else { continue };
        let to = match address.strip_prefix("unix:") {
            Some(_) => format!("unix:{}/{}.sock", directory.display(), names.len()),
            None => {
                let (host, port) = address.rsplit_once(':').ok_or_else(|| format!("{address}: no port"))?;
                let port = port.parse().map_err(|_| format!("{address}: no port"))?;
                let host = if matches!(host, "0.0.0.0" | "[::]") { "*" } else { host };
                let to = ports.next()?;
                moved.push(Moved { host: host.to_owned(), port, to });
                format!("127.0.0.1:{to}")
            }
        };
        names.push((std::mem::replace(address, to.clone()), to));
    }
    for site in tables(&mut config, "site") {
        let named = ["listen", "default"].map(|key| site.get(key).and_then(Value::as_array).cloned());
        for (key, mut listeners) in
            ["listen", "default"].into_iter().zip(named).filter_map(|(key, all)| Some((key, all?)))
        {
            for listener in &mut listeners {
                let to = names.iter().find(|(name, _)| listener.as_str() == Some(name)).map(|(_, to)| to.clone());
                *listener = to.map_or_else(|| listener.clone(), Value::String);
            }
            site.insert(key.to_owned(), Value::Array(listeners));
        }
    }
    Ok((config.to_string(), moved))
}

/// The tables of an array.
fn tables<'a>(config: &'a mut Table, name: &str) -> impl Iterator<Item = &'a mut Table> {
    let tables = config.get_mut(name).and_then(Value::as_array_mut);
    tables.into_iter().flatten().filter_map(Value::as_table_mut)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_moves_to_loopback() {
        let text = "[metrics]\nlisten = '127.0.0.1:9'\n[cache]\ndirectories = ['/var/cache/x']\n[[listen]]\naddress = '[::]:443'\n\
                    [[listen]]\naddress = '127.0.0.2:443'\n[[site]]\nlisten = ['127.0.0.2:443']\ndefault = ['127.0.0.2:443']\nroot = '/srv'\n";
        let (text, listeners) = moved(text, Path::new("/tmp/x"), &mut Ports::default()).unwrap();
        let config: Table = text.parse().unwrap();
        assert_eq!(listeners.iter().map(|listener| listener.host.as_str()).collect::<Vec<_>>(), ["*", "127.0.0.2"]);
        let second = format!("127.0.0.1:{}", listeners[1].to);
        assert_eq!(config["listen"][1]["address"].as_str(), Some(second.as_str()));
        assert_eq!(config["site"][0]["listen"][0].as_str(), Some(second.as_str()));
        assert_eq!(config["site"][0]["default"], config["site"][0]["listen"]);
        assert_eq!(config["cache"]["directories"][0].as_str(), Some("/tmp/x/cache"));
        assert!(!config.contains_key("metrics"));
        assert!(moved("include = ['x.toml']", Path::new("/tmp/x"), &mut Ports::default()).is_err());
    }
}
