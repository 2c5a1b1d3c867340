//! A site whose files are closed in many ways, for tests of paths.

use std::path::Path;
use std::sync::OnceLock;

use sealion_http::request::{Conditions, Request, Target};
use sealion_http::{FieldSection, HttpTime, Method, Status};

use crate::config::Config;
use crate::files::cache::{CacheLimits, FileCache};
use crate::files::resolve::SiteFile;
use crate::response::{Body, Response};
use crate::site::{Client, Site, SiteContext, answer, answer_at_once};
use crate::upstream::{Inbound, Upstreams};

/// Content that no response may have.
const SECRET: &str = "top secret";

/// The keys of the site.
const KEYS: &str = "[[site]]\nroot = 'ROOT'\nprecompressed = ['br', 'gzip']\nindex = ['index.html', 'key.txt', 'closed.htm']\n\
    fallback = '/private.html'\nerror_pages = { 404 = '/public.txt' }\nlisting = true\ncompress = true\n";

/// Routes by path close the directories `secret` and `shut` and the file `private.html` to everyone, routes by expression every directory `hidden`, keys, and the page
/// `closed.htm`.
const ROUTES: &str = r#"
[[site.route]]
path = "/secret/"
access = { deny = ["0.0.0.0/0", "::/0"] }
[[site.route]]
path = "/shut/*"
deny = true
[[site.route]]
path = "= /private.html"
access = { deny = ["0.0.0.0/0", "::/0"] }
[[site.route]]
path = "~ ^/(app|around)/hidden/"
deny = true
[[site.route]]
path = '~* \.key$'
deny = true
[[site.route]]
path = '~ /closed\.'
deny = true
[[site.route]]
path = "~ /shown[.]txt[.](gz|br)$"
deny = true
[[site.route]]
path = "~ ^/r/(.*)$"
rewrite = "/{1}"
[[site.route]]
path = "/m/"
alias = "ROOT/open"
[[site.route]]
path = "/around/"
alias = "ROOT/app"
[[site.route]]
path = "/t/"
try = ["/secret/{query.x}", "/app/{query.x}", "/private.html"]
"#;

/// A site that offers many ways to a file.
struct Guarded {
    _directory: tempfile::TempDir,
    site: Site,
    runtime: tokio::runtime::Runtime,
}

impl Guarded {
    /// The site, made once.
    fn shared() -> &'static Self {
        static SITE: OnceLock<Guarded> = OnceLock::new();
        SITE.get_or_init(|| {
            let guarded = Self::new(ROUTES);
            for path in ["/public.txt", "/open/", "/app/shown.txt", "/m/"] {
                assert_eq!(guarded.answer(Method::Get, path).0, Status::OK, "{path}");
            }
            for path in REFUSED {
                assert_eq!(guarded.answer(Method::Get, path).0, Status::FORBIDDEN, "{path}");
            }
            guarded
        })
    }

    fn new(rules: &str) -> Self {
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
            ("shut/index.html", SECRET),
            ("shut/key.txt", SECRET),
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
        let text = format!("{KEYS}{rules}").replace("ROOT", &root.display().to_string());
        let (config, mut problems) =
            Config::parse(Path::new("guarded.toml"), &text).unwrap_or_else(|problems| panic!("{problems}"));
        let cache = FileCache::new(CacheLimits::default());
        let site = config.site[0].build(&mut SiteContext::new(&cache, &mut Upstreams::default()), &mut problems);
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
        let address = Some([192, 0, 2, 1].into());
        let client = Client { address, remote: address, ..Client::default() };
        let response = answer_at_once(&self.site, &request, client, now);
        let Response { status, body, .. } = response
            .unwrap_or_else(|| *self.runtime.block_on(answer(&self.site, &request, client, now, Inbound::default())));
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
const REFUSED: [&str; 16] = [
    "/secret/key.txt",
    "/secret/",
    "/secret/a%20b/%C3%A9.txt",
    "/private.html",
    "/secret/none",
    "/shut/",
    "/shut/key.txt",
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
pub(crate) fn target(path: &str) {
    for method in [Method::Get, Method::Head] {
        let (status, body) = Guarded::shared().answer(method, path);
        let shown = String::from_utf8_lossy(&body);
        assert!(!shown.contains(SECRET), "{path}: answered {status} with {shown}");
    }
}

/// A path that is refused, in another spelling: it is refused too. `which`: the path. `how`: a byte for each byte, how to spell it.
pub(crate) fn spelling(which: u8, how: &[u8]) {
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
            // An escape is one byte already.
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
    let (status, _) = Guarded::shared().answer(Method::Get, &spelled);
    let refuses = [Status::FORBIDDEN, Status::NOT_FOUND, Status::BAD_REQUEST];
    assert!(refuses.contains(&status), "{refused} as {spelled}: {status}");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fixed sequence of numbers (SplitMix64).
    fn numbers() -> impl Iterator<Item = u64> {
        std::iter::successors(Some(1_u64), |state| Some(state.wrapping_add(0x9E37_79B9_7F4A_7C15))).map(|state| {
            let mixed = (state ^ (state >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            mixed ^ (mixed >> 31)
        })
    }

    #[test]
    fn a_closed_file_stays_closed_in_every_spelling() {
        let mut numbers = numbers();
        for _ in 0..35_000 / REFUSED.len() {
            for which in 0..REFUSED.len() {
                let how: Vec<u8> = numbers.by_ref().take(9).map(|number| (number % 24) as u8).collect();
                spelling(which as u8, &how);
            }
        }
    }

    #[test]
    fn no_way_leads_to_a_closed_file() {
        let parts = [
            "/secret",
            "/key.txt",
            "/shut",
            "/private.html",
            "/app",
            "/hidden",
            "/x.txt",
            "/r",
            "/t",
            "/around",
            "/m",
            "/..",
            "/.",
            "/",
            "//",
            "%2F",
            "%2e%2e",
            ";a",
            "?x=key.txt",
            "?x=hidden/x.txt",
            "?x=../private.html",
            "?x=shown.txt.gz",
            ".gz",
            ".br",
            "%5C",
            "/a%20b.key",
            "/sub/",
            "/closed.htm",
            "?archive=tar",
        ];
        let mut numbers = numbers();
        for _ in 0..10_000 {
            let count = 1 + numbers.next().unwrap_or_default() as usize % 5;
            let picked = numbers.by_ref().take(count).map(|number| parts[number as usize % parts.len()]);
            let path: String = picked.collect();
            if path.starts_with('/') {
                target(&path);
            }
        }
    }
}
