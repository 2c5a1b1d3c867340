//! Compression by dictionaries that clients have (RFC 9842), through the shipped binary. zstd's own program decodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, SystemTime};

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sealion_testkit::http::Response;
use tempfile::TempDir;

use crate::support::config::Config;
use crate::support::configured::Configured;
use crate::support::{PROGRAM, Site, access_lines, curl};

const KEYS: &str = "precompressed = ['br']\ndictionary_compressed = true\n";

/// A site with two versions of a file.
struct Versions {
    site: Site,
    old: TempDir,
    /// The new file.
    path: PathBuf,
}

impl Versions {
    fn new() -> Self {
        let (site, old) = (Site::new(), TempDir::new().expect("a directory"));
        fs::create_dir(old.path().join("app")).expect("a directory");
        fs::write(old.path().join("app/main.js"), version(1)).expect("it is written");
        let path = site.add("app/main.js", version(2));
        Versions { site, old, path }
    }

    fn dictionary(&self) -> Vec<u8> {
        version(1).into_bytes()
    }

    fn compress(&self, more: &[&str]) -> String {
        let mut command = Command::new(PROGRAM);
        command.arg("compress").arg("--dictionary").arg(self.old.path()).arg(self.site.root()).args(more);
        let output = command.output().expect("the program starts");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).expect("text")
    }
}

fn version(n: usize) -> String {
    let line = |line: usize| match line % 100 {
        0 => format!("export const version{line} = {n};\n"),
        _ => format!("export function f{}(x) {{ return x * {}; }}\n", line * 7919 % 100_003, line * line % 1009),
    };
    (0..4000).map(line).collect()
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

fn available(dictionary: &[u8]) -> String {
    format!("Available-Dictionary: :{}:", STANDARD.encode(digest(&SHA256, dictionary)))
}

fn coding(response: &Response) -> Option<&str> {
    response.field("content-encoding")
}

fn vary(response: &Response) -> Vec<String> {
    let lines = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("vary"));
    let mut names: Vec<String> =
        lines.flat_map(|(_, value)| value.split(',').map(|name| name.trim().to_ascii_lowercase())).collect();
    names.sort();
    names
}

/// Decodes content by the dictionary, without our code.
fn decode(coding: &str, content: &[u8], dictionary: &[u8]) -> Vec<u8> {
    let hash = digest(&SHA256, dictionary);
    match coding {
        "dcz" => {
            let scratch = TempDir::new().expect("a directory");
            let [compressed, old] = ["new.zst", "old"].map(|name| scratch.path().join(name));
            assert_eq!(content[..8], [0x5e, 0x2a, 0x4d, 0x18, 0x20, 0, 0, 0]);
            assert_eq!(content[8..40], *hash.as_ref());
            fs::write(&compressed, &content[40..]).expect("it is written");
            fs::write(&old, dictionary).expect("it is written");
            let mut command = Command::new("zstd");
            command.args(["-d", "-c", "--long=27"]).arg(format!("--patch-from={}", old.display())).arg(&compressed);
            let output = command.output().expect("zstd is needed");
            assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
            output.stdout
        }
        "dcb" => {
            assert_eq!(content[..4], [0xff, 0x44, 0x43, 0x42]);
            assert_eq!(content[4..36], *hash.as_ref());
            let mut decoder = brotli::Decompressor::new(&content[36..], 4096);
            assert!(decoder.attach_dictionary(dictionary.to_vec().into()));
            let mut decoded = Vec::new();
            std::io::Read::read_to_end(&mut decoder, &mut decoded).expect("it decodes");
            decoded
        }
        other => panic!("{other}"),
    }
}

#[test]
fn a_client_with_the_dictionary_gets_the_file_that_is_compressed_by_it() {
    let versions = Versions::new();
    let said = versions.compress(&[]);
    for coding in ["dcb", "dcz"] {
        assert!(said.contains(&format!("{coding}: 1 written")), "{said}");
    }
    assert!(versions.compress(&[]).contains("dcb: 0 written (0 bytes became 0), 1 up to date"));
    let (dictionary, path) = (versions.dictionary(), versions.path.clone());
    let has = available(&dictionary);
    let served = Configured::serve(versions.site, KEYS);
    let plain = served.raw("/app/main.js", "gzip", &[]);
    assert_eq!(
        (coding(&plain), vary(&plain)),
        (None, ["accept-encoding", "available-dictionary"].map(str::to_owned).to_vec())
    );
    let mut tags = vec![plain.field("etag").expect("a tag").to_owned()];
    for (accept, expected) in [("gzip, br, zstd, dcb, dcz", "dcb"), ("dcz", "dcz"), ("dcb;q=0.5, dcz", "dcz")] {
        for _ in 0..2 {
            let got = served.raw("/app/main.js", accept, &["-H", &has]);
            assert_eq!((got.status, coding(&got)), (200, Some(expected)), "{accept}");
            assert!(got.body == fs::read(beside(&path, &format!(".{expected}"))).expect("it was made"));
            assert!(got.body.len() * 10 < plain.body.len(), "{}", got.body.len());
            assert!(decode(expected, &got.body, &dictionary) == version(2).as_bytes());
            assert_eq!(vary(&got), ["accept-encoding", "available-dictionary"]);
            assert_eq!(got.field("content-type"), plain.field("content-type"));
            tags.push(got.field("etag").expect("a tag").to_owned());
        }
    }
    tags.sort();
    tags.dedup();
    assert_eq!(tags.len(), 3, "a tag for each representation: {tags:?}");

    let of = |options: &[&str]| served.raw("/app/main.js", "dcz", &[&["-H", &has], options].concat());
    let (got, head) = (of(&[]), of(&["--head"]));
    assert_eq!((head.status, coding(&head)), (200, Some("dcz")));
    assert_eq!(head.field("content-length"), Some(&*got.body.len().to_string()));
    let whole = of(&["-H", "Range: bytes=0-9"]);
    assert_eq!((whole.status, whole.field("accept-ranges"), whole.body.len()), (200, None, got.body.len()));
    let unchanged = of(&["-H", &format!("If-None-Match: {}", got.field("etag").expect("a tag"))]);
    assert_eq!((unchanged.status, vary(&unchanged).len()), (304, 2));
    let other = of(&["-H", &format!("If-None-Match: {}", plain.field("etag").expect("a tag"))]);
    assert_eq!(other.status, 200);
    // By its own name it is a file like others.
    let file = served.raw("/app/main.js.dcz", "dcz", &["-H", &has]);
    assert_eq!((file.status, coding(&file), vary(&file).len()), (200, None, 0));
}

#[test]
fn the_log_names_the_coding_by_a_dictionary() {
    let versions = Versions::new();
    versions.compress(&[]);
    let has = available(&versions.dictionary());
    let log = "[access_log]\nfields = ['time', 'status', 'encoding']";
    let server = versions.site.config(KEYS).table(log).serve_from_user_space();
    for accept in ["dcb", "dcz", "identity"] {
        let fields = ["-H", &has, "-H", &format!("Accept-Encoding: {accept}")].map(str::to_owned);
        let fields: Vec<&str> = fields.iter().map(String::as_str).collect();
        curl::get(&versions.site.pki, server.address(), "/app/main.js", &fields);
    }
    let told: Vec<_> = access_lines(&server, 3).iter().map(|line| line.get("encoding").to_owned()).collect();
    assert_eq!(told, ["dcb", "dcz", "-"]);
}

#[test]
fn a_client_without_the_dictionary_or_without_the_right_to_read_the_response_gets_another_form() {
    let versions = Versions::new();
    versions.compress(&[]);
    let (dictionary, path) = (versions.dictionary(), versions.path.clone());
    let has = available(&dictionary);
    let served = Configured::serve(versions.site, KEYS);
    let get = |accept: &str, options: &[&str]| {
        let got = served.raw("/app/main.js", accept, options);
        assert_eq!(got.status, 200);
        coding(&got).map(str::to_owned)
    };
    assert_eq!(get("dcz", &["-H", &has]).as_deref(), Some("dcz"));
    let other = available(b"another");
    let broken = has.trim_end_matches(':').to_owned();
    for (accept, options) in [
        ("dcb, dcz", &[][..]),
        ("gzip, br", &["-H", &has]),
        ("*", &["-H", &has]),
        ("dcz;q=0", &["-H", &has]),
        ("br, dcz;q=0.9", &["-H", &has]),
        ("dcb, dcz", &["-H", &other]),
        ("dcb, dcz", &["-H", &broken]),
        ("dcb, dcz", &["-H", &has, "-H", &has]),
        ("dcb, dcz", &["-H", &has, "-H", "Sec-Fetch-Site: cross-site", "-H", "Sec-Fetch-Mode: no-cors"]),
    ] {
        assert_eq!(get(accept, options), None, "{accept} {options:?}");
    }
    // One that is older than its original.
    let file = fs::File::options().write(true).open(beside(&path, ".dcz")).expect("it is there");
    file.set_modified(SystemTime::now() - Duration::from_secs(100_000)).expect("its time is set");
    crate::support::wait_until("it is noticed", || get("dcz", &["-H", &has]).is_none());
    assert_eq!(get("dcb", &["-H", &has]).as_deref(), Some("dcb"));
    // One that is by another dictionary than before.
    let name = beside(&path, ".dcb");
    let mut content = fs::read(&name).expect("it was made");
    content[10] ^= 1;
    fs::write(&name, content).expect("it is written");
    crate::support::wait_until("it is noticed", || get("dcb", &["-H", &has]).is_none());
}

#[test]
fn the_page_of_the_fallback_is_sent_by_dictionary_too() {
    let versions = Versions::new();
    versions.compress(&[]);
    let has = available(&versions.dictionary());
    let served = Configured::serve(versions.site, &format!("fallback = '/app/main.js'\n{KEYS}"));
    let get = |accept: &str, options: &[&str]| {
        served.raw("/a/page", accept, &[&["-H", "Accept: text/html"], options].concat())
    };
    let names = ["accept", "accept-encoding", "available-dictionary"];
    let plain = get("dcz", &[]);
    assert_eq!((plain.status, coding(&plain), vary(&plain)), (200, None, names.map(str::to_owned).to_vec()));
    let coded = get("dcz", &["-H", &has]);
    assert_eq!((coded.status, coding(&coded), vary(&coded)), (200, Some("dcz"), names.map(str::to_owned).to_vec()));
    assert!(decode("dcz", &coded.body, &version(1).into_bytes()) == version(2).as_bytes());
}

#[test]
fn a_directory_of_previous_files_that_is_missing_is_refused_even_without_files() {
    let site = Site::new();
    let mut command = Command::new(PROGRAM);
    let output = command.args(["compress", "--dictionary", "/nonexistent"]).arg(site.root()).output();
    let output = output.expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("cannot read /nonexistent"), "{said}");
}

#[test]
fn a_guard_of_the_original_is_one_of_the_compressed_file() {
    let versions = Versions::new();
    versions.compress(&[]);
    let has = available(&versions.dictionary());
    let keys = format!("{KEYS}route = [{{ path = '~ \\.js$', access = {{ deny = ['127.0.0.0/8', '::1'] }} }}]\n");
    let served = Configured::serve(versions.site, &keys);
    for target in ["/app/main.js", "/app/main.js.dcz", "/app/main.js.dcb"] {
        assert_eq!(served.raw(target, "dcz", &["-H", &has]).status, 403, "{target}");
    }
}

#[test]
fn responses_say_of_which_paths_they_are_dictionaries_over_tls_alone() {
    let site = Site::new();
    site.add("app/main.js", version(1));
    site.add("other.js", version(1));
    let keys = "dictionary_compressed = true\n\
                [[site.route]]\npath = '/app/'\nuse_as_dictionary = { match = '/app/*.js', id = 'v1', destinations = ['script'] }\n";
    let served = Configured::serve(site, keys);
    let expected = Some("match=\"/app/*.js\", match-dest=(\"script\"), id=\"v1\"");
    for _ in 0..3 {
        assert_eq!(served.raw("/app/main.js", "br", &[]).field("use-as-dictionary"), expected);
    }
    assert_eq!(served.raw("/app/main.js", "br", &["--head"]).field("use-as-dictionary"), expected);
    for target in ["/other.js", "/app/none.js"] {
        assert_eq!(served.raw(target, "br", &[]).field("use-as-dictionary"), None, "{target}");
    }

    let versions = Versions::new();
    versions.compress(&[]);
    let has = available(&versions.dictionary());
    let keys = format!("{KEYS}use_as_dictionary = {{ match = '/app/*.js' }}\n");
    // A site without any TLS is refused; this one has a listener for it too.
    let plain = "address = '127.0.0.1:0'\ntls = false\nplain = 'serve'\n";
    let config = Config::within(versions.site.outside()).listen(plain).listen("address = '127.0.0.1:0'\n");
    let server = config.site(versions.site.root(), &[&versions.site.pki], &keys).serve();
    let options = ["--raw", "-H", "Accept-Encoding: dcb, dcz", "-H", &has];
    let got = curl::get_plain(&versions.site.pki, server.address(), "/app/main.js", &options);
    assert_eq!((got.status, coding(&got), got.field("use-as-dictionary")), (200, None, None));
}

#[test]
fn names_with_a_hash_are_versions_of_each_other() {
    let versions = Versions::new();
    fs::write(versions.old.path().join("app/main-0a1b2c3d.js"), version(1)).expect("it is written");
    let path = versions.site.add("app/main-Bx_3a9Zq.js", version(2));
    versions.site.add("app/lone-99999999.js", version(3));
    let said = versions.compress(&["--hashed", "*-{hash}.js"]);
    assert!(said.contains("dcz: 2 written") && said.contains("1 have no previous version"), "{said}");
    let content = fs::read(beside(&path, ".dcz")).expect("it was made");
    assert!(decode("dcz", &content, &versions.dictionary()) == version(2).as_bytes());
}
