//! Servers that get the variables of CGI: FastCGI, as php-fpm speaks it, and uwsgi. Each request has a connection of its own.
//!
//! Connections of FastCGI are kept where the upstream has `max_idle`: each holds a process of php-fpm, which serves one connection at a time. A kept connection
//! gets a request that may be repeated, since the server may be closing it; any other request opens one.

mod answer;
mod fastcgi;
mod framing;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod head;
mod params;
mod uwsgi;

use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::time::Duration;

use bytes::BytesMut;
use http_body::Body;
use sealion_http::Status;
use tokio::io::{AsyncWriteExt, WriteHalf};
use tokio_util::task::AbortOnDropHandle;

use super::InProgress;
use super::connect::connect;
use super::content::{Incomplete, RequestContent};
use super::forward::{FailedTry, Failure, Forwarded, Stalled, no_room, unreachable_server, wait};
use super::http1::Connection;
use super::lazy_timer::LazyTimer;
use super::proxy_header::OnBehalf;
use super::reply::Reply;
use crate::tls_client::Io;
use answer::{Answer, Broken, Written};
use fastcgi::RequestId;

pub(super) use framing::Gateway;
pub(crate) use params::Script;

/// Asks a server once. `connect_timeout`: the time that is left to connect.
pub(super) async fn ask(
    in_progress: InProgress,
    request: &mut Forwarded,
    connect_timeout: Duration,
    gateway: Gateway,
) -> Result<Reply, FailedTry> {
    let upstream = std::sync::Arc::clone(&in_progress.upstream);
    let server = &upstream.servers[in_progress.server];
    let is_repeatable = request.is_repeatable();
    request.renew_content();
    let failed = |failure, is_servers_fault| FailedTry {
        failure,
        may_repeat: is_repeatable && is_servers_fault,
        is_servers_fault,
    };
    let Some(script) = &request.script else {
        return Err(failed(Failure::Broken("the request names no script".to_owned()), false));
    };
    let length = request.content.as_ref().and_then(RequestContent::length);
    if gateway == Gateway::Uwsgi && request.content.is_some() && length.is_none() {
        return Err(failed(Failure::Client(Incomplete { status: Status::LENGTH_REQUIRED }), false));
    }
    let too_long = |_| failed(Failure::Client(Incomplete { status: Status::REQUEST_HEADER_FIELDS_TOO_LARGE }), false);
    let keeps = gateway == Gateway::Fastcgi && upstream.config.idle_connections() > 0;
    let kept = match keeps && is_repeatable && upstream.tries > 1 {
        true => server.pool.take(false).await,
        false => None,
    };
    let is_kept = kept.is_some();
    let past = kept.as_ref().map_or(0, |connection| connection.past.last_id);
    let id = RequestId { number: past % u16::MAX + 1, keeps };
    let head = gateway.head(id, script, request, length).map_err(too_long)?;
    let connection = match kept {
        Some(connection) => connection,
        None => {
            let io = connect(server, connect_timeout, OnBehalf::Own).await;
            Connection::new(io.map_err(|error| unreachable_server(&error))?)
        }
    };
    let (io, past) = connection.into_parts();
    let content = request.content.take();
    let progress = content.as_ref().map(RequestContent::progress);
    let (from, to) = tokio::io::split(io);
    let writer = AbortOnDropHandle::new(tokio::spawn(write(to, head, content, (gateway, id))));
    let mut answer = Answer::new(in_progress, from, writer, request.reading, (gateway, id, keeps.then_some(past)));
    let patience = upstream.answer_timeout;
    let heads = request.heads.as_deref();
    let head = wait(pin!(answer.head(heads)), progress.as_ref(), patience, heads, &mut LazyTimer::default()).await;
    match head {
        Ok(Ok((status, fields))) => {
            let has_content = request.method != http::Method::HEAD && !status.has_no_content();
            let body = if has_content { answer.into() } else { answer::Nothing.into() };
            Ok(Reply { status, fields: fields.into(), body, ends_with_stream: has_content })
        }
        Ok(Err(Broken::Client(incomplete))) => Err(failed(Failure::Client(incomplete), false)),
        Ok(Err(Broken::Refused(ended))) if !ended.is_busy() => Err(failed(Failure::Broken(ended.to_string()), true)),
        Ok(Err(Broken::Refused(ended))) => {
            let failure = Failure::Busy(ended.to_string());
            Err(FailedTry { failure, may_repeat: is_repeatable, is_servers_fault: false })
        }
        // The server has closed it meanwhile: that says nothing of the server.
        Ok(Err(Broken::Server(what))) if is_kept && !answer.has_begun() => {
            Err(FailedTry { failure: Failure::Broken(what), may_repeat: true, is_servers_fault: false })
        }
        Ok(Err(Broken::Server(what))) => {
            let may_repeat = is_repeatable && !answer.has_begun();
            Err(FailedTry { failure: Failure::Broken(what), may_repeat, is_servers_fault: true })
        }
        Err(Stalled::Client) => Err(failed(Failure::Client(Incomplete { status: Status::REQUEST_TIMEOUT }), false)),
        Err(Stalled::Room) => Err(failed(no_room(patience), false)),
        Err(Stalled::Server) => {
            Err(failed(Failure::Timeout(format!("no answer within {} s", patience.as_secs_f32())), true))
        }
    }
}

/// Writes the request. An application may answer without reading it: a connection that takes no more is no failure.
///
/// # Errors
/// The client did not send all of its content: the application must not take it for whole.
async fn write(
    mut to: WriteHalf<Box<dyn Io>>,
    mut octets: BytesMut,
    content: Option<RequestContent>,
    (gateway, id): (Gateway, RequestId),
) -> Written {
    if let Some(mut content) = content {
        while let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
            // CGI has no trailers.
            let Ok(data) = frame?.into_data() else { continue };
            for part in data.chunks(usize::from(u16::MAX)) {
                gateway.content(&mut octets, id, Some(part));
                if to.write_all(&octets).await.is_err() {
                    return Ok(None);
                }
                octets.clear();
            }
        }
    }
    gateway.content(&mut octets, id, None);
    let is_written = to.write_all(&octets).await.is_ok() && to.flush().await.is_ok();
    Ok(is_written.then_some(to))
}
