//! A server whose targets are the lengths of its responses.

use super::content;
use super::upstream::Upstream;

/// Most bytes of a response that are read before the rest passes by a pipe: with the head, and once more.
pub(crate) const READ_FIRST: u64 = 44 << 10;

/// Answers `/N` with N bytes. Of `/N/M` only M bytes come, and then the connection ends.
pub(crate) fn serve() -> Upstream {
    Upstream::start(|accepted| {
        while let Some(request) = accepted.request() {
            let (response, is_whole) = answer(request.line());
            accepted.write(&response);
            if !is_whole {
                return;
            }
        }
    })
}

/// The response to a request by its line, and whether it is whole.
pub(crate) fn answer(line: &str) -> (Vec<u8>, bool) {
    let target = line.strip_prefix("GET /").expect("GET");
    let mut numbers = target.split('/').map(|number| number.parse::<u64>().expect("a length"));
    let length = numbers.next().expect("a length");
    let sent = numbers.next();
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\n\r\n");
    ([head.as_bytes(), &content::bytes(0..sent.unwrap_or(length))].concat(), sent.is_none())
}
