//! A request to another server on the server's own account, over plain HTTP/1: to responders of OCSP, and to collectors of OTLP. Requests
//! of clients go by `upstream`.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::{HeaderValue, Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// For the whole exchange.
const PATIENCE: Duration = Duration::from_secs(10);

/// Answers are short: those of responders have 300 to 3,000 octets.
const MOST: usize = 64 << 10;

/// Sends the request to the server that its target names, `http://host[:port]/path`. The answer may have any status.
pub(crate) async fn fetch(request: Request<Bytes>) -> Result<Response<Vec<u8>>, String> {
    tokio::time::timeout(PATIENCE, fetch_slowly(request))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn fetch_slowly(request: Request<Bytes>) -> Result<Response<Vec<u8>>, String> {
    let failed = |error: &dyn Display| error.to_string();
    let (mut head, content) = request.into_parts();
    let authority = head.uri.authority().ok_or("the URL names no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream =
        TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    head.headers.insert(HOST, HeaderValue::from_str(authority.as_str()).map_err(|error| failed(&error))?);
    head.uri = head.uri.path_and_query().map_or_else(Uri::default, |target| Uri::from(target.clone()));
    let answered = async {
        let response = sender.send_request(Request::from_parts(head, Full::new(content))).await;
        let (head, mut body) = response.map_err(|error| failed(&error))?.into_parts();
        let mut content = Vec::new();
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let frame = frame.map_err(|error| failed(&error))?;
            content.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if content.len() > MOST {
                return Err(format!("the response has more than {MOST} octets"));
            }
        }
        Ok(Response::from_parts(head, content))
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        // The connection may end with the last octet of the response.
        _ = connection => answered.await,
    }
}
