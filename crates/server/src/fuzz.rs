//! What `fuzz/` calls. Each function asserts what holds for any input.

use std::path::Path;
use std::sync::OnceLock;

use clap::Parser;
use sealion_http::request::{Conditions, Request, Target};
use sealion_http::{FieldSection, HttpTime, Method, Status};

use crate::config::{Config, ServeArgs, changes};
use crate::files::cache::{CacheLimits, FileCache};
use crate::files::resolve::SiteFile;
use crate::process;
use crate::response::{Body, Response};
use crate::site::{Client, Site, answer, answer_from_cache};
use crate::upstream::{Inbound, Upstreams, fastcgi_fuzz, http1_fuzz};

/// A configuration file: it is refused with a message, or printed it says the same again, and its times can be added to the clock.
///
/// Returns the message.
pub fn configuration(text: &str) -> Option<String> {
    if text.parse::<toml::Table>().is_ok_and(|table| table.contains_key("include")) {
        // It names files of this machine.
        return None;
    }
    let (config, _) = match Config::parse(Path::new("fuzz.toml"), text) {
        Ok(parsed) => parsed,
        Err(problems) => {
            let message = problems.to_string();
            assert!(message.starts_with("fuzz.toml"), "{message}");
            return Some(message);
        }
    };
    let limits = &config.limits;
    for timeout in [limits.request_timeout, limits.idle_timeout, limits.stall_timeout, limits.grace] {
        let _ = std::time::Instant::now() + timeout.duration();
    }
    let printed = toml::to_string(&config).expect("a configuration can be printed");
    if printed.contains("${") {
        // Read again, it would be a variable.
        return None;
    }
    let Ok((again, _)) = Config::parse(Path::new("again.toml"), &printed) else {
        panic!("a printed configuration is refused: {printed}")
    };
    // Secrets are not printed.
    let differences = changes(&config, &again).into_iter().filter(|change| !change.is_secret());
    let differences: Vec<String> = differences.map(|change| change.to_string()).collect();
    assert!(differences.is_empty(), "{differences:?}");
    None
}

/// A configuration file made from nginx': it is TOML with the server's keys. Values may be refused: a host need not exist, and a time may be too long.
pub fn converted(text: &str) {
    let parsed = text.parse::<toml::Table>();
    assert!(parsed.is_ok(), "{parsed:?}: {text}");
    if let Some(refused) = configuration(text) {
        for fault in ["unknown field", "missing field", "invalid type"] {
            assert!(!refused.contains(fault), "{refused}: {text}");
        }
    }
}

/// What a server of FastCGI sends, in pieces of `at_a_time` octets.
pub fn fastcgi(octets: &[u8], at_a_time: usize) {
    fastcgi_fuzz::answer(octets, at_a_time);
}

/// What a server of HTTP/1.1 answers, in pieces of `at_a_time` octets.
pub fn http1_answer(octets: &[u8], at_a_time: usize) {
    http1_fuzz::answer(octets, at_a_time);
}

/// Serves by a configuration file until the process ends.
///
/// # Errors
/// The server does not start.
pub fn serve(configuration: &Path) -> Result<(), String> {
    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        serve: ServeArgs,
    }
    let line = Line::parse_from(["sealion".as_ref(), "--config".as_ref(), configuration.as_os_str()]);
    process::run(&line.serve)
}

/// Content that no response may have.
const SECRET: &str = "top secret";

/// A site that offers many ways to a file. Rules by path close its directory `secret` and its file `private.html` to everyone, rules by expression
/// every directory `hidden`, keys, and the page `closed.htm`.
struct Guarded {
    _directory: tempfile::TempDir,
    site: Site,
    runtime: tokio::runtime::Runtime,
}

impl Guarded {
    fn get() -> &'static Self {
        static SITE: OnceLock<Guarded> = OnceLock::new();
        SITE.get_or_init(|| {
            let guarded = Self::new();
            assert_eq!(guarded.answer(Method::Get, "/public.txt").0, Status::OK);
            assert_eq!(guarded.answer(Method::Get, "/open/").0, Status::OK);
            assert_eq!(guarded.answer(Method::Get, "/app/shown.txt").0, Status::OK);
            for path in REFUSED {
                assert_eq!(guarded.answer(Method::Get, path).0, Status::FORBIDDEN, "{path}");
            }
            guarded
        })
    }

    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let root = directory.path();
        for (name, content) in [
            ("public.txt", "public"),
            ("open/index.html", "open"),
            ("open/listed/a b", "open"),
            ("secret/index.html", SECRET),
            ("secret/key.txt", SECRET),
            ("secret/key.txt.gz", SECRET),
            ("secret/a b/\u{e9}.txt", SECRET),
            ("private.html", SECRET),
            ("private.html.br", SECRET),
            ("app/hidden/index.html", SECRET),
            ("app/hidden/x.txt", SECRET),
            ("app/hidden/x.txt.gz", SECRET),
            ("app/a b.key", SECRET),
            ("app/a b.key.br", SECRET),
            ("app/shown.txt", "open"),
            ("app/shown.txt.gz", SECRET),
            ("app/sub/closed.htm", SECRET),
        ] {
            let path = root.join(name);
            std::fs::create_dir_all(path.parent().expect("it has one")).expect("a directory");
            std::fs::write(path, content).expect("a file");
        }
        let text = "[[site]]\nroot = 'ROOT'\nprecompressed = ['br', 'gzip']\nindex = ['index.html', 'key.txt', 'closed.htm']\n\
            fallback = '/private.html'\nerror_pages = { 404 = '/public.txt' }\n\
            access = [{ path = '/secret', deny = ['0.0.0.0/0', '::/0'] }, { path = '/private.html', deny = ['0.0.0.0/0', '::/0'] },\n\
              { regex = '^/(app|around)/hidden/', deny = ['0.0.0.0/0', '::/0'] }, { regex = '(?i)\\.key$', deny = ['0.0.0.0/0', '::/0'] },\n\
              { regex = '/closed\\.', deny = ['0.0.0.0/0', '::/0'] }, { regex = '/shown[.]txt[.](gz|br)$', deny = ['0.0.0.0/0', '::/0'] }]\n\
            rewrites = [{ regex = '^/r/(.*)$', to = '/$1' }]\n\
            mounts = [{ path = '/m/', root = 'ROOT/open' }, { path = '/around/', root = 'ROOT/app' }]\n\
            [site.listing]\nenabled = true\n[site.compress]\n";
        let text = text.replace("ROOT", &root.display().to_string());
        let (config, mut problems) =
            Config::parse(Path::new("fuzz.toml"), &text).unwrap_or_else(|problems| panic!("{problems}"));
        let cache = FileCache::new(CacheLimits::default());
        let site = config.site[0].build(&cache, &mut Upstreams::default(), None, 16, false, &mut problems);
        let site = site.filter(|_| problems.is_empty()).unwrap_or_else(|| panic!("{problems}"));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        Self { _directory: directory, site, runtime }
    }

    fn answer(&self, method: Method<'static>, path: &str) -> (Status, Vec<u8>) {
        let Some(target) = Target::from_origin_form(path) else { return (Status::BAD_REQUEST, Vec::new()) };
        let mut conditions = Conditions::default();
        conditions.add("Accept-Encoding", b"br, gzip, zstd");
        let fields = FieldSection::default();
        let request = Request { method, target, raw_target: path, authority: None, conditions, fields };
        let now: HttpTime = "Mon, 01 Jan 2024 00:00:00 GMT".parse().expect("a date");
        let client = Client { address: Some([192, 0, 2, 1].into()), ..Client::default() };
        let response = answer_from_cache(&self.site, &request, client, now);
        let Response { status, body, .. } = response
            .unwrap_or_else(|| self.runtime.block_on(answer(&self.site, &request, client, now, Inbound::default())));
        (status, content(&body))
    }
}

fn content(body: &Body) -> Vec<u8> {
    let range = |file: &SiteFile, range: &std::ops::Range<u64>| file.read(range.clone());
    match body {
        Body::Empty | Body::Stream(_) => Vec::new(),
        Body::Bytes(bytes) => bytes.to_vec(),
        Body::Shared(shared) => shared.bytes.to_vec(),
        Body::File { file, range: of } => range(file, of),
        Body::Multipart { file, parts, .. } => parts.iter().flat_map(|part| range(file, &part.range)).collect(),
    }
}

/// Paths that are refused.
const REFUSED: [&str; 14] = [
    "/secret/key.txt",
    "/secret/",
    "/secret/a%20b/%C3%A9.txt",
    "/private.html",
    "/secret/none",
    "/app/hidden/x.txt",
    "/app/hidden/",
    "/app/a%20b.key",
    "/app/sub/",
    "/app/sub/closed.htm",
    "/app/shown.txt.gz",
    "/around/hidden/x.txt",
    "/around/a%20b.key",
    "/around/sub/",
];

/// The target of a request: it gets nothing of a closed file.
pub fn target(path: &str) {
    for method in [Method::Get, Method::Head] {
        let (status, body) = Guarded::get().answer(method, path);
        let shown = String::from_utf8_lossy(&body);
        assert!(!shown.contains(SECRET), "{path}: answered {status} with {shown}");
    }
}

/// A path that is refused, in another spelling: it is refused too. `which`: the path. `how`: a byte for each octet, how to spell it.
pub fn spelling(which: u8, how: &[u8]) {
    let refused = REFUSED[usize::from(which) % REFUSED.len()];
    let mut how = how.iter().copied().cycle();
    let mut next = || how.next().unwrap_or(0);
    let mut spelled = String::new();
    let mut octets = refused.bytes();
    while let Some(octet) = octets.next() {
        match (octet, next()) {
            (b'/', 1) => spelled.push_str("/./"),
            (b'/', 2) => spelled.push_str("//"),
            (b'/', 3) => spelled.push_str("/x/../"),
            (b'/', 4) => spelled.push_str("/%2e/"),
            (b'/', 5) => spelled.push_str("/open/%2E./"),
            (b'/', 6) => spelled.push_str("%2F"),
            // An escape is one octet already.
            (b'%', _) => {
                spelled.push('%');
                spelled.extend(octets.by_ref().take(2).map(char::from));
            }
            (octet, 7) => spelled.push_str(&format!("%{octet:02X}")),
            (octet, 8) => spelled.push_str(&format!("%{octet:02x}")),
            (octet, _) => spelled.push(char::from(octet)),
        }
    }
    if !spelled.starts_with('/') {
        return;
    }
    let (status, _) = Guarded::get().answer(Method::Get, &spelled);
    let refuses = [Status::FORBIDDEN, Status::NOT_FOUND, Status::BAD_REQUEST];
    assert!(refuses.contains(&status), "{refused} as {spelled}: {status}");
}
