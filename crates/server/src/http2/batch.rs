//! The frames of one send, from any number of streams, with content in memory and in files.

use std::cell::RefCell;
use std::fs::File;
use std::ops::Range;
use std::ptr;
use std::sync::Arc;

use sealion_h2::{DataFrame, HEADER_LEN, RECORD_PAYLOAD, StreamId, ends_by_headers, is_continuation, payload_len};
use sealion_tls::{FIRST_RECORD, Part};

use crate::files::resolve::{Content, SiteFile};
use crate::passing::{Files, Segment};
use crate::response::SharedBytes;

/// Plaintext of a full record.
pub(super) const RECORD: usize = HEADER_LEN + RECORD_PAYLOAD;

/// Bytes of a frame that is worth the end of a short first record.
const SHORTEST_FRAME: usize = 512;

/// Content up to this length is copied: a part of its own costs more than the copy.
pub(super) const COPIED: usize = 4096;

/// Bytes in sending order. It owns what it refers to, so that streams can end while it is sent.
#[derive(Default)]
pub(super) struct Batch {
    /// Frame headers, header blocks, and short content.
    copied: Vec<u8>,
    stretches: Vec<Stretch>,
    len: usize,
    /// Bytes at the beginning that are the rest of a frame.
    begun: usize,
    /// The first record is to be short.
    begins_short: bool,
}

enum Stretch {
    Copied(Range<usize>),
    Bytes(&'static [u8]),
    Shared(Arc<SharedBytes>, Range<usize>),
    File(Arc<SiteFile>, Range<u64>),
}

impl Batch {
    /// An empty batch, with memory from the thread's store.
    pub(super) fn take() -> Self {
        let stretches = FREE_STRETCHES.take();
        Batch { copied: free_bytes(), stretches, len: 0, begun: 0, begins_short: false }
    }

    /// Gives the memory to the thread's store.
    pub(super) fn keep(mut self) {
        self.clear();
        keep_bytes(self.copied);
        if self.stretches.capacity() <= MOST_STRETCHES_KEPT {
            FREE_STRETCHES.replace(self.stretches);
        }
    }

    pub(super) fn clear(&mut self) {
        self.copied.clear();
        self.stretches.clear();
        (self.len, self.begun, self.begins_short) = (0, 0, false);
    }

    /// Gives back the memory that many heads have taken. It is empty.
    pub(super) fn shrink(&mut self) {
        shrink(&mut self.copied);
    }

    /// The bytes from `after` on, and how many at their beginning are the rest of a frame.
    pub(super) fn pack(&self, after: usize, files: &mut Files) -> (Vec<Segment>, usize) {
        let cut = self
            .frames()
            .into_iter()
            .find(|(octets, frame)| octets.end > after && (octets.start < after || matches!(frame, Frame::Begun)));
        let rest = self.slice(after..self.len).map(|stretch| match stretch {
            Stretch::Copied(range) => Segment::Bytes(self.copied[range].to_vec()),
            Stretch::Bytes(bytes) => Segment::Bytes(bytes.to_vec()),
            Stretch::Shared(shared, range) => Segment::Bytes(shared.bytes[range].to_vec()),
            Stretch::File(file, range) => files.pack(&file, &range),
        });
        (rest.collect(), cut.map_or(0, |(octets, _)| octets.end - after))
    }

    /// An upper bound of the files whose parts it has.
    pub(super) fn files(&self) -> usize {
        self.stretches.iter().filter(|stretch| stretch.file().is_some()).count()
    }

    /// Appends frames that [`Self::pack`] took out, to an empty batch.
    pub(super) fn unpack(&mut self, frames: Vec<Segment>, begun: usize, files: &Files) {
        for segment in frames {
            match segment {
                Segment::Bytes(bytes) => self.copy(&bytes),
                Segment::File { number, range } => self.file(&files.unpack(number, range.end), range),
            }
        }
        self.begun = begun;
    }

    /// Bytes of plaintext.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Bytes that the last record has room for. A little room does not count: a frame there would cost more than it carries.
    pub(super) fn room(&self) -> usize {
        let first = self.first_record();
        let (left, least) = match self.len.checked_sub(first) {
            None => (first - self.len, if self.begins_short { SHORTEST_FRAME } else { COPIED }),
            Some(behind) => (RECORD - behind % RECORD, COPIED),
        };
        if left < least { left + RECORD } else { left }
    }

    /// Makes the first record short, which reaches the client sooner, if the frames before content leave room in it.
    pub(super) fn begin_short(&mut self) {
        self.begins_short = self.len + SHORTEST_FRAME < FIRST_RECORD;
    }

    /// Bytes of the first record.
    pub(super) fn first_record(&self) -> usize {
        if self.begins_short { FIRST_RECORD } else { RECORD }
    }

    /// Appends a copy.
    pub(super) fn copy(&mut self, octets: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(octets);
        self.len += octets.len();
        match self.stretches.last_mut() {
            Some(Stretch::Copied(range)) => range.end = self.copied.len(),
            _ if octets.is_empty() => {}
            _ => self.stretches.push(Stretch::Copied(start..self.copied.len())),
        }
    }

    /// Appends `frames`, and leaves them empty.
    pub(super) fn append(&mut self, frames: &mut Vec<u8>) {
        if self.copied.is_empty() && !frames.is_empty() {
            std::mem::swap(&mut self.copied, frames);
            self.len += self.copied.len();
            self.stretches.push(Stretch::Copied(0..self.copied.len()));
        } else {
            self.copy(frames);
            frames.clear();
        }
    }

    /// Appends bytes that stay where they are.
    pub(super) fn stay(&mut self, octets: &'static [u8]) {
        if octets.len() <= COPIED {
            return self.copy(octets);
        }
        self.len += octets.len();
        self.stretches.push(Stretch::Bytes(octets));
    }

    /// Appends a part of bytes that other responses send too.
    pub(super) fn shared(&mut self, shared: &Arc<SharedBytes>, range: Range<usize>) {
        if range.len() <= COPIED {
            return self.copy(&shared.bytes[range]);
        }
        self.len += range.len();
        self.stretches.push(Stretch::Shared(Arc::clone(shared), range));
    }

    /// Appends a range of a file.
    pub(super) fn file(&mut self, file: &Arc<SiteFile>, range: Range<u64>) {
        let len = (range.end - range.start) as usize;
        if let Content::Memory(bytes) = &file.content
            && len <= COPIED
        {
            return self.copy(&bytes[range.start as usize..range.end as usize]);
        }
        self.len += len;
        self.stretches.push(Stretch::File(Arc::clone(file), range));
    }

    /// Leaves the unsent rest when `sent` bytes are sent, without the frames of streams whose content is in `file`: returns their DATA. Their trailers go
    /// too, so that no such stream ends as if it were whole. `None`: one of the frames is under way, so that the client waits for content that cannot come.
    pub(super) fn skip(&mut self, sent: usize, file: &Arc<File>) -> Option<Vec<DataFrame>> {
        let frames = self.frames();
        let is_of = |stretch: Stretch| stretch.file().is_some_and(|other| Arc::ptr_eq(other, file));
        let has_file = |range: Range<usize>| self.slice(range).any(is_of);
        let unsent = |octets: &Range<usize>| octets.start.max(sent)..octets.end;
        let broken: Vec<_> = frames
            .iter()
            .filter(|(octets, _)| octets.end > sent && has_file(unsent(octets)))
            .filter_map(|(_, frame)| frame.stream())
            .collect();
        let (mut left, mut dropped, mut begun) = (Vec::new(), Vec::new(), 0);
        for (octets, frame) in frames.into_iter().filter(|(octets, _)| octets.end > sent) {
            let octets_left = unsent(&octets);
            match frame {
                _ if octets.start < sent || matches!(frame, Frame::Begun) => {
                    if has_file(octets_left.clone()) {
                        return None;
                    }
                    begun = octets_left.len();
                    left.extend(self.slice(octets_left));
                }
                Frame::Data(frame) if broken.contains(&frame.stream) => dropped.push(frame),
                Frame::End(stream) if broken.contains(&stream) => {}
                _ => left.extend(self.slice(octets_left)),
            }
        }
        self.begun = begun;
        self.len = left.iter().map(Stretch::len).sum();
        (self.stretches, self.begins_short) = (left, false);
        Some(dropped)
    }

    /// The file of a part.
    pub(super) fn file_of(&self, part: &File) -> Option<Arc<File>> {
        self.stretches.iter().filter_map(Stretch::file).find(|file| ptr::eq(Arc::as_ptr(file), part)).cloned()
    }

    /// All frames with their bytes, headers included.
    fn frames(&self) -> Vec<(Range<usize>, Frame)> {
        let (mut frames, mut start) = (Vec::new(), self.begun);
        if self.begun > 0 {
            frames.push((0..self.begun, Frame::Begun));
        }
        while start < self.len {
            let mut header = [0; HEADER_LEN];
            // It was copied as a whole.
            if let Some(Stretch::Copied(range)) = self.slice(start..start + HEADER_LEN).next()
                && range.len() == HEADER_LEN
            {
                header.copy_from_slice(&self.copied[range]);
            }
            let end = start + HEADER_LEN + payload_len(&header);
            let frame = Frame::of(header, frames.last().map(|(_, before)| before));
            frames.push((start..end, frame));
            start = end;
        }
        frames
    }

    /// The stretches of some bytes.
    fn slice(&self, range: Range<usize>) -> impl Iterator<Item = Stretch> {
        let mut at = 0;
        self.stretches.iter().filter_map(move |stretch| {
            let (start, end) = (at, at + stretch.len());
            at = end;
            let (from, to) = (range.start.clamp(start, end) - start, range.end.clamp(start, end) - start);
            (from < to).then(|| stretch.slice(from..to))
        })
    }

    /// The only part, if there is no other.
    pub(super) fn only_part(&self) -> Option<Part<'_>> {
        match &*self.stretches {
            [stretch] => Some(self.part(stretch)),
            _ => None,
        }
    }

    /// The frames, as [`sealion_tls::Source`] takes them.
    pub(super) fn parts(&self) -> Vec<Part<'_>> {
        self.stretches.iter().map(|stretch| self.part(stretch)).collect()
    }

    /// The file of a part cannot be read.
    pub(super) fn note_unreadable(&self, part: &File) {
        for stretch in &self.stretches {
            if let Stretch::File(file, _) = stretch
                && stretch.file().is_some_and(|own| ptr::eq(Arc::as_ptr(own), part))
            {
                file.note_unreadable();
            }
        }
    }

    fn part<'a>(&'a self, stretch: &'a Stretch) -> Part<'a> {
        match stretch {
            Stretch::Copied(range) => Part::Bytes(&self.copied[range.clone()]),
            Stretch::Bytes(bytes) => Part::Bytes(bytes),
            Stretch::Shared(shared, range) => Part::Bytes(&shared.bytes[range.clone()]),
            Stretch::File(file, range) => file.part(range),
        }
    }
}

/// A frame, as far as a batch has to know it.
enum Frame {
    /// The rest of a frame whose beginning was sent.
    Begun,
    Data(DataFrame),
    /// Trailers.
    End(StreamId),
    Other,
}

impl Frame {
    fn of(header: [u8; HEADER_LEN], before: Option<&Self>) -> Self {
        if let Some(frame) = DataFrame::of(header) {
            return Self::Data(frame);
        }
        let end = match before {
            Some(Self::End(stream)) if is_continuation(&header) => Some(*stream),
            _ => ends_by_headers(&header),
        };
        end.map_or(Self::Other, Self::End)
    }

    /// The stream of DATA.
    fn stream(&self) -> Option<StreamId> {
        match self {
            Self::Data(frame) => Some(frame.stream),
            _ => None,
        }
    }
}

/// Removes trailers of some streams from `frames`, which are whole frames without content.
pub(super) fn remove_trailers(frames: &mut Vec<u8>, is_of: impl Fn(StreamId) -> bool) {
    let (mut start, mut before) = (0, None);
    while let Some(header) = frames[start..].first_chunk::<HEADER_LEN>() {
        let end = start + HEADER_LEN + payload_len(header);
        let frame = Frame::of(*header, before.as_ref());
        match frame {
            Frame::End(stream) if is_of(stream) => drop(frames.drain(start..end)),
            _ => start = end,
        }
        before = Some(frame);
    }
}

impl Stretch {
    fn len(&self) -> usize {
        match self {
            Stretch::Copied(range) | Stretch::Shared(_, range) => range.len(),
            Stretch::Bytes(bytes) => bytes.len(),
            Stretch::File(_, range) => (range.end - range.start) as usize,
        }
    }

    fn file(&self) -> Option<&Arc<File>> {
        match self {
            Stretch::File(file, _) => match &file.content {
                Content::File(file) => Some(file),
                Content::Memory(_) => None,
            },
            _ => None,
        }
    }

    fn slice(&self, part: Range<usize>) -> Stretch {
        let of = |range: &Range<usize>| range.start + part.start..range.start + part.end;
        match self {
            Stretch::Copied(range) => Stretch::Copied(of(range)),
            Stretch::Bytes(bytes) => Stretch::Bytes(&bytes[part]),
            Stretch::Shared(shared, range) => Stretch::Shared(Arc::clone(shared), of(range)),
            Stretch::File(file, range) => {
                let part = range.start + part.start as u64..range.start + part.end as u64;
                Stretch::File(Arc::clone(file), part)
            }
        }
    }
}

thread_local! {
    static FREE_BYTES: RefCell<Vec<Vec<u8>>> = const { RefCell::new(Vec::new()) };
    static FREE_STRETCHES: RefCell<Vec<Stretch>> = const { RefCell::new(Vec::new()) };
}

/// Stretches of a batch of full records, each with a header of its own.
const MOST_STRETCHES_KEPT: usize = 128;

/// Bytes of headers and short responses: a batch of short ones has more, and pays for it less often.
const MOST_BYTES_KEPT: usize = 128 << 10;

/// An empty buffer, from the thread's store if it has one.
pub(super) fn free_bytes() -> Vec<u8> {
    FREE_BYTES.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Frees the memory of an empty buffer that is too large for the thread's store.
pub(super) fn shrink(bytes: &mut Vec<u8>) {
    if bytes.capacity() > MOST_BYTES_KEPT {
        *bytes = Vec::new();
    }
}

/// Buffers in the thread's store: of a batch and of heads.
const BUFFERS_KEPT: usize = 2;

/// Gives a buffer to the thread's store.
pub(super) fn keep_bytes(mut bytes: Vec<u8>) {
    if bytes.capacity() <= MOST_BYTES_KEPT {
        bytes.clear();
        FREE_BYTES.with_borrow_mut(|free| {
            if free.len() < BUFFERS_KEPT {
                free.push(bytes);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::FileExt;

    use sealion_h2::{Connection, Event, HeadBuffer, HeaderBlock, Limits, PREFACE};

    use super::*;

    #[test]
    fn a_file_that_cannot_be_read_is_noted_alone() {
        let files = [(); 3].map(|()| SiteFile::of(tempfile::tempfile().unwrap()));
        let mut batch = Batch::take();
        for file in files.iter().chain([&files[1]]) {
            batch.file(file, 0..CONTENT);
        }
        let Content::File(broken) = &files[1].content else { unreachable!("it is a file") };
        batch.note_unreadable(broken);
        assert_eq!(files.map(|file| file.is_unreadable()), [false, true, false]);
    }

    const CONTENT: u64 = 30_000;

    /// A batch with a frame that is no DATA, and the content of two files on two streams; and the files.
    fn batch() -> (Batch, [Arc<File>; 2]) {
        let mut connection = Connection::new(Limits::default());
        let mut input = [&PREFACE[..], &[0, 0, 0, 4, 0, 0, 0, 0, 0]].concat();
        for stream in [1, 3] {
            input.extend_from_slice(&[0, 0, 3, 1, 5, 0, 0, 0, stream, 0x82, 0x84, 0x87]);
        }
        let (mut input, mut head, mut heads) = (&input[..], HeadBuffer::default(), Vec::new());
        while let Some(event) = connection.receive(&mut input, &mut head).unwrap() {
            if let Event::Request { stream, .. } = event {
                connection.respond(stream, &[HeaderBlock::response(200).as_bytes()], false, &mut heads).unwrap();
                connection.offer(stream, CONTENT, true).unwrap();
            }
        }
        let files = [b'a', b'b'].map(|octet| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[octet; CONTENT as usize], 0).unwrap();
            SiteFile::of(file)
        });
        let mut batch = Batch::take();
        batch.copy(&[0, 0, 2, 0x20, 0, 0, 0, 0, 0, 1, 2]);
        let mut sent = [0; 2];
        while let Some(frame) = connection.next_frame(RECORD) {
            let n = usize::from(frame.stream.get() == 3);
            batch.copy(&frame.header);
            batch.file(&files[n], sent[n]..sent[n] + frame.length as u64);
            sent[n] += frame.length as u64;
        }
        assert_eq!(sent, [CONTENT; 2]);
        (batch, files.map(|file| Arc::clone(Stretch::File(file, 0..1).file().unwrap())))
    }

    fn octets(batch: &Batch) -> Vec<u8> {
        let mut octets = Vec::new();
        for part in batch.parts() {
            match part {
                Part::Bytes(bytes) => octets.extend_from_slice(bytes),
                Part::File { file, range } => {
                    let start = octets.len();
                    octets.resize(start + (range.end - range.start) as usize, 0);
                    file.read_exact_at(&mut octets[start..], range.start).unwrap();
                }
            }
        }
        assert_eq!(octets.len(), batch.len());
        octets
    }

    /// Bytes of the frame that is no DATA, of the two frames of a file, and of all.
    const OTHER: usize = 11;
    const FIRST: usize = CONTENT as usize + 2 * HEADER_LEN;
    const ALL: usize = OTHER + 2 * FIRST;

    #[test]
    fn frames_of_a_file_that_cannot_be_read_are_left_out() {
        // Bytes sent before; the broken file; frames that are taken back; the rest of the batch.
        for (sent, broken, dropped, left) in [
            (0, 0, &[16_375, 13_625][..], [0..OTHER, OTHER + FIRST..ALL]),
            (0, 1, &[16_375, 13_625], [0..OTHER + FIRST, 0..0]),
            (5, 0, &[16_375, 13_625], [5..OTHER, OTHER + FIRST..ALL]),
            (OTHER + RECORD, 0, &[13_625], [OTHER + FIRST..ALL, 0..0]),
            // In the middle of a frame of the other file.
            (OTHER + RECORD + 700, 1, &[16_375, 13_625], [OTHER + RECORD + 700..OTHER + FIRST, 0..0]),
            (OTHER + FIRST + RECORD, 1, &[13_625], [0..0, 0..0]),
        ] {
            let (mut batch, files) = batch();
            let all = octets(&batch);
            let frames = batch.skip(sent, &files[broken]).expect("no frame of it is under way");
            let lengths: Vec<_> = frames.iter().map(|frame| frame.length).collect();
            assert_eq!(lengths, dropped, "{sent} {broken}");
            assert!(frames.iter().all(|frame| frame.stream.get() == [1, 3][broken]), "{sent} {broken}");
            let left: Vec<u8> = left.iter().flat_map(|range| all[range.clone()].to_vec()).collect();
            assert!(octets(&batch) == left, "{sent} {broken}");
        }
    }

    #[test]
    fn a_second_file_that_cannot_be_read_is_left_out_behind_the_rest_of_a_frame() {
        let (mut batch, files) = batch();
        let all = octets(&batch);
        let later = [b'c', b'd'].map(|octet| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(&[octet; 10_000], 0).unwrap();
            SiteFile::of(file)
        });
        for (stream, file) in [5, 7].into_iter().zip(&later) {
            batch.copy(&[0, 39, 16, 0, 1, 0, 0, 0, stream]);
            batch.file(file, 0..10_000);
        }
        let sent = OTHER + RECORD + 700;
        assert_eq!(batch.skip(sent, &files[1]).expect("none of its frames is under way").len(), 2);
        let Content::File(third) = &later[0].content else { unreachable!("it is a file") };
        let dropped = batch.skip(0, third).expect("none of its frames is under way");
        assert_eq!(dropped.iter().map(|frame| (frame.stream.get(), frame.length)).collect::<Vec<_>>(), [(5, 10_000)]);
        let last = [&[0, 39, 16, 0, 1, 0, 0, 0, 7][..], &[b'd'; 10_000]].concat();
        assert!(octets(&batch) == [&all[sent..OTHER + FIRST], &last].concat());
        // A part of the rest was sent.
        assert!(batch.skip(5, third).expect("it is left out").is_empty());
        assert!(octets(&batch) == [&all[sent + 5..OTHER + FIRST], &last].concat());
        assert!(batch.skip(0, &files[0]).is_none(), "the rest of a frame cannot come");
    }

    #[test]
    fn trailers_go_with_the_content_before_them() {
        let (mut batch, files) = batch();
        let trailers =
            |stream| [&[0, 0, 1, 1, 1, 0, 0, 0, stream, 0x88][..], &[0, 0, 1, 9, 4, 0, 0, 0, stream, 0x88]].concat();
        batch.copy(&trailers(1));
        batch.copy(&trailers(3));
        let all = octets(&batch);
        batch.skip(0, &files[0]).expect("none is under way");
        assert!(octets(&batch) == [&all[..OTHER], &all[OTHER + FIRST..ALL], &trailers(3)].concat());
        let mut heads = [trailers(1), vec![0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88], trailers(3)].concat();
        remove_trailers(&mut heads, |stream| stream.get() == 1);
        assert_eq!(heads, [vec![0, 0, 1, 1, 4, 0, 0, 0, 1, 0x88], trailers(3)].concat());
    }

    #[test]
    fn a_frame_that_is_under_way_cannot_be_left_out() {
        for (sent, broken) in [(OTHER + 1, 0), (OTHER + RECORD + HEADER_LEN, 0), (ALL - 1, 1)] {
            let (mut batch, files) = batch();
            assert!(batch.skip(sent, &files[broken]).is_none(), "{sent} {broken}");
        }
    }
}
