//! A gRPC client on tonic whose records the kernel seals and opens: it asks a server for its health.
//!
//! `cargo run --features stream --example tonic -- 127.0.0.1:4433 localhost cert.pem`

use std::error::Error;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use sealion_ktls::stream::KtlsStream;
use tokio::net::TcpStream;
use tonic::transport::{Channel, Endpoint};
use tonic_health::pb::HealthCheckRequest;
use tonic_health::pb::health_check_response::ServingStatus;
use tonic_health::pb::health_client::HealthClient;

/// A channel for any tonic client. It reconnects by itself.
pub async fn connect(
    address: SocketAddr,
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
) -> Result<Channel, Box<dyn Error>> {
    let origin = format!("https://{}", name.to_str());
    let connector = tower::service_fn(move |_| {
        let (config, name) = (Arc::clone(&config), name.clone());
        async move {
            let socket = TcpStream::connect(address).await?;
            Ok::<_, io::Error>(TokioIo::new(KtlsStream::connect(socket, config, name).await?))
        }
    });
    Ok(Endpoint::from_shared(origin)?.connect_with_connector(connector).await?)
}

/// Whether the server is in service.
pub async fn is_serving(channel: Channel) -> Result<bool, Box<dyn Error>> {
    let answer = HealthClient::new(channel).check(HealthCheckRequest::default()).await?;
    Ok(answer.into_inner().status() == ServingStatus::Serving)
}

#[allow(dead_code, reason = "a test uses the functions above")]
#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, name, roots] = &arguments[..] else {
        return Err("usage: tonic ADDRESS NAME CERTIFICATES".into());
    };
    let mut store = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(roots)? {
        store.add(certificate?)?;
    }
    let mut config = ClientConfig::builder().with_root_certificates(store).with_no_client_auth();
    config.enable_secret_extraction = true;
    config.alpn_protocols = vec![b"h2".to_vec()];
    let channel = connect(address.parse()?, Arc::new(config), ServerName::try_from(name.clone())?).await?;
    println!("serving: {}", is_serving(channel).await?);
    Ok(())
}
