//! Content codings through the shipped binary and curl, whose decoders are not ours.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

use sealion_testkit::http::Response;

use crate::support::configured::Configured;
use crate::support::{PROGRAM, Site, curl, wait_until};

impl Configured {
    /// As the bytes come, with Accept-Encoding and further options.
    #[track_caller]
    pub(crate) fn raw(&self, target: &str, accept: &str, options: &[&str]) -> Response {
        let accept = format!("Accept-Encoding: {accept}");
        self.get(target, &[&["--raw", "-H", &accept], options].concat())
    }
}

const ALL: &str = "precompressed = ['br', 'zstd', 'gzip']\n";

fn text(lines: usize) -> String {
    (0..lines).map(|line| format!("p.class-{} {{ margin: {}px }}\n", line * 7919 % 1009, line % 31)).collect()
}

fn compress(root: &Path, more: &[&str]) -> String {
    let output = Command::new(PROGRAM).arg("compress").arg(root).args(more).output().expect("the program starts");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn coding(response: &Response) -> Option<&str> {
    response.field("content-encoding")
}

#[track_caller]
fn field<'a>(response: &'a Response, name: &str) -> &'a str {
    response.field(name).unwrap_or_else(|| panic!("no {name} in {response:?}"))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    format!("{}{suffix}", path.display()).into()
}

fn set_age(path: &Path, seconds: u64) {
    let file = fs::File::options().write(true).open(path).expect("it is there");
    file.set_modified(SystemTime::now() - Duration::from_secs(seconds)).expect("its time is set");
}

/// Decodes with the program that the coding is named after.
fn decode(program: &str, file: &Path) -> Vec<u8> {
    let output = Command::new(program).args(["-d", "-c"]).arg(file).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    assert!(output.status.success(), "{program} cannot decode {}", file.display());
    output.stdout
}

#[test]
fn the_sibling_that_the_client_likes_best_is_sent_and_decodes_to_the_original() {
    let site = Site::new();
    let original = text(3000);
    let path = site.add("style.css", &original);
    site.add("index.html", text(100));
    site.add("picture.png", "png");
    compress(&site.root(), &[]);
    let siblings = [".br", ".zst", ".gz"].map(|suffix| fs::read(beside(&path, suffix)).expect("it was made"));
    assert_eq!(decode("zstd", &beside(&path, ".zst")), original.as_bytes());
    assert_eq!(decode("gzip", &beside(&path, ".gz")), original.as_bytes());
    let coded = Configured::serve(site, ALL);

    let plain = coded.get("/style.css", &[]);
    assert_eq!((coding(&plain), field(&plain, "vary")), (None, "Accept-Encoding"));
    assert!(plain.body == original.as_bytes());
    let mut tags = vec![field(&plain, "etag").to_owned()];
    for (n, accept) in ["br", "zstd", "gzip"].into_iter().enumerate() {
        let got = coded.raw("/style.css", accept, &[]);
        assert_eq!((got.status, coding(&got)), (200, Some(accept)));
        assert!(got.body == siblings[n], "{accept}: the bytes of the file beside it");
        assert_eq!(field(&got, "vary"), "Accept-Encoding");
        assert_eq!(field(&got, "content-type"), "text/css; charset=utf-8");
        assert_eq!(field(&got, "content-length"), siblings[n].len().to_string());
        let tag = field(&got, "etag").to_owned();
        assert!(tag.starts_with('"') && !tags.contains(&tag), "{tag} is strong, and of this variant alone");
        let head = coded.raw("/style.css", accept, &["--head"]);
        let without_date = |response: &Response| {
            response.fields.iter().filter(|(name, _)| name != "Date").cloned().collect::<Vec<_>>()
        };
        assert_eq!(without_date(&head), without_date(&got), "{accept}: HEAD");
        // curl decodes what it asked for.
        let accept = format!("Accept-Encoding: {accept}");
        assert!(coded.get("/style.css", &["--compressed", "-H", &accept]).body == original.as_bytes());
        let unchanged = coded.raw("/style.css", &accept[17..], &["-H", &format!("If-None-Match: {tag}")]);
        assert_eq!((unchanged.status, field(&unchanged, "vary")), (304, "Accept-Encoding"));
        tags.push(tag);
    }
    for (accept, expected) in [
        ("gzip, deflate, br, zstd", Some("br")),
        ("br;q=0.5, gzip;q=0.8", Some("gzip")),
        ("*;q=0.3, br;q=0", Some("zstd")),
        ("identity;q=0", None),
        ("nonsense;;q=2,,", None),
    ] {
        let got = coded.raw("/style.css", accept, &[]);
        assert_eq!((got.status, coding(&got)), (200, expected), "{accept}");
    }
    // A tag of one variant says nothing of another.
    let other = coded.raw("/style.css", "gzip", &["-H", &format!("If-None-Match: {}", tags[1])]);
    assert_eq!((other.status, coding(&other)), (200, Some("gzip")));
    // The index of a directory too; pictures not at all.
    assert_eq!(coding(&coded.raw("/", "br", &[])), Some("br"));
    assert_eq!(coded.raw("/picture.png", "br", &[]).field("vary"), None);
    // By its own name a sibling is a file like others.
    let file = coded.raw("/style.css.gz", "gzip, br", &[]);
    assert_eq!((coding(&file), file.field("vary"), field(&file, "content-type")), (None, None, "application/gzip"));
    assert!(file.body == siblings[2]);
}

#[test]
fn ranges_are_of_the_variant_and_a_date_does_not_tell_variants_apart() {
    let site = Site::new();
    let path = site.add("style.css", text(3000));
    compress(&site.root(), &["--codings", "gzip"]);
    let gz = fs::read(beside(&path, ".gz")).expect("it was made");
    let coded = Configured::serve(site, ALL);
    let whole = coded.raw("/style.css", "gzip", &[]);
    let (tag, date) = (field(&whole, "etag").to_owned(), field(&whole, "last-modified").to_owned());
    assert_eq!(date, field(&coded.raw("/style.css", "br", &[]), "last-modified"), "the same date");
    let if_range = |value: &str| format!("If-Range: {value}");

    let part = coded.raw("/style.css", "gzip", &["-r", "100-199"]);
    assert_eq!((part.status, coding(&part)), (206, Some("gzip")));
    assert_eq!(field(&part, "content-range"), format!("bytes 100-199/{}", gz.len()));
    assert!(part.body == gz[100..200]);
    let last = coded.raw("/style.css", "gzip", &["-r", "-7", "-H", &if_range(&tag)]);
    assert_eq!((last.status, last.body.as_slice()), (206, &gz[gz.len() - 7..]));
    // The client holds a part of the gzip and asks so that it would get another variant: it gets all of that.
    let other = coded.raw("/style.css", "identity", &["-r", "5-9", "-H", &if_range(&tag)]);
    assert_eq!((other.status, other.body.len()), (200, text(3000).len()));
    let by_date = coded.raw("/style.css", "gzip", &["-r", "5-9", "-H", &if_range(&date)]);
    assert_eq!((by_date.status, by_date.body.len()), (200, gz.len()));
    // Several parts cannot say their coding.
    let several = coded.raw("/style.css", "gzip", &["-r", "0-1,5-9"]);
    assert_eq!((several.status, coding(&several)), (200, Some("gzip")));
    let outside = coded.raw("/style.css", "gzip", &["-r", "999999-"]);
    assert_eq!((outside.status, field(&outside, "content-range")), (416, &*format!("bytes */{}", gz.len())));
    let failed = coded.raw("/style.css", "gzip", &["-H", "If-Match: \"other\""]);
    assert_eq!((failed.status, coding(&failed)), (412, None));
}

#[test]
fn what_is_older_than_its_original_is_not_sent_and_told_once() {
    let site = Site::new();
    let original = text(100);
    let path = site.add("style.css", &original);
    site.add("style.css.br", "of another original");
    set_age(&path, 10);
    let coded = Configured::serve(site, ALL);
    for _ in 0..3 {
        let got = coded.raw("/style.css", "br", &[]);
        assert_eq!(coding(&got), None);
        assert!(got.body == original.as_bytes());
    }
    // Another entry of the log behind it, so that all that could be there is.
    coded.site.add("other.css.gz", "of another original");
    set_age(&coded.site.add("other.css", &original), 10);
    coded.raw("/other.css", "br", &[]);
    coded.server.wait_for("the second one", |line| line.text.contains("other.css.gz: older"));
    let told = coded.server.lines().iter().filter(|line| line.text.contains("style.css.br: older")).count();
    assert_eq!(told, 1);
    // Compressed again, it is.
    compress(&coded.site.root(), &["--codings", "br"]);
    wait_until("the new file is seen", || coding(&coded.raw("/style.css", "br", &[])).is_some());
    assert!(coded.get("/style.css", &["--compressed", "-H", "Accept-Encoding: br"]).body == original.as_bytes());
}

#[test]
fn small_text_is_compressed_once_and_anew_when_it_changes() {
    let site = Site::new();
    let first = text(2000);
    site.add("app.js", &first);
    site.add("small.js", "let a = 1;");
    site.add("data.bin", &first);
    let coded = Configured::serve(site, "[site.compress]\n");
    let mut tags = Vec::new();
    for accept in ["br", "zstd", "gzip"] {
        let line = format!("Accept-Encoding: {accept}");
        let raw = coded.raw("/app.js", accept, &[]);
        assert_eq!((coding(&raw), field(&raw, "vary")), (Some(accept), "Accept-Encoding"));
        assert!(raw.body.len() < first.len() / 2);
        assert!(coded.get("/app.js", &["--compressed", "-H", &line]).body == first.as_bytes(), "{accept}");
        let part = coded.raw("/app.js", accept, &["-r", "10-29", "-H", &format!("If-Range: {}", field(&raw, "etag"))]);
        assert_eq!((part.status, part.body.as_slice()), (206, &raw.body[10..30]));
        let head = coded.raw("/app.js", accept, &["--head"]);
        assert_eq!(field(&head, "content-length"), raw.body.len().to_string());
        tags.push(field(&raw, "etag").to_owned());
    }
    tags.dedup();
    assert_eq!(tags.len(), 3);
    for target in ["/small.js", "/data.bin"] {
        let got = coded.raw(target, "br", &[]);
        assert_eq!((coding(&got), got.field("vary")), (None, None), "{target}");
    }
    let second = text(2001);
    coded.site.add("app.js", &second);
    wait_until("the change is seen", || {
        let got = coded.get("/app.js", &["--compressed", "-H", "Accept-Encoding: zstd"]);
        // At first it is what it was, or, changed within this tick, is sent as it is.
        assert!(got.body == first.as_bytes() || got.body == second.as_bytes());
        got.body == second.as_bytes() && coding(&got) == Some("zstd")
    });
}

/// Sixty clients at once ask for a file that was never requested before. Each gets whole bytes, and other files come meanwhile.
#[test]
fn many_at_once_get_the_same() {
    let site = Site::new();
    let original = text(28_000);
    assert!(original.len() < 1 << 20);
    site.add("app.js", &original);
    let coded = Configured::serve(site, "[site.compress]\n");
    let bodies: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..12)
            .map(|_| {
                scope.spawn(|| {
                    let mut client = coded.site.connect(&coded.server);
                    (0..5)
                        .map(|_| {
                            let fields = [("Accept-Encoding", "br")];
                            let got = sealion_testkit::http::request(&mut client, "GET", "/app.js", &fields);
                            let got = got.expect("a response");
                            assert_eq!(coding(&got), Some("br"));
                            got.body
                        })
                        .collect::<Vec<_>>()
                })
            })
            .collect();
        threads.into_iter().flat_map(|thread| thread.join().expect("no panic")).collect()
    });
    assert_eq!(bodies.len(), 60);
    assert!(bodies.iter().all(|body| *body == bodies[0]));
    assert!(coded.get("/app.js", &["--compressed", "-H", "Accept-Encoding: br"]).body == original.as_bytes());
}

#[test]
fn without_the_keys_nothing_is_coded() {
    let site = Site::new();
    site.add("style.css", text(1000));
    site.add("style.css.br", "br");
    let server = site.serve_from_user_space(&[]);
    let got = curl::get(&site.pki, server.address(), "/style.css", &["--raw", "-H", "Accept-Encoding: br"]);
    assert_eq!((coding(&got), got.field("vary")), (None, None));
    assert!(got.body == text(1000).as_bytes());
}

#[test]
fn compress_writes_what_is_missing_or_old_with_the_time_and_mode_of_the_original() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};

    let site = Site::new();
    let path = site.add("a/style.css", text(500));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("its mode is set");
    site.add(".hidden/style.css", text(500));
    site.add("tiny.css", "a {}");
    site.add("picture.png", text(500));
    site.link("link.css", "a/style.css");
    site.add("style.css.gz", text(500));
    site.add("noise.txt", noise(4000));
    let said = compress(&site.root(), &[]);
    for coding in ["br", "zstd", "gzip"] {
        assert!(said.contains(&format!("{coding}: 1 written")), "{said}");
        assert!(said.contains("1 would not be smaller"), "{said}");
    }
    let original = fs::metadata(&path).expect("it is there");
    for suffix in [".br", ".zst", ".gz"] {
        let sibling = fs::metadata(beside(&path, suffix)).expect("it was made");
        assert_eq!((sibling.mtime(), sibling.mtime_nsec()), (original.mtime(), original.mtime_nsec()));
        assert_eq!(sibling.mode(), original.mode());
    }
    let mut names: Vec<String> = fs::read_dir(site.root().join("a"))
        .expect("a directory")
        .map(|entry| entry.expect("an entry").file_name().into_string().expect("text"))
        .collect();
    names.sort();
    assert_eq!(names, ["style.css", "style.css.br", "style.css.gz", "style.css.zst"], "nothing else is left");
    assert!(compress(&site.root(), &[]).contains("br: 0 written (0 bytes became 0), 1 up to date"));
    set_age(&path, 5);
    assert!(compress(&site.root(), &["--codings", "gzip", "--jobs", "3"]).contains("gzip: 1 written"));

    let output = Command::new(PROGRAM).arg("compress").arg(site.root().join("none")).output().expect("it starts");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("choose a readable directory"));
}

/// Bytes that no encoder makes smaller (xorshift).
fn noise(len: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    std::iter::repeat_with(next).take(len).collect()
}
