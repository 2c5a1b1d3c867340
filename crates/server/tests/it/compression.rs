//! Compression of responses of applications: by the shipped binary, before curl and the programs zstd, gzip and brotli, which decode.

use std::io::Write;
use std::process::{Command, Stdio};
use std::sync::{LazyLock, mpsc};

use sealion_testkit::http::Response;
use sealion_testkit::server::Server;
use sealion_testkit::{Event, http};
use sealion_tls::AlertDescription;

use crate::support::fastcgi::{end, read_request, stdout};
use crate::support::upstream::{Received, Upstream, ok};
use crate::support::{Site, access_lines, curl, read_until_cut, wait_for_cache, wait_until};

const CODINGS: [&str; 3] = ["gzip", "br", "zstd"];

/// Text that differs at every place, and can be made smaller.
fn text(length: usize) -> &'static [u8] {
    static TEXT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let mut text = Vec::with_capacity(MAX_LENGTH + 64);
        let mut line = 0_u64;
        while text.len() < MAX_LENGTH {
            writeln!(text, "{line} is followed by {}", line * 7919 % 100_003).expect("memory takes all");
            line += 1;
        }
        text
    });
    &TEXT[..length]
}

const MAX_LENGTH: usize = 30_000_000;

/// A response of an application: text, with these further lines.
fn answer(lines: &str, body: &[u8]) -> Vec<u8> {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: {}\r\n{lines}\r\n", body.len());
    [head.as_bytes(), body].concat()
}

fn in_chunks(lines: &str, body: &[u8], trailers: &str) -> Vec<u8> {
    let mut bytes = format!("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n{lines}\r\n")
        .into_bytes();
    for chunk in body.chunks(40_000) {
        bytes.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        bytes.extend_from_slice(chunk);
        bytes.extend_from_slice(b"\r\n");
    }
    bytes.extend_from_slice(format!("0\r\n{trailers}\r\n").as_bytes());
    bytes
}

/// Responds to `/length/N` with as many bytes, to `/chunks/N` with the same in chunks.
fn of_lengths(request: &Received) -> Vec<u8> {
    let mut words = request.line().rsplit('/');
    let length = words.next().and_then(|digits| digits.parse().ok()).expect("a length");
    match words.next() {
        Some("chunks") => in_chunks("", text(length), ""),
        _ => answer("", text(length)),
    }
}

/// A site that compresses what `upstream` answers.
#[track_caller]
fn serve(site: &Site, upstream: &Upstream) -> Server {
    site.config(&format!("compress = true\nproxy = {{ to = '{}' }}", upstream.url())).serve_from_user_space()
}

#[track_caller]
fn ask(site: &Site, server: &Server, target: &str, accept: &str, options: &[&str]) -> Response {
    let accept = format!("Accept-Encoding: {accept}");
    curl::get(&site.pki, server.address(), target, &[&["--raw", "-H", &accept], options].concat())
}

/// Decodes with the program of the coding.
#[track_caller]
fn decode(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let (program, options): (_, &[&str]) = match coding {
        "gzip" => ("gzip", &["-dc"]),
        "zstd" => ("zstd", &["-dcq"]),
        // curl has Google's decoder.
        _ => return by_curl(coding, bytes),
    };
    let mut child = Command::new(program)
        .args(options)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{program} is needed: {error}"));
    let mut input = child.stdin.take().expect("a pipe");
    let bytes = bytes.to_vec();
    let writer = std::thread::spawn(move || input.write_all(&bytes));
    let output = child.wait_with_output().expect("it ends");
    writer.join().expect("no panic").expect("it takes all");
    assert!(output.status.success(), "{program} takes the content for incomplete");
    output.stdout
}

/// Has curl decode a response with these bytes.
#[track_caller]
fn by_curl(coding: &str, bytes: &[u8]) -> Vec<u8> {
    let (coding, bytes) = (coding.to_owned(), bytes.to_vec());
    let origin = Upstream::answering(move |_| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nContent-Length: {}\r\n\r\n", bytes.len());
        [head.as_bytes(), &bytes].concat()
    });
    let output = Command::new("curl").args(["-sS", "--compressed", &origin.url()]).output().expect("curl is needed");
    assert!(output.status.success(), "curl: {}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn sha256(bytes: &[u8]) -> Vec<u8> {
    aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes).as_ref().to_vec()
}

#[test]
fn contents_of_all_lengths_arrive_whole_in_all_codings_over_both_protocols() {
    let site = Site::new();
    let upstream = Upstream::answering(of_lengths);
    let server = serve(&site, &upstream);
    for length in [0, 1, 1000, 1024, 1_000_000, 10_000_000] {
        let expected = sha256(text(length));
        for (kind, is_coded) in [("length", length >= 1024), ("chunks", true)] {
            let target = format!("/{kind}/{length}");
            for protocol in ["--http1.1", "--http2"] {
                // Each way once is enough of the longest.
                if length == 10_000_000 && (kind == "chunks") != (protocol == "--http2") {
                    continue;
                }
                for coding in CODINGS {
                    // Over HTTP/1.1 curl decodes, over HTTP/2 the programs do.
                    let raw = protocol == "--http2";
                    let accept = format!("Accept-Encoding: {coding}");
                    let options = [protocol, if raw { "--raw" } else { "--compressed" }, "-H", &accept];
                    let got = curl::get(&site.pki, server.address(), &target, &options);
                    let case = format!("{target} {protocol} {coding}");
                    assert_eq!(got.field("content-encoding"), is_coded.then_some(coding), "{case}");
                    assert_eq!(got.field("vary"), is_coded.then_some("Accept-Encoding"), "{case}");
                    assert_eq!(got.field("content-length").is_none(), is_coded, "{case}");
                    assert!(!raw || !is_coded || length <= 1024 || got.body.len() < length / 2, "{case}");
                    let body = if raw && is_coded { decode(coding, &got.body) } else { got.body };
                    assert!(sha256(&body) == expected, "{case}");
                }
                let plain = ask(&site, &server, &target, "identity", &[protocol]);
                assert_eq!(plain.field("content-encoding"), None);
                assert_eq!(plain.field("vary"), is_coded.then_some("Accept-Encoding"));
            }
        }
    }
}

#[test]
fn fields_are_of_the_coded_response_and_a_validator_is_found_again() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let is_known = request.all("if-none-match").iter().any(|tags| tags.contains("\"v1\""));
        match is_known {
            true => b"HTTP/1.1 304 Not Modified\r\nETag: \"v1\"\r\n\r\n".to_vec(),
            false => answer("ETag: \"v1\"\r\nAccept-Ranges: bytes\r\nVary: Cookie\r\n", text(5000)),
        }
    });
    let keys = format!("compress = true\nproxy = {{ to = '{}' }}", upstream.url());
    let log = "[access_log]\nfields = ['time', 'status', 'encoding']";
    let server = site.config(&keys).table(log).serve_from_user_space();
    let got = ask(&site, &server, "/", "gzip", &[]);
    let fields = |response: &Response, name: &str| {
        let named = response.fields.iter().filter(|(own, _)| own.eq_ignore_ascii_case(name));
        named.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(fields(&got, "etag"), ["W/\"v1\""]);
    assert_eq!(fields(&got, "vary"), ["Accept-Encoding", "Cookie"]);
    assert_eq!(fields(&got, "accept-ranges"), [""; 0]);
    assert_eq!(fields(&got, "content-length"), [""; 0]);
    let again = ask(&site, &server, "/", "gzip", &["-H", "If-None-Match: W/\"v1\""]);
    assert_eq!((again.status, fields(&again, "etag")), (304, vec!["W/\"v1\"".to_owned()]));
    assert_eq!(fields(&again, "vary"), ["Accept-Encoding"]);
    let plain = ask(&site, &server, "/", "identity", &[]);
    assert_eq!(fields(&plain, "etag"), ["\"v1\""]);
    assert_eq!(fields(&plain, "accept-ranges"), ["bytes"]);
    assert_eq!(fields(&plain, "content-length"), ["5000"]);
    // HEAD has the fields of GET.
    let of = |response: &Response| {
        let but_for =
            |name: &&(String, String)| !["date", "transfer-encoding"].contains(&name.0.to_lowercase().as_str());
        response.fields.iter().filter(but_for).cloned().collect::<Vec<_>>()
    };
    for protocol in ["--http1.1", "--http2"] {
        let head = ask(&site, &server, "/", "gzip", &["--head", protocol]);
        let get = ask(&site, &server, "/", "gzip", &[protocol]);
        assert_eq!((head.status, of(&head)), (200, of(&get)), "{protocol}");
    }
    let lines = access_lines(&server, 7);
    assert_eq!(lines.iter().filter(|line| line.find("encoding") == Some("gzip")).count(), 5);
}

#[test]
fn what_must_not_be_coded_stays_as_it_is() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let body = text(5000);
        let lines = match request.line().split(' ').nth(1) {
            Some("/coded") => "Content-Encoding: br\r\n",
            Some("/fixed") => "Cache-Control: no-transform\r\n",
            Some("/digest") => "Repr-Digest: sha-256=:YQ==:\r\n",
            Some("/typed") => return ok(body),
            _ => "",
        };
        answer(lines, body)
    });
    let keys = "compress = true\n[[site.route]]\npath = '/out/'\ncompress = false\n";
    let rule = format!("proxy = {{ to = '{}' }}", upstream.url());
    let server = site.config(&format!("{rule}\n{keys}")).serve_from_user_space();
    for target in ["/coded", "/fixed", "/digest", "/typed", "/out/x"] {
        let got = ask(&site, &server, target, "gzip", &[]);
        let coding = (target == "/coded").then_some("br");
        assert_eq!((got.field("content-encoding"), got.field("vary")), (coding, None), "{target}");
        assert!(got.body == text(5000), "{target}");
    }
    let got = ask(&site, &server, "/", "gzip", &["-H", "Cache-Control: no-transform"]);
    assert_eq!(got.field("content-encoding"), None);
}

#[test]
fn an_event_reaches_the_client_before_the_origin_sends_the_next() {
    let site = Site::new();
    let (next, wanted) = mpsc::channel::<()>();
    let wanted = std::sync::Mutex::new(wanted);
    let upstream = Upstream::start(move |accepted| {
        accepted.request();
        accepted.write(
            b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n9\r\ndata: 1\n\n\r\n",
        );
        let wanted = wanted.lock().expect("no panic");
        while wanted.recv().is_ok() {
            accepted.write(b"9\r\ndata: 2\n\n\r\n");
        }
    });
    let server = serve(&site, &upstream);
    let mut client = site.connect(&server);
    client.send(http::head("GET", "/", &[("Accept-Encoding", "gzip")]).as_bytes()).expect("it leaves");
    let head = client.read_until(b"\r\n\r\n").expect("a head");
    assert!(String::from_utf8_lossy(&head).contains("Content-Encoding: gzip"), "{}", head.escape_ascii());
    let mut coded = Vec::new();
    for n in 1..=3 {
        // The origin waits until this event has arrived.
        let events = (1..=n).map(|n| if n == 1 { "data: 1\n\n" } else { "data: 2\n\n" }).collect::<String>();
        while begun(&coded) != events.as_bytes() {
            let size = client.read_until(b"\r\n").expect("the size of a chunk");
            let size = std::str::from_utf8(&size).expect("digits").trim_end();
            let size = usize::from_str_radix(size, 16).expect("a number");
            let chunk = client.read(size + 2).expect("a chunk");
            coded.extend_from_slice(&chunk[..size]);
        }
        next.send(()).expect("the origin waits");
    }
}

/// As much as can be decoded of gzip.
fn begun(bytes: &[u8]) -> Vec<u8> {
    use std::io::Read;
    let mut decoder = flate2::read::GzDecoder::new(bytes);
    let (mut decoded, mut buffer) = (Vec::new(), [0; 4096]);
    while let Ok(read @ 1..) = decoder.read(&mut buffer) {
        decoded.extend_from_slice(&buffer[..read]);
    }
    decoded
}

#[test]
fn an_origin_that_breaks_off_cuts_the_coded_response() {
    let site = Site::new();
    let upstream = Upstream::start(|accepted| {
        if let Some(request) = accepted.request() {
            let whole = of_lengths(&request);
            accepted.write(&whole[..whole.len() - 100]);
        }
    });
    let server = serve(&site, &upstream);
    for target in ["/length/500000", "/chunks/500000"] {
        for coding in CODINGS {
            let mut client = site.connect(&server);
            client.send(http::head("GET", target, &[("Accept-Encoding", coding)]).as_bytes()).expect("it leaves");
            let ending = read_until_cut(&mut client).expect("an end");
            let is_orderly = ending.events.contains(&Event::Alert(AlertDescription::CLOSE_NOTIFY));
            assert!(!is_orderly && !ending.data.ends_with(b"0\r\n\r\n"), "{target} {coding}");
            let accept = format!("Accept-Encoding: {coding}");
            for protocol in ["--http1.1", "--http2"] {
                curl::failure(&site.pki, server.address(), target, &[protocol, "-H", &accept]);
            }
        }
    }
}

#[test]
fn a_slow_client_holds_the_origin_up_and_gets_all() {
    let site = Site::new();
    let upstream = Upstream::answering(of_lengths);
    let server = serve(&site, &upstream);
    let mut client = site.connect_slow_reader(&server);
    let target = format!("/length/{MAX_LENGTH}");
    client.send(http::head("GET", &target, &[("Accept-Encoding", "gzip")]).as_bytes()).expect("it leaves");
    wait_until("the origin is asked", || !upstream.requests().is_empty());
    let response = http::read_response(&mut client, "GET").expect("a response");
    assert!(sha256(&decode("gzip", &response.body)) == sha256(text(MAX_LENGTH)));
}

#[test]
fn ranges_are_of_the_content_without_coding() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let body = text(5000);
        match request.all("range")[..] {
            [_] => {
                let head = "HTTP/1.1 206 Partial Content\r\nContent-Type: text/plain\r\nContent-Range: bytes 1000-4999/5000\r\n";
                [format!("{head}ETag: \"v1\"\r\nContent-Length: 4000\r\n\r\n").as_bytes(), &body[1000..]].concat()
            }
            _ => answer("ETag: \"v1\"\r\n", body),
        }
    });
    let server = serve(&site, &upstream);
    for condition in [None, Some("If-Range: \"v1\"")] {
        let mut options = vec!["-H", "Range: bytes=1000-"];
        options.extend(condition.iter().flat_map(|condition| ["-H", condition]));
        let got = ask(&site, &server, "/", "gzip", &options);
        assert_eq!((got.status, got.field("content-encoding")), (206, None), "{condition:?}");
        assert_eq!((got.field("etag"), got.field("vary")), (Some("\"v1\""), Some("Accept-Encoding")));
        assert!(got.body == text(5000)[1000..]);
    }
    // Coded content may have been cut where the client goes on.
    for condition in ["If-Range: W/\"v1\"", "If-Range: Mon, 23 Nov 2026 10:00:00 GMT"] {
        let got = ask(&site, &server, "/", "gzip", &["--http2", "-H", "Range: bytes=1000-", "-H", condition]);
        assert_eq!((got.status, got.field("content-encoding")), (200, Some("gzip")), "{condition}");
        assert_eq!(upstream.last().all("range").len() + upstream.last().all("if-range").len(), 0);
        assert!(decode("gzip", &got.body) == text(5000));
    }
}

#[test]
fn trailers_follow_coded_content_but_for_its_checksums() {
    let site = Site::new();
    let upstream =
        Upstream::answering(|_| in_chunks("", text(5000), "X-Sum: 42\r\nContent-Digest: sha-256=:YQ==:\r\n"));
    let server = serve(&site, &upstream);
    let mut client = site.connect(&server);
    let fields = [("Accept-Encoding", "zstd"), ("TE", "trailers")];
    client.send(http::head("GET", "/", &fields).as_bytes()).expect("it leaves");
    let head = client.read_until(b"\r\n\r\n").expect("a head");
    assert!(String::from_utf8_lossy(&head).contains("Content-Encoding: zstd"), "{}", head.escape_ascii());
    let rest = client.read_until(b"x-sum: 42\r\n\r\n").expect("trailers");
    assert!(rest.ends_with(b"\r\n0\r\nx-sum: 42\r\n\r\n"), "{}", rest.escape_ascii());
}

/// Stored uncoded, coded on the way out: one object for all codings, and ranges of it.
#[test]
fn stored_responses_are_coded_for_those_that_take_a_coding() {
    let site = Site::new();
    let directory = site.outside().join("cache");
    std::fs::create_dir(&directory).expect("a directory");
    let upstream = Upstream::answering(|_| {
        answer(
            "Cache-Control: max-age=600\r\nETag: \"v1\"\r\nLast-Modified: Mon, 23 Nov 2026 10:00:00 GMT\r\n",
            text(1_000_000),
        )
    });
    let rule = format!("compress = true\nproxy = {{ to = '{}', cache = {{}} }}", upstream.url());
    let cache = format!("[cache]\ndirectories = ['{}']\n", directory.display());
    let server = site.config(&rule).table(&cache).serve_from_user_space();
    wait_for_cache(&server, &directory);
    for round in 0..3 {
        for coding in CODINGS {
            for protocol in ["--http1.1", "--http2"] {
                let accept = format!("Accept-Encoding: {coding}");
                let got = curl::get(&site.pki, server.address(), "/", &[protocol, "--compressed", "-H", &accept]);
                let case = format!("{round} {coding} {protocol}");
                assert_eq!(got.field("content-encoding"), Some(coding), "{case}");
                assert_eq!(
                    (got.field("etag"), got.field("vary")),
                    (Some("W/\"v1\""), Some("Accept-Encoding")),
                    "{case}"
                );
                assert!(sha256(&got.body) == sha256(text(1_000_000)), "{case}");
            }
        }
        let plain = ask(&site, &server, "/", "identity", &[]);
        assert_eq!((plain.field("etag"), plain.field("content-length")), (Some("\"v1\""), Some("1000000")));
        let part = ask(&site, &server, "/", "gzip", &["-H", "Range: bytes=10-19"]);
        assert_eq!((part.status, part.body), (206, text(20)[10..].to_vec()));
        let resumed = ["-H", "Range: bytes=10-19", "-H", "If-Range: Mon, 23 Nov 2026 10:00:00 GMT"];
        let whole = ask(&site, &server, "/", "gzip", &resumed);
        assert_eq!((whole.status, whole.field("content-encoding")), (200, Some("gzip")));
        let same = ask(&site, &server, "/", "gzip", &["-H", "If-None-Match: W/\"v1\""]);
        assert_eq!((same.status, same.field("etag")), (304, Some("W/\"v1\"")));
    }
    assert_eq!(upstream.requests().len(), 1, "all others were answered from the cache");
}

/// A site whose cache has responses of `upstream`, which it compresses. `limits`: a further table.
#[track_caller]
fn serve_cached(site: &Site, upstream: &Upstream, limits: &str) -> Server {
    let directory = site.outside().join("cache");
    std::fs::create_dir_all(&directory).expect("a directory");
    let rule = format!("compress = true\nproxy = {{ to = '{}', cache = {{}} }}", upstream.url());
    let cache = format!("[cache]\ndirectories = ['{}']\n{limits}", directory.display());
    let server = site.config(&rule).table(&cache).serve_from_user_space();
    wait_for_cache(&server, &directory);
    server
}

/// The length that a response in this coding announces, once it comes from its stored form.
#[track_caller]
fn length_of_form(site: &Site, server: &Server, target: &str, coding: &str, expected: &[u8]) -> usize {
    let mut length = None;
    wait_until("the form is stored", || {
        let got = ask(site, server, target, coding, &["--http2"]);
        assert_eq!((got.status, got.field("content-encoding")), (200, Some(coding)), "{target}");
        assert!(decode(coding, &got.body) == expected, "{target} {coding}");
        length = got.field("content-length").map(|length| length.parse().expect("a number"));
        assert!(length.is_none_or(|length: usize| length == got.body.len()), "{target} {coding}");
        length.is_some()
    });
    length.expect("a length")
}

/// The files of the cache that hold these bytes.
fn stored_with(site: &Site, needle: &[u8]) -> usize {
    let mut directories = vec![site.outside().join("cache")];
    let mut found = 0;
    while let Some(directory) = directories.pop() {
        for entry in std::fs::read_dir(directory).expect("a directory").flatten() {
            if entry.path().is_dir() {
                directories.push(entry.path());
            } else if let Ok(bytes) = std::fs::read(entry.path()) {
                found += usize::from(memchr::memmem::find(&bytes, needle).is_some());
            }
        }
    }
    found
}

/// Short forms are sent from memory, long ones from their files.
#[test]
fn a_stored_response_is_coded_once_and_its_form_has_a_length() {
    let site = Site::new();
    let upstream = Upstream::answering(|request| {
        let length = request.line().rsplit('/').next().and_then(|digits| digits.parse().ok()).expect("a length");
        answer("Cache-Control: max-age=600\r\nETag: \"v1\"\r\n", text(length))
    });
    let server = serve_cached(&site, &upstream, "");
    for length in [3_000, 2_000_000] {
        let target = format!("/{length}");
        for coding in CODINGS {
            let coded = length_of_form(&site, &server, &target, coding, text(length));
            assert!(coded < length, "{coding}: {coded}");
            let got = ask(&site, &server, &target, coding, &[]);
            assert_eq!((got.field("etag"), got.field("vary")), (Some("W/\"v1\""), Some("Accept-Encoding")), "{coding}");
            assert!(got.field("age").is_some() && got.field("accept-ranges").is_none(), "{coding}");
            for protocol in ["--http1.1", "--http2"] {
                let accept = format!("Accept-Encoding: {coding}");
                let got = curl::get(&site.pki, server.address(), &target, &[protocol, "--compressed", "-H", &accept]);
                assert!(got.body == text(length), "{coding} {protocol}");
            }
            let same = ask(&site, &server, &target, coding, &["-H", "If-None-Match: W/\"v1\""]);
            assert_eq!((same.status, same.body.len()), (304, 0), "{coding}");
            let part = ask(&site, &server, &target, coding, &["-H", "Range: bytes=10-19"]);
            assert_eq!((part.status, part.field("content-encoding")), (206, None), "{coding}");
            assert_eq!(part.body, text(20)[10..], "{coding}");
            let head = ask(&site, &server, &target, coding, &["--head"]);
            assert_eq!((head.status, head.field("content-encoding")), (200, Some(coding)), "{coding}");
        }
        let plain = ask(&site, &server, &target, "identity", &[]);
        assert_eq!((plain.field("etag"), plain.body.len()), (Some("\"v1\""), length));
    }
    assert_eq!(upstream.requests().len(), 2, "one for each response");
    assert_eq!(stored_with(&site, b"\n\x02"), 2 * CODINGS.len(), "a form is stored once");
}

/// A form is written while it is made: the half of `max_buffered` that it may take has room for two encoders, and not for the content.
#[test]
fn a_long_content_is_coded_once_without_memory_for_it() {
    const LENGTH: usize = 20_000_000;
    let site = Site::new();
    let upstream = Upstream::answering(|_| answer("Cache-Control: max-age=600\r\nETag: \"v1\"\r\n", text(LENGTH)));
    let server = serve_cached(&site, &upstream, "[limits]\nmax_buffered = '12MiB'\n");
    let coded = length_of_form(&site, &server, "/long", "zstd", text(LENGTH));
    assert!(coded < LENGTH, "{coded}");
    assert_eq!(upstream.requests().len(), 1);
    assert_eq!(stored_with(&site, b"\n\x02"), 1, "the form is stored once");
}

#[test]
fn a_replaced_or_purged_response_is_never_sent_in_its_former_form() {
    let site = Site::new();
    let version = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let asked = std::sync::Arc::clone(&version);
    // Of the same length and with the same validator: the checksum tells them apart.
    let upstream = Upstream::answering(move |request| {
        let from = asked.load(std::sync::atomic::Ordering::Relaxed);
        let lines = if request.line().contains("tagged") { "Cache-Tag: a\r\n" } else { "" };
        answer(
            &format!("Cache-Control: max-age=600\r\nETag: \"same\"\r\n{lines}"),
            &text(300_000)[from..200_000 + from],
        )
    });
    let server = serve_cached(&site, &upstream, "");
    let pid = server.pid().to_string();
    for (round, arguments) in [&["--tag", "a"][..], &["--all"], &["--all", "--soft"]].into_iter().enumerate() {
        let expected = &text(300_000)[round..200_000 + round];
        for target in ["/x", "/tagged"] {
            length_of_form(
                &site,
                &server,
                target,
                "gzip",
                if target == "/x" && round == 1 { text(200_000) } else { expected },
            );
        }
        version.store(round + 1, std::sync::atomic::Ordering::Relaxed);
        let order = Command::new(crate::support::PROGRAM).arg("purge").args(arguments).args(["--pid", &pid]).output();
        assert!(order.expect("it runs").status.success(), "{arguments:?}");
        let got = ask(&site, &server, "/tagged", "gzip", &["--http2"]);
        assert!(decode("gzip", &got.body) == text(300_000)[round + 1..200_001 + round], "{arguments:?}");
    }
    length_of_form(&site, &server, "/tagged", "gzip", &text(300_000)[3..200_003]);
}

#[test]
fn what_scripts_answer_is_compressed() {
    let site = Site::new();
    site.add("x.php", "");
    let upstream = Upstream::start(|accepted| {
        read_request(accepted);
        let content = [&b"Content-Type: text/html\r\n\r\n"[..], text(70_000)].concat();
        accepted.write(&[stdout(content), end()].concat());
    });
    let rules = "compress = { codings = ['gzip'] }\nroute = [{ path = '~ \\.php(/|$)', fastcgi = { to = 'php' } }]";
    let servers = upstream.url().replace("http://", "fastcgi://");
    let table = format!("[[upstream]]\nname = 'php'\nprotocol = 'fastcgi'\nservers = [{{ url = '{servers}' }}]\n");
    let server = site.config(rules).table(&table).serve_from_user_space();
    let got = ask(&site, &server, "/x.php", "br, gzip", &["--http2"]);
    assert_eq!((got.field("content-encoding"), got.field("vary")), (Some("gzip"), Some("Accept-Encoding")));
    assert!(decode("gzip", &got.body) == text(70_000));
}

/// HTTP/1.0 has no chunks: the content ends with the connection.
#[test]
fn a_client_of_http_1_0_gets_coded_content_up_to_the_end_of_its_connection() {
    let site = Site::new();
    let upstream = Upstream::answering(of_lengths);
    let server = serve(&site, &upstream);
    let mut client = site.connect(&server);
    client.send(b"GET /length/50000 HTTP/1.0\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n").expect("it leaves");
    let ending = client.read_to_end().expect("an end");
    ending.assert_orderly();
    let end = ending.data.windows(4).position(|window| window == b"\r\n\r\n").expect("a head") + 4;
    assert!(decode("gzip", &ending.data[end..]) == text(50_000));
}

#[test]
fn levels_that_would_hold_a_worker_are_refused_at_start() {
    let site = Site::new();
    let upstream = Upstream::echo();
    let keys = format!("proxy = {{ to = '{}' }}\n[site.compress]\nlevels = {{ br = 11 }}", upstream.url());
    let problems = site.config(&keys).problems();
    assert!(problems.contains("site.compress.levels.br: is 11: write 1 to 6"), "{problems}");
    assert_eq!(problems.lines().count(), 1, "{problems}");
}
