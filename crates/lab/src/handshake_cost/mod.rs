//! The server's cost of a TLS 1.3 handshake: the parts of rustls' work, and Sealion's handshake as a whole.

mod timed;

use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use rcgen::{CertificateParams, KeyPair};
use rustix::time::{ClockId, clock_gettime};
use rustls::client::Resumption;
use rustls::crypto::{SupportedKxGroup, aws_lc_rs};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{ClientConfig, ClientConnection, HandshakeKind, RootCertStore, ServerConnection};
use sealion_tls::{Certificate, Limits, SiteCertificates, SiteTls, TlsOptions, TlsStream};

pub(crate) use timed::Part;

/// The group of the key exchange.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Group {
    X25519,
    X25519MlKem768,
}

impl Group {
    fn of_rustls(self) -> &'static dyn SupportedKxGroup {
        match self {
            Self::X25519 => aws_lc_rs::kx_group::X25519,
            Self::X25519MlKem768 => aws_lc_rs::kx_group::X25519MLKEM768,
        }
    }
}

/// A kind of handshake and its cost: medians over handshakes.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// The parts of rustls' work, in the order of [`Part::ALL`].
    pub(crate) parts: [Duration; Part::ALL.len()],
    /// All of rustls' work, without I/O.
    pub(crate) rustls: Duration,
    /// CPU time of Sealion's handshake over a socket pair: the median of the runs.
    pub(crate) sealion: Duration,
}

/// Handshakes of a run, over which Sealion's CPU time is averaged.
const A_RUN: u32 = 100;

/// Measures `count` full and as many resumed handshakes, with a certificate for ECDSA P-256 and AES-128-GCM.
///
/// # Errors
/// A handshake fails, or a session is not resumed although it should be.
pub(crate) fn measure(group: Group, count: u32) -> Result<[Cost; 2]> {
    let pair = Pair::make()?;
    let [full, resumed] = [false, true].map(|resumed| -> Result<Cost> {
        let (parts, rustls) = in_memory(&pair, group, resumed, count)?;
        Ok(Cost { parts, rustls, sealion: over_sockets(&pair, group, resumed, count)? })
    });
    Ok([full?, resumed?])
}

/// A self-signed certificate and its key.
struct Pair {
    certificate: CertificateDer<'static>,
    pem: String,
    key: KeyPair,
}

impl Pair {
    fn make() -> Result<Self> {
        let key = KeyPair::generate().context("cannot make a key")?;
        let params = CertificateParams::new(["localhost".to_owned()])?;
        let certificate = params.self_signed(&key).context("cannot make a certificate")?;
        Ok(Self { certificate: certificate.der().clone(), pem: certificate.pem(), key })
    }

    /// A client, which keeps its sessions if it resumes.
    fn client(&self, group: Group, resumes: bool) -> Result<Arc<ClientConfig>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.certificate.clone())?;
        let mut provider = aws_lc_rs::default_provider();
        provider.kx_groups = vec![group.of_rustls()];
        provider.cipher_suites = vec![aws_lc_rs::cipher_suite::TLS13_AES_128_GCM_SHA256];
        let mut config = ClientConfig::builder_with_provider(Arc::new(provider))
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.resumption = if resumes { Resumption::in_memory_sessions(8) } else { Resumption::disabled() };
        Ok(Arc::new(config))
    }

    fn timed_server(&self, group: Group, tickets: usize) -> Result<Arc<rustls::ServerConfig>> {
        let provider = Arc::new(timed::provider(group.of_rustls()));
        let key = PrivateKeyDer::try_from(self.key.serialize_der()).map_err(anyhow::Error::msg)?;
        let key = timed::TimedKey(provider.key_provider.load_private_key(key)?);
        let certified = CertifiedKey::new(vec![self.certificate.clone()], Arc::new(key));
        let mut config = rustls::ServerConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&rustls::version::TLS13])?
            .with_no_client_auth()
            .with_cert_resolver(Arc::new(SingleCertAndKey::from(certified)));
        config.ticketer = Arc::new(timed::TimedTickets(aws_lc_rs::Ticketer::new()?));
        config.send_tls13_tickets = tickets;
        Ok(Arc::new(config))
    }

    fn server(&self) -> Result<Arc<sealion_tls::ServerConfig>> {
        let (certificate, key) = (self.pem.as_bytes(), self.key.serialize_pem());
        let made = Path::new("(made here)");
        let certificate = Certificate::from_pem(made, certificate, made, key.as_bytes())?;
        let certificates = Arc::new(SiteCertificates::new(vec![certificate]));
        let site = SiteTls { names: Vec::new(), certificates, client_auth: None, alpn: None };
        let options = TlsOptions::new(&[b"http/1.1"])?;
        Ok(Arc::new(sealion_tls::ServerConfig::new(&site, &[], &options, Limits::default())?))
    }
}

fn name() -> ServerName<'static> {
    ServerName::try_from("localhost").expect("a host name")
}

/// The times of the parts of rustls' work, and of all of it.
fn in_memory(pair: &Pair, group: Group, resumed: bool, count: u32) -> Result<(timed::Times, Duration)> {
    let client = pair.client(group, resumed)?;
    // Sealion sends the same number of tickets.
    let server = pair.timed_server(group, if resumed { 1 } else { 2 })?;
    let mut times: [Vec<Duration>; Part::ALL.len()] = Default::default();
    let mut whole = Vec::new();
    // The first handshake makes the session.
    for n in 0..=count {
        let mut client = ClientConnection::new(client.clone(), name())?;
        timed::take();
        let mut spent = Duration::ZERO;
        let began = Instant::now();
        let mut server = ServerConnection::new(server.clone())?;
        spent += began.elapsed();
        while client.is_handshaking() || server.is_handshaking() {
            let mut to_server = Vec::new();
            client.write_tls(&mut to_server)?;
            let mut to_client = Vec::new();
            let began = Instant::now();
            server.read_tls(&mut &to_server[..])?;
            server.process_new_packets()?;
            while server.wants_write() {
                server.write_tls(&mut to_client)?;
            }
            spent += began.elapsed();
            let mut to_client = &to_client[..];
            while !to_client.is_empty() {
                client.read_tls(&mut to_client)?;
                client.process_new_packets()?;
            }
        }
        let parts = timed::take();
        if n == 0 {
            continue;
        }
        ensure!(
            (server.handshake_kind() == Some(HandshakeKind::Resumed)) == resumed,
            "not the handshake that was wanted"
        );
        whole.push(spent);
        times.iter_mut().zip(parts).for_each(|(times, part)| times.push(part));
    }
    Ok((times.map(median), median(whole)))
}

/// The CPU time of Sealion's handshake over a pair of Unix sockets, including system calls.
fn over_sockets(pair: &Pair, group: Group, resumed: bool, count: u32) -> Result<Duration> {
    let (config, client) = (pair.server()?, pair.client(group, resumed)?);
    let (sockets, connections) = channel();
    let client = std::thread::spawn(move || clients(&client, &connections));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let runs = runtime.block_on(serve(&config, &sockets, resumed, count));
    drop(sockets);
    client.join().expect("the client's thread does not panic")?;
    Ok(median(runs?))
}

/// The CPU time of a handshake: the average of each run.
async fn serve(
    config: &Arc<sealion_tls::ServerConfig>,
    clients: &Sender<UnixStream>,
    resumed: bool,
    count: u32,
) -> Result<Vec<Duration>> {
    let mut runs = Vec::new();
    for run in 0..=count.div_ceil(A_RUN) {
        let before = cpu_time();
        for n in 0..A_RUN {
            let (ours, theirs) = UnixStream::pair().context("cannot make a pair of sockets")?;
            ours.set_nonblocking(true)?;
            clients.send(theirs).context("the client has failed")?;
            let mut stream = TlsStream::accept(tokio::net::UnixStream::from_std(ours)?, config).await?;
            // The client sends nothing. This call sends the tickets, and waits for the client's close_notify.
            stream.read_more().await?;
            ensure!(
                run == 0 || stream.info().is_some_and(|info| info.resumed) == resumed,
                "handshake {n} is not what was wanted"
            );
        }
        if run > 0 {
            runs.push((cpu_time() - before) / A_RUN);
        }
    }
    Ok(runs)
}

/// Performs a handshake on each connection, receives the tickets, and closes.
fn clients(config: &Arc<ClientConfig>, connections: &Receiver<UnixStream>) -> Result<()> {
    for mut io in connections {
        let mut client = ClientConnection::new(config.clone(), name())?;
        while client.is_handshaking() || client.tls13_tickets_received() == 0 {
            client.complete_io(&mut io)?;
        }
        client.send_close_notify();
        client.write_tls(&mut io)?;
    }
    Ok(())
}

/// CPU time of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs() as u32)
}

fn median(mut times: Vec<Duration>) -> Duration {
    times.sort_unstable();
    times.get(times.len() / 2).copied().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resumption_needs_no_signature_and_every_part_is_less_than_the_whole() {
        for group in [Group::X25519, Group::X25519MlKem768] {
            let [full, resumed] = measure(group, 3).unwrap();
            let part = |cost: &Cost, part: Part| cost.parts[part as usize];
            assert!(part(&full, Part::Signature) > Duration::ZERO);
            assert_eq!(part(&resumed, Part::Signature), Duration::ZERO);
            for cost in [full, resumed] {
                assert!(part(&cost, Part::KeyShare) > Duration::ZERO);
                assert!(cost.parts.iter().all(|part| *part <= cost.rustls), "{cost:?}");
                assert!(cost.sealion > Duration::ZERO);
            }
        }
    }
}
