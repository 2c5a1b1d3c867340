//! The needs of mirrors: long listings, checksums, archives, bandwidth for each client.

use std::fs;
use std::io::Read;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};
use std::time::Duration;

use sealion_testkit::{Suite, http};

use crate::support::configured::Configured;
use crate::support::http2::Http2;
use crate::support::{Site, access_line, access_lines, tool};

const JSON: &[&str] = &["-H", "Accept: application/json"];

fn json(served: &Configured, target: &str) -> serde_json::Value {
    let response = served.get(target, JSON);
    assert_eq!(response.status, 200, "{target}");
    serde_json::from_slice(&response.body).expect("JSON")
}

fn names(page: &serde_json::Value) -> Vec<String> {
    let entries = page["entries"].as_array().expect("entries");
    entries.iter().map(|entry| entry["name"].as_str().expect("a name").to_owned()).collect()
}

#[test]
fn a_long_listing_has_pages_and_is_searched() {
    let site = Site::new();
    for n in 0..2500 {
        site.add(&format!("pool/package-{n}.deb"), "");
    }
    site.add("pool/ReadMe", "");
    let served = Configured::serve(site, "listing = { page = 1000 }\n");
    let mut all = Vec::new();
    for number in 1..=3 {
        let page = json(&served, &format!("/pool/?page={number}"));
        assert_eq!((&page["page"], &page["pages"], &page["total"]), (&number.into(), &3.into(), &2501.into()));
        assert_eq!(page["more"], number < 3);
        all.extend(names(&page));
    }
    assert_eq!(all.len(), 2501);
    assert_eq!((&*all[0], &*all[999], &*all[2500]), ("package-0.deb", "package-999.deb", "ReadMe"));
    assert_eq!(names(&json(&served, "/pool/?q=read")), ["ReadMe"]);
    assert_eq!(names(&json(&served, "/pool/?q=*-77?.deb&order=desc"))[..2], ["package-779.deb", "package-778.deb"]);
    assert_eq!(json(&served, "/pool/?q=nothing+at+all")["total"], 0);
    // The same without script: a form, and links.
    let html = served.get("/pool/?q=deb&page=2", &["-H", "Accept: text/html"]);
    let text = String::from_utf8(html.body).expect("text");
    assert!(text.contains("value=\"deb\"") && text.contains("Page 2 of 3"), "{text}");
    assert!(text.contains("?q=deb&amp;sort=name&amp;order=asc&amp;page=3\" rel=\"next\""), "{text}");
    let policy = html.fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-security-policy"));
    assert!(policy.expect("a policy").1.contains("form-action 'self'"));
}

#[test]
fn notes_stand_around_a_listing_and_show_only_what_the_request_could_read() {
    let site = Site::new();
    for (name, text) in [
        ("pub/HEADER.html", "<b>above</b>"),
        ("pub/README.md", "below & more"),
        ("closed/README.md", "closed words"),
        ("asked/README", "asked words"),
    ] {
        site.add(name, text);
    }
    let served = Configured::serve(
        site,
        "listing = { notes = 'html', stylesheet = '/theme.css' }\n\
         route = [\n\
           { path = '= /closed/README.md', access = { deny = ['127.0.0.0/8'] } },\n\
           { path = '= /asked/README', forward_auth = { to = 'http://127.0.0.1:1/verify' } },\n\
           { path = '~ ^/alias/(.*)$', rewrite = '/pub/{1}' },\n\
         ]\n",
    );
    let page = |target: &str| {
        let response = served.get(target, &["-H", "Accept: text/html"]);
        assert_eq!(response.status, 200, "{target}");
        (String::from_utf8(response.body).expect("text"), response.fields)
    };
    let (text, fields) = page("/pub/");
    assert!(text.contains("<b>above</b>") && text.contains("below &amp; more"), "{text}");
    assert!(text.contains("<link rel=\"stylesheet\" href=\"/theme.css\">"), "{text}");
    let policy = fields.iter().find(|(name, _)| name.eq_ignore_ascii_case("content-security-policy"));
    assert!(policy.expect("a policy").1.contains(" 'self'; img-src 'self'"));
    for (target, shown, kept) in [
        ("/closed/", "README.md", "closed words"),
        ("/asked/", "README", "asked words"),
        ("/alias/", "README.md", "below"),
    ] {
        let (text, _) = page(target);
        assert!(text.contains(shown) && !text.contains(kept), "{target}: {text}");
    }
    assert!(!String::from_utf8_lossy(&served.get("/pub/", JSON).body).contains("above"));
}

#[test]
fn checksums_are_shown_beside_files_and_sent_on_request() {
    let site = Site::new();
    let content = "content".repeat(1000);
    site.add("pub/a.iso", &content);
    site.add("pub/b.iso", &content);
    site.add("pub/c.txt", &content);
    site.add("pub/d.iso", "d");
    let sum = |file: &str| tool("sha256sum", [site.root().join("pub").join(file)])[..64].to_owned();
    let digits = sum("a.iso");
    site.add("pub/a.iso.sha256", format!("{digits}  a.iso\n"));
    site.add("pub/SHA256SUMS", format!("{digits}  b.iso\n{digits} *c.txt\n{}  d.iso\n", sum("d.iso")));
    // The checksum belongs to an earlier file.
    site.add("pub/d.iso", "other");
    let later = std::time::SystemTime::now() + Duration::from_secs(10);
    fs::File::options()
        .write(true)
        .open(site.root().join("pub/d.iso"))
        .and_then(|f| f.set_modified(later))
        .expect("a time");
    let served = Configured::serve(site, "listing = true\nrepr_digest = true\nprecompressed = ['gzip']\n");
    let entries = json(&served, "/pub/?q=?.*");
    let of = |place: usize| entries["entries"][place]["checksums"][0]["href"].as_str().map(str::to_owned);
    assert_eq!(of(0).as_deref(), Some("./a.iso.sha256"));
    assert_eq!(of(2).as_deref(), Some("./SHA256SUMS"));
    let html = served.get("/pub/", &["-H", "Accept: text/html"]);
    assert!(String::from_utf8_lossy(&html.body).contains("<a href=\"./a.iso.sha256\">SHA-256</a>"));

    let want = ["-H", "Want-Repr-Digest: sha-512=9, sha-256=3"];
    let expected = {
        use base64::Engine;
        let octets: Vec<u8> =
            (0..32).map(|n| u8::from_str_radix(&digits[2 * n..2 * n + 2], 16).expect("digits")).collect();
        format!("sha-256=:{}:", base64::engine::general_purpose::STANDARD.encode(octets))
    };
    for file in ["a.iso", "b.iso", "c.txt"] {
        for _ in 0..2 {
            let response = served.get(&format!("/pub/{file}"), &want);
            assert_eq!((response.status, response.field("repr-digest")), (200, Some(&*expected)), "{file}");
        }
        // The digest covers the whole file.
        let part = served.get(&format!("/pub/{file}"), &[&want[..], &["-r", "1-5"]].concat());
        assert_eq!((part.status, part.field("repr-digest"), part.body.len()), (206, Some(&*expected), 5));
        assert_eq!(served.get(&format!("/pub/{file}"), &[]).field("repr-digest"), None);
    }
    assert_eq!(served.get("/pub/d.iso", &want).field("repr-digest"), None, "the file is newer");
    assert_eq!(served.get("/pub/a.iso", &["-H", "Want-Repr-Digest: sha-512=1"]).field("repr-digest"), None);
    assert_eq!(served.get("/pub/none", &want).field("repr-digest"), None);
    // The bytes of a compressed sibling have another digest.
    served.site.add("pub/c.txt.gz", "gzip");
    let coded = served.get("/pub/c.txt", &[&want[..], &["-H", "Accept-Encoding: gzip"]].concat());
    if coded.field("content-encoding").is_some() {
        assert_eq!(coded.field("repr-digest"), None);
    }
}

/// The members of an archive as tar(1) lists them, and what it extracts.
fn extract(archive: &[u8], coding: &[&str], into: &std::path::Path) -> Vec<String> {
    fs::create_dir_all(into).expect("a directory");
    let file = into.join("archive");
    fs::write(&file, archive).expect("written");
    let run = |mode: &str| {
        let mut command = Command::new("tar");
        command.args(coding).arg(mode).arg(&file).arg("-C").arg(into);
        let output = command.output().expect("tar(1)");
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success() && errors.is_empty(), "{errors}");
        String::from_utf8(output.stdout).expect("names")
    };
    let listed = run("-tf");
    run("-xf");
    listed.lines().map(str::to_owned).collect()
}

const ARCHIVES: &str = "listing = { archive = {} }\n";

#[test]
fn a_directory_is_downloaded_as_an_archive() {
    let site = Site::new();
    let long = format!("{}/{}", "d".repeat(120), "f".repeat(140));
    site.add("pub/a.txt", "four");
    site.add("pub/sub/b.txt", "");
    site.add("pub/ümlaut", "u");
    site.add_pattern("pub/sub/large", 3_000_001);
    site.add(&format!("pub/{long}"), "long");
    site.add("pub/.hidden", "no");
    site.add("pub/page/index.html", "no");
    fs::create_dir(site.root().join("pub/empty")).expect("a directory");
    symlink("a.txt", site.root().join("pub/link")).expect("a link");
    symlink("/etc/hostname", site.root().join("pub/out")).expect("a link");
    symlink("..", site.root().join("pub/sub/round")).expect("a link");
    let served = Configured::serve(site, ARCHIVES);
    let html = served.get("/pub/", &["-H", "Accept: text/html"]);
    assert!(String::from_utf8_lossy(&html.body).contains("<a href=\"?archive=tar.zst\""));
    let formats = [
        ("tar", &[][..], "application/x-tar"),
        ("tar.gz", &["-z"], "application/gzip"),
        ("tar.zst", &["--zstd"], "application/zstd"),
    ];
    for protocol in ["--http1.1", "--http2"] {
        for (format, coding, media_type) in formats {
            let response = served.get(&format!("/pub/?archive={format}"), &[protocol]);
            assert_eq!((response.status, response.field("content-type")), (200, Some(media_type)));
            assert_eq!(response.field("content-disposition"), Some(&*format!("attachment; filename=\"pub.{format}\"")));
            assert_eq!(response.field("content-length").is_some(), format == "tar");
            if format == "tar.zst" && Command::new("zstd").arg("-V").stdout(Stdio::null()).status().is_err() {
                let decoded = zstd::decode_all(&*response.body).expect("zstd");
                assert_eq!(decoded, served.get("/pub/?archive=tar", &[]).body);
                continue;
            }
            let into = served.site.outside().join(format!("{protocol}{format}"));
            let listed = extract(&response.body, coding, &into);
            let first = ["pub/a.txt", "pub/dd"];
            assert!(listed.iter().zip(first).all(|(name, start)| name.starts_with(start)), "{listed:?}");
            for name in ["empty/", "link", "sub/", "page/"] {
                assert!(listed.contains(&format!("pub/{name}")), "{name}: {listed:?}");
            }
            for name in ["hidden", "out", "round", "index"] {
                assert!(!listed.iter().any(|listed| listed.contains(name)), "{name}: {listed:?}");
            }
            for name in ["a.txt", "sub/b.txt", "sub/large", "ümlaut", &long, "link"] {
                let original = fs::read(served.site.root().join("pub").join(name)).expect("the original");
                assert_eq!(fs::read(into.join("pub").join(name)).expect(name), original, "{name}");
            }
        }
    }
    let head = served.get("/pub/?archive=tar", &["--head"]);
    let whole = served.get("/pub/?archive=tar", &[]);
    assert_eq!(head.field("content-length"), whole.field("content-length"));
    assert_eq!(served.get("/pub/?archive=zip", &[]).status, 400);
    assert_eq!(served.get("/none/?archive=tar", &[]).status, 404);
    assert_eq!(served.get("/pub/page/?archive=tar", &[]).body, b"no", "a directory with an index is not listed");
}

#[test]
fn an_archive_has_only_what_the_request_could_read() {
    let site = Site::new();
    for name in
        ["open", "denied/x", "secret/x", "asked/x", "old/x", "moved", "app/x", "first/x", "mounted/x", "script.php"]
    {
        site.add(&format!("pub/{name}"), name);
    }
    fs::create_dir_all(site.outside().join("other")).expect("a directory");
    fs::write(site.outside().join("other/y"), "y").expect("a file");
    let hash = bcrypt::hash_with_result("secret", 4).expect("a hash").format_for_version(bcrypt::Version::TwoY);
    fs::write(site.outside().join("users"), format!("ada:{hash}\n")).expect("users");
    let served = Configured::serve(
        site,
        "listing = { archive = {} }\n\
         route = [\n\
           { path = '/pub/denied/', access = { deny = ['127.0.0.0/8'] } },\n\
           { path = '/pub/secret/', basic_auth = { realm = 'r', users = 'users' } },\n\
           { path = '/pub/asked/', forward_auth = { to = 'http://127.0.0.1:1/verify' } },\n\
           { path = '~ ^/pub/old/(.*)$', redirect = '/new/{1}' },\n\
           { path = '= /pub/moved', rewrite = '/pub/open' },\n\
           { path = '~ ^/alias/(.*)$', rewrite = '/pub/{1}' },\n\
           { path = '/pub/app/', proxy = { to = 'http://127.0.0.1:1' } },\n\
           { path = '/pub/first/', proxy = { to = 'http://127.0.0.1:1', files_first = true } },\n\
           { path = '/pub/mounted/', alias = 'other' },\n\
         ]\n",
    );
    let members = |target: &str, into: &str| {
        let response = served.get(target, &[]);
        assert_eq!(response.status, 200, "{target}: {}", String::from_utf8_lossy(&response.body));
        extract(&response.body, &[], &served.site.outside().join(into))
    };
    assert_eq!(members("/pub/?archive=tar", "all"), ["pub/open", "pub/script.php"]);
    assert_eq!(members("/pub/mounted/?archive=tar", "mounted"), ["mounted/y"]);
    // Other paths than those that guards know.
    assert_eq!(served.get("/alias/", &[]).status, 200);
    assert_eq!(served.get("/alias/?archive=tar", &[]).status, 403);
    assert_eq!(served.get("/pub/denied/?archive=tar", &[]).status, 403);
    assert_eq!(served.get("/pub/secret/?archive=tar", &[]).status, 401);
}

#[test]
fn archives_beyond_their_bounds_are_refused() {
    let site = Site::new();
    site.add("big/x", "x".repeat(2000));
    for n in 0..20 {
        site.add(&format!("many/{n}"), "");
    }
    site.add("none/x", "");
    let archive = "archive = { max = '1kB', files = 10 }";
    let served =
        Configured::serve(site, &format!("route = [{{ path = '~ ^/(big|many)/', listing = {{ {archive} }} }}]\n"));
    let refused = |target: &str| {
        let response = served.get(target, &[]);
        (response.status, String::from_utf8(response.body).expect("a reason"))
    };
    let (status, reason) = refused("/big/?archive=tar.zst");
    assert!(status == 403 && reason.contains("more than 1000B"), "{status} {reason}");
    let (status, reason) = refused("/many/?archive=tar");
    assert!(status == 403 && reason.contains("more than 10 files"), "{status} {reason}");
    assert_eq!(refused("/none/?archive=tar").0, 404);

    // Off by default.
    let site = Site::new();
    site.add("pub/x", "");
    let served = Configured::serve(site, "listing = true\n");
    assert_eq!(served.get("/pub/?archive=tar", &[]).status, 403);
    assert!(!String::from_utf8_lossy(&served.get("/pub/", &[]).body).contains("?archive"));
}

#[test]
fn as_many_archives_are_made_as_the_site_permits() {
    let site = Site::new();
    site.add("pub/x", vec![0; 24 << 20]);
    let server = site.config("listing = { archive = { concurrent = 1 } }").serve_from_user_space();
    let mut slow = site.connect_slow_reader(&server);
    crate::support::begin(&mut slow, "/pub/?archive=tar");
    let mut second = site.connect(&server);
    let busy = http::get(&mut second, "/pub/?archive=tar").expect("an answer");
    assert_eq!(busy.status, 503);
    assert!(busy.field("retry-after").is_some());
    drop(slow);
    crate::support::wait_until("the permit is given back", || {
        http::request(&mut second, "HEAD", "/pub/?archive=tar", &[]).expect("an answer").status == 200
    });
}

/// An archive of a file that shrinks never ends as if it were whole, however it is sent.
#[test]
fn an_archive_of_a_file_that_shrinks_is_cut_short() {
    // It cannot be compressed, so that much is left to send when it shrinks.
    let mut noise = Vec::new();
    fs::File::open("/dev/urandom").and_then(|file| file.take(24 << 20).read_to_end(&mut noise)).expect("noise");
    for format in ["tar", "tar.gz", "tar.zst"] {
        for protocol in ["--http1.1", "--http2"] {
            let site = Site::new();
            let file = site.add("pub/x", &noise);
            let server = site.config(ARCHIVES).serve();
            let mut download = Command::new("curl");
            download.args(["-sS", protocol, "--cacert"]).arg(site.pki.certificate_file());
            download.arg(format!("https://{}/pub/?archive={format}", server.address()));
            let mut child = download.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("curl");
            let mut body = child.stdout.take().expect("a pipe");
            body.read_exact(&mut [0; 512]).expect("it begins");
            fs::File::options().write(true).open(&file).and_then(|file| file.set_len(1 << 20)).expect("it shrinks");
            let read = std::io::copy(&mut body, &mut std::io::sink()).expect("read");
            let status = child.wait().expect("curl ends");
            assert!(!status.success(), "{format} {protocol}: {read} bytes are taken for the whole");
            assert_ne!(access_line(&server, 1).find("aborted"), None);
        }
    }
}

#[test]
fn a_response_that_waits_for_bandwidth_is_the_same() {
    let site = Site::new();
    site.add_pattern("f", 100_000);
    site.add("small", "small");
    let keys = "listing = true\n[site.limits]\nclient_bandwidth = '400kB'\nsite_bandwidth = '10MB'\n";
    let served = Configured::serve(site, keys);
    let whole = fs::read(served.site.root().join("f")).expect("the file");
    for protocol in ["--http1.1", "--http2"] {
        let response = served.get("/f", &[protocol]);
        assert_eq!((response.field("content-length"), &response.body), (Some("100000"), &whole));
        let parts = served.get("/f", &[protocol, "-r", "0-9,100-109"]);
        assert_eq!(parts.status, 206);
        assert!(parts.body.windows(10).any(|part| part == &whole[100..110]));
        assert_eq!(served.get("/small", &[protocol]).body, b"small");
        assert!(served.get("/f", &[protocol, "--head"]).body.is_empty());
        assert_eq!(served.get("/none", &[protocol]).status, 404);
        assert_eq!(served.get("/", &[protocol]).status, 200);
    }
    let unchanged = served.get("/f", &[]);
    let etag = format!("If-None-Match: {}", unchanged.field("etag").expect("a tag"));
    assert_eq!(served.get("/f", &["-H", &etag]).status, 304);
}

/// Each takes no more of the bandwidth than its window lets it send.
#[test]
fn streams_with_small_windows_leave_the_bandwidth_of_a_site_to_others() {
    const INITIAL_WINDOW_SIZE: u16 = 4;
    let site = Site::new();
    site.add_pattern("long", 20_000);
    site.add("short", "short");
    let server = site.config("[site.limits]\nsite_bandwidth = '4096B'\n").serve();
    let connect = |settings: &[_]| Http2::connect(site.connector(Suite::TLS13), server.address(), settings);
    let mut stalled = connect(&[(INITIAL_WINDOW_SIZE, 1)]);
    stalled.credit = 0;
    let streams: Vec<u32> = (0..100).map(|_| stalled.get("/long")).collect();
    // Each has asked for its first bytes by then.
    let has_head = |http: &Http2, id| http.streams.get(id).is_some_and(|got| got.status == 200);
    stalled.read_until("all heads", |http| streams.iter().all(|id| has_head(http, id)));
    assert_eq!(connect(&[]).fetch("/short"), (200, b"short".to_vec()));
}

/// The long response was asked for first, and would fit the buffers of its socket: only the bandwidth can make it end last.
#[test]
fn responses_of_a_client_share_its_bandwidth_in_turn() {
    for key in ["client_bandwidth", "site_bandwidth"] {
        let site = Site::new();
        site.add_pattern("long", 20_000);
        site.add("short", "short");
        let server = site.config(&format!("[site.limits]\n{key} = '4096B'\n")).serve();
        let mut first = site.connect(&server);
        let began = crate::support::begin(&mut first, "/long");
        assert!(began.contains("200"), "{began}");
        let mut second = site.connect(&server);
        assert_eq!(http::get(&mut second, "/short").expect("an answer").body, b"short");
        let lines = access_lines(&server, 2);
        assert_eq!((lines[0].get("target"), lines[1].get("target")), ("/short", "/long"), "{key}");
        assert_eq!(lines[1].get("bytes"), "20000");
    }
}
