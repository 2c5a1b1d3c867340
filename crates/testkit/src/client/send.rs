//! Sending: whole records, parts of records, several in one write, invalid records.

use std::io::{self, Write};
use std::net::Shutdown;

use sealion_tls::record::{ContentType, MAX_PLAINTEXT};
use sealion_tls::{AlertDescription, Version};

use super::Client;
use super::seal::HandSealer;

impl Client {
    /// Sends application data in full records, by one write.
    ///
    /// # Errors
    /// The transport's.
    pub fn send(&mut self, data: &[u8]) -> io::Result<()> {
        let records: Vec<&[u8]> = data.chunks(MAX_PLAINTEXT).collect();
        self.send_records(&records)
    }

    /// Sends each piece as a record of application data, all by one write.
    ///
    /// # Errors
    /// The transport's.
    pub fn send_records(&mut self, pieces: &[&[u8]]) -> io::Result<()> {
        let mut bytes = Vec::new();
        for piece in pieces {
            bytes.extend(self.seal(ContentType::ApplicationData, piece));
        }
        self.write(&bytes)
    }

    /// Writes bytes unchanged: sealed records, parts of them, or anything else.
    ///
    /// # Errors
    /// The transport's.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        if self.held.is_empty() {
            return self.io.write_all(bytes);
        }
        let mut held = std::mem::take(&mut self.held);
        held.extend_from_slice(bytes);
        self.io.write_all(&held)
    }

    /// Seals one record under the next sequence number, without sending it. Send it before the next record, or the
    /// server cannot open later records.
    pub fn seal(&mut self, content_type: ContentType, payload: &[u8]) -> Vec<u8> {
        self.seal_padded(content_type, payload, 0)
    }

    /// As [`Self::seal`], with padding of `zeros` bytes (RFC 8446 §5.4).
    ///
    /// # Panics
    /// The version is TLS 1.2, which has no padding.
    pub fn seal_padded(&mut self, content_type: ContentType, payload: &[u8], zeros: usize) -> Vec<u8> {
        match self.info.version {
            Version::Tls12 => {
                assert_eq!(zeros, 0, "TLS 1.2 with an AEAD has no padding");
                self.sealer.seal(content_type as u8, payload)
            }
            Version::Tls13 => {
                let inner = [payload, &[content_type as u8], &vec![0; zeros]].concat();
                self.sealer.seal(ContentType::ApplicationData as u8, &inner)
            }
        }
    }

    /// Seals one record with arbitrary parts. In TLS 1.3 `inner` is the whole TLSInnerPlaintext, in TLS 1.2 the
    /// content.
    pub fn seal_inner(&mut self, outer_type: u8, inner: &[u8]) -> Vec<u8> {
        self.sealer.seal(outer_type, inner)
    }

    /// Sends one record.
    ///
    /// # Errors
    /// The transport's.
    pub fn send_record(&mut self, content_type: ContentType, payload: &[u8]) -> io::Result<()> {
        let record = self.seal(content_type, payload);
        self.write(&record)
    }

    /// Sends a KeyUpdate and switches to the next key.
    ///
    /// # Errors
    /// The transport's.
    pub fn key_update(&mut self, requested: bool) -> io::Result<()> {
        let record = self.seal_key_update(requested);
        self.write(&record)
    }

    /// Seals a KeyUpdate and switches to the next key, for sending it together with other records.
    pub fn seal_key_update(&mut self, requested: bool) -> Vec<u8> {
        let record = self.seal(ContentType::Handshake, &key_update_message(requested));
        self.next_sending_key();
        record
    }

    /// Switches to the next sending key without telling the server.
    ///
    /// # Panics
    /// The version is TLS 1.2, which has no next key.
    pub fn next_sending_key(&mut self) {
        let (sequence, secrets) = self.schedule.update_tx_secret().expect("TLS 1.3 has a next key");
        self.sealer = HandSealer::new(self.info.version, &secrets, sequence);
    }

    /// Sends an alert.
    ///
    /// # Errors
    /// The transport's.
    pub fn alert(&mut self, alert: AlertDescription) -> io::Result<()> {
        self.send_record(ContentType::Alert, &alert.to_wire())
    }

    /// Sends `close_notify`; FIN is [`Self::fin`].
    ///
    /// # Errors
    /// The transport's.
    pub fn close_notify(&mut self) -> io::Result<()> {
        self.alert(AlertDescription::CLOSE_NOTIFY)
    }

    /// Sends FIN and continues to receive. Without a `close_notify` before, the server must treat it as a truncation.
    ///
    /// # Errors
    /// The transport's.
    pub fn fin(&mut self) -> io::Result<()> {
        self.io.shutdown(Shutdown::Write)
    }

    /// Ends the connection with RST.
    ///
    /// # Errors
    /// The transport's.
    pub fn reset(self) -> io::Result<()> {
        Ok(rustix::net::sockopt::set_socket_linger(&self.io, Some(std::time::Duration::ZERO))?)
    }
}

/// The handshake message KeyUpdate (RFC 8446 §4.6.3).
pub(super) fn key_update_message(requested: bool) -> [u8; 5] {
    [24, 0, 0, 1, u8::from(requested)]
}
