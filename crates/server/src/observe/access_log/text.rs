//! Lines of the operator's own text, with fields in braces: `{address} "{method} {target}" {status} {header.x-id}`.
//!
//! A value cannot end the line or a quoted part of it: it is escaped as in the combined format, or as within a string of JSON.

use std::sync::Arc;

use sealion_http::extra_fields::is_name;

use super::escape;
use super::field::{Field, Line};

/// A parsed text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(Arc<[Piece]>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Box<[u8]>),
    Field(Field),
    /// A field of the request.
    Header(Box<str>),
    Cookie(Box<str>),
}

/// How values are escaped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Escape {
    /// All but visible ASCII, quotes and backslashes become `\x0A`.
    Combined,
    /// As within a string of JSON.
    Json,
}

impl Text {
    /// Parses a text. `{{` and `}}` stand for braces, and so does `{` before anything but a letter, as in JSON.
    ///
    /// # Errors
    /// The fault of the text.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        if text.is_empty() || text.contains(['\n', '\r']) {
            return Err("is one line: write for instance {address} \"{method} {target}\" {status}".to_owned());
        }
        let mut pieces = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some(at) = rest.find(['{', '}']) {
            literal.push_str(&rest[..at]);
            let (brace, behind) = rest[at..].split_at(1);
            let is_field = brace == "{" && behind.starts_with(|first: char| first.is_ascii_alphabetic());
            if behind.starts_with(brace) || !is_field {
                literal.push_str(brace);
                rest = behind.strip_prefix(brace).unwrap_or(behind);
                continue;
            }
            let (name, behind) =
                behind.split_once('}').ok_or("has { without }: close the field, or write {{ for a brace")?;
            rest = behind;
            if !literal.is_empty() {
                pieces.push(Piece::Text(std::mem::take(&mut literal).into_bytes().into()));
            }
            pieces.push(Piece::of_name(name)?);
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            pieces.push(Piece::Text(literal.into_bytes().into()));
        }
        Ok(Text(pieces.into()))
    }

    /// Appends the text with the values of a response.
    pub(super) fn write(&self, line: &mut Vec<u8>, data: &Line<'_, '_>, escape: Escape) {
        let text = match escape {
            Escape::Combined => escape::combined,
            Escape::Json => escape::in_json,
        };
        for piece in &*self.0 {
            match piece {
                Piece::Text(text) => line.extend_from_slice(text),
                Piece::Field(field) => field.value(data).write(line, text),
                Piece::Header(name) => data.field_of_request(name).write(line, text),
                Piece::Cookie(name) => data.cookie(name).write(line, text),
            }
        }
    }
}

impl Piece {
    fn of_name(name: &str) -> Result<Self, String> {
        if let Some(field) = Field::ALL.iter().find(|field| field.label() == name) {
            return Ok(Piece::Field(*field));
        }
        match name.split_once('.') {
            Some(("header", own)) if is_name(own) => return Ok(Piece::Header(own.to_ascii_lowercase().into())),
            Some(("cookie", own)) if is_name(own) => return Ok(Piece::Cookie(own.into())),
            _ => {}
        }
        let parameter = name.split_once('.').map_or("NAME", |(_, own)| own);
        let families = ["header", "cookie"].map(|family| format!("{family}.{parameter}"));
        let all = Field::ALL.iter().map(|field| field.label().to_owned()).chain(families);
        let near = all.map(|own| (strsim::normalized_damerau_levenshtein(name, &own), own));
        let nearest = near.max_by(|(one, _), (other, _)| one.total_cmp(other)).map_or_else(String::new, |(_, own)| own);
        Err(format!("{{{name}}} is not a field: the nearest is {{{nearest}}}; write {{{{ for a brace"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_fields_headers_and_cookies() {
        let text = Text::parse("{{{address}}} {header.X-Id} {\"a\": {status}} {cookie.sid}").unwrap();
        let literal = |text: &str| Piece::Text(text.as_bytes().into());
        assert_eq!(
            *text.0,
            [
                literal("{"),
                Piece::Field(Field::Address),
                literal("} "),
                Piece::Header("x-id".into()),
                literal(" {\"a\": "),
                Piece::Field(Field::Status),
                literal("} "),
                Piece::Cookie("sid".into()),
            ]
        );
        for (text, words) in [
            ("{stats}", "the nearest is {status}"),
            ("{headers.x}", "the nearest is {header.x}"),
            ("{status", "has { without }"),
            ("a\nb", "is one line"),
            ("", "is one line"),
        ] {
            assert!(Text::parse(text).unwrap_err().contains(words), "{text}: {:?}", Text::parse(text));
        }
    }
}
