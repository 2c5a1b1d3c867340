//! curl, so that another TLS library and another HTTP client are at the other end.

use std::net::SocketAddr;
use std::process::Command;

use sealion_testkit::http::Response;
use sealion_testkit::pki::Pki;

/// Asks for `target` and returns the last response.
///
/// # Panics
/// When curl fails: then it has not seen a complete response, or none whose connection it trusts.
#[track_caller]
pub(crate) fn get(pki: &Pki, address: SocketAddr, target: &str, options: &[&str]) -> Response {
    get_url(pki, &format!("https://{address}{target}"), options)
}

/// The same without TLS.
#[track_caller]
pub(crate) fn get_plain(pki: &Pki, address: SocketAddr, target: &str, options: &[&str]) -> Response {
    get_url(pki, &format!("http://{address}{target}"), options)
}

#[track_caller]
fn get_url(pki: &Pki, url: &str, options: &[&str]) -> Response {
    let output = command(pki, options).arg(url).output().expect("curl is needed");
    assert!(
        output.status.success(),
        "curl {url} {options:?}: {}: {}",
        output.status,
        String::from_utf8_lossy(&output.stderr)
    );
    let (mut response, mut rest) = parse_response(&output.stdout);
    // Redirections that were followed come first.
    while response.status / 100 == 3 && options.contains(&"-L") {
        let len: usize = response.field("content-length").expect("a length").parse().expect("a number");
        (response, rest) = parse_response(rest.get(len..).filter(|rest| rest.starts_with(b"HTTP/")).unwrap_or(rest));
    }
    Response { body: rest.to_vec(), ..response }
}

/// The exit code of curl where it must fail.
#[track_caller]
pub(crate) fn failure(pki: &Pki, address: SocketAddr, target: &str, options: &[&str]) -> i32 {
    let output = command(pki, options).arg(format!("https://{address}{target}")).output().expect("curl is needed");
    assert!(!output.status.success(), "curl {target} {options:?} takes the response for complete");
    output.status.code().expect("curl ends by itself")
}

fn command(pki: &Pki, options: &[&str]) -> Command {
    let mut command = Command::new("curl");
    // The head comes on standard output, before the body.
    command.args(["--silent", "--show-error", "--include", protocol(), "--path-as-is", "--max-time", "120"]);
    command.arg("--cacert").arg(pki.certificate_file()).args(options);
    command
}

/// HTTP/1.1, unless the tests are run over HTTP/2: `SEALION_TEST_HTTP2=1 cargo test -p sealion --test it sites::`. An option of a test wins.
fn protocol() -> &'static str {
    if std::env::var_os("SEALION_TEST_HTTP2").is_some() { "--http2" } else { "--http1.1" }
}

/// Splits a head off and returns the rest.
///
/// # Panics
/// There is no head.
#[track_caller]
pub(crate) fn parse_response(bytes: &[u8]) -> (Response, &[u8]) {
    let end = bytes.windows(4).position(|window| window == b"\r\n\r\n");
    let end = end.unwrap_or_else(|| panic!("no head: {}", bytes.escape_ascii()));
    let head = std::str::from_utf8(&bytes[..end]).expect("a head is ASCII");
    let mut lines = head.split("\r\n");
    let status_line = lines.next().expect("a status line");
    let mut words = status_line.splitn(3, ' ');
    assert!(matches!(words.next(), Some("HTTP/1.1" | "HTTP/2")), "{status_line}");
    let status = words.next().and_then(|code| code.parse().ok()).unwrap_or_else(|| panic!("no status: {status_line}"));
    let field = |line: &str| {
        let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no field: {line}"));
        (name.to_owned(), value.trim().to_owned())
    };
    let response = Response {
        status,
        reason: words.next().unwrap_or_default().to_owned(),
        fields: lines.map(field).collect(),
        body: Vec::new(),
    };
    (response, &bytes[end + 4..])
}
