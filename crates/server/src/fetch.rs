//! A request to another server on the server's own account, by HTTP/1: to responders of OCSP, to collectors of OTLP, and to the service that
//! allows certificates on demand. Requests of clients go by `upstream`.

use std::fmt::Display;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::HOST;
use http::uri::Scheme;
use http::{HeaderValue, Request, Response, Uri};
use http_body::Body;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

use crate::tls_client::Io;

/// For the whole exchange.
const PATIENCE: Duration = Duration::from_secs(10);

/// Responses are short: a responder sends 300 to 3,000 bytes.
const MOST: usize = 64 << 10;

/// Bytes of a whole response, with its head and interim responses.
const MOST_READ: u64 = 1 << 20;

/// Sends the request to the server that its target names, `http://host[:port]/path`, or `https` by means of `tls`. The answer may have any
/// status.
///
/// # Errors
/// There is no whole answer within 10 s, or it is longer than 64 KiB.
pub(crate) async fn fetch(request: Request<Bytes>, tls: Option<&TlsConnector>) -> Result<Response<Vec<u8>>, String> {
    tokio::time::timeout(PATIENCE, fetch_slowly(request, tls))
        .await
        .unwrap_or_else(|_| Err(format!("no answer within {} s", PATIENCE.as_secs())))
}

async fn fetch_slowly(request: Request<Bytes>, tls: Option<&TlsConnector>) -> Result<Response<Vec<u8>>, String> {
    let failed = |error: &dyn Display| error.to_string();
    let (mut head, content) = request.into_parts();
    let authority = head.uri.authority().ok_or("the URL names no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let is_https = head.uri.scheme() == Some(&Scheme::HTTPS);
    let port = authority.port_u16().unwrap_or(if is_https { 443 } else { 80 });
    let stream = TcpStream::connect((host, port)).await.map_err(|error| failed(&error))?;
    let stream: Box<dyn Io> = match tls {
        Some(connector) if is_https => {
            let name = ServerName::try_from(host.to_owned()).map_err(|error| failed(&error))?;
            Box::new(connector.connect(name, stream).await.map_err(|error| format!("TLS failed: {error}"))?)
        }
        None if is_https => return Err("it is asked without TLS only".to_owned()),
        _ => Box::new(stream),
    };
    // Interim responses may come without end.
    let (from, to) = tokio::io::split(stream);
    let stream = tokio::io::join(from.take(MOST_READ), to);
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
        // The connection may end with the last byte of the response.
        _ = connection => answered.await,
    }
}
