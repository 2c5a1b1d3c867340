//! nginx configurations as people have them, each served by nginx and, converted, by this server: what nginx refuses is refused here, unless
//! the conversion said UNGUARDED.
//!
//! A configuration of tests/corpus is the content of an `http` block. Its comments are requests: `#-` is refused by nginx, `#+` is answered
//! by both: `[address] host path [| field]`. Every path of the files is asked for too. `@U@` is a server that answers any request with its
//! path: what nginx forwards there is forwarded here, with the same path, or refused, and nothing else is.

mod expected;
mod idioms;
mod origins;
mod product;

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

use sealion_testkit::pki::Pki;
use sealion_testkit::server::Server;
use sealion_testkit::{Client, Connector, Suite, http};

use crate::support::port::free_port;
use crate::support::{PROGRAM, wait_until};

const FILES: &str = "index.html 401.html 404.html 50x.html about.html secret.html app.js style.css style.css.gz robots.txt index.php x.php x.bak \
     dump.sql config.ini .env .git/config .htaccess .well-known/x private/index.html private/a.html private/a.html.gz private/a.txt \
     private/index.html.gz private/sub/index.html private/sub/b.html admin/index.html admin/x administrator/x downloads/f.zip \
     downloads/sub/g.iso media/film.txt media/old/y internal/x uploads/x.php uploads/i.jpg old/x.html new/x.html docs/index.html docs/a.pdf docs.gz \
     cgi-bin/x.cgi node_modules/x.js htm/index.htm PRIVATE/a.html";

/// Paths beside the paths of the files and their directories.
const OTHERS: &str = "/none /none/ /none.html //private//a.html /%70rivate/a.html /private/%61.html /private/./a.html /docs/../private/a.html \
     /x.php/info /private/a.html%0a /private/a.html/ /private/a.html?x /X.BAK /Private/a.html /administrator /docs/a.pdf.gz /p/a.html /m/film.txt";

/// The directory of all configurations, with the files that they serve.
pub(crate) struct Corpus {
    pub(crate) directory: tempfile::TempDir,
    /// The address of `@U@`.
    application: SocketAddr,
    pub(crate) pki: Pki,
    nginx: PathBuf,
    paths: Vec<String>,
}

/// Where a configuration is served.
#[derive(Clone, Copy)]
pub(crate) struct Ports {
    tls: u16,
    plain: u16,
}

impl Ports {
    pub(crate) fn free() -> Self {
        Ports { tls: free_port(), plain: free_port() }
    }

    pub(crate) fn address(self, name: &str) -> SocketAddr {
        match name {
            "@A@" => ([127, 0, 0, 1], self.tls).into(),
            "@B@" => ([127, 0, 0, 2], self.tls).into(),
            "@P@" => ([127, 0, 0, 1], self.plain).into(),
            _ => panic!("{name} is no address of the corpus"),
        }
    }

    pub(crate) fn write(self, text: &str) -> String {
        ["@A@", "@B@", "@P@"]
            .iter()
            .fold(text.to_owned(), |text, name| text.replace(name, &self.address(name).to_string()))
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Request<'a> {
    pub(crate) address: &'a str,
    pub(crate) host: &'a str,
    pub(crate) path: &'a str,
    pub(crate) field: Option<(&'a str, &'a str)>,
}

impl<'a> Request<'a> {
    fn parse(line: &'a str) -> Self {
        let (request, field) = match line.split_once(" | ") {
            Some((request, field)) => (request, Some(field.split_once(": ").expect("a field"))),
            None => (line, None),
        };
        let mut words = request.split(' ').filter(|word| !word.is_empty()).rev();
        let (path, host) = (words.next().expect("a path"), words.next().expect("a host"));
        Request { address: words.next().unwrap_or("@A@"), host, path, field }
    }
}

pub(crate) struct Nginx(Child);

impl Drop for Nginx {
    fn drop(&mut self) {
        // Its own signal for a fast end; its workers would outlive a kill.
        let _ = rustix::process::kill_process(rustix::process::Pid::from_child(&self.0), rustix::process::Signal::TERM);
        let _ = self.0.wait();
    }
}

/// Asks one server, on one connection for each address as long as it lasts.
pub(crate) struct Asker<'a> {
    pub(crate) ports: Ports,
    pub(crate) connector: &'a Connector,
    pub(crate) kept: Option<(SocketAddr, Client)>,
}

impl Asker<'_> {
    /// The status. `None`: no response, or no handshake.
    fn status(&mut self, request: &Request<'_>) -> Option<u16> {
        self.ask(request).map(|(status, _)| status)
    }

    /// Status and content.
    pub(crate) fn ask(&mut self, request: &Request<'_>) -> Option<(u16, Vec<u8>)> {
        if request.address == "@P@" {
            return plain(self.ports.address(request.address), request).map(|status| (status, Vec::new()));
        }
        self.response(request).map(|response| (response.status, response.body))
    }

    /// The response over TLS.
    pub(crate) fn response(&mut self, request: &Request<'_>) -> Option<http::Response> {
        let address = self.ports.address(request.address);
        // A kept connection may have been closed meanwhile.
        for is_new in [false, true] {
            if is_new || self.kept.as_ref().is_none_or(|(other, _)| *other != address) {
                self.kept = Some((address, self.connector.try_connect(address).ok()?));
            }
            let (_, client) = self.kept.as_mut().expect("it was just made");
            let response = client.send(head(request).as_bytes()).and_then(|()| http::read_response(client, "GET"));
            match response {
                Ok(response) => {
                    if response.field("connection").is_none_or(|value| !value.eq_ignore_ascii_case("keep-alive")) {
                        self.kept = None;
                    }
                    return Some(response);
                }
                Err(_) => self.kept = None,
            }
        }
        None
    }
}

/// HTTP/1.0, which has no chunked coding.
fn head(request: &Request<'_>) -> String {
    let Request { host, path, .. } = request;
    let field = request.field.map(|(name, value)| format!("{name}: {value}\r\n")).unwrap_or_default();
    format!("GET {path} HTTP/1.0\r\nHost: {host}\r\nConnection: keep-alive\r\nAccept: text/html, */*\r\n{field}\r\n")
}

fn plain(address: SocketAddr, request: &Request<'_>) -> Option<u16> {
    let mut io = TcpStream::connect(address).ok()?;
    io.write_all(head(request).replace("keep-alive", "close").as_bytes()).ok()?;
    let mut said = Vec::new();
    let _ = io.read_to_end(&mut said);
    std::str::from_utf8(said.get(9..12)?).ok()?.parse().ok()
}

/// The difference, if one server forwards a request and the other does not, or with another path. A request that is refused here may be forwarded there.
fn differing(request: &Request<'_>, their: Option<(u16, Vec<u8>)>, our: Option<(u16, Vec<u8>)>) -> Option<String> {
    let of_application = |response: &Option<(u16, Vec<u8>)>| {
        let (_, content) = response.as_ref()?;
        Some(String::from_utf8_lossy(content).strip_prefix(APPLICATION)?.to_owned())
    };
    let (their_path, our_path) = (of_application(&their), of_application(&our));
    // nginx sends the decoded path where its URL has one.
    let is_plain = !request.path.contains(['%', '?']) && !request.path.contains("//") && !request.path.contains("/./");
    let is_same = match (&their_path, &our_path) {
        (Some(their), Some(our)) => their == our || !is_plain,
        // Where files go before, so do the index of a directory and the redirect to it.
        (Some(_), None) => {
            let status = our.as_ref().map(|(status, _)| *status);
            is_refusal(status) || status == Some(301) || request.path.ends_with('/')
        }
        // A name that begins with a dot is no file here.
        (None, Some(_)) => request.path.contains("/."),
        (None, None) => true,
    };
    (!is_same)
        .then(|| format!("nginx forwards {their_path:?}, here {our_path:?} ({:?})", our.map(|(status, _)| status)))
}

/// The beginning of a response of the server at `@U@`, before the path.
const APPLICATION: &str = "application: ";

/// Starts a server that answers any request with its path.
fn application() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port");
    let address = listener.local_addr().expect("an address");
    let answer = |mut io: TcpStream| {
        let mut head = Vec::new();
        let mut octets = [0; 4096];
        while !head.windows(4).any(|end| end == b"\r\n\r\n") {
            match io.read(&mut octets) {
                Ok(0) | Err(_) => return,
                Ok(read) => head.extend_from_slice(&octets[..read]),
            }
        }
        let head = String::from_utf8_lossy(&head).into_owned();
        let content = format!("{APPLICATION}{}", head.split(' ').nth(1).unwrap_or_default());
        let length = content.len();
        let _ = write!(io, "HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{content}");
    };
    std::thread::spawn(move || {
        for io in listener.incoming().flatten() {
            std::thread::spawn(move || answer(io));
        }
    });
    address
}

fn is_refusal(status: Option<u16>) -> bool {
    status.is_none_or(|status| status >= 400)
}

/// See [`Corpus::serve_both`].
pub(crate) struct Both {
    pub(crate) theirs: Ports,
    pub(crate) ours: Ports,
    _nginx: Nginx,
    _server: Server,
}

impl Corpus {
    pub(crate) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let mut paths: Vec<String> = OTHERS.split_whitespace().map(str::to_owned).collect();
        for file in FILES.split_whitespace() {
            let path = directory.path().join("www").join(file);
            fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
            fs::write(path, file).expect("it is written");
            paths.push(format!("/{file}"));
            for (at, _) in file.match_indices('/') {
                paths.extend([format!("/{}", &file[..at]), format!("/{}/", &file[..at])]);
            }
        }
        paths.push("/".to_owned());
        paths.sort();
        paths.dedup();
        let hash = bcrypt::hash_with_result("secret", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
        fs::write(directory.path().join("htpasswd"), format!("ada:{hash}\n")).expect("it is written");
        // nginx' workers run as another user.
        for path in ["", "htpasswd"] {
            let path = directory.path().join(path);
            fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("it is ours");
        }
        Corpus { directory, application: application(), pki: Pki::ecdsa(), nginx: nginx(), paths }
    }

    /// Debian's nginx serves a directory of its package where a configuration names none. Without the package it is missing, and nginx answers 404.
    fn have_default_root(&self, converted: &Path) {
        const PACKAGED: &str = "/usr/share/nginx/html";
        if Path::new(PACKAGED).is_dir() {
            return;
        }
        let empty = self.directory.path().join("empty");
        fs::create_dir_all(&empty).expect("a directory");
        let text = fs::read_to_string(converted).expect("it was converted");
        fs::write(converted, text.replace(PACKAGED, &empty.display().to_string())).expect("it is written");
    }

    /// The faults of a configuration, a line each; and whether anything is marked.
    fn check(&self, file: &Path) -> (Vec<String>, bool) {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let directory = self.directory.path().join(&name);
        fs::create_dir(&directory).expect("a directory");
        let text = fs::read_to_string(file).expect("it is there");
        let certificate = format!(
            "ssl_certificate {};\nssl_certificate_key {};\n",
            self.pki.certificate_file().display(),
            self.pki.key_file().display()
        );
        let forwards = text.contains("@U@");
        let text = certificate
            + &text
                .replace("@DIR@", &self.directory.path().display().to_string())
                .replace("@U@", &self.application.to_string());
        let (theirs, ours) = (Ports::free(), Ports::free());
        let (unguarded, converted) = self.convert(&directory, &ours.write(&text));
        self.have_default_root(&converted);
        let _nginx = self.start_nginx(&directory, &theirs.write(&text), &text, theirs);
        let arguments = ["serve", "--ktls", "never", "--config", converted.to_str().expect("UTF-8")];
        let _ours = Server::start(Path::new(PROGRAM), arguments);
        let connector = Connector::new(&self.pki, Suite::TLS13);
        let asker = |ports| Asker { ports, connector: &connector, kept: None };
        let (mut theirs, mut ours) = (asker(theirs), asker(ours));
        let mut wrong = Vec::new();
        let is_marked = !unguarded.is_empty();
        for line in text.lines() {
            let (sign, request) = match (line.strip_prefix("#- "), line.strip_prefix("#+ ")) {
                (Some(request), _) => ('-', Request::parse(request)),
                (_, Some(request)) => ('+', Request::parse(request)),
                _ => continue,
            };
            let (their, our) = (theirs.status(&request), ours.status(&request));
            let is_right = match sign {
                '-' => is_refusal(their) && (is_refusal(our) || is_marked),
                _ => !is_refusal(their) && !is_refusal(our),
            };
            if !is_right {
                wrong.push(format!("{name}: {line}: nginx {their:?}, here {our:?}; marked: {unguarded:?}"));
            }
        }
        if is_marked {
            return (wrong, true);
        }
        let mut hosts: Vec<(&str, &str)> = text
            .lines()
            .filter_map(|line| line.strip_prefix("#- ").or(line.strip_prefix("#+ ")))
            .map(Request::parse)
            .map(|request| (request.address, request.host))
            .collect();
        hosts.sort();
        hosts.dedup();
        for (address, host) in hosts {
            for path in &self.paths {
                let request = Request { address, host, path, field: None };
                if forwards && let Some(line) = differing(&request, theirs.ask(&request), ours.ask(&request)) {
                    wrong.push(format!("{name}: {address} {host} {path}: {line}"));
                }
                let their = theirs.status(&request);
                if is_refusal(their) {
                    let our = ours.status(&request);
                    // A directory without an index gets the page that nginx, too, sends for every other path without a file.
                    let missing = Request { path: "/none/", ..request };
                    let is_fallback = path.ends_with('/')
                        && !is_refusal(theirs.status(&missing))
                        && theirs.ask(&missing).map(|(_, page)| page) == ours.ask(&request).map(|(_, page)| page);
                    // A redirect of a directory to itself with a slash shows nothing.
                    if !is_refusal(our) && !is_fallback && our != Some(301) {
                        wrong.push(format!("{name}: {address} {host} {path}: nginx {their:?}, here {our:?}"));
                    }
                }
            }
        }
        (wrong, false)
    }

    /// The marked lines, and the converted file.
    pub(crate) fn convert(&self, directory: &Path, text: &str) -> (Vec<String>, PathBuf) {
        let (from, to) = (directory.join("import.conf"), directory.join("sealion.toml"));
        fs::write(&from, format!("events {{ }}\nhttp {{\n{text}}}\n")).expect("it is written");
        let output =
            Command::new(PROGRAM).arg("import-nginx").arg(&from).arg("--force").arg("--output").arg(&to).output();
        let said = String::from_utf8(output.expect("the program starts").stderr).expect("text");
        assert!(to.exists(), "{}: {said}", from.display());
        (said.lines().filter(|line| line.contains("UNGUARDED: ")).map(str::to_owned).collect(), to)
    }

    /// nginx with a configuration, and this server with what it is converted to, which has no unguarded rule. `text`: `template` with its words
    /// replaced, but for ports.
    #[track_caller]
    pub(crate) fn serve_both(&self, name: &str, text: &str, template: &str) -> Both {
        let directory = self.directory.path().join(name);
        fs::create_dir(&directory).expect("a directory");
        let certificate = format!(
            "ssl_certificate {};\nssl_certificate_key {};\n",
            self.pki.certificate_file().display(),
            self.pki.key_file().display()
        );
        let (theirs, ours) = (Ports::free(), Ports::free());
        let text = |ports: Ports| certificate.clone() + &ports.write(text);
        let (unguarded, converted) = self.convert(&directory, &text(ours));
        assert!(unguarded.is_empty(), "{unguarded:#?}");
        let nginx = self.start_nginx(&directory, &text(theirs), template, theirs);
        let converted = converted.to_str().expect("UTF-8");
        let server = Server::start(Path::new(PROGRAM), ["serve", "--ktls", "never", "--config", converted]);
        Both { theirs, ours, _nginx: nginx, _server: server }
    }

    pub(crate) fn start_nginx(&self, directory: &Path, text: &str, template: &str, ports: Ports) -> Nginx {
        let at = directory.display();
        let user = if rustix::process::geteuid().is_root() { "user root;" } else { "" };
        let temporary =
            ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map(|name| format!("{name}_temp_path {at}/{name};\n"));
        let main = format!(
            "daemon off;\nworker_processes 1;\n{user}\npid {at}/pid;\nerror_log {at}/log;\nevents {{ }}\n\
             http {{\naccess_log off;\nssl_protocols TLSv1.2 TLSv1.3;\n{}{text}}}\n",
            temporary.concat()
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, main).expect("it is written");
        let mut command = Command::new(&self.nginx);
        command.args(["-e", "stderr", "-p"]).arg(directory).arg("-c").arg(&file).stdout(Stdio::null());
        // …/usr/sbin/nginx next to …/usr/lib: unpacked, not installed.
        let libraries = self.nginx.ancestors().nth(2).map(|usr| usr.join("lib/x86_64-linux-gnu"));
        if let Some(libraries) = libraries.filter(|path| path.is_dir() && !path.starts_with("/usr")) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let mut nginx = Nginx(command.spawn().expect("nginx starts"));
        let used = ["@A@", "@B@", "@P@"].into_iter().filter(|name| template.contains(&format!("listen {name}")));
        for name in used {
            wait_until("nginx listens", || {
                assert!(matches!(nginx.0.try_wait(), Ok(None)), "nginx refuses {}", file.display());
                TcpStream::connect(ports.address(name)).is_ok()
            });
        }
        nginx
    }
}

/// The installed nginx, or the one that `cargo xtask test` keeps for guests.
pub(crate) fn nginx() -> PathBuf {
    let in_path = std::env::var_os("PATH").and_then(|path| {
        std::env::split_paths(&path)
            .chain([PathBuf::from("/usr/sbin")])
            .map(|path| path.join("nginx"))
            .find(|path| path.is_file())
    });
    let cache = || match (std::env::var_os("SEALION_GUEST_CACHE"), std::env::var_os("XDG_CACHE_HOME")) {
        (Some(cache), _) => Some(PathBuf::from(cache)),
        (None, Some(cache)) => Some(PathBuf::from(cache).join("sealion/guest")),
        (None, None) => Some(std::env::home_dir()?.join(".cache/sealion/guest")),
    };
    let found = in_path.or_else(|| Some(cache()?.join("nginx/usr/sbin/nginx")).filter(|path| path.is_file()));
    found.expect("nginx is needed: install it, or let cargo xtask test download it")
}

#[test]
fn what_nginx_refuses_is_refused_or_marked() {
    let corpus = Corpus::new();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus");
    let files: Vec<PathBuf> =
        fs::read_dir(data).expect("a directory").map(|entry| entry.expect("an entry").path()).collect();
    assert!(files.len() >= 25, "{} configurations", files.len());
    let next = AtomicUsize::new(0);
    let check_some = || {
        let (mut wrong, mut marked) = (Vec::new(), Vec::new());
        while let Some(file) = files.get(next.fetch_add(1, Ordering::Relaxed)) {
            let (lines, is_marked) = corpus.check(file);
            wrong.extend(lines);
            marked.extend(is_marked.then(|| file.file_stem().expect("a name").to_string_lossy().into_owned()));
        }
        (wrong, marked)
    };
    let (mut wrong, mut marked) = (Vec::new(), Vec::new());
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(check_some)).collect();
        for thread in threads {
            let (lines, names) = thread.join().expect("its configurations are served");
            wrong.extend(lines);
            marked.extend(names);
        }
    });
    wrong.sort();
    assert!(wrong.is_empty(), "{} are wrong:\n{}", wrong.len(), wrong.join("\n"));
    // Marks are an admission, and no way out.
    marked.sort();
    assert_eq!(marked, ["regex-flags", "regex-possessive"]);
}
