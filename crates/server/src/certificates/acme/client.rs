//! Requests to authorities: HTTPS with bounded responses.

use std::error::Error as StdError;
use std::path::Path;
use std::pin::Pin;

use bytes::Bytes;
use http::Request;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper_rustls::HttpsConnectorBuilder;
use hyper_util::client::legacy::connect::Connect;
use hyper_util::client::legacy::{self, Builder};
use hyper_util::rt::TokioExecutor;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};

use crate::tls_client;

/// The maximum length of a response. A certificate chain with post-quantum keys takes about 50 kB.
const MAX_RESPONSE: usize = 256 << 10;

struct Client<C>(legacy::Client<C, BodyWrapper<Bytes>>);

/// `root`: a file of root certificates for the authority, instead of the system's roots.
///
/// # Errors
/// The roots cannot be read.
pub(super) fn client(root: Option<&Path>) -> Result<Box<dyn HttpClient>, String> {
    let tls = tls_client::verifying(root)?.with_no_client_auth();
    let connector =
        HttpsConnectorBuilder::new().with_tls_config(tls).https_only().enable_http1().enable_http2().build();
    Ok(Box::new(Client(builder().build(connector))))
}

fn builder() -> Builder {
    legacy::Client::builder(TokioExecutor::new())
}

impl<C: Connect + Clone + Send + Sync + 'static> HttpClient for Client<C> {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let response = self.0.request(request);
        Box::pin(async move {
            let response = response.await.map_err(|error| Error::Other(Box::new(error)))?;
            Ok(response.map(|body| Limited::new(body, MAX_RESPONSE).map_err(explain)).into())
        })
    }
}

fn explain(error: Box<dyn StdError + Send + Sync>) -> Box<dyn StdError + Send + Sync> {
    match error.is::<LengthLimitError>() {
        true => format!("the authority's response has more than {MAX_RESPONSE} bytes").into(),
        false => error,
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{SocketAddr, TcpListener};

    use hyper_util::client::legacy::connect::HttpConnector;

    use super::*;

    /// A server that sends each client a response: its head, then `content` repeated.
    fn serve(head: &'static str, content: Vec<u8>, times: usize) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let (mut io, _) = listener.accept().unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                io.read_exact(&mut byte).unwrap();
                request.extend(byte);
            }
            let _ = io.write_all(head.as_bytes());
            // A client that has left is not an error.
            let _ = (0..times).try_for_each(|_| io.write_all(&content));
        });
        address
    }

    async fn ask(server: SocketAddr) -> Result<Bytes, String> {
        let client = Client(builder().build(HttpConnector::new()));
        let request = Request::get(format!("http://{server}/")).body(BodyWrapper::default()).unwrap();
        let mut response = client.request(request).await.unwrap();
        response.body.into_bytes().await.map_err(|error| error.to_string())
    }

    #[tokio::test]
    async fn a_response_that_is_too_long_is_an_error_before_its_end() {
        let until_close = "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n";
        let whole = ask(serve(until_close, vec![b'x'; MAX_RESPONSE], 1)).await.unwrap();
        assert_eq!(whole.len(), MAX_RESPONSE);
        let chunk = [&b"4000\r\n"[..], &[b'x'; 0x4000], b"\r\n"].concat();
        for server in [
            serve(until_close, vec![b'x'; MAX_RESPONSE + 1], 1),
            serve("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", chunk, usize::MAX),
        ] {
            let error = ask(server).await.unwrap_err();
            assert!(error.contains("more than 262144 bytes"), "{error}");
        }
    }
}
