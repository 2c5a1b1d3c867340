//! HTTP/3 (RFC 9114) for a server, without I/O and without a clock: bytes of streams in, events out; responses in, bytes out.
//!
//! ```text
//!               open, receive, cancelled                      respond, data, trailers
//! streams ─► frames ─► QPACK ─► request ─► Event    driver   ─► bytes for the stream, then content
//!              └─► SETTINGS, GOAWAY, PRIORITY_UPDATE ─► Command, write_control
//! ```
//!
//! The driver owns the transport (QUIC), the clock and all content. The transport has the windows and the order of
//! packets; this crate tells it the level of each stream. [`Connection::data`] makes the beginning of a DATA frame
//! alone: the driver sends the content after it, for instance a whole file.
//!
//! Duties of a driver:
//! - Open one unidirectional stream for [`Connection::write_control`], of the highest level, and never end it.
//! - Call [`Connection::open`] for each stream of the client, [`Connection::receive`] for its bytes,
//!   [`Connection::cancelled`] for its RESET_STREAM and STOP_SENDING.
//! - Carry out [`Connection::next_command`] after each of these calls, and after `reset` and `release`.
//! - Call [`Connection::release`] for each request once its work has ended, successfully or not.
//! - Close the transport with the code of a [`ConnectionError`].
//! - Deadlines: for the client's SETTINGS ([`peer_settings`](Connection::peer_settings)), for the heads of requests
//!   ([`awaiting_heads`](Connection::awaiting_heads)), for their content, and for responses that the client does not read.
//!
//! # A driver's loop
//!
//! ```
//! use sealion_h3::{Command, Connection, Event, HeadBuffer, HeaderBlock, Limits, StreamId};
//!
//! let content = b"hello";
//! let mut connection = Connection::new(Limits::default());
//! let mut head = HeadBuffer::default(); // one a thread
//!
//! let mut control = Vec::new(); // for a unidirectional stream
//! connection.write_control(&mut control);
//!
//! // The client's control stream with empty SETTINGS, then GET / on its first stream.
//! let (settings, stream) = (StreamId::new(2), StreamId::new(0));
//! connection.open(settings)?;
//! let mut input = &[0, 4, 0][..];
//! while connection.receive(settings, &mut input, false, &mut head)?.is_some() {}
//!
//! let mut out = Vec::new();
//! connection.open(stream)?;
//! let mut input = &b"\x01\x08\x00\x00\xd1\xd7\x50\x01a\xc1"[..];
//! while let Some(event) = connection.receive(stream, &mut input, true, &mut head)? {
//!     match event {
//!         Event::Request { stream, .. } => {
//!             let request = head.request();
//!             assert_eq!((request.method, request.path), ("GET", Some("/")));
//!             let block = HeaderBlock::response(200); // kept beside a hot file
//!             if connection.respond(stream, &[block.as_bytes()], false, &mut out).is_ok() {
//!                 let _ = connection.data(stream, content.len() as u64, true, &mut out);
//!                 out.extend_from_slice(content); // content that cannot be read: `reset`
//!                 connection.sent(stream, content.len() as u64);
//!                 connection.release(stream); // the transport gets `out`, and the end of the stream
//!             }
//!         }
//!         Event::Reset { stream, .. } => connection.release(stream), // once its work has ended
//!         _ => {}
//!     }
//!     while let Some(command) = connection.next_command() {
//!         match command {
//!             Command::Reset { .. } | Command::Stop { .. } | Command::Prioritize { .. } => {} // the transport's
//!         }
//!     }
//! }
//! assert!(out.ends_with(b"hello") && connection.is_idle());
//! connection.shrink(); // then wait for the client
//! # Ok::<_, sealion_h3::ConnectionError>(())
//! ```

#![forbid(unsafe_code)]

mod abuse;
mod connection;
mod error;
mod event;
mod frame;
mod qpack;
mod resets;
mod schedule;
mod settings;
mod stream;
mod varint;

pub use abuse::{MAX_EMPTY_DATA, MAX_IDLE_FRAMES, MAX_PRIORITY_UPDATES, MAX_UNKNOWN_STREAMS};
pub use connection::{Connection, Opened};
pub use error::{ConnectionError, ErrorCode, Flood, StreamClosed};
pub use event::{Command, Event};
pub use qpack::HeaderBlock;
pub use resets::Resets;
pub use sealion_http::multiplexed::{By, HeadBuffer, Priority, RequestHead};
pub use settings::{Limits, PeerSettings};
pub use stream::StreamId;
