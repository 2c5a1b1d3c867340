//! HTTP/2 (RFC 9113) for a server, without I/O and without a clock: bytes in, events out; responses in, frames out.
//!
//! ```text
//!              receive                                        respond, offer
//! bytes ─► frames ─► HPACK ─► request ─► Event   driver   ─► windows, priorities ─► next_frame ─► DATA
//!              └─► SETTINGS, PING, windows, resets ─► write_control ─► bytes
//! ```
//!
//! The driver owns the socket, the clock and all content. A [`DataFrame`] is a header and a number of bytes: the driver
//! puts the header into a TLS record, and reads the content from a file after it. Together, [`HEADER_LEN`] and
//! [`RECORD_PAYLOAD`] fill one record.
//!
//! Duties of a driver:
//! - Call [`Connection::release`] for each request once its work has ended, successfully or not.
//! - Call [`Connection::consume`] for the content of requests.
//! - Send the output of [`Connection::write_control`], [`respond`](Connection::respond) and
//!   [`next_frame`](Connection::next_frame) in the order of the calls.
//! - Do not read while [`Connection::wants_read`] is false. Otherwise continue to read while TCP is full, because
//!   reading opens windows.
//! - Deadlines: for the client's preface and for frames ([`is_within_frame`](Connection::is_within_frame)), for the content of requests, for
//!   acknowledged settings, and for windows ([`stalled`](Connection::stalled)).
//!
//! # A driver's loop
//!
//! Input is a record of the client; output is a batch of records.
//!
//! ```
//! use sealion_h2::{Connection, Event, HEADER_LEN, HeadBuffer, HeaderBlock, Limits, PREFACE, RECORD_PAYLOAD};
//!
//! let content = b"hello";
//! let mut connection = Connection::new(Limits::default());
//! let mut head = HeadBuffer::default(); // one a thread
//!
//! // The client's preface, empty SETTINGS, and GET / in one record.
//! let mut record = PREFACE.to_vec();
//! record.extend_from_slice(&[0, 0, 0, 4, 0, 0, 0, 0, 0]);
//! record.extend_from_slice(&[0, 0, 3, 1, 0x5, 0, 0, 0, 1, 0x82, 0x84, 0x87]);
//!
//! let mut out = Vec::new();
//! let mut input = &record[..];
//! while let Some(event) = connection.receive(&mut input, &mut head)? {
//!     match event {
//!         Event::Request { stream, .. } => {
//!             let request = head.request();
//!             assert_eq!((request.method, request.path), ("GET", Some("/")));
//!             let block = HeaderBlock::response(200); // kept beside a hot file
//!             if connection.respond(stream, &[block.as_bytes()], false, &mut out).is_ok() {
//!                 let _ = connection.offer(stream, content.len() as u64, true);
//!             }
//!         }
//!         Event::Data { stream, data, .. } => connection.consume(stream, data.len()),
//!         Event::Reset { stream, .. } => connection.release(stream), // once its work has ended
//!         _ => {}
//!     }
//! }
//! connection.write_control(&mut out);
//! while let Some(frame) = connection.next_frame(HEADER_LEN + RECORD_PAYLOAD) {
//!     out.extend_from_slice(&frame.header);
//!     out.extend_from_slice(&content[..frame.length]); // content that cannot be read: `withdraw` and `reset`
//!     if frame.end {
//!         connection.release(frame.stream);
//!     }
//! }
//! assert!(out.ends_with(b"hello") && connection.is_idle());
//! connection.shrink(); // then wait for the client
//! # Ok::<_, sealion_h2::ConnectionError>(())
//! ```
//!
//! `examples/plain.rs` is a complete driver over plain TCP.

#![forbid(unsafe_code)]

mod abuse;
mod connection;
mod error;
mod event;
mod frame;
mod hpack;
mod request;
mod resets;
mod schedule;
mod settings;
mod stream;
mod windows;

pub use abuse::{MAX_EMPTY_DATA, MAX_PRIORITY_UPDATES, MAX_REPLIES, MAX_SMALL_UPDATES, SMALL_UPDATE};
pub use connection::{Connection, DataFrame, MAX_BLOCK, MAX_CONTINUATIONS, Rest};
pub use error::{ConnectionError, ErrorCode, Flood, StreamClosed};
pub use event::Event;
pub use frame::{HEADER_LEN, PREFACE, RECORD_PAYLOAD, ends_by_headers, is_continuation, payload_len};
pub use hpack::HeaderBlock;
pub use resets::Resets;
pub use sealion_http::multiplexed::{By, HeadBuffer, Priority, RequestHead};
pub use settings::Limits;
pub use stream::StreamId;
pub use windows::{Progress, WantedWindow, Window};
