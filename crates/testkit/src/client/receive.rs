//! Receiving: every record is opened and reported separately.

use std::collections::VecDeque;
use std::io::{self, Read};

use sealion_tls::AlertDescription;
use sealion_tls::record::{ContentType, HEADER_LEN, Opener, TrafficKeys};

use super::Client;

/// An event on a connection, as the client sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A record of application data.
    Data(Vec<u8>),
    /// A session ticket after the handshake, which the connector now holds.
    Ticket,
    /// The server changed its key, and so does this client.
    KeyUpdate {
        /// Whether it requests an update of the client's key.
        requested: bool,
    },
    /// An alert, close_notify included.
    Alert(AlertDescription),
    /// The end of the stream: FIN.
    Fin,
    /// The connection was reset.
    Reset,
}

/// A record that was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The type of the content; in TLS 1.3 the inner one.
    pub content_type: ContentType,
    /// Bytes of content, without padding.
    pub len: usize,
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ending {
    /// All remaining data.
    pub data: Vec<u8>,
    /// Everything else, in order; the last is [`Event::Fin`] or [`Event::Reset`].
    pub events: Vec<Event>,
}

impl Ending {
    /// Asserts that the server sent `close_notify`, closed, and sent nothing else: the data is complete.
    ///
    /// # Panics
    /// The server did something else.
    #[track_caller]
    pub fn assert_orderly(&self) {
        assert_eq!(self.events, [Event::Alert(AlertDescription::CLOSE_NOTIFY), Event::Fin]);
    }

    /// Asserts that the server sent this alert and then closed, and nothing else.
    ///
    /// # Panics
    /// The server did something else.
    #[track_caller]
    pub fn assert_alert(&self, alert: AlertDescription) {
        assert_eq!(self.events, [Event::Alert(alert), Event::Fin]);
    }
}

pub(super) struct Receiving {
    opener: Opener,
    /// Bytes received and not opened yet.
    sealed: Vec<u8>,
    /// Parsed events that were not yet returned.
    events: VecDeque<Event>,
    /// Data that was opened but not requested yet.
    data: Vec<u8>,
    records: Vec<Received>,
    key_updates: usize,
    tickets: usize,
}

impl Receiving {
    pub(super) fn new(keys: &TrafficKeys, sequence: u64, sealed: Vec<u8>) -> Self {
        Self {
            opener: Opener::new(keys, sequence),
            sealed,
            events: VecDeque::new(),
            data: Vec::new(),
            records: Vec::new(),
            key_updates: 0,
            tickets: 0,
        }
    }
}

impl Client {
    /// Waits for the next record or the end. Data already opened by [`Self::read`] comes first.
    ///
    /// # Errors
    /// A record that does not open, a message a server must not send, or silence for
    /// [`crate::PATIENCE`].
    pub fn next_event(&mut self) -> io::Result<Event> {
        if !self.receiving.data.is_empty() {
            return Ok(Event::Data(std::mem::take(&mut self.receiving.data)));
        }
        loop {
            if let Some(event) = self.receiving.events.pop_front() {
                return Ok(event);
            }
            if let Some(end) = self.receive_record()? {
                return Ok(end);
            }
        }
    }

    /// Waits for `len` bytes of data. Session tickets and key updates before it are processed and counted.
    ///
    /// # Errors
    /// As [`Self::next_event`]; `UnexpectedEof` if the server ends first; the message says how.
    pub fn read(&mut self, len: usize) -> io::Result<Vec<u8>> {
        while self.receiving.data.len() < len {
            self.read_more()?;
        }
        Ok(self.receiving.data.drain(..len).collect())
    }

    /// Waits until the received data contains `end`, and takes the data up to and including it.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub fn read_until(&mut self, end: &[u8]) -> io::Result<Vec<u8>> {
        loop {
            let found = self.receiving.data.windows(end.len()).position(|window| window == end);
            if let Some(at) = found {
                return Ok(self.receiving.data.drain(..at + end.len()).collect());
            }
            self.read_more()?;
        }
    }

    /// Receives until the server closes.
    ///
    /// # Errors
    /// As [`Self::next_event`].
    pub fn read_to_end(&mut self) -> io::Result<Ending> {
        let mut ending = Ending { data: Vec::new(), events: Vec::new() };
        loop {
            match self.next_event()? {
                Event::Data(data) => ending.data.extend(data),
                Event::Ticket | Event::KeyUpdate { .. } => {}
                event @ (Event::Fin | Event::Reset) => {
                    ending.events.push(event);
                    return Ok(ending);
                }
                event => ending.events.push(event),
            }
        }
    }

    /// Every record opened so far, in order.
    pub fn received(&self) -> &[Received] {
        &self.receiving.records
    }

    /// The lengths of the records of application data opened since the record with number `from` of
    /// [`Self::received`].
    pub fn data_lengths(&self, from: usize) -> Vec<usize> {
        self.receiving.records[from..]
            .iter()
            .filter(|record| record.content_type == ContentType::ApplicationData)
            .map(|record| record.len)
            .collect()
    }

    /// The number of key updates received.
    pub fn key_updates(&self) -> usize {
        self.receiving.key_updates
    }

    /// The number of session tickets received after the handshake.
    pub fn tickets(&self) -> usize {
        self.receiving.tickets
    }

    fn read_more(&mut self) -> io::Result<()> {
        let event = match self.receiving.events.pop_front() {
            Some(event) => Some(event),
            None => self.receive_record()?,
        };
        match event {
            None | Some(Event::Ticket | Event::KeyUpdate { .. }) => Ok(()),
            Some(Event::Data(data)) => {
                self.receiving.data.extend(data);
                Ok(())
            }
            Some(other) => Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                format!("{other:?} where data was expected; {} bytes were there", self.receiving.data.len()),
            )),
        }
    }

    /// Receives and opens one record into the queue of events; `Some` is the end.
    fn receive_record(&mut self) -> io::Result<Option<Event>> {
        let Receiving { opener, sealed, .. } = &mut self.receiving;
        let len = loop {
            if let Some(len) = opener.record_len(sealed).map_err(io::Error::other)?
                && sealed.len() >= len
            {
                break len;
            }
            let mut buffer = [0; 32 << 10];
            match self.io.read(&mut buffer) {
                Ok(0) if sealed.is_empty() => return Ok(Some(Event::Fin)),
                Ok(0) => return Err(io::Error::other("the stream ends inside a record")),
                Ok(came) => {
                    self.tap.pass(&buffer[..came]);
                    sealed.extend_from_slice(&buffer[..came]);
                }
                Err(e) if e.kind() == io::ErrorKind::ConnectionReset => {
                    return Ok(Some(Event::Reset));
                }
                // A signal interrupted the call: with a timeout, the system does not repeat it (signal(7)).
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        };
        let mut record: Vec<u8> = sealed.drain(..len).collect();
        debug_assert!(len >= HEADER_LEN);
        let opened = opener.open(&mut record).map_err(io::Error::other)?;
        let payload = &record[opened.payload];
        let received = Received { content_type: opened.content_type, len: payload.len() };
        self.receiving.records.push(received);
        match opened.content_type {
            ContentType::ApplicationData => {
                self.receiving.events.push_back(Event::Data(payload.to_vec()));
            }
            ContentType::Alert => {
                let &[_, description] = payload else {
                    return Err(io::Error::other(format!("an alert of {} bytes", payload.len())));
                };
                self.receiving.events.push_back(Event::Alert(AlertDescription(description)));
            }
            ContentType::Handshake => self.receive_handshake(payload)?,
            ContentType::ChangeCipherSpec => unreachable!("the opener refuses it"),
        }
        Ok(None)
    }

    /// Tickets may share a record. Only whole messages are supported, because our server sends no others.
    fn receive_handshake(&mut self, mut payload: &[u8]) -> io::Result<()> {
        while !payload.is_empty() {
            let (message_type, body, rest) = match payload {
                &[message_type, a, b, c, ref rest @ ..] => {
                    let len = u32::from_be_bytes([0, a, b, c]) as usize;
                    let (body, rest) = rest
                        .split_at_checked(len)
                        .ok_or_else(|| io::Error::other("a handshake message without its end"))?;
                    (message_type, body, rest)
                }
                _ => return Err(io::Error::other("a handshake message without its length")),
            };
            match (message_type, body) {
                (4, body) => {
                    self.schedule.handle_new_session_ticket(body).map_err(io::Error::other)?;
                    self.receiving.tickets += 1;
                    self.receiving.events.push_back(Event::Ticket);
                }
                (24, &[requested @ 0..=1]) if rest.is_empty() => {
                    let (sequence, secrets) = self.schedule.update_rx_secret().map_err(io::Error::other)?;
                    let keys = sealion_tls::traffic_keys(self.info.version, &secrets).map_err(io::Error::other)?;
                    self.receiving.opener = Opener::new(&keys, sequence);
                    self.receiving.key_updates += 1;
                    let requested = requested == 1;
                    self.receiving.events.push_back(Event::KeyUpdate { requested });
                }
                (other, _) => {
                    return Err(io::Error::other(format!("a handshake message of type {other}")));
                }
            }
            payload = rest;
        }
        Ok(())
    }
}
