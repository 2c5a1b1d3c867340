//! The checks of `fuzz/` on the bytes that a server sends.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, Waker};

use http::{HeaderMap, HeaderValue, Method, Uri};
use sealion_http::Status;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::connection::{Connection, Released};
use crate::upstream::message::{AnswerFrame, Reading, RequestHead};

/// A response that came whole.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Answer {
    pub(super) status: Status,
    pub(super) fields: HeaderMap,
    pub(super) content: Vec<u8>,
    pub(super) trailers: HeaderMap,
    /// Whether the connection gets another request.
    pub(super) is_kept: bool,
}

/// A response means the same however its bytes come. `at_a_time`: how many.
pub(crate) fn answer(octets: &[u8], at_a_time: usize) {
    for method in [Method::GET, Method::HEAD] {
        let whole = read(octets, usize::MAX, &method);
        for size in [1, at_a_time.max(1)] {
            assert_eq!(read(octets, size, &method), whole, "{method} by {size}");
        }
        if let Some(whole) = whole {
            assert!(
                whole.status.code() >= 200 || whole.status.code() == 101,
                "{} is not a status of a response",
                whole.status
            );
            assert!(method == Method::GET || whole.content.is_empty());
        }
    }
}

/// `None`: it is not whole, or no HTTP.
pub(super) fn read(octets: &[u8], at_a_time: usize, method: &Method) -> Option<Answer> {
    let unread = Arc::new(AtomicUsize::new(octets.len()));
    let server = Octets { octets: octets.to_vec(), unread: Arc::clone(&unread), at_a_time };
    let connection = Connection::new(Box::new(server));
    let (host, fields) = (HeaderValue::from_static("x"), HeaderMap::new().into());
    let target = Uri::from_static("/");
    let request = RequestHead {
        method,
        target: &target,
        host: &host,
        fields: &fields,
        te: true,
        upgrade: None,
        interim: None,
        reading: Reading::Ahead,
        heads: None,
    };
    let mut cx = Context::from_waker(Waker::noop());
    let Poll::Ready(answered) = pin!(connection.ask(request, None)).poll(&mut cx) else { panic!("nothing waits") };
    let (head, mut body) = answered.ok()?;
    let mut answer = Answer {
        status: head.status,
        fields: head.fields.into_map(),
        content: Vec::new(),
        trailers: HeaderMap::new(),
        is_kept: false,
    };
    loop {
        match body.poll_frame(&mut cx) {
            Poll::Ready(Some(Ok(AnswerFrame::Content(part)))) => answer.content.extend_from_slice(&part),
            Poll::Ready(Some(Ok(AnswerFrame::Trailers(trailers)))) => answer.trailers = trailers,
            Poll::Ready(Some(Err(_))) => return None,
            Poll::Ready(None) => break,
            Poll::Pending => panic!("nothing waits"),
        }
    }
    // The bytes that follow may be unread yet: the pool finds them.
    answer.is_kept = matches!(body.into_connection(), Released::Open(_)) && unread.load(Ordering::Relaxed) == 0;
    Some(answer)
}

/// A server that sends bytes, so many at a time, closes the connection, and takes everything.
#[derive(Debug)]
struct Octets {
    octets: Vec<u8>,
    unread: Arc<AtomicUsize>,
    at_a_time: usize,
}

impl AsyncRead for Octets {
    fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let unread = self.unread.load(Ordering::Relaxed);
        let at = self.octets.len() - unread;
        let length = unread.min(self.at_a_time).min(into.remaining());
        into.put_slice(&self.octets[at..at + length]);
        self.unread.store(unread - length, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Octets {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, octets: &[u8]) -> Poll<io::Result<usize>> {
        Poll::Ready(Ok(octets.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use http_body::Body;
    use hyper_util::rt::TokioIo;
    use tokio::io::AsyncWriteExt;

    use super::*;

    const SEEDS: [&str; 14] = [
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nhello",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: x-a\r\n\r\n5\r\nhello\r\n1;a=b\r\n!\r\n0\r\nx-a: 1\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n2\r\nhi\r\n0\r\n\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.0 200 OK\r\n\r\nup to the end",
        "HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 204 No Content\r\nA: b\r\n\r\n",
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 304 Not Modified\r\nETag: \"a\"\r\nContent-Length: 7\r\n\r\n",
        "HTTP/1.1 200 OK\nContent-Length: 2\nA: caf\u{e9}\n\nhi",
        "HTTP/1.1 200 OK\r\nConnection: close, X-A\r\nX-A:  1 \t\r\nSet-Cookie: a=1\r\nset-cookie: b=2\r\nContent-Length: 0\r\n\r\n",
        "\r\nHTTP/1.1 200\r\nContent-Length: 2\r\n\r\nhi",
        "HTTP/1.1 404 Not Found\r\nA : b\r\n c\r\nContent-Length: 2\r\n\r\nhi",
    ];

    /// Each seed, and with each of its bytes replaced, removed or doubled.
    fn mutants() -> impl Iterator<Item = Vec<u8>> {
        SEEDS.into_iter().flat_map(|seed| {
            let seed = seed.as_bytes().to_vec();
            let changed = (0..seed.len()).flat_map({
                let seed = seed.clone();
                move |at| {
                    let replaced = [0, b'\t', b'\n', b'\r', b' ', b',', b'0', b'9', b':', b'A', 0x7f, 0xff]
                        .map(|octet| [&seed[..at], &[octet], &seed[at + 1..]].concat());
                    let others = [
                        [&seed[..at], &seed[at + 1..]].concat(),
                        [&seed[..=at], &seed[at..]].concat(),
                        seed[..at].to_vec(),
                    ];
                    replaced.into_iter().chain(others).collect::<Vec<_>>()
                }
            });
            std::iter::once(seed).chain(changed)
        })
    }

    #[test]
    fn an_answer_means_the_same_however_its_octets_come() {
        mutants().for_each(|octets| answer(&octets, 3));
    }

    /// The library that spoke with servers before, and speaks HTTP/2 with them.
    async fn by_hyper(octets: &[u8]) -> Option<(u16, Vec<u8>)> {
        let (client, mut server) = tokio::io::duplex(1 << 16);
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(client)).await.ok()?;
        tokio::spawn(connection);
        let request = http::Request::get("/").header("host", "x").body(String::new()).ok()?;
        let answered = tokio::spawn(async move { sender.send_request(request).await });
        tokio::task::yield_now().await;
        server.write_all(octets).await.ok()?;
        server.shutdown().await.ok()?;
        let (head, mut body) = answered.await.ok()?.ok()?.into_parts();
        let mut content = Vec::new();
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            if let Ok(part) = frame.ok()?.into_data() {
                content.extend_from_slice(&part);
            }
        }
        Some((head.status.as_u16(), content))
    }

    #[tokio::test]
    async fn what_is_taken_means_what_another_reader_takes_it_for() {
        let mut both = 0;
        for octets in mutants() {
            let Some(ours) = read(&octets, usize::MAX, &Method::GET) else { continue };
            let shown = octets.escape_ascii();
            let Some(other) = by_hyper(&octets).await else { panic!("{shown}: the other reader refuses it: {ours:?}") };
            assert_eq!((ours.status.code(), ours.content), other, "{shown}");
            both += 1;
        }
        assert!(both > 1000, "{both}");
    }
}
