//! Records of DNS-01 by dynamic updates of the zone (RFC 2136), signed with TSIG (RFC 8945).

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream, ToSocketAddrs};
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use domain::base::iana::{Class, Opcode, Rcode};
use domain::base::{Message, MessageBuilder, Name, Rtype, ToName, Ttl};
use domain::rdata::tsig::Time48;
use domain::rdata::{Soa, Txt};
use domain::tsig::{Algorithm, ClientTransaction, Key, KeyName};

use super::dns::Record;
use crate::certificates::config::{DnsUpdateConfig, TsigAlgorithm};
use crate::values::Problems;

/// The server of a zone, and the credentials for it.
#[derive(Debug, Clone)]
pub(super) struct DnsUpdate {
    server: String,
    key: Arc<Key>,
    zone: Option<ZoneName>,
}

type ZoneName = Name<Vec<u8>>;

/// The change of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Change {
    Add,
    Remove,
}

impl DnsUpdate {
    /// `None`: the errors are in `problems`.
    pub(super) fn new(config: &DnsUpdateConfig, key: &str, problems: &mut Problems) -> Option<Self> {
        let before = problems.len();
        let server = with_port(&config.server);
        if server.is_none() {
            let what = format_args!(
                "{:?} is not a server: write for instance 192.0.2.53, [2001:db8::53]:5353 or ns1.example.org",
                config.server.value
            );
            problems.add(&config.server.span, &format!("{key}.server"), what);
        }
        let path = problems.resolve(&config.secret);
        let secret = std::fs::read_to_string(&path).map_err(|error| error.to_string());
        let secret = secret.and_then(|text| BASE64_STANDARD.decode(text.trim()).map_err(|error| error.to_string()));
        let secret = secret.map_err(|error| {
            let what = format_args!("{}: {error}: the file must hold the key's secret, in base64", path.display());
            problems.add(&config.secret.span, &format!("{key}.secret"), what);
        });
        let name = KeyName::from_str(&config.key_name).map_err(|error| {
            let what = format_args!("{:?} is not a valid name of a key: {error}", config.key_name.value);
            problems.add(&config.key_name.span, &format!("{key}.key_name"), what);
        });
        let zone = config.zone.as_ref().map(|zone| {
            ZoneName::from_str(zone).map_err(|error| {
                let what = format_args!("{:?} is not a valid name of a zone: {error}", zone.value);
                problems.add(&zone.span, &format!("{key}.zone"), what);
            })
        });
        let algorithm = match config.algorithm {
            TsigAlgorithm::Sha256 => Algorithm::Sha256,
            TsigAlgorithm::Sha384 => Algorithm::Sha384,
            TsigAlgorithm::Sha512 => Algorithm::Sha512,
        };
        if problems.len() > before {
            return None;
        }
        let key = Key::new(algorithm, &secret.ok()?, name.ok()?, None, None).ok()?;
        Some(DnsUpdate { server: server?, key: Arc::new(key), zone: zone.transpose().ok()? })
    }

    /// Adds or removes a record. It is not an error if the record already exists or is already gone (RFC 2136 §3.4.2).
    pub(super) fn change(&self, record: &Record, change: Change) -> Result<(), String> {
        let failed = |why: String| format!("{}: {} is not changed: {why}", self.server, record.name);
        let name = ZoneName::from_str(&record.name).map_err(|error| failed(error.to_string()))?;
        let mut server = Connection::open(&self.server).map_err(|error| failed(error.to_string()))?;
        let zone = match &self.zone {
            Some(zone) => zone.clone(),
            None => self.zone_of(&mut server, &name).map_err(failed)?,
        };
        let update = || {
            let mut builder = MessageBuilder::new_vec();
            builder.header_mut().set_opcode(Opcode::UPDATE);
            let mut builder = builder.question();
            builder.push((&zone, Rtype::SOA))?;
            let mut builder = builder.authority();
            let text = Txt::<Vec<u8>>::build_from_slice(record.text.as_bytes()).expect("it is shorter than a name");
            // A record of class NONE removes the record with its data (RFC 2136 §2.5.4).
            match change {
                Change::Add => builder.push((&name, Class::IN, TTL, text))?,
                Change::Remove => builder.push((&name, Class::NONE, Ttl::ZERO, text))?,
            }
            Ok(builder.additional())
        };
        let answer = server.ask(&self.key, update).map_err(failed)?;
        match answer.header().rcode() {
            Rcode::NOERROR => Ok(()),
            refused => Err(failed(format!(
                "the server returns {refused} for the zone {zone}: permit updates of this record by the key {}",
                self.key.name()
            ))),
        }
    }

    /// The zone of a name, from the SOA record in the server's response, in the answer or the authority section.
    fn zone_of(&self, server: &mut Connection, name: &ZoneName) -> Result<ZoneName, String> {
        let query = || {
            let mut builder = MessageBuilder::new_vec().question();
            builder.push((name, Rtype::SOA))?;
            Ok(builder.additional())
        };
        let answer = server.ask(&self.key, query)?;
        let unreadable = |error| format!("the server's response cannot be parsed: {error}");
        let sections = [answer.answer().map_err(unreadable)?, answer.authority().map_err(unreadable)?];
        let found = sections.into_iter().flat_map(|section| section.limit_to::<Soa<_>>()).find_map(Result::ok);
        match found {
            Some(record) => Ok(record.owner().to_name()),
            None => Err(format!(
                "the server returns {} and names no zone: set zone in dns_update, and the zone's primary as server",
                answer.header().rcode()
            )),
        }
    }
}

/// A connection to the server.
struct Connection(TcpStream);

impl Connection {
    fn open(server: &str) -> io::Result<Self> {
        let mut failed = io::Error::new(io::ErrorKind::NotFound, "the name has no address");
        for address in server.to_socket_addrs()? {
            match Self::to(address) {
                Ok(connection) => return Ok(connection),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    fn to(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect_timeout(&address, TIMEOUT)?;
        stream.set_read_timeout(Some(TIMEOUT))?;
        stream.set_write_timeout(Some(TIMEOUT))?;
        Ok(Connection(stream))
    }

    /// Signs a message, sends it, and returns the response after verifying its signature.
    fn ask(
        &mut self,
        key: &Arc<Key>,
        message: impl FnOnce() -> Result<Unsigned, PushError>,
    ) -> Result<Message<Vec<u8>>, String> {
        let too_long = |error: PushError| error.to_string();
        let mut message = message().map_err(too_long)?;
        message.header_mut().set_random_id();
        let transaction = ClientTransaction::request(Arc::clone(key), &mut message, Time48::now()).map_err(too_long)?;
        let bytes = message.finish();
        let answer = self.exchange(&bytes).map_err(|error| error.to_string())?;
        let mut answer = Message::from_octets(answer).map_err(|error| error.to_string())?;
        transaction
            .answer(&mut answer, Time48::now())
            .map_err(|error| format!("the signature of its response {} is invalid: {error}: do key_name, algorithm, secret and both clocks agree?", answer.header().rcode()))?;
        Ok(answer)
    }

    /// Sends a message and reads the next message (RFC 1035 §4.2.2).
    fn exchange(&mut self, message: &[u8]) -> io::Result<Vec<u8>> {
        let len = u16::try_from(message.len()).map_err(io::Error::other)?;
        self.0.write_all(&[&len.to_be_bytes(), message].concat())?;
        let mut len = [0; 2];
        self.0.read_exact(&mut len)?;
        let mut answer = vec![0; u16::from_be_bytes(len).into()];
        self.0.read_exact(&mut answer)?;
        Ok(answer)
    }
}

type Unsigned = domain::base::message_builder::AdditionalBuilder<Vec<u8>>;
type PushError = domain::base::message_builder::PushError;

/// The timeout of each step with the server.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The record lives for one validation.
const TTL: Ttl = Ttl::from_secs(60);

/// The server with its port. `None`: it is not a valid server.
fn with_port(server: &str) -> Option<String> {
    if server.is_empty() || server.contains(char::is_whitespace) {
        return None;
    }
    let (host, port) = match server.rsplit_once(':') {
        _ if server.parse::<std::net::Ipv6Addr>().is_ok() => return Some(format!("[{server}]:53")),
        Some((host, port)) if !host.ends_with(']') || host.starts_with('[') => (host, port),
        _ => return Some(format!("{server}:53")),
    };
    if host.starts_with('[') && !host.ends_with(']') {
        return server.ends_with(']').then(|| format!("{server}:53"));
    }
    (!host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0)).then(|| server.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_has_a_port() {
        for (server, expected) in [
            ("192.0.2.53", Some("192.0.2.53:53")),
            ("192.0.2.53:5353", Some("192.0.2.53:5353")),
            ("ns1.example.org", Some("ns1.example.org:53")),
            ("[2001:db8::53]", Some("[2001:db8::53]:53")),
            ("[2001:db8::53]:5353", Some("[2001:db8::53]:5353")),
            ("2001:db8::53", Some("[2001:db8::53]:53")),
            ("ns1:", None),
            (":53", None),
            ("ns1:dns", None),
            ("ns1:0", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(with_port(server).as_deref(), expected, "{server}");
        }
    }
}
