use super::*;
use crate::response::Body;
use sealion_http::Fields;

fn path(raw: &str, query: Option<&str>) -> AccelTarget {
    AccelTarget::Path { raw: raw.to_owned(), query: query.map(str::to_owned) }
}

#[test]
fn a_uri_is_decoded_once_and_has_no_way_out_of_the_site() {
    for (value, expected) in [
        (&b"/protected/a.txt"[..], path("/protected/a.txt", None)),
        (b"/protected/a%20b.txt", path("/protected/a%20b.txt", None)),
        (b"/protected/a b.txt", path("/protected/a%20b.txt", None)),
        (b"/protected/\xc3\xa4%3f", path("/protected/%C3%A4%3F", None)),
        (b"/a%2Fb//c/", path("/a/b/c/", None)),
        (b"/100%.pdf", path("/100%25.pdf", None)),
        (b"/%2541", path("/%2541", None)),
        (b"/a?x=1&y=%20 z", path("/a", Some("x=1&y=%20%20z"))),
        (b"/", path("/", None)),
        (b"@app", AccelTarget::Named("@app".to_owned())),
        (b"", AccelTarget::Unsafe(String::new())),
        (b"a.txt", AccelTarget::Unsafe("a.txt".to_owned())),
        (b"?a", AccelTarget::Unsafe("?a".to_owned())),
        (b"/a/../b", AccelTarget::Unsafe("/a/../b".to_owned())),
        (b"/a/%2e%2e/b", AccelTarget::Unsafe("/a/%2e%2e/b".to_owned())),
        (b"/a%2f..%2fb", AccelTarget::Unsafe("/a%2f..%2fb".to_owned())),
        (b"/a%00", AccelTarget::Unsafe("/a%00".to_owned())),
        (b"http://evil.test/", AccelTarget::Unsafe("http://evil.test/".to_owned())),
    ] {
        assert_eq!(AccelTarget::of_uri(value), expected, "{}", value.escape_ascii());
    }
}

fn response(lines: &[(&str, &str)]) -> Response {
    let mut fields = Fields { forwarded: true, ..Fields::default() };
    lines.iter().for_each(|(name, value)| fields.extra.add(name, value));
    Response::new(Status::OK, fields, Body::Empty)
}

fn accel(ignored: Vec<Instruction>) -> Accel {
    Accel { ignored, sendfile_from: Vec::new() }
}

#[test]
fn fields_for_this_server_are_taken_and_followed() {
    let lines = [
        ("content-type", "text/html"),
        ("X-Accel-Buffering", "no"),
        ("x-accel-limit-rate", "1000"),
        ("X-ACCEL-CHARSET", "koi8-r"),
        ("x-accel-expires", "10"),
        ("x-sendfile", "/a"),
    ];
    let mut plain = response(&lines);
    assert!(accel(Vec::new()).take(&mut plain).is_none());
    assert_eq!(plain.fields.extra.lines(), b"x-sendfile: /a\r\ncontent-type: text/html; charset=koi8-r\r\n");
    assert_eq!(plain.rate, NonZeroU64::new(1000));
    let mut ignoring = response(&[&lines[..], &[("X-Accel-Redirect", "/a")]].concat());
    assert!(accel(Instruction::ALL.to_vec()).take(&mut ignoring).is_none());
    assert_eq!(ignoring.fields.extra.lines(), b"content-type: text/html\r\nx-sendfile: /a\r\n");
    assert_eq!(ignoring.rate, None);
}

#[test]
fn the_file_has_the_fields_that_nginx_keeps() {
    let mut first = response(&[
        ("X-Accel-Redirect", "/a"),
        ("Content-Type", "application/pdf"),
        ("Content-Length", "7"),
        ("ETag", "\"x\""),
        ("Last-Modified", "Thu, 01 Jan 1970 00:00:00 GMT"),
        ("Set-Cookie", "a=1"),
        ("Set-Cookie", "b=2"),
        ("Cache-Control", "private"),
        ("Accept-Ranges", "none"),
        ("Content-Encoding", "gzip"),
        ("Server", "x"),
    ]);
    let AccelRedirect { target, kept } = accel(Vec::new()).take(&mut first).unwrap();
    assert_eq!(target, path("/a", None));
    let of_file = ContentType::Text("text/plain");
    assert_eq!(kept.type_of(&of_file), Some(ContentType::Custom("application/pdf".into())));
    let mut file = response(&[("cache-control", "public")]);
    file.fields.accept_ranges = true;
    kept.add_to(&mut file);
    let expected = b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\nCache-Control: private\r\nAccept-Ranges: none\r\n";
    assert_eq!(file.fields.extra.lines(), expected);
    let mut missing = Response::plain(Status::NOT_FOUND);
    kept.add_to(&mut missing);
    assert_eq!(missing.fields.extra.lines(), b"Set-Cookie: a=1\r\nSet-Cookie: b=2\r\n");
}

#[test]
fn a_charset_is_added_to_text_without_one() {
    let kept = |content_type: &str| {
        let mut first = response(&[("X-Accel-Redirect", "/a"), ("X-Accel-Charset", "koi8-r")]);
        first.fields.extra.add("content-type", content_type);
        accel(Vec::new()).take(&mut first).unwrap().kept
    };
    let of_file = ContentType::Text("text/css");
    for (own, expected) in [
        ("text/html", "text/html; charset=koi8-r"),
        ("text/html; charset=utf-8", "text/html; charset=utf-8"),
        ("image/png", "image/png"),
        ("", "text/css; charset=koi8-r"),
    ] {
        assert_eq!(kept(own).type_of(&of_file), Some(ContentType::Custom(expected.into())), "{own}");
    }
    assert_eq!(charset(b"a\"b"), None);
}

#[test]
fn files_lie_beneath_a_directory_of_the_list() {
    let directory = tempfile::tempdir().unwrap();
    let (outer, inner) = (directory.path().join("a"), directory.path().join("a/b"));
    std::fs::create_dir_all(&inner).unwrap();
    std::os::unix::fs::symlink(&outer, directory.path().join("link")).unwrap();
    let cache = FileCache::new(crate::files::cache::CacheLimits::default());
    let mut problems = Problems::of_arguments();
    let from = [directory.path().join("link/"), inner].map(|value| At { value, span: 0..0 });
    let config = AccelConfig { sendfile_from: from.to_vec(), ..AccelConfig::default() };
    let accel = config.build(&SiteConfig::default(), &cache, "accel", &mut problems).unwrap();
    let base = directory.path().display().to_string();
    let found = |path: &str| {
        let (files, path) = accel.files_of(path.replace("BASE", &base).as_bytes())?;
        let number = accel.sendfile_from.iter().position(|root| std::ptr::eq(&raw const root.files, files));
        Some((number.unwrap(), String::from_utf8(path.as_bytes().to_vec()).unwrap()))
    };
    assert_eq!(found("BASE/link/x"), Some((0, "x".to_owned())));
    assert_eq!(found("BASE/a/x"), Some((0, "x".to_owned())), "its real path");
    assert_eq!(found("BASE/a/b/x"), Some((1, "x".to_owned())));
    for outside in ["BASE/ab", "BASE/a", "BASE/a/", "BASE/a/../x", "BASE/a/x/", "/etc/passwd", "a/x", ""] {
        assert_eq!(found(outside), None, "{outside}");
    }
}

#[test]
fn settings_without_effect_are_refused() {
    let cache = FileCache::new(crate::files::cache::CacheLimits::default());
    let mut problems = Problems::of_arguments();
    let config = AccelConfig {
        ignore: vec!["x-accel-expires".to_owned().into()],
        sendfile_from: vec![At { value: "/nonexistent".into(), span: 0..0 }],
    };
    assert!(config.build(&SiteConfig::default(), &cache, "accel", &mut problems).is_none());
    let said = problems.to_string();
    assert!(said.contains("has no effect anyway") && said.contains("cannot serve /nonexistent"), "{said}");
}
