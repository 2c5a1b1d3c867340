//! A connection of a listener that redirects to HTTPS: one request without TLS, answered with a redirect.

use std::time::Duration;

use sealion_http::Status;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::http1::head::{self, RequestHead, Version};
use sealion_http::http1::write::{Connection, write_head};
use sealion_tls::Socket;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout, timeout_at};

use super::guess_method;
use crate::exchange::{Generation, now};
use crate::site::plain_http::{self, PlainResponse};

/// Serves one request and closes the connection. `listener`: its name. `https_port`: the port of HTTPS. `challenge`: see [`plain_http::answer`].
///
/// # Errors
/// A message for the log: the request could not be answered.
pub(crate) async fn serve(
    mut io: Socket,
    current: &Generation,
    listener: &str,
    https_port: u16,
    challenge: impl Fn(&str) -> Option<String>,
) -> Result<(), String> {
    let limits = &current.limits;
    let deadline = Instant::now() + limits.request_timeout.duration();
    let mut buf = Vec::new();
    let mut response = loop {
        match head::find(&buf, &current.head_limits) {
            Ok(Some(span)) => match RequestHead::parse(&buf, span) {
                Ok(head) => {
                    let is_ours = current.sites.redirects(head.request.authority, listener);
                    break plain_http::answer(&head.request, https_port, is_ours, challenge);
                }
                Err(reject) => break PlainResponse::of(reject.status),
            },
            Ok(None) => {}
            Err(reject) => break PlainResponse::of(reject.status),
        }
        match timeout_at(deadline, io.read_buf(&mut buf)).await {
            Ok(Ok(0)) => return Ok(()),
            Ok(Ok(_)) => {}
            Ok(Err(error)) => return Err(error.to_string()),
            Err(_) => break PlainResponse::of(Status::REQUEST_TIMEOUT),
        }
    };
    response.fields.anonymous = current.sites.are_anonymous();
    let method = guess_method(&buf);
    let length = Some(response.content.len() as u64);
    let framing = ResponseFraming::of(Version::Http11, method, response.status, length);
    let mut bytes = Vec::new();
    write_head(&mut bytes, response.status, &response.fields, framing, Connection::Close, &now());
    if framing.has_content() {
        bytes.extend_from_slice(&response.content);
    }
    let sent = timeout(limits.stall_timeout.duration(), async {
        io.write_all(&bytes).await?;
        io.shutdown().await
    });
    sent.await.map_err(|_| "sending the response timed out".to_owned())?.map_err(|error| error.to_string())?;
    wait_for_end(&mut io, limits.linger_timeout.duration()).await;
    Ok(())
}

/// Waits until the client closes too. Closing with unread bytes would reset the connection and could lose the response
/// (RFC 9112 §9.6).
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

/// Bytes read and discarded after the response: as much as a client sends before it sees the response.
const MOST_DROPPED: usize = 64 << 10;
