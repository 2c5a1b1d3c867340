//! The part of RESP 2 that commands to Valkey and Redis need (<https://valkey.io/topics/protocol/>): a command is an array of strings, and its
//! reply is read whole. The crate `redis` needs some 25 others for the same.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// A connection with one command at a time under way.
#[derive(Debug)]
pub(super) struct Connection {
    io: BufReader<TcpStream>,
}

/// A reply that is no error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Reply {
    Nothing,
    Number(i64),
    Text(Vec<u8>),
    List(Vec<Reply>),
}

impl Connection {
    /// Connects to a name or an address with a port. `patience`: for the connection, and for each part of a reply.
    pub(super) fn open(server: &str, patience: Duration) -> io::Result<Self> {
        let mut failure = io::Error::other("the name has no address");
        for address in server.to_socket_addrs()? {
            match TcpStream::connect_timeout(&address, patience) {
                Ok(io) => {
                    io.set_read_timeout(Some(patience))?;
                    io.set_write_timeout(Some(patience))?;
                    io.set_nodelay(true)?;
                    return Ok(Connection { io: BufReader::new(io) });
                }
                Err(error) => failure = error,
            }
        }
        Err(failure)
    }

    /// Sends a command and reads its reply.
    ///
    /// # Errors
    /// The connection failed, or the server answers with an error.
    pub(super) fn call(&mut self, command: &[&[u8]]) -> io::Result<Reply> {
        let mut text = format!("*{}\r\n", command.len()).into_bytes();
        for part in command {
            text.extend_from_slice(format!("${}\r\n", part.len()).as_bytes());
            text.extend_from_slice(part);
            text.extend_from_slice(b"\r\n");
        }
        self.io.get_mut().write_all(&text)?;
        read(&mut self.io, 0)
    }
}

fn read(io: &mut impl BufRead, depth: usize) -> io::Result<Reply> {
    let mut line = Vec::new();
    io.by_ref().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    if line.is_empty() {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    let text = line.strip_suffix(b"\r\n").and_then(|line| std::str::from_utf8(line).ok()).ok_or_else(invalid)?;
    let (kind, rest) = text.split_at_checked(1).ok_or_else(invalid)?;
    let number = || rest.parse::<i64>().map_err(|_| invalid());
    match kind {
        "-" => Err(io::Error::other(rest.to_owned())),
        "+" => Ok(Reply::Text(rest.as_bytes().to_vec())),
        ":" => Ok(Reply::Number(number()?)),
        "$" | "*" if number()? == -1 => Ok(Reply::Nothing),
        "$" => {
            let length =
                usize::try_from(number()?).ok().filter(|length| *length <= LONGEST_BULK).ok_or_else(invalid)?;
            if length > LONGEST_TEXT {
                // None that is wanted here: its reader finds nothing in it.
                if io::copy(&mut io.take(length as u64 + 2), &mut io::sink())? < length as u64 + 2 {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
                return Ok(Reply::Text(Vec::new()));
            }
            let mut text = vec![0; length + 2];
            io.read_exact(&mut text)?;
            if !text.ends_with(b"\r\n") {
                return Err(invalid());
            }
            text.truncate(length);
            Ok(Reply::Text(text))
        }
        "*" if depth < DEEPEST => {
            let length =
                usize::try_from(number()?).ok().filter(|length| *length <= LONGEST_LIST).ok_or_else(invalid)?;
            (0..length).map(|_| read(io, depth + 1)).collect::<io::Result<_>>().map(Reply::List)
        }
        _ => Err(invalid()),
    }
}

fn invalid() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it does not speak RESP: name a Valkey or Redis server")
}

const LONGEST_LINE: u64 = 64 << 10;
const LONGEST_TEXT: usize = 1 << 20;
/// The longest that servers take by default.
const LONGEST_BULK: usize = 512 << 20;
const LONGEST_LIST: usize = 10_000;
const DEEPEST: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_and_others_refused() {
        let text = |text: &str| Reply::Text(text.as_bytes().to_vec());
        for (octets, expected) in [
            ("+OK\r\n", Some(text("OK"))),
            (":-7\r\n", Some(Reply::Number(-7))),
            ("$-1\r\n", Some(Reply::Nothing)),
            ("*-1\r\n", Some(Reply::Nothing)),
            ("$4\r\na\r\nb\r\n", Some(text("a\r\nb"))),
            ("$0\r\n\r\n", Some(text(""))),
            ("*2\r\n*1\r\n:1\r\n$1\r\nx\r\n", Some(Reply::List(vec![Reply::List(vec![Reply::Number(1)]), text("x")]))),
            ("*0\r\n", Some(Reply::List(Vec::new()))),
            ("-ERR no such key\r\n", None),
            ("", None),
            ("+OK", None),
            ("\r\n", None),
            ("$5\r\nabc\r\n", None),
            ("$3\r\nabcde", None),
            ("$-2\r\n", None),
            ("$2000000\r\n", None),
            ("*20000\r\n", None),
            ("*1\r\n", None),
            ("HTTP/1.1 400 Bad Request\r\n", None),
        ] {
            assert_eq!(read(&mut octets.as_bytes(), 0).ok(), expected, "{octets:?}");
        }
        let long = format!("*2\r\n${}\r\n{}\r\n:7\r\n", LONGEST_TEXT + 1, "x".repeat(LONGEST_TEXT + 1));
        assert_eq!(read(&mut long.as_bytes(), 0).unwrap(), Reply::List(vec![text(""), Reply::Number(7)]));
        assert!(read(&mut "*1\r\n".repeat(20).as_bytes(), 0).is_err());
    }
}
