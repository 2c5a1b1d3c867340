//! A server of generated content over plain TCP, for tools with prior knowledge of HTTP/2:
//!
//! ```text
//! cargo run -p sealion-h2 --example plain -- 127.0.0.1:8000
//! h2spec --strict -p 8000
//! curl --http2-prior-knowledge http://127.0.0.1:8000/1000000
//! ```
//!
//! The path is the length of the response. The response to POST is as long as its content. Each connection has one
//! thread, and nothing is asynchronous: this is a minimal driver.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};

use sealion_h2::{Connection, ErrorCode, Event, HEADER_LEN, HeadBuffer, HeaderBlock, Limits, RECORD_PAYLOAD, StreamId};

fn main() -> io::Result<()> {
    let address = std::env::args().nth(1).unwrap_or_else(|| "127.0.0.1:8000".to_owned());
    let listener = TcpListener::bind(address)?;
    println!("listening on {}", listener.local_addr()?);
    for socket in listener.incoming() {
        let socket = socket?;
        std::thread::spawn(move || Driver::new().serve(socket));
    }
    Ok(())
}

struct Driver {
    connection: Connection,
    head: HeadBuffer,
    /// The content length of each request that has no response yet.
    uploads: HashMap<StreamId, u64>,
}

impl Driver {
    fn new() -> Self {
        Driver { connection: Connection::new(Limits::default()), head: HeadBuffer::default(), uploads: HashMap::new() }
    }

    fn serve(mut self, mut socket: TcpStream) -> io::Result<()> {
        socket.set_nodelay(true)?;
        let mut record = vec![0; 16_384];
        loop {
            self.write_all(&mut socket)?;
            if !self.connection.wants_read() {
                return socket.shutdown(std::net::Shutdown::Write);
            }
            let length = socket.read(&mut record)?;
            if length == 0 {
                return Ok(());
            }
            self.receive(&record[..length], &mut socket)?;
        }
    }

    fn receive(&mut self, mut input: &[u8], socket: &mut TcpStream) -> io::Result<()> {
        // After an error there is nothing to read, only GOAWAY to write.
        while let Ok(Some(event)) = self.connection.receive(&mut input, &mut self.head) {
            match event {
                Event::Request { stream, end: true } => self.answer(stream, None, socket)?,
                Event::Request { stream, end: false } => drop(self.uploads.insert(stream, 0)),
                Event::TooLarge { stream, .. } => {
                    let mut out = Vec::new();
                    let block = HeaderBlock::response(431);
                    let _ = self.connection.respond(stream, &[block.as_bytes()], true, &mut out);
                    socket.write_all(&out)?;
                    self.connection.release(stream);
                }
                Event::Data { stream, data, end } => {
                    *self.uploads.entry(stream).or_default() += data.len() as u64;
                    self.connection.consume(stream, data.len());
                    if end {
                        let length = self.uploads.remove(&stream);
                        self.answer(stream, length, socket)?;
                    }
                }
                Event::Trailers { stream } => {
                    let length = self.uploads.remove(&stream);
                    self.answer(stream, length, socket)?;
                }
                Event::Reset { stream, .. } => {
                    self.uploads.remove(&stream);
                    self.connection.release(stream);
                }
                Event::GoAway { .. } => self.connection.drain_now(),
                _ => {}
            }
        }
        Ok(())
    }

    fn answer(&mut self, stream: StreamId, upload: Option<u64>, socket: &mut TcpStream) -> io::Result<()> {
        let wanted = || self.head.request().path?.trim_start_matches('/').parse().ok();
        let length = upload.or_else(wanted).unwrap_or(1000);
        let mut block = HeaderBlock::response(200);
        block.field("content-length", length.to_string().as_bytes());
        block.field("content-type", b"text/plain");
        let mut out = Vec::new();
        let _ = self.connection.respond(stream, &[block.as_bytes()], false, &mut out);
        let _ = self.connection.offer(stream, length, true);
        socket.write_all(&out)
    }

    /// Writes all pending data, one or several records at a time.
    fn write_all(&mut self, socket: &mut TcpStream) -> io::Result<()> {
        let mut out = Vec::new();
        self.connection.write_control(&mut out);
        while let Some(frame) = self.connection.next_frame(HEADER_LEN + RECORD_PAYLOAD) {
            out.extend_from_slice(&frame.header);
            out.resize(out.len() + frame.length, b'a');
            if frame.end {
                self.connection.release(frame.stream);
            }
            if out.len() > 256 * 1024 {
                socket.write_all(&out)?;
                out.clear();
            }
        }
        self.connection.write_control(&mut out);
        if self.connection.is_drained() && out.is_empty() {
            self.connection.close(ErrorCode::NO_ERROR, "drained");
        }
        socket.write_all(&out)
    }
}
