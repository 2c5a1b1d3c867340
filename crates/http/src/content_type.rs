//! Content-Type by file name extension.

use std::sync::Arc;

use crate::etag::EntityTag;

/// The value of Content-Type.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ContentType {
    /// A media type without parameters.
    Plain(&'static str),
    /// A text type, sent with `; charset=utf-8`.
    Text(&'static str),
    /// A media type with parameters, set by an operator or an upstream server.
    Custom(Arc<str>),
    /// `multipart/byteranges`, with the opaque part of this tag as boundary.
    ByteRanges(EntityTag),
}

impl ContentType {
    /// The type for a file name, by its extension, in any case. Unknown extensions get `application/octet-stream`.
    ///
    /// Text is declared as UTF-8, JavaScript included (`text/javascript`, RFC 9239). JSON and XML define their encoding
    /// themselves (RFC 8259 §8.1, RFC 7303 §3).
    pub fn of_name(name: &[u8]) -> Self {
        let file_name = name.rsplit(|byte| *byte == b'/').next().unwrap_or(name);
        let essence = file_name
            .iter()
            .rposition(|byte| *byte == b'.')
            .filter(|dot| *dot > 0)
            .and_then(|dot| std::str::from_utf8(&file_name[dot + 1..]).ok())
            .and_then(|extension| mime_guess::from_ext(extension).first_raw());
        match essence {
            None => ContentType::Plain("application/octet-stream"),
            Some("application/javascript") => ContentType::Text("text/javascript"),
            Some(essence) if essence.starts_with("text/") => ContentType::Text(essence),
            Some(essence) => ContentType::Plain(essence),
        }
    }

    /// The media type without its parameters.
    pub fn essence(&self) -> &str {
        match self {
            ContentType::Plain(essence) | ContentType::Text(essence) => essence,
            ContentType::Custom(value) => value.split(';').next().unwrap_or(value).trim_end(),
            ContentType::ByteRanges(_) => "multipart/byteranges",
        }
    }

    /// Appends the field value to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            ContentType::Plain(essence) => out.extend_from_slice(essence.as_bytes()),
            ContentType::Custom(value) => out.extend_from_slice(value.as_bytes()),
            ContentType::Text(essence) => {
                out.extend_from_slice(essence.as_bytes());
                out.extend_from_slice(b"; charset=utf-8");
            }
            ContentType::ByteRanges(tag) => {
                out.extend_from_slice(b"multipart/byteranges; boundary=");
                out.extend_from_slice(tag.opaque());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_extension() {
        for (name, expected) in [
            (&b"index.html"[..], "text/html; charset=utf-8"),
            (b"INDEX.HTM", "text/html; charset=utf-8"),
            (b"a/style.css", "text/css; charset=utf-8"),
            (b"app.js", "text/javascript; charset=utf-8"),
            (b"app.mjs", "text/javascript; charset=utf-8"),
            (b"notes.txt", "text/plain; charset=utf-8"),
            (b"readme.md", "text/markdown; charset=utf-8"),
            (b"data.json", "application/json"),
            (b"feed.xml", "text/xml; charset=utf-8"),
            (b"a.svg", "image/svg+xml"),
            (b"a.png", "image/png"),
            (b"a.webp", "image/webp"),
            (b"a.avif", "image/avif"),
            (b"a.woff2", "font/woff2"),
            (b"a.wasm", "application/wasm"),
            (b"a.pdf", "application/pdf"),
            (b"a.mp4", "video/mp4"),
            (b"a.tar.gz", "application/gzip"),
            (b"a.unheard-of", "application/octet-stream"),
            (b"README", "application/octet-stream"),
            (b"a.d/README", "application/octet-stream"),
            (b".html", "application/octet-stream"),
            (b"a.", "application/octet-stream"),
            (b"a.\xff", "application/octet-stream"),
            (b"\xff.png", "image/png"),
        ] {
            let mut value = Vec::new();
            ContentType::of_name(name).write(&mut value);
            assert_eq!(String::from_utf8(value).unwrap(), expected, "{}", name.escape_ascii());
        }
    }
}
