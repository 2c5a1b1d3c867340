//! Addresses of a server: its name is resolved for each new connection. While that fails, the addresses of before are used.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;

use super::connect::is_exhaustion;
use crate::values::Mutex;

/// The addresses that a name had last.
#[derive(Debug, Default)]
pub(super) struct Names {
    last: Mutex<Vec<SocketAddr>>,
}

impl Names {
    /// Connects to the first address that accepts. Each address has its share of `patience`, so that a silent one does not hide the next.
    pub(super) async fn connect(&self, host: &str, port: u16, patience: Duration) -> io::Result<TcpStream> {
        let addresses = self.resolve(host, port).await?;
        let share = patience / u32::try_from(addresses.len()).unwrap_or(u32::MAX).max(1);
        let mut failure = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in addresses {
            match timeout(share, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return Ok(stream),
                // The next address would fail alike.
                Ok(Err(error)) if is_exhaustion(&error) => return Err(error),
                Ok(Err(error)) => failure = io::Error::new(error.kind(), format!("{address}: {error}")),
                Err(_) => {
                    failure = io::Error::new(io::ErrorKind::TimedOut, format!("{address}: no answer"));
                }
            }
        }
        Err(failure)
    }

    async fn resolve(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let found = lookup_host((host, port)).await.map(Iterator::collect::<Vec<_>>);
        let mut last = self.last.lock();
        match found {
            Ok(addresses) => {
                if *last != addresses {
                    last.clone_from(&addresses);
                }
                Ok(addresses)
            }
            Err(error) if last.is_empty() && is_exhaustion(&error) => Err(error),
            Err(error) if last.is_empty() => {
                Err(io::Error::new(error.kind(), format!("{host} cannot be resolved: {error}")))
            }
            Err(error) => {
                tracing::debug!("{host} cannot be resolved: {error}; its addresses of before are used");
                Ok(last.clone())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn the_addresses_of_before_are_used_while_a_name_cannot_be_resolved() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let names = Names::default();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let connect = || names.connect("name.invalid", address.port(), Duration::from_secs(5));
            let error = connect().await.unwrap_err().to_string();
            assert!(error.contains("name.invalid cannot be resolved"), "{error}");
            // An address that refuses goes before.
            *names.last.lock() = vec!["127.0.0.1:1".parse().unwrap(), address];
            assert_eq!(connect().await.unwrap().peer_addr().unwrap(), address);
        });
    }
}
