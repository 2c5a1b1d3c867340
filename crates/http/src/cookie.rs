//! Cookies of requests (RFC 6265 §4.2.1).

use crate::FieldSection;

/// The cookies of a request, in their order, each with its name and its value. A pair without an equals sign has no value. Names are as they are written: some
/// servers take a name without the space at its end.
pub fn cookies<'a>(fields: FieldSection<'a>) -> impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)> {
    let pairs = fields.all("cookie").flat_map(|line| line.split(|byte| *byte == b';'));
    pairs.map(|pair| {
        let pair = pair.trim_ascii();
        match memchr::memchr(b'=', pair) {
            Some(at) => (&pair[..at], Some(&pair[at + 1..])),
            None => (pair, None),
        }
    })
}

/// The values of the cookies of this name.
pub fn values_of<'a>(fields: FieldSection<'a>, name: &'a [u8]) -> impl Iterator<Item = &'a [u8]> {
    cookies(fields).filter(move |(own, _)| *own == name).filter_map(|(_, value)| value)
}
