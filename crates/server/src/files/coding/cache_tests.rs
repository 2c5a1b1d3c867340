//! Variants in the file cache, and a check that no combination of request fields mixes two of them.

use std::fs;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime};

use sealion_http::date::HttpTime;
use sealion_http::request::{Conditions, FieldLines, Method, Request, Target};
use sealion_http::{ContentRange, FieldSection, Status};

use super::Coding;
use super::config::CompressConfig;
use super::encoder::tests::decode;
use super::encoder::{Effort, encode};
use crate::files::cache::{CacheLimits, FileCache};
use crate::files::resolve::{Content, Found, Root, SiteFile};
use crate::response::{Body, Response};
use crate::site::{Client, Site, SiteConfig, SiteContext, answer};
use crate::upstream::{Inbound, Upstreams};
use crate::values::{Problems, Size};

struct Place {
    directory: tempfile::TempDir,
    site: Site,
    now: Instant,
}

const AGE: Duration = Duration::from_secs(1);

impl Place {
    fn new(precompressed: &[Coding], compress: Option<CompressConfig>, limits: CacheLimits) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let mut problems = Problems::of_arguments();
        let config = SiteConfig {
            root: Some(directory.path().to_owned().into()),
            precompressed: precompressed.to_vec().into(),
            compress: compress.into(),
            ..SiteConfig::default()
        };
        let site =
            config.build(&mut SiteContext::new(&FileCache::new(limits), &mut Upstreams::default()), &mut problems);
        let site = site.unwrap_or_else(|| panic!("{problems}"));
        Place { directory, site, now: Instant::now() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes a file that was modified `age` seconds ago, and a nanosecond later than the previous file. Waits until
    /// the clock tick is over, so that the file may be cached.
    fn put(&self, name: &str, content: impl AsRef<[u8]>, age: u64) {
        let new = self.directory.path().join(".new");
        fs::write(&new, content).unwrap();
        static PUT: AtomicU32 = AtomicU32::new(0);
        let nanoseconds = PUT.fetch_add(1, Ordering::Relaxed);
        let modified = SystemTime::UNIX_EPOCH + Duration::new(1_700_000_000 - age, nanoseconds);
        fs::File::options().write(true).open(&new).unwrap().set_modified(modified).unwrap();
        fs::rename(new, self.path(name)).unwrap();
        let root = Root::open(self.directory.path()).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while !matches!(root.resolve(name.as_bytes(), 0, crate::files::resolve::Wait::Yes), Ok(Found::File(file)) if file.is_settled())
        {
            assert!(Instant::now() < deadline, "the file system clock stands still");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Writes `name` and its precompressed siblings.
    fn put_with(&self, name: &str, content: &str, codings: &[Coding]) {
        self.put(name, content, 50);
        for coding in codings {
            let encoded = encode(*coding, Effort::Now, content.as_bytes()).unwrap().unwrap();
            self.put(&format!("{name}{}", coding.suffix()), encoded, 50);
        }
    }

    fn file(&self, path: &str, accept: &str) -> Arc<SiteFile> {
        let mut lines = FieldLines::default();
        lines.add(accept.as_bytes());
        match self.site.files_for_tests().find_for_tests(path, &lines, self.now) {
            Ok(Found::File(file)) => file,
            other => panic!("{path}: {other:?}"),
        }
    }

    fn ask(&self, path: &str, fields: &[(&str, &str)]) -> Response {
        let mut conditions = Conditions::default();
        fields.iter().for_each(|(name, value)| conditions.add(name, value.as_bytes()));
        let target = Target::from_origin_form(path).unwrap();
        let fields = FieldSection::default();
        let request = Request { method: Method::Get, target, raw_target: path, authority: None, conditions, fields };
        let now: HttpTime = "Mon, 01 Jan 2024 00:00:00 GMT".parse().unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        *runtime.block_on(answer(&self.site, &request, Client::default(), now, Inbound::default()))
    }
}

fn all(file: &SiteFile) -> Vec<u8> {
    file.read(0..file.len)
}

fn text(seed: usize, lines: usize) -> String {
    (0..lines).map(|line| format!("line {} of a text\n", (line + seed) * 7919 % 1009)).collect()
}

fn limits() -> CacheLimits {
    CacheLimits { age: AGE, ..CacheLimits::default() }
}

#[test]
fn variants_are_served_from_memory() {
    let place = Place::new(&Coding::ALL, None, limits());
    let content = text(1, 300);
    place.put_with("a.css", &content, &Coding::ALL);
    let got: Vec<_> = ["br", "zstd", "gzip", "identity"].map(|accept| place.file("/a.css", accept)).into();
    // Any lookup on disk would now fail.
    for name in ["a.css", "a.css.br", "a.css.zst", "a.css.gz"] {
        fs::remove_file(place.path(name)).unwrap();
    }
    for (n, accept) in ["br", "zstd", "gzip", "identity"].into_iter().enumerate() {
        let file = place.file("/a.css", accept);
        assert!(Arc::ptr_eq(&file, &got[n]), "{accept}: kept");
        assert!(file.varies && matches!(file.content, Content::Memory(_)));
        let coding = Coding::ALL.get(n).copied();
        assert_eq!(file.coding, coding);
        let decoded = coding.map_or_else(|| all(&file), |coding| decode(coding, &all(&file)));
        assert_eq!(decoded, content.as_bytes());
        assert_eq!(file.content_type, got[3].content_type);
        assert!((0..n).all(|other| got[other].etag != file.etag), "one tag each");
    }
}

#[test]
fn new_changed_and_removed_siblings_are_noticed_after_the_age() {
    let mut place = Place::new(&[Coding::Gzip], None, limits());
    place.put("a.css", text(1, 100), 50);
    assert_eq!(place.file("/a.css", "gzip").coding, None);
    place.put("a.css.gz", "first", 50);
    assert_eq!(place.file("/a.css", "gzip").coding, None, "still fresh");
    place.now += AGE;
    assert_eq!(all(&place.file("/a.css", "gzip")), b"first");
    place.put("a.css.gz", "second", 40);
    place.now += AGE;
    assert_eq!(all(&place.file("/a.css", "gzip")), b"second");
    // The original is now newer.
    place.put("a.css", text(2, 100), 30);
    place.now += AGE;
    assert_eq!(all(&place.file("/a.css", "gzip")), text(2, 100).as_bytes());
    place.put("a.css.gz", "third", 30);
    place.now += AGE;
    assert_eq!(all(&place.file("/a.css", "gzip")), b"third");
    fs::remove_file(place.path("a.css.gz")).unwrap();
    place.now += AGE;
    assert_eq!(place.file("/a.css", "gzip").coding, None);
}

#[test]
fn files_that_are_not_siblings() {
    let place = Place::new(&[Coding::Gzip, Coding::Brotli], None, limits());
    // Empty; a directory; in a coding that is not configured; sibling of a sibling; sibling of an image.
    place.put("a.css", text(1, 100), 50);
    place.put("a.css.gz", "", 50);
    fs::create_dir(place.path("a.css.br")).unwrap();
    place.put("a.css.zst", "zst", 50);
    assert_eq!(place.file("/a.css", "gzip, br, zstd").coding, None);
    place.put("b.css.gz", "gz", 50);
    place.put("b.css.gz.gz", "gz", 50);
    let coded = place.file("/b.css.gz", "gzip");
    assert_eq!((coded.coding, coded.varies, coded.content_type.essence()), (None, false, "application/gzip"));
    place.put("c.png", "png", 50);
    place.put("c.png.gz", "gz", 50);
    assert!(!place.file("/c.png", "gzip").varies);
    // Outside the root.
    let outside = tempfile::tempdir().unwrap();
    fs::write(outside.path().join("secret"), "secret").unwrap();
    place.put("d.css", text(1, 100), 50);
    std::os::unix::fs::symlink(outside.path().join("secret"), place.path("d.css.gz")).unwrap();
    assert_eq!(place.file("/d.css", "gzip").coding, None);
    // A sibling without its original is an ordinary file.
    place.put("e.css.gz", "gz", 50);
    assert_eq!(place.ask("/e.css", &[("Accept-Encoding", "gzip")]).status, Status::NOT_FOUND);
}

#[test]
fn variants_count_against_the_bounds() {
    let place = Place::new(&Coding::ALL, None, CacheLimits { memory: 20_000, ..limits() });
    for n in 0..20 {
        let name = format!("{n}.css");
        place.put_with(&name, &text(n, 300), &Coding::ALL);
        for accept in ["br", "identity"] {
            place.file(&format!("/{name}"), accept);
            let (files, memory) = place.site.files_for_tests().kept_for_tests();
            assert!(files > 0 && memory <= 20_000, "{files} files, {memory} bytes");
        }
    }
}

#[test]
fn compressed_once_and_again_after_a_change() {
    for limits in [limits(), CacheLimits { age: Duration::ZERO, ..limits() }] {
        let mut place = Place::new(&[], Some(CompressConfig::default()), limits);
        place.put("a.js", text(1, 300), 50);
        let first = place.file("/a.js", "gzip, br");
        assert_eq!((first.coding, first.varies), (Some(Coding::Brotli), true));
        assert_eq!(decode(Coding::Brotli, &all(&first)), text(1, 300).as_bytes());
        assert!(Arc::ptr_eq(&first, &place.file("/a.js", "br")));
        let gzip = place.file("/a.js", "gzip");
        assert_eq!(gzip.coding, Some(Coding::Gzip));
        assert_ne!(gzip.etag, first.etag);
        place.put("a.js", text(2, 300), 40);
        place.now += AGE;
        let second = place.file("/a.js", "br");
        assert_eq!(decode(Coding::Brotli, &all(&second)), text(2, 300).as_bytes());
        assert_ne!(second.etag, first.etag);
        // Too small, too large, of another type, and not smaller.
        place.put("small.js", text(1, 10), 50);
        place.put("large.js", vec![b'a'; (1 << 20) + 1], 50);
        place.put("a.png", text(1, 300), 50);
        let mut noise = vec![0; 4000];
        aws_lc_rs::rand::fill(&mut noise).unwrap();
        place.put("noise.js", noise, 50);
        for name in ["/small.js", "/large.js", "/a.png", "/noise.js", "/noise.js"] {
            assert_eq!(place.file(name, "gzip, br").coding, None, "{name}");
        }
    }
}

#[test]
fn a_sibling_is_preferred_to_compression() {
    let place = Place::new(&[Coding::Gzip], Some(CompressConfig::default()), limits());
    place.put("a.js", text(1, 300), 50);
    place.put("a.js.gz", "by hand", 50);
    assert_eq!(all(&place.file("/a.js", "br, gzip")), b"by hand");
    assert_eq!(place.file("/a.js", "br").coding, Some(Coding::Brotli));
}

/// A client collects ranges of a file while its Accept-Encoding and the file change, with every kind of If-Range. It
/// never combines bytes of two representations: every 206 belongs to the representation whose tag the client has.
#[test]
fn no_fields_mix_two_variants() {
    let compress = CompressConfig { min: Size(0), ..CompressConfig::default() };
    for (precompressed, compress) in [(&Coding::ALL[..], None), (&[], Some(compress))] {
        let place = Place::new(precompressed, compress, CacheLimits { age: Duration::ZERO, ..limits() });
        place.put_with("a.css", &text(1, 300), precompressed);
        let accepts = ["br", "zstd", "gzip", "identity", "br;q=0.5, gzip", "*;q=0", "zstd, *;q=0.1"];
        let ranges = ["bytes=0-9", "bytes=10-", "bytes=-20", "bytes=5-5", "bytes=0-1,5-9", "bytes=99999-", "bytes=0-"];
        let mut state = 7u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        // Tag, date and all bytes of each representation that the client has.
        let mut held: Vec<(String, String, Vec<u8>)> = Vec::new();
        let mut parts = 0;
        for round in 0..1500 {
            if round == 700 {
                // The dates stay the same to the second, which makes it harder.
                place.put_with("a.css", &text(2, 301), precompressed);
            }
            let accept = accepts[random(accepts.len())];
            let mut fields = vec![("Accept-Encoding", accept)];
            let holds = (!held.is_empty()).then(|| held[random(held.len())].clone());
            if let Some((tag, date, _)) = &holds {
                fields.push(("Range", ranges[random(ranges.len())]));
                fields.push(("If-Range", if random(2) == 0 { tag } else { date }));
            }
            let response = place.ask("/a.css", &fields);
            let tag = response.fields.etag.map(|tag| String::from_utf8_lossy(tag.as_bytes()).into_owned());
            match (response.status, &response.body) {
                (Status::OK, Body::File { file, range }) => {
                    assert_eq!(*range, 0..file.len);
                    assert!(response.fields.varies);
                    assert_eq!(response.fields.content_encoding, file.coding.map(Into::into));
                    let bytes = all(file);
                    let date = response.fields.last_modified.unwrap();
                    let date = std::str::from_utf8(date.as_bytes()).unwrap().to_owned();
                    let tag = tag.unwrap();
                    match held.iter().find(|(held, _, _)| *held == tag) {
                        Some((_, _, before)) => assert!(*before == bytes, "one tag for two contents"),
                        None => held.push((tag, date, bytes)),
                    }
                }
                (Status::PARTIAL_CONTENT, body) => {
                    parts += 1;
                    let (tag_held, _, bytes) = holds.as_ref().expect("no part without Range");
                    assert_eq!(tag.as_ref(), Some(tag_held), "the parts are of what If-Range names: {fields:?}");
                    match body {
                        Body::File { file, range } => {
                            let part = file.read(range.clone());
                            assert!(part == bytes[range.start as usize..range.end as usize], "{fields:?}");
                            let complete = bytes.len() as u64;
                            let expected = ContentRange::Part { range: range.clone(), complete };
                            assert_eq!(response.fields.content_range, Some(expected));
                            assert_eq!(response.fields.content_encoding, file.coding.map(Into::into));
                        }
                        Body::Multipart { file, .. } => assert_eq!(file.coding, None, "no multipart in a coding"),
                        other => panic!("{other:?}"),
                    }
                }
                (Status::RANGE_NOT_SATISFIABLE, _) => {}
                other => panic!("{other:?}"),
            }
        }
        assert!(parts > 50, "{parts}");
        assert_eq!(held.len(), 8, "all representations of both states were seen");
    }
}
