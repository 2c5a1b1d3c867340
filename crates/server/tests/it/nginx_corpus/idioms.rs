//! Idioms of nginx configurations, a file each, sent through `sealion import-nginx --compare`: nginx and what the idiom is converted to answer the same
//! requests, and applications behind both get the same.
//!
//! A file `NAME.conf` is the content of an `http` block. Its first line says what the idiom is for; its comments with a method and a URL are the requests.
//! `@DIR@` is the directory of the files that [`Places::new`] writes; `@ORIGIN@`, `@OTHER@` and `@PHP@` are servers that answer with the request they got,
//! `@DEAD@` refuses connections. To see the differences of some idioms: `SEALION_IDIOMS=proxy,alias cargo test -p sealion --test it idioms:: -- --nocapture`.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

use sealion_testkit::pki::Pki;

use super::expected::EXPECTED_TO_DIFFER;
use super::nginx;
use super::origins::Origins;
use crate::support::PROGRAM;

const FILES: &str = "www/index.html www/about.html www/404.html www/50x.html www/robots.txt www/favicon.ico www/app.js www/style.css www/index.php www/x.php \
     www/remote.php www/page.xht www/.env www/.git/config www/.well-known/x www/docs/index.html www/docs/a.txt www/docs/a.pdf www/docs/.hidden www/private/a.txt \
     www/app/a.html www/app/x.php www/uploads/x.php www/static/a.txt www/static/x.php www/plain/x.php www/img/a.png www/img/a.min.png \
     www/img/big/a.png www/img/a.svg www/images/x.png www/media/film.txt www/errors/404.html www/errors/403.html www/secret/x www/members/a.html \
     www/status-401/a.html www/inside/a.html www/outside/a.html www/far/a.html www/feed www/data/feed www/blocked www/dump.sql www/config.bak www/index.html~ \
     acme/.well-known/acme-challenge/token disk/media/film.txt hosts/one.a.test/x.html hosts/two.a.test/x.html hosts/all/x.html hosts/all/common.html";

const FASTCGI_PARAMS: &str = "fastcgi_param QUERY_STRING $query_string;\nfastcgi_param REQUEST_METHOD $request_method;\n\
     fastcgi_param CONTENT_TYPE $content_type;\nfastcgi_param CONTENT_LENGTH $content_length;\nfastcgi_param SCRIPT_NAME $fastcgi_script_name;\n\
     fastcgi_param REQUEST_URI $request_uri;\nfastcgi_param DOCUMENT_URI $document_uri;\nfastcgi_param DOCUMENT_ROOT $document_root;\n\
     fastcgi_param SERVER_PROTOCOL $server_protocol;\nfastcgi_param REMOTE_ADDR $remote_addr;\nfastcgi_param SERVER_NAME $server_name;\n";

const TYPES: &str = "types {\ntext/html html htm;\ntext/css css;\napplication/javascript js;\napplication/json json;\ntext/plain txt;\nimage/png png;\n\
     image/svg+xml svg;\napplication/pdf pdf;\nimage/x-icon ico;\n}\ndefault_type application/octet-stream;\n";

/// The files that idioms serve, and the applications behind them.
pub(super) struct Places {
    directory: tempfile::TempDir,
    origins: Origins,
    pki: Pki,
    nginx: PathBuf,
}

impl Places {
    pub(super) fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let at = directory.path();
        let write = |name: &str, content: &[u8]| {
            let path = at.join(name);
            fs::create_dir_all(path.parent().expect("a directory")).expect("it is made");
            fs::write(path, content).expect("it is written");
        };
        FILES.split_whitespace().for_each(|name| write(name, name.as_bytes()));
        write("www/long.txt", "a long text\n".repeat(200).as_bytes());
        write("www/style.css.gz", &gzip(b"www/style.css"));
        write("fastcgi_params", FASTCGI_PARAMS.as_bytes());
        write("moved.map", b"/old-a /new-a;\n/old-b https://b.test/new?y=2;\n");
        let hash = bcrypt::hash_with_result("secret", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
        write("htpasswd", format!("ada:{hash}\n").as_bytes());
        // `openssl passwd -apr1 -salt lZL6Vxci secret`
        write("htpasswd-apr1", b"ada:$apr1$lZL6Vxci$yAMrxbTXz9GgGyzVmW0Px0\n");
        // nginx' workers run as another user.
        fs::set_permissions(at, PermissionsExt::from_mode(0o755)).expect("it is ours");
        Places { origins: Origins::start(), pki: Pki::ecdsa(), nginx: nginx(), directory }
    }

    fn compare(&self, file: &Path) -> Vec<String> {
        let text = fs::read_to_string(file).expect("it is there");
        self.compare_text(&file.file_stem().expect("a name").to_string_lossy(), &text)
    }

    /// The lines about requests that differ, and whether the comparison itself worked. Empty: all are equal.
    pub(super) fn compare_text(&self, name: &str, text: &str) -> Vec<String> {
        let directory = self.directory.path().join("idioms").join(name);
        fs::create_dir_all(&directory).expect("a directory");
        let (config, requests) = (directory.join("nginx.conf"), directory.join("requests"));
        let certificate = format!(
            "ssl_certificate {};\nssl_certificate_key {};\n",
            self.pki.certificate_file().display(),
            self.pki.key_file().display()
        );
        let text = self.origins.write(&text.replace("@DIR@", &self.directory.path().display().to_string()));
        fs::write(&config, format!("events {{ }}\nhttp {{\n{certificate}{TYPES}{text}}}\n")).expect("it is written");
        let probes: Vec<&str> =
            text.lines().filter_map(|line| line.strip_prefix("# ")).filter(|line| is_request(line)).collect();
        assert!(!probes.is_empty(), "{name} has no request");
        fs::write(&requests, probes.join("\n")).expect("it is written");
        let mut command = Command::new(PROGRAM);
        command.arg("import-nginx").arg(&config).arg("--compare").arg(&requests).arg("--nginx").arg(&self.nginx);
        // …/usr/sbin/nginx next to …/usr/lib: unpacked, not installed.
        let libraries = self.nginx.ancestors().nth(2).map(|usr| usr.join("lib/x86_64-linux-gnu"));
        if let Some(libraries) = libraries.filter(|path| path.is_dir() && !path.starts_with("/usr")) {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        let output = command.output().expect("the program starts");
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        match output.status.code() {
            Some(0) => Vec::new(),
            Some(5) => {
                let is_opened = said.lines().any(is_opened) && !is_marked(&config);
                is_opened.then_some(OPENED).into_iter().chain(said.lines()).map(str::to_owned).collect()
            }
            _ => {
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert!(!said.contains("nginx does not start"), "{name}: {said}");
                vec![format!("no comparison: {said}")]
            }
        }
    }
}

/// The first line about an idiom that must not be expected to differ.
const OPENED: &str = "answers without UNGUARDED what nginx refuses";

/// Whether the line says that nginx refuses what is answered here.
pub(super) fn is_opened(line: &str) -> bool {
    let statuses = line.trim().strip_prefix("status: nginx ").and_then(|rest| rest.split_once(", sealion "));
    let is_refusal = |status: &str| ["401", "403", "429", "none"].iter().any(|refusal| status.starts_with(refusal));
    statuses.is_some_and(|(nginx, sealion)| is_refusal(nginx) && sealion.starts_with('2'))
}

/// Whether the conversion names a guard that was lost.
fn is_marked(config: &Path) -> bool {
    let output = Command::new(PROGRAM).arg("import-nginx").arg(config).output().expect("the program starts");
    String::from_utf8_lossy(&output.stderr).contains("UNGUARDED: ")
}

fn is_request(line: &str) -> bool {
    let mut words = line.split(' ');
    let is_method = words.next().is_some_and(|word| word.chars().all(|c| c.is_ascii_alphabetic()));
    is_method && words.next().is_some_and(|word| word.starts_with("http"))
}

fn gzip(content: &[u8]) -> Vec<u8> {
    use std::io::Write;
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(content).expect("memory");
    encoder.finish().expect("memory")
}

/// The files, in the order of their names.
fn idioms() -> Vec<PathBuf> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nginx_corpus");
    let wanted = std::env::var("SEALION_IDIOMS").unwrap_or_default();
    let mut files: Vec<PathBuf> = fs::read_dir(directory)
        .expect("the corpus is there")
        .map(|entry| entry.expect("an entry").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "conf"))
        .filter(|path| {
            let name = path.file_stem().unwrap_or_default().to_string_lossy();
            wanted.split(',').any(|wanted| name.contains(wanted))
        })
        .collect();
    files.sort();
    files
}

#[test]
fn idioms_are_answered_as_nginx_answers_them_or_are_known_to_differ() {
    let files = idioms();
    let places = Places::new();
    let next = Mutex::new(files.iter());
    let compared = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let file = next.lock().expect("no thread panics").next();
                    let Some(file) = file else { return };
                    let lines = places.compare(file);
                    let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
                    compared.lock().expect("no thread panics").push((name, lines));
                }
            });
        }
    });
    let mut compared = compared.into_inner().expect("no thread panics");
    compared.sort();
    let mut wrong = Vec::new();
    let mut equal = 0;
    for (name, lines) in &compared {
        let is_expected = EXPECTED_TO_DIFFER.iter().any(|(expected, _)| expected == name);
        equal += usize::from(lines.is_empty());
        match (lines.is_empty(), is_expected) {
            (true, true) => wrong.push(format!("{name} agrees: remove it from EXPECTED_TO_DIFFER")),
            (false, false) => wrong.push(format!("{name} differs:\n  {}", lines.join("\n  "))),
            (false, true) if lines[0] == OPENED => wrong.push(format!("{name} {}", lines.join("\n  "))),
            (false, true) => println!("{name} differs, as expected:\n  {}", lines.join("\n  ")),
            (true, false) => {}
        }
    }
    println!("{equal} of {} idioms are answered as nginx answers them", compared.len());
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn every_idiom_that_is_expected_to_differ_exists_once() {
    let mut names: Vec<&str> = EXPECTED_TO_DIFFER.iter().map(|(name, _)| *name).collect();
    names.sort_unstable();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/it/nginx_corpus");
    let missing: Vec<_> = names.iter().filter(|name| !directory.join(format!("{name}.conf")).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all, "a name stands twice");
}

/// Idioms at a time, each with two servers.
const AT_ONCE: usize = 4;
