//! Destinations of the access log.

use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::{fmt, io};

use serde::{Deserialize, Serialize};

use super::rotation::Rotation;
use super::sink::{Datagrams, Sink, Stream};

/// The destination of the access log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Destination {
    Off,
    Stdout,
    /// A file; lines are appended to it.
    File(PathBuf),
    /// A syslog daemon. Messages have the format of syslog(3) or, over UDP, of RFC 5424.
    Syslog(Syslog),
    /// The systemd journal, with an entry field for each field of a line.
    Journald,
}

/// The address of a syslog daemon.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Syslog {
    /// A Unix datagram socket.
    Unix(PathBuf),
    /// `HOST:PORT` over UDP (RFC 5426).
    Udp(String),
}

/// The socket of the syslog daemon on this machine.
const SYSLOG_SOCKET: &str = "/dev/log";

/// systemd.io, "Journal Native Protocol".
const JOURNAL_SOCKET: &str = "/run/systemd/journal/socket";

impl FromStr for Destination {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "" => Err("write `stdout`, `off`, a file, `syslog`, `syslog:HOST:PORT` or `journald`".to_owned()),
            "off" => Ok(Self::Off),
            "stdout" | "-" => Ok(Self::Stdout),
            "journald" => Ok(Self::Journald),
            "syslog" => Ok(Self::Syslog(Syslog::Unix(SYSLOG_SOCKET.into()))),
            _ => match text.strip_prefix("syslog:") {
                Some(path) if path.starts_with('/') => Ok(Self::Syslog(Syslog::Unix(path.into()))),
                Some(address) => match address.rsplit_once(':') {
                    Some((host, port)) if !host.is_empty() && port.parse::<u16>().is_ok_and(|port| port > 0) => {
                        Ok(Self::Syslog(Syslog::Udp(address.to_owned())))
                    }
                    _ => Err(format!("\"{text}\": write `syslog`, `syslog:HOST:PORT` or `syslog:/path/of/a/socket`")),
                },
                None => Ok(Self::File(text.into())),
            },
        }
    }
}

impl fmt::Display for Destination {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::Stdout => f.write_str("stdout"),
            Self::File(path) => path.display().fmt(f),
            Self::Syslog(Syslog::Unix(path)) if path == Path::new(SYSLOG_SOCKET) => f.write_str("syslog"),
            Self::Syslog(Syslog::Unix(path)) => write!(f, "syslog:{}", path.display()),
            Self::Syslog(Syslog::Udp(address)) => write!(f, "syslog:{address}"),
            Self::Journald => f.write_str("journald"),
        }
    }
}

impl Serialize for Destination {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Destination {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl Destination {
    /// Opens the destination; `None` for `off`. `rotation`: the rotation of a file.
    pub(super) fn open(&self, rotation: Option<Rotation>) -> io::Result<Option<Sink>> {
        Ok(Some(match self {
            Self::Off => return Ok(None),
            Self::Stdout => Sink::Stream(Stream::stdout()?),
            Self::File(path) => Sink::Stream(Stream::file(path, rotation)?),
            Self::Syslog(Syslog::Unix(path)) => Sink::Datagrams(Datagrams::unix(path)),
            Self::Syslog(Syslog::Udp(address)) => Sink::Datagrams(Datagrams::udp(address)),
            Self::Journald => Sink::Datagrams(Datagrams::unix(Path::new(JOURNAL_SOCKET))),
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn destinations_print_as_they_are_read() {
        for text in
            ["off", "stdout", "/var/log/x", "relative", "syslog", "syslog:/run/s", "syslog:[::1]:514", "journald"]
        {
            assert_eq!(text.parse::<Destination>().unwrap().to_string(), text);
        }
        assert_eq!("-".parse(), Ok(Destination::Stdout));
        for text in ["", "syslog:", "syslog:host", "syslog:host:0", "syslog::514"] {
            assert!(text.parse::<Destination>().unwrap_err().contains("syslog:HOST:PORT"), "{text}");
        }
    }
}
