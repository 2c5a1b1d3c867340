//! Values of `[[listen]]`: an address, and the permissions of a socket.

use std::borrow::Cow;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::Address;

/// Permissions of a file, written in octal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mode(pub u32);

impl Default for Mode {
    /// Owner and group may connect.
    fn default() -> Self {
        Mode(0o660)
    }
}

impl Serialize for Mode {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&format_args!("{:04o}", self.0))
    }
}

impl<'de> Deserialize<'de> for Mode {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        match u32::from_str_radix(&text, 8) {
            Ok(mode @ ..=0o777) => Ok(Mode(mode)),
            _ => Err(serde::de::Error::custom(format!(
                "\"{text}\" is not a mode: write octal digits, for instance \"0660\" or \"0666\""
            ))),
        }
    }
}

impl JsonSchema for Mode {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "mode".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

/// A configured address, resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Listen {
    /// As configured.
    pub name: String,
    /// Several for `localhost`; this machine may lack some of them.
    pub addresses: Vec<Address>,
}

impl Listen {
    /// The default address for trying out the server: localhost:8443.
    pub(crate) fn development() -> Self {
        Listen::localhost(8443)
    }

    /// A port of all addresses of this machine, over IPv4 and IPv6.
    pub(crate) fn everywhere(port: u16) -> Self {
        let addresses: [SocketAddr; 2] = [(Ipv4Addr::UNSPECIFIED, port).into(), (Ipv6Addr::UNSPECIFIED, port).into()];
        Listen { name: port.to_string(), addresses: addresses.map(Address::Tcp).into() }
    }

    /// A port of localhost, over IPv4 and IPv6.
    pub(crate) fn localhost(port: u16) -> Self {
        Listen { name: format!("localhost:{port}"), addresses: localhost(port) }
    }
}

fn localhost(port: u16) -> Vec<Address> {
    let addresses: [SocketAddr; 2] = [([127, 0, 0, 1], port).into(), ([0, 0, 0, 0, 0, 0, 0, 1], port).into()];
    addresses.map(Address::Tcp).into()
}

impl FromStr for Listen {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        if let Some(address) = Address::parse_unix(name) {
            return Ok(Listen { name: name.to_owned(), addresses: vec![address?] });
        }
        // Does not use the hosts file, which may lack the IPv6 line although the machine has the address.
        if let Some(port) = name.strip_prefix("localhost:").and_then(|port| port.parse().ok()) {
            return Ok(Listen { name: name.to_owned(), addresses: localhost(port) });
        }
        if let Ok(address) = name.parse() {
            return Ok(Listen { name: name.to_owned(), addresses: vec![Address::Tcp(address)] });
        }
        let all = name.strip_prefix(':').or_else(|| name.strip_prefix("*:")).unwrap_or(name);
        if let Ok(port) = all.parse() {
            return Ok(Listen { name: name.to_owned(), ..Listen::everywhere(port) });
        }
        let hint = "write HOST:PORT, for instance 0.0.0.0:443, [::]:443 or localhost:8443, a port alone for all addresses, or a path: unix:/run/sealion.sock";
        // Resolving a name could block a reload, and may return another address later.
        Err(match name.rsplit_once(':') {
            Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok() => {
                format!("{host:?} is not an address of this machine, and names are not resolved: {hint}")
            }
            _ => hint.to_owned(),
        })
    }
}

impl Serialize for Listen {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.name)
    }
}

impl<'de> Deserialize<'de> for Listen {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}
