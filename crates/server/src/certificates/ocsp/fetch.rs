//! A request to a responder.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use http::Request;
use http::header::HOST;
use http_body::Body;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// For the whole request.
const PATIENCE: Duration = Duration::from_secs(10);

/// Responses have 300 to 3,000 octets.
const MOST: usize = 64 << 10;

/// The content at a URL.
pub(super) async fn get(url: &str) -> Result<Vec<u8>, String> {
    tokio::time::timeout(PATIENCE, get_slowly(url)).await.unwrap_or_else(|_| Err("no answer within 10 s".to_owned()))
}

async fn get_slowly(url: &str) -> Result<Vec<u8>, String> {
    let failed = |error: &dyn std::fmt::Display| error.to_string();
    let uri: http::Uri = url.parse().map_err(|error| failed(&error))?;
    let authority = uri.authority().ok_or("it names no host")?;
    let host = authority.host().trim_start_matches('[').trim_end_matches(']');
    let stream =
        TcpStream::connect((host, authority.port_u16().unwrap_or(80))).await.map_err(|error| failed(&error))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    let target = uri.path_and_query().map_or("/", |target| target.as_str());
    let request = Request::get(target).header(HOST, authority.as_str()).body(String::new());
    let answered = async {
        let response = sender.send_request(request.map_err(|error| failed(&error))?).await;
        let response = response.map_err(|error| failed(&error))?;
        if response.status() != http::StatusCode::OK {
            return Err(format!("status {}", response.status()));
        }
        let (mut body, mut content) = (response.into_body(), Vec::new());
        while let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
            let frame = frame.map_err(|error| failed(&error))?;
            content.extend_from_slice(frame.data_ref().map_or(&[], |data| data));
            if content.len() > MOST {
                return Err(format!("the response has more than {MOST} octets"));
            }
        }
        Ok(content)
    };
    tokio::pin!(answered);
    tokio::select! {
        answer = &mut answered => answer,
        // The connection may end with the last octet of the response.
        _ = connection => answered.await,
    }
}
