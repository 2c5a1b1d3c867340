//! The content of a request as it is sent (RFC 9112 §6, §7).

use std::future::poll_fn;
use std::io;
use std::pin::Pin;

use bytes::{Buf, Bytes};
use http_body::Body;
use sealion_http::Status;
use tokio::io::{AsyncWriteExt, WriteHalf};

use crate::tls_client::Io;
use crate::upstream::content::{Incomplete, RequestContent};

/// The connection, once all of a content is written.
pub(super) type Written = Result<WriteHalf<Box<dyn Io>>, Unwritten>;

/// Why not all of a content was written.
#[derive(Debug)]
pub(super) enum Unwritten {
    /// The client did not send it all: the server must not take it for whole.
    Client(Incomplete),
    /// The server takes no more.
    Server,
}

impl From<io::Error> for Unwritten {
    fn from(_: io::Error) -> Self {
        Unwritten::Server
    }
}

/// Writes the content, chunked if no length was announced.
pub(super) async fn write(mut content: RequestContent, mut to: WriteHalf<Box<dyn Io>>) -> Written {
    let mut left = content.length();
    let mut trailers = None;
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut content).poll_frame(cx)).await {
        match frame.map_err(Unwritten::Client)?.into_data() {
            Ok(octets) if octets.is_empty() => {}
            Ok(octets) => {
                match &mut left {
                    Some(left) => {
                        // More than was announced would be the next request.
                        *left = left.checked_sub(octets.len() as u64).ok_or_else(incomplete)?;
                        to.write_all(&octets).await?;
                    }
                    None => {
                        let size = Bytes::from(format!("{:x}\r\n", octets.len()));
                        let mut chunk = size.chain(octets).chain(&b"\r\n"[..]);
                        to.write_all_buf(&mut chunk).await?;
                    }
                }
                to.flush().await?;
            }
            Err(frame) => trailers = frame.into_trailers().ok(),
        }
    }
    match left {
        None => {
            let mut end = b"0\r\n".to_vec();
            for (name, value) in trailers.iter().flatten() {
                [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]
                    .iter()
                    .for_each(|part| end.extend_from_slice(part));
            }
            end.extend_from_slice(b"\r\n");
            to.write_all(&end).await?;
            to.flush().await?;
        }
        Some(0) => {}
        Some(_) => return Err(incomplete()),
    }
    Ok(to)
}

fn incomplete() -> Unwritten {
    Unwritten::Client(Incomplete { status: Status::BAD_REQUEST })
}
