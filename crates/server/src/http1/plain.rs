//! A connection without TLS: one request, which is shown the way to HTTPS, and the end.

use std::time::Duration;

use sealion_tls::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::head::{self, Parsed};
use super::write::{Connection, write_head};
use crate::generation::Generation;
use crate::http_time::HttpTime;
use crate::response::{Body, Response, Status};
use crate::site::plain_http;

/// Serves the connection until it is closed. `https_port`: where HTTPS is. `challenge`: see [`plain_http::answer`].
///
/// # Errors
/// Why it could not be answered, in words.
pub(crate) async fn serve(
    mut io: Socket,
    current: &Generation,
    https_port: u16,
    challenge: impl Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let limits = current.limits();
    let deadline = Instant::now() + limits.request_timeout.duration();
    let mut buf = Vec::new();
    let mut response = loop {
        match head::parse(&buf, &current.head_limits) {
            Ok(Parsed::Head { head, .. }) => {
                let request = &head.request;
                let is_ours = current.sites.find(request.authority).is_some();
                break plain_http::answer(request, https_port, is_ours, challenge).to(request.method);
            }
            Ok(Parsed::Incomplete) => {}
            Err(reject) => break Response::plain(reject.status),
        }
        match timeout_at(deadline, io.read_buf(&mut buf)).await {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => break Response::plain(Status::RequestTimeout),
        }
    };
    response.fields.anonymous = current.sites.are_anonymous();
    let mut bytes = Vec::new();
    write_head(&mut bytes, &response, Connection::Close, &HttpTime::now());
    if let Body::Bytes(body) = &response.body {
        bytes.extend_from_slice(body);
    }
    let sent = timeout(limits.stall_timeout.duration(), async {
        io.write_all(&bytes).await?;
        io.shutdown().await
    });
    sent.await.map_err(|_| "the client takes nothing".to_owned())?.map_err(|error| error.to_string())?;
    wait_for_end(&mut io, limits.linger_timeout.duration()).await;
    Ok(())
}

/// Until the client has closed too: closing on bytes that were not read would reset the connection and with it the response (RFC 9112 §9.6).
async fn wait_for_end(io: &mut Socket, patience: Duration) {
    let mut dropped = 0;
    let mut buf = [0; 1024];
    let _ = timeout(patience, async {
        while let Ok(more @ 1..) = io.read(&mut buf).await {
            dropped += more;
            if dropped > MOST_DROPPED {
                break;
            }
        }
    })
    .await;
}

/// GUESS: bytes of a request's content, as much as a client sends before it sees that it is not wanted.
const MOST_DROPPED: usize = 64 << 10;
