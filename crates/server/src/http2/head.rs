//! The head of a response as a header block (RFC 9113 §8.3.2).

use sealion_h2::HeaderBlock;
use sealion_http::http1::framing::ResponseFraming;
use sealion_http::{Fields, HttpTime, Status, write_decimal};

/// Writes the head into `block`. `date` is the value of Date.
pub(super) fn write_head(
    block: &mut HeaderBlock,
    status: Status,
    fields: &Fields,
    framing: ResponseFraming,
    date: &HttpTime,
) {
    block.clear();
    block.status(status.code());
    if fields.needs_server() {
        block.field("server", b"sealion");
    }
    if fields.needs_date() {
        block.field("date", date.as_bytes());
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
    use sealion_http::{ContentType, ExtraFields};

    use super::*;

    #[test]
    fn names_are_in_lower_case_and_a_head_without_content_announces_none() {
        let mut extra = ExtraFields::default();
        extra.add("X-One", "1");
        let fields =
            Fields { content_type: Some(ContentType::Text("text/html")), anonymous: true, extra, ..Fields::default() };
        let date = "Sun, 06 Nov 1994 08:49:37 GMT".parse().unwrap();
        let mut block = HeaderBlock::default();
        block.field("stays", b"no");
        write_head(&mut block, Status::OK, &fields, ResponseFraming::Nothing, &date);
        let mut expected = HeaderBlock::response(200);
        for (name, value) in [("date", date.as_bytes()), ("content-type", b"text/html; charset=utf-8"), ("x-one", b"1")]
        {
            expected.field(name, value);
        }
        assert_eq!(block, expected);
        write_head(&mut block, Status::OK, &fields, ResponseFraming::LengthOnly(1234), &date);
        assert!(block.as_bytes().len() > expected.as_bytes().len());
    }
}
