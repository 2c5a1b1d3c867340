//! Input of request streams: frames split anywhere.

use sealion_http::multiplexed::{By, HeadBuffer, Section, SectionKind, SectionReader};

use crate::error::{ConnectionError, ErrorCode, Flood};
use crate::event::{Command, Event};
use crate::frame::{FrameHead, is_of_http2, kind};
use crate::qpack::Block;
use crate::resets::place;
use crate::settings::Limits;
use crate::stream::{Reading, Receiving, RequestStream, State, StreamId};

use super::{Connection, Drain, Opened, PARTIAL_HEADS};

type Outcome<'a> = Result<Option<Event<'a>>, ConnectionError>;

impl Connection {
    /// The client opened `stream`, a request stream or a unidirectional one. Call it in the order of the numbers, before
    /// [`receive`](Self::receive).
    ///
    /// # Errors
    /// The connection ends: close it.
    pub fn open(&mut self, stream: StreamId) -> Result<Opened, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let opened = if stream.is_request() {
            self.open_request(stream)
        } else {
            self.open_uni(stream).map(|()| Opened::Accepted)
        };
        opened.inspect_err(|error| self.failed = Some(*error))
    }

    fn open_request(&mut self, stream: StreamId) -> Result<Opened, ConnectionError> {
        if stream.0 < self.next_request {
            return Ok(Opened::Accepted);
        }
        self.next_request = stream.0 + 4;
        let is_drained = matches!(self.drain, Drain::Final(end) if stream.0 >= end);
        if is_drained || self.requests.len() >= self.limits.streams as usize {
            self.reject(stream, ErrorCode::H3_REQUEST_REJECTED);
            self.abuse.reset()?;
            return Ok(Opened::Refused);
        }
        let mut request = RequestStream::new(stream);
        request.priority = self.take_early_priority(stream);
        self.requests.push(request);
        Ok(Opened::Accepted)
    }

    /// Reads `input` of `stream` up to the next event, and removes the bytes read. `None`: it has read everything. With
    /// `fin` the stream ends after the input; call it again until it returns `None`, even if no input is left.
    ///
    /// The input may be split anywhere. Heads are decoded into `head`.
    ///
    /// # Errors
    /// The connection ends: close it with the error's code.
    pub fn receive<'a>(
        &mut self,
        stream: StreamId,
        input: &mut &'a [u8],
        fin: bool,
        head: &mut HeadBuffer,
    ) -> Result<Option<Event<'a>>, ConnectionError> {
        if let Some(error) = self.failed {
            return Err(error);
        }
        let before = input.len();
        let result = if stream.is_request() {
            self.read_request(stream, input, fin, head)
        } else {
            self.read_uni(stream, input, fin)
        };
        let result = result.and_then(|event| self.abuse.received(before - input.len()).map(|()| event));
        result.inspect_err(|error| self.failed = Some(*error))
    }

    fn read_request<'a>(
        &mut self,
        stream: StreamId,
        input: &mut &'a [u8],
        fin: bool,
        head: &mut HeadBuffer,
    ) -> Outcome<'a> {
        let Some(mut index) = self.index(stream) else {
            *input = &[];
            return Ok(None);
        };
        loop {
            let request = &mut self.requests[index];
            if matches!(request.state, State::Reset(_)) {
                *input = &[];
                return Ok(None);
            }
            let event = match request.reader.state {
                Reading::Head => {
                    let Some(frame) = request.reader.head.read(input) else {
                        return if fin { self.end_request(index) } else { Ok(None) };
                    };
                    self.begin_frame(index, frame, head)?
                }
                Reading::Headers { left } => self.read_headers(index, left, input, fin, head)?,
                Reading::Data { left } => self.read_data(index, left, input, fin)?,
                Reading::Skip { left } => {
                    let skipped = take(input, left).len() as u64;
                    request.reader.state = next_state(left - skipped, |left| Reading::Skip { left });
                    None
                }
            };
            if event.is_some() {
                return Ok(event);
            }
            match self.index(stream) {
                Some(found) => index = found,
                None => {
                    *input = &[];
                    return Ok(None);
                }
            }
            let is_within_payload = self.requests[index].reader.state != Reading::Head;
            if input.is_empty() && is_within_payload {
                return if fin { self.end_request(index) } else { Ok(None) };
            }
        }
    }

    /// Checks the beginning of a frame, and decides how its payload is read (RFC 9114 §4.1 and §7).
    fn begin_frame<'a>(&mut self, index: usize, frame: FrameHead, head: &mut HeadBuffer) -> Outcome<'a> {
        let receiving = self.requests[index].receiving();
        let state = match (frame.kind, receiving) {
            (kind::HEADERS, Some(Receiving::Head | Receiving::Content { tunnel: false, .. })) => {
                return self.begin_headers(index, frame.length, head);
            }
            (kind::DATA, Some(Receiving::Content { left, .. })) => {
                if frame.length == 0 {
                    self.abuse.empty_data()?;
                }
                if left.is_some_and(|left| frame.length > left) {
                    return self.stream_error(index, ErrorCode::H3_MESSAGE_ERROR);
                }
                next_state(frame.length, |left| Reading::Data { left })
            }
            (kind::DATA | kind::HEADERS, _) => {
                return Err(ConnectionError::unexpected("DATA or HEADERS at a wrong place of a request"));
            }
            (
                kind::CANCEL_PUSH
                | kind::SETTINGS
                | kind::PUSH_PROMISE
                | kind::GOAWAY
                | kind::MAX_PUSH_ID
                | kind::PRIORITY_UPDATE
                | kind::PRIORITY_UPDATE_OF_PUSH,
                _,
            ) => return Err(ConnectionError::unexpected("a frame that no request has")),
            (kind, _) if is_of_http2(kind) => return Err(ConnectionError::unexpected("a frame of HTTP/2")),
            _ => {
                self.abuse.idle_frames(1)?;
                next_state(frame.length, |left| Reading::Skip { left })
            }
        };
        self.requests[index].reader.state = state;
        Ok(None)
    }

    fn begin_headers<'a>(&mut self, index: usize, length: u64, head: &mut HeadBuffer) -> Outcome<'a> {
        match usize::try_from(length) {
            // It has no prefix.
            Ok(0) => self.on_section(index, &[], false, head),
            Ok(left) if left <= self.limits.head => {
                self.requests[index].reader.state = Reading::Headers { left };
                Ok(None)
            }
            _ if self.requests[index].has_request() => self.stream_error(index, ErrorCode::H3_EXCESSIVE_LOAD),
            _ => {
                head.clear();
                let request = &mut self.requests[index];
                request.reader.state = Reading::Skip { left: length };
                request.set_receiving(Receiving::Content { left: None, tunnel: false });
                let stream = request.id;
                self.prioritize();
                Ok(Some(Event::TooLarge { stream, end: false }))
            }
        }
    }

    /// Reads HEADERS; `left` bytes are missing.
    fn read_headers<'a>(
        &mut self,
        index: usize,
        left: usize,
        input: &mut &'a [u8],
        fin: bool,
        head: &mut HeadBuffer,
    ) -> Outcome<'a> {
        let bytes = take(input, left as u64);
        let reader = &mut self.requests[index].reader;
        if reader.block.is_empty() && bytes.len() == left {
            reader.state = Reading::Head;
            return self.on_section(index, bytes, fin && input.is_empty(), head);
        }
        reader.block.extend_from_slice(bytes);
        self.partial_heads += bytes.len();
        if bytes.len() < left {
            reader.state = Reading::Headers { left: left - bytes.len() };
            if self.partial_heads > PARTIAL_HEADS * self.limits.head {
                return Err(ConnectionError::flood(Flood::PartialHeads));
            }
            return Ok(None);
        }
        reader.state = Reading::Head;
        let block = std::mem::take(&mut reader.block);
        self.partial_heads -= block.len();
        self.on_section(index, &block, fin && input.is_empty(), head)
    }

    /// A field section is complete: a request, or trailers. `end`: the stream ends with it.
    fn on_section<'a>(&mut self, index: usize, block: &[u8], end: bool, head: &mut HeadBuffer) -> Outcome<'a> {
        self.abuse.useful(block.len() as u64);
        let request = &mut self.requests[index];
        let stream = request.id;
        if let Some(Receiving::Content { left, .. }) = request.receiving() {
            let section = decode(SectionKind::Trailers, block, head, &self.limits)?;
            if section != Section::Good || left.is_some_and(|left| left > 0) {
                return self.stream_error(index, ErrorCode::H3_MESSAGE_ERROR);
            }
            request.set_receiving(if end { Receiving::Ended } else { Receiving::Trailers });
            return Ok(Some(Event::Trailers { stream }));
        }
        let section = decode(SectionKind::Request, block, head, &self.limits)?;
        let (content_length, tunnel) = match section {
            Section::Malformed(why) => return self.malformed(index, ErrorCode::H3_MESSAGE_ERROR, why),
            Section::Good => (head.content_length(), head.request().method == "CONNECT"),
            Section::TooLarge => (None, false),
        };
        if end && content_length.is_some_and(|length| length > 0) {
            return self.malformed(index, ErrorCode::H3_MESSAGE_ERROR, "content-length without content");
        }
        request.set_receiving(match end {
            true => Receiving::Ended,
            false => Receiving::Content { left: content_length, tunnel },
        });
        request.priority = request.priority.or(head.priority());
        self.prioritize();
        Ok(Some(match section {
            Section::TooLarge => Event::TooLarge { stream, end },
            _ => Event::Request { stream, end },
        }))
    }

    /// Reads DATA; `left` bytes are missing.
    fn read_data<'a>(&mut self, index: usize, left: u64, input: &mut &'a [u8], fin: bool) -> Outcome<'a> {
        let data = take(input, left);
        let rest = left - data.len() as u64;
        let request = &mut self.requests[index];
        request.reader.state = next_state(rest, |left| Reading::Data { left });
        if data.is_empty() {
            return Ok(None);
        }
        self.abuse.useful(data.len() as u64);
        let Some(Receiving::Content { left, tunnel }) = request.receiving() else { return Ok(None) };
        let left = left.map(|left| left - data.len() as u64);
        let end = rest == 0 && fin && input.is_empty() && left.is_none_or(|left| left == 0);
        request.set_receiving(if end { Receiving::Ended } else { Receiving::Content { left, tunnel } });
        Ok(Some(Event::Data { stream: request.id, data, end }))
    }

    /// The client's direction of a request stream ended.
    fn end_request<'a>(&mut self, index: usize) -> Outcome<'a> {
        let request = &mut self.requests[index];
        let stream = request.id;
        let Some(receiving) = request.receiving().filter(|receiving| *receiving != Receiving::Ended) else {
            return Ok(None);
        };
        if request.is_within_frame() {
            return Err(ConnectionError::frame("a request stream ends within a frame"));
        }
        request.set_receiving(Receiving::Ended);
        match receiving {
            Receiving::Head => {
                self.malformed(index, ErrorCode::H3_REQUEST_INCOMPLETE, "a stream that ends without a request")
            }
            Receiving::Content { left: Some(1..), .. } => self.stream_error(index, ErrorCode::H3_MESSAGE_ERROR),
            Receiving::Content { .. } => Ok(Some(Event::Data { stream, data: &[], end: true })),
            Receiving::Trailers | Receiving::Ended => Ok(None),
        }
    }

    // ---- errors of streams

    /// Cancels a request that the driver knows, because of a client error.
    fn stream_error<'a>(&mut self, index: usize, code: ErrorCode) -> Outcome<'a> {
        self.abuse.reset()?;
        let stream = self.requests[index].id;
        self.interrupt(index, code, By::Server);
        Ok(Some(Event::Reset { stream, code, by: By::Server }))
    }

    /// Rejects a request that the driver does not know.
    fn malformed<'a>(&mut self, index: usize, code: ErrorCode, why: &'static str) -> Outcome<'a> {
        self.abuse.reset()?;
        let stream = self.requests[index].id;
        self.interrupt(index, code, By::Server);
        self.remove(index);
        Ok(Some(Event::Malformed { stream, why }))
    }

    /// Rejects a stream that gets no slot.
    fn reject(&mut self, stream: StreamId, code: ErrorCode) {
        self.commands.push_back(Command::Reset { stream, code });
        self.commands.push_back(Command::Stop { stream, code });
        self.resets.get_or_insert_default().count(By::Server, place(code));
    }
}

/// Decodes a field section into `head`. A section that decodes to much more than the limits ends the connection at
/// once.
fn decode(kind: SectionKind, block: &[u8], head: &mut HeadBuffer, limits: &Limits) -> Result<Section, ConnectionError> {
    let mut reader = SectionReader::new(kind, limits.section(), head);
    let mut block = Block::new(block)?;
    while let Some(span) = block.next(reader.out())? {
        reader.line(span).map_err(|_| ConnectionError::flood(Flood::HeaderBomb))?;
    }
    Ok(reader.finish())
}

/// The state behind some bytes of a frame: within it, or between frames.
fn next_state(left: u64, within: impl Fn(u64) -> Reading) -> Reading {
    if left == 0 { Reading::Head } else { within(left) }
}

/// Takes up to `max` bytes from the beginning of `input`.
fn take<'a>(input: &mut &'a [u8], max: u64) -> &'a [u8] {
    let (bytes, rest) = input.split_at(usize::try_from(max).unwrap_or(usize::MAX).min(input.len()));
    *input = rest;
    bytes
}
