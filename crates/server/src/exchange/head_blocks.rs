//! The head of a response as a header block (RFC 9113 §8.3.2, RFC 9114 §4.3.2).
//!
//! Encoding a head costs as much as all else that HTTP/2 does for a small file. The blocks of files and stored responses that are asked for again are
//! therefore kept, each with the fields it was made of: whatever made the fields, a block is sent only for equal ones. The fields of a stored response
//! are equal within a second, since they include its Age.

use sealion_http::http1::framing::ResponseFraming;
use sealion_http::{EntityTag, Fields, HttpTime, Status, write_decimal};

/// Encoded fields that depend on no connection: HPACK or QPACK without a dynamic table.
pub(crate) trait HeadBlock: Default {
    fn clear(&mut self);

    fn status(&mut self, status: u16);

    /// `name` is in lower case.
    fn field(&mut self, name: &str, value: &[u8]);

    fn as_bytes(&self) -> &[u8];
}

macro_rules! head_block {
    ($block:ty) => {
        impl HeadBlock for $block {
            fn clear(&mut self) {
                self.clear();
            }

            fn status(&mut self, status: u16) {
                self.status(status);
            }

            fn field(&mut self, name: &str, value: &[u8]) {
                self.field(name, value);
            }

            fn as_bytes(&self) -> &[u8] {
                self.as_bytes()
            }
        }
    };
}

head_block!(sealion_h2::HeaderBlock);
head_block!(sealion_h3::HeaderBlock);

/// The blocks of a thread.
#[derive(Default)]
pub(crate) struct HeadBlocks<B> {
    date: Option<(HttpTime, B)>,
    kept: Kept<B>,
    /// A block that is not kept.
    fresh: B,
}

impl<B: HeadBlock> HeadBlocks<B> {
    /// Calls `write` with the head's block in parts. `date` is the value of Date. `more`: a block of further fields, or nothing.
    pub(crate) fn with_head<T>(
        &mut self,
        (status, fields, framing): (Status, &Fields, ResponseFraming),
        date: &HttpTime,
        more: &[u8],
        write: impl FnOnce(&[&[u8]]) -> T,
    ) -> T {
        if self.date.as_ref().is_none_or(|(kept, _)| kept != date) {
            let mut block = B::default();
            block.field("date", date.as_bytes());
            self.date = Some((*date, block));
        }
        let date = self.date.as_ref().map_or(&[][..], |(_, block)| block.as_bytes());
        let head = match hash(status, fields) {
            Some(hash) => self.kept.find(hash, status, fields, framing, &mut self.fresh),
            None => {
                write_head(&mut self.fresh, status, fields, framing);
                self.fresh.as_bytes()
            }
        };
        match fields.needs_date() {
            true => write(&[head, date, more]),
            false => write(&[head, more]),
        }
    }
}

/// Blocks, each in the slot that its hash gives.
#[derive(Default)]
struct Kept<B> {
    slots: Vec<Slot<B>>,
}

#[derive(Default)]
struct Slot<B> {
    /// The hash that found another head here last: a head is kept when it comes a second time.
    missed: u64,
    head: Option<Box<Head<B>>>,
}

struct Head<B> {
    status: Status,
    fields: Fields,
    framing: ResponseFraming,
    block: B,
}

/// Slots of a thread: with heads of usual length, 128 KiB.
const SLOTS: usize = 256;

/// Most bytes of further fields in a kept head.
const LONGEST: usize = 2 << 10;

impl<B: HeadBlock> Kept<B> {
    /// The block of a head, which is written into `fresh` if it is not kept.
    fn find<'a>(
        &'a mut self,
        hash: u64,
        status: Status,
        fields: &Fields,
        framing: ResponseFraming,
        fresh: &'a mut B,
    ) -> &'a [u8] {
        if self.slots.is_empty() {
            self.slots.resize_with(SLOTS, Slot::default);
        }
        let slot = &mut self.slots[(hash >> 32) as usize % SLOTS];
        let is_same = |head: &Head<B>| head.framing == framing && head.status == status && head.fields == *fields;
        if !slot.head.as_deref().is_some_and(is_same) {
            if slot.missed != hash {
                slot.missed = hash;
                write_head(fresh, status, fields, framing);
                return fresh.as_bytes();
            }
            let mut block = B::default();
            write_head(&mut block, status, fields, framing);
            slot.head = Some(Box::new(Head { status, fields: fields.clone(), framing, block }));
        }
        slot.head.as_ref().map_or(&[], |head| head.block.as_bytes())
    }
}

/// The key of the head of a file or of a stored response: its tag or, with the tag of a stored response, its further fields. Never 0. `None`: the head is not
/// kept.
fn hash(status: Status, fields: &Fields) -> Option<u64> {
    let mix = |hash: u64, word: u64| (hash.rotate_left(5) ^ word).wrapping_mul(0x517c_c1b7_2722_0a95);
    let lines = fields.extra.lines();
    if lines.len() > LONGEST || fields.content_range.is_some() {
        return None;
    }
    // The fields of a stored response are shared within a second.
    if let Some(address) = fields.extra.shared_address() {
        return Some(mix(status.code().into(), address as u64) | 1);
    }
    let octets = fields.etag.as_ref().map_or(lines, EntityTag::as_bytes);
    if octets.is_empty() {
        return None;
    }
    let (words, _) = octets.as_chunks::<8>();
    Some(words.iter().fold(status.code().into(), |hash, word| mix(hash, u64::from_le_bytes(*word))) | 1)
}

/// Writes the head without Date into `block`.
fn write_head(block: &mut impl HeadBlock, status: Status, fields: &Fields, framing: ResponseFraming) {
    block.clear();
    block.status(status.code());
    if fields.needs_server() {
        block.field("server", b"sealion");
    }
    if let ResponseFraming::Length(length) | ResponseFraming::LengthOnly(length) = framing {
        let mut digits = Vec::with_capacity(20);
        write_decimal(&mut digits, length);
        block.field("content-length", &digits);
    }
    fields.for_each(|name, value| block.field(name, value));
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use sealion_h2::HeaderBlock;
    use sealion_http::{ContentType, ExtraFields};

    use super::*;

    thread_local! {
        static HEADS: RefCell<HeadBlocks<HeaderBlock>> = RefCell::default();
    }

    const DATE: &str = "Sun, 06 Nov 1994 08:49:37 GMT";

    fn head(status: Status, fields: &Fields, framing: ResponseFraming, date: &str) -> Vec<u8> {
        let date = date.parse().unwrap();
        HEADS.with_borrow_mut(|heads| heads.with_head((status, fields, framing), &date, &[], |parts| parts.concat()))
    }

    #[test]
    fn names_are_in_lower_case_and_a_head_without_content_announces_none() {
        let mut extra = ExtraFields::default();
        extra.add("X-One", "1");
        let fields =
            Fields { content_type: Some(ContentType::Text("text/html")), anonymous: true, extra, ..Fields::default() };
        let mut expected = HeaderBlock::response(200);
        for (name, value) in
            [("content-type", &b"text/html; charset=utf-8"[..]), ("x-one", b"1"), ("date", DATE.as_bytes())]
        {
            expected.field(name, value);
        }
        assert_eq!(head(Status::OK, &fields, ResponseFraming::Nothing, DATE), expected.as_bytes());
        let announced = head(Status::OK, &fields, ResponseFraming::LengthOnly(1234), DATE);
        assert!(announced.len() > expected.as_bytes().len());
    }

    #[test]
    fn a_kept_head_is_sent_only_for_equal_fields() {
        let etag = EntityTag::from_fingerprint([7; 8]);
        let plain = Fields { etag: Some(etag), ..Fields::default() };
        let mut extra = ExtraFields::default();
        extra.add("X-One", "1");
        let stored = |name: &str, value: &str| {
            let mut extra = extra.clone();
            extra.add("etag", "\"the tag of a stored response\"");
            extra.add(name, value);
            Fields { forwarded: true, extra, ..Fields::default() }
        };
        let heads = [
            (Status::OK, plain.clone(), ResponseFraming::Length(1)),
            (Status::OK, plain.clone(), ResponseFraming::Length(2)),
            (Status::NOT_MODIFIED, plain.clone(), ResponseFraming::Nothing),
            (Status::OK, Fields { anonymous: true, ..plain.clone() }, ResponseFraming::Length(1)),
            (Status::OK, Fields { extra: extra.clone(), ..plain }, ResponseFraming::Length(1)),
            (Status::OK, stored("age", "1"), ResponseFraming::Length(1)),
            (Status::OK, stored("age", "2"), ResponseFraming::Length(1)),
            (Status::OK, stored("agf", "1"), ResponseFraming::Length(1)),
            (Status::OK, stored("age", &"x".repeat(LONGEST)), ResponseFraming::Length(1)),
        ];
        let later = "Sun, 06 Nov 1994 08:49:38 GMT";
        for _ in 0..3 {
            for (status, fields, framing) in &heads {
                let mut expected = HeaderBlock::default();
                write_head(&mut expected, *status, fields, *framing);
                for (time, date) in [DATE, DATE, later].into_iter().enumerate() {
                    let mut expected = expected.clone();
                    expected.field("date", date.as_bytes());
                    let head = head(*status, fields, *framing, date);
                    assert_eq!(head, expected.as_bytes(), "{status:?} {fields:?} {time}");
                }
            }
        }
        HEADS.with_borrow(|heads| assert!(heads.kept.slots.iter().any(|slot| slot.head.is_some())));
    }
}
