//! Servers of uwsgi: the variables that an application gets, contents in both directions, and responses that are not whole.

use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};

use sealion_testkit::server::Server;
use sealion_testkit::{http, pattern};

use super::fastcgi::body;
use super::{is_orderly, post};
use crate::support::fastcgi::Asked;
use crate::support::upstream::{Accepted, Upstream};
use crate::support::uwsgi::{Uwsgi, read_head, read_request};
use crate::support::{Site, access_lines, curl, get, read_until_cut};

fn serve(site: &Site, url: &str, rules: &str, keys: &str) -> Server {
    let upstream = format!("[[upstream]]\nname = 'app'\nprotocol = 'uwsgi'\nservers = [{{ url = '{url}' }}]\n{keys}\n");
    site.config(rules).table(&upstream).serve_from_user_space()
}

const ALL: &str = "proxy = { to = 'app' }";

fn url(upstream: &Upstream) -> String {
    upstream.url().replace("http://", "uwsgi://")
}

/// A server that answers every request alike, and keeps the requests.
fn answering(answer: impl Fn(&mut Accepted, &Asked) + Send + Sync + 'static) -> (Upstream, Arc<Mutex<Vec<Asked>>>) {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let all = Arc::clone(&asked);
    let upstream = Upstream::start(move |accepted| {
        if let Some(request) = read_request(accepted) {
            all.lock().expect("no panic").push(request.clone());
            answer(accepted, &request);
        }
    });
    (upstream, asked)
}

#[test]
fn an_application_gets_the_variables_of_the_request() {
    let site = Site::new();
    let seen = Arc::new(Mutex::new(None));
    let kept = Arc::clone(&seen);
    let upstream = Upstream::start(move |accepted| {
        *kept.lock().expect("no panic") = read_head(accepted);
        accepted.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: close\r\n\r\nran");
    });
    let rules = "route = [{ path = '/app/', proxy = { to = 'app', strip_prefix = true, uwsgi = { params = { APP_ENV = 'test' }, \
                 modifier1 = 5, modifier2 = 9 } } }, { path = '/', proxy = { to = 'app' } }]";
    let server = serve(&site, &url(&upstream), rules, "");
    let mut client = site.connect(&server);
    let fields = [("Cookie", "a=1"), ("Proxy", "http://evil.example/"), ("X_Real_IP", "10.0.0.1"), ("Path-Info", "/x")];
    let response = http::request(&mut client, "GET", "/app/in%20fo/%C3%A9?q=1&r=%20", &fields).expect("a response");
    assert_eq!((response.status, response.body.as_slice()), (200, &b"ran"[..]));
    assert_eq!((response.field("content-type"), response.field("connection")), (Some("text/plain"), None));
    let (modifiers, asked) = seen.lock().expect("no panic").take().expect("a request");
    assert_eq!(modifiers, [5, 9]);
    for (name, value) in [
        ("SCRIPT_NAME", "/app"),
        ("PATH_INFO", "/in fo/é"),
        ("REQUEST_URI", "/app/in%20fo/%C3%A9?q=1&r=%20"),
        ("QUERY_STRING", "q=1&r=%20"),
        ("REQUEST_METHOD", "GET"),
        ("CONTENT_LENGTH", ""),
        ("CONTENT_TYPE", ""),
        ("SERVER_PROTOCOL", "HTTP/1.1"),
        ("SERVER_NAME", "localhost"),
        ("SERVER_PORT", &server.address().port().to_string()),
        ("REMOTE_ADDR", "127.0.0.1"),
        ("REQUEST_SCHEME", "https"),
        ("HTTPS", "on"),
        ("HTTP_HOST", "localhost"),
        ("HTTP_COOKIE", "a=1"),
        ("HTTP_X_REAL_IP", "127.0.0.1"),
        ("APP_ENV", "test"),
    ] {
        assert_eq!(asked.param(name), value, "{name}");
    }
    for name in ["HTTP_PROXY", "HTTP_PATH_INFO", "DOCUMENT_ROOT", "SCRIPT_FILENAME"] {
        assert!(!asked.params.contains_key(name), "{name}");
    }
    assert_eq!(body(&mut client, "/app"), (200, "ran".to_owned()));
    let (modifiers, asked) = seen.lock().expect("no panic").take().expect("a request");
    let found = [asked.param("SCRIPT_NAME"), asked.param("PATH_INFO"), asked.param("REQUEST_URI")];
    assert!(modifiers == [0, 0] && found == ["", "/app", "/app"] || found[0] == "/app", "{found:?}");
    let line = &access_lines(&server, 2)[0];
    assert_eq!((line.get("upstream"), line.get("upstream_status")), (&*url(&upstream), "200"));
}

/// The protocol has no chunks: the application reads as much as CONTENT_LENGTH says.
#[test]
fn a_content_with_a_length_is_passed_on_as_it_comes_and_another_when_it_is_whole() {
    let site = Site::new();
    let (first, came) = channel();
    let first = Mutex::new(first);
    let upstream = Upstream::start(move |accepted| {
        let Some((_, asked)) = read_head(accepted) else { return };
        let length: usize = asked.param("CONTENT_LENGTH").parse().expect("a length");
        let begun = accepted.read(4).expect("the first bytes");
        first.lock().expect("no panic").send(begun.clone()).expect("the test waits");
        let Some(rest) = accepted.read(length - 4) else { return };
        accepted
            .write(format!("Status: 201 Made\r\n\r\n{}", String::from_utf8_lossy(&[begun, rest].concat())).as_bytes());
    });
    let server = serve(&site, &url(&upstream), ALL, "");
    let mut client = site.connect(&server);
    client
        .send(&[http::head("POST", "/", &[("Content-Length", "8")]).as_bytes(), b"abcd"].concat())
        .expect("it leaves");
    assert_eq!(came.recv().expect("before the rest"), b"abcd");
    client.send(b"efgh").expect("it leaves");
    let response = http::read_response(&mut client, "POST").expect("a response");
    assert_eq!((response.status, response.body.as_slice()), (201, &b"abcdefgh"[..]));
    let chunks = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let response = post(&mut client, "/", &[("Transfer-Encoding", "chunked")], chunks);
    assert_eq!((response.status, response.body.as_slice()), (201, &b"hello world"[..]));
}

#[test]
fn a_request_that_breaks_off_never_arrives_as_whole() {
    let site = Site::new();
    let (sender, ended) = channel();
    let (begun, has_begun) = channel();
    let (sender, begun) = (Mutex::new(sender), Mutex::new(begun));
    let upstream = Upstream::start(move |accepted| {
        let Some((_, asked)) = read_head(accepted) else { return };
        let length = asked.param("CONTENT_LENGTH").to_owned();
        if length.is_empty() {
            return;
        }
        begun.lock().expect("no panic").send(()).expect("the test waits");
        let content = accepted.read_to_end();
        sender.lock().expect("no panic").send((length, content)).expect("the test waits");
    });
    let server = serve(&site, &url(&upstream), ALL, "tries = 1");
    let mut client = site.connect(&server);
    client
        .send(&[http::head("POST", "/", &[("Content-Length", "8")]).as_bytes(), b"abcd"].concat())
        .expect("it leaves");
    has_begun.recv().expect("the server was asked");
    drop(client);
    let (length, content) = ended.recv().expect("it ended");
    assert!(length == "8" && content.len() <= 4, "{length} {content:?}");
    let mut client = site.connect(&server);
    client
        .send(&[http::head("POST", "/", &[("Transfer-Encoding", "chunked")]).as_bytes(), b"4\r\nabcd\r\n"].concat())
        .expect("it leaves");
    drop(client);
    assert_eq!(body(&mut site.connect(&server), "/"), (502, "502 Bad Gateway\n".to_owned()));
    assert_eq!(upstream.connections(), 2, "the content without an end has reached no server");
}

#[test]
fn a_response_is_passed_on_as_it_comes() {
    let site = Site::new();
    let (go, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    let (upstream, _) = answering(move |accepted, _| {
        accepted.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\nfirst");
        let _ = wait.lock().expect("no panic").recv();
        accepted.write(b"second");
    });
    let server = serve(&site, &url(&upstream), ALL, "");
    let mut client = site.connect(&server);
    client.send(get("/").as_bytes()).expect("it leaves");
    client.read_until(b"first\r\n").expect("before the rest");
    go.send(()).expect("the server waits");
    let rest = client.read_until(b"0\r\n\r\n").expect("the rest");
    assert!(String::from_utf8_lossy(&rest).contains("second"));
}

#[test]
fn each_fault_has_its_status_and_nothing_incomplete_looks_complete() {
    let site = Site::new();
    let (upstream, _) = answering(|accepted, request| match request.param("PATH_INFO") {
        "/nothing" => {}
        "/half-head" => accepted.write(b"HTTP/1.1 200 OK\r\nContent-Type: te"),
        "/no-head" => accepted.write(b"nothing of HTTP\r\n\r\n"),
        "/interim" => accepted.write(b"HTTP/1.1 100 Continue\r\n\r\n"),
        "/chunked" => accepted.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        "/silent" => drop(accepted.read_to_end()),
        "/more" => accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nmoreHTTP/1.1 200 OK\r\n\r\n"),
        "/none" => accepted.write(b"Status: 204 No Content\r\n\r\n"),
        "/short" => accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nshort"),
        "/reset" => {
            accepted.write(b"HTTP/1.1 200 OK\r\n\r\nshort");
            accepted.reset();
        }
        path => panic!("{path}"),
    });
    let server = serve(&site, &url(&upstream), ALL, "answer_timeout = '1s'\ntries = 2");
    for (target, status) in [
        ("/nothing", 502),
        ("/half-head", 502),
        ("/no-head", 502),
        ("/interim", 502),
        ("/chunked", 502),
        ("/silent", 504),
    ] {
        let before = upstream.connections();
        assert_eq!(body(&mut site.connect(&server), target).0, status, "{target}");
        let tries = if target == "/nothing" { 2 } else { 1 };
        assert_eq!(upstream.connections() - before, tries, "{target}");
    }
    let mut client = site.connect(&server);
    assert_eq!(body(&mut client, "/more"), (200, "more".to_owned()));
    assert_eq!(body(&mut client, "/none"), (204, String::new()));
    for target in ["/short", "/reset"] {
        let mut client = site.connect(&server);
        client.send(get(target).as_bytes()).expect("it leaves");
        match read_until_cut(&mut client) {
            Ok(ending) => assert!(!ending.data.ends_with(b"0\r\n\r\n") && !is_orderly(&ending), "{target}"),
            Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::UnexpectedEof),
        }
    }
}

/// A packet has 16 bits for the length of all variables.
#[test]
fn variables_without_room_are_refused_before_a_server_is_asked() {
    let site = Site::new();
    let (upstream, _) = answering(|accepted, _| accepted.write(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
    let with =
        |length: usize| format!("proxy = {{ to = 'app', uwsgi = {{ params = {{ A = '{}' }} }} }}", "a".repeat(length));
    for (length, status) in [(60_000, 200), (65_400, 431), (70_000, 431)] {
        let server = serve(&site, &url(&upstream), &with(length), "");
        assert_eq!(body(&mut site.connect(&server), "/").0, status, "{length}");
    }
    assert_eq!(upstream.connections(), 1);
}

#[test]
fn keys_without_an_effect_are_refused_at_start() {
    let site = Site::new();
    let app = "protocol = 'uwsgi'\nservers = [{ url = 'uwsgi://127.0.0.1:1' }]\n";
    for (rule, upstream, words) in [
        (", uwsgi = {}", "servers = [{ url = 'http://127.0.0.1:1' }]\n".to_owned(), "does not speak uwsgi"),
        (", fastcgi = {}", app.to_owned(), "does not speak FastCGI"),
        (", uwsgi = { params = { PATH_INFO = '/' } }", app.to_owned(), "is made for each request"),
        (", upgrade = ['websocket']", app.to_owned(), "protocol = \"uwsgi\""),
        ("", "protocol = 'uwsgi'\nservers = [{ url = 'http://127.0.0.1:1' }]\n".to_owned(), "is not a server of uwsgi"),
        ("", "servers = [{ url = 'uwsgi://127.0.0.1:1' }]\n".to_owned(), "is not a server of HTTP"),
        ("", format!("{app}proxy_protocol = 'v1'\n"), "is only for HTTP"),
        ("", format!("{app}health = {{ path = '/' }}\n"), "asks over HTTP"),
        ("", format!("{app}max_idle = 3\n"), "has no effect"),
    ] {
        let config = site.config(&format!("proxy = {{ to = 'app'{rule} }}"));
        let refused = config.table(&format!("[[upstream]]\nname = 'app'\n{upstream}")).problems();
        assert!(refused.contains(words), "{rule} {upstream}: {refused}");
    }
}

const APPLICATION: &str = r#"
import hashlib

def application(environ, start_response):
    path = environ['PATH_INFO']
    if path == '/large':
        start_response('200 OK', [('Content-Type', 'application/octet-stream')])
        return (bytes([65 + n % 26]) * 8192 for n in range(1024))
    if path == '/teapot':
        start_response('418 Teapot', [('Set-Cookie', 'a=1'), ('Set-Cookie', 'b=2')])
        return [b'']
    if path == '/dies':
        import os, signal
        write = start_response('200 OK', [('Content-Length', '100')])
        write(b'x' * 50)
        os.kill(os.getpid(), signal.SIGKILL)
    content = environ['wsgi.input'].read()
    names = ['REQUEST_METHOD', 'SCRIPT_NAME', 'PATH_INFO', 'QUERY_STRING', 'wsgi.url_scheme', 'HTTP_HOST']
    text = '|'.join([str(environ[name]) for name in names] + [str(len(content)), hashlib.sha256(content).hexdigest()])
    start_response('200 OK', [('Content-Type', 'text/plain'), ('Content-Length', str(len(text)))])
    return [text.encode()]
"#;

#[test]
fn a_python_application_answers() {
    let site = Site::new();
    let directory = tempfile::tempdir().expect("a directory");
    let uwsgi = Uwsgi::start(directory.path(), APPLICATION);
    let server = serve(&site, &uwsgi.url(), ALL, "tries = 1");
    let mut client = site.connect(&server);
    const EMPTY: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let (status, text) = body(&mut client, "/some%20where?a=b");
    let text_of_some_where = format!("GET||/some where|a=b|https|localhost|0|{EMPTY}");
    assert_eq!((status, &text), (200, &text_of_some_where));
    let content = pattern::bytes(0..2_000_000);
    let digest = http::sha256(&content);
    let response = post(&mut client, "/", &[("Content-Length", "2000000")], &content);
    assert!(String::from_utf8_lossy(&response.body).ends_with(&format!("|2000000|{digest}")), "{response:?}");
    let chunks = b"5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n";
    let response = post(&mut client, "/", &[("Transfer-Encoding", "chunked")], chunks);
    assert!(String::from_utf8_lossy(&response.body).contains("|11|b94d27b9934d3e08"));
    let response = http::get(&mut client, "/large").expect("a response");
    assert_eq!((response.status, response.body.len()), (200, 8 << 20));
    assert!(
        response.body.chunks(8192).enumerate().all(|(n, part)| part.iter().all(|o| usize::from(*o) == 65 + n % 26))
    );
    // The program's status line has the version of the client.
    let response = curl::get(&site.pki, server.address(), "/some%20where?a=b", &["--http2", "-H", "Host: localhost"]);
    assert_eq!((response.status, response.body), (200, text_of_some_where.into_bytes()));
    let response = http::get(&mut client, "/teapot").expect("a response");
    let cookies = response.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case("set-cookie")).count();
    assert_eq!((response.status, cookies), (418, 2));
    assert_eq!(http::request(&mut client, "HEAD", "/", &[]).expect("a response").status, 200);
    client.send(get("/dies").as_bytes()).expect("it leaves");
    if let Ok(ending) = read_until_cut(&mut client) {
        assert!(!is_orderly(&ending), "{}", String::from_utf8_lossy(&ending.data));
    }
    assert_eq!(body(&mut site.connect(&server), "/").0, 200, "another process answers");
}
