//! Decoding and checking request paths.

use std::borrow::Cow;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};

use crate::Coding;

/// A decoded path relative to the root, without empty, `.` or `..` segments, NUL, or encoded slashes.
///
/// It need not be UTF-8, since Linux file names are bytes. A backslash has no special meaning.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct SitePath<'a> {
    /// With the leading slash and, if the path names a directory, the trailing slash.
    full: Cow<'a, [u8]>,
    names_directory: bool,
}

/// Separates a directory from the path beneath it, where links must not lead out of the directory. No other path has two slashes in a row.
pub const BOUNDARY: &[u8] = b"//";

/// The reason why a path cannot name a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnameable {
    /// Respond with 400. No client sends such a path by accident; the reason is for the log.
    Malformed(&'static str),
    /// Respond with 404: the path is well-formed, but no servable file can have this name.
    NotFound,
}

impl<'a> SitePath<'a> {
    /// Decodes and checks `path`, which begins with `/` (see [`crate::request::Target::Path`]).
    ///
    /// - Repeated slashes count as one, as in nginx by default.
    /// - `.` and `..`, encoded or not, are rejected. Clients resolve them (RFC 3986 §5.2.4), so a path with them is a
    ///   probe.
    /// - An encoded slash is data within a segment (RFC 3986 §2.2), which no file name can contain.
    /// - Names that begin with a dot are hidden unless `show_dotfiles`; only `.well-known` (RFC 8615) is always visible.
    pub fn parse(path: &'a str, show_dotfiles: bool) -> Result<Self, Unnameable> {
        let relative = path.strip_prefix('/').ok_or(Unnameable::Malformed("the path does not begin with a slash"))?;
        let names_directory = relative.is_empty() || relative.ends_with('/');
        // Usually the request's own bytes can be borrowed.
        if is_plain(relative.as_bytes()) {
            return Ok(SitePath { full: Cow::Borrowed(path.as_bytes()), names_directory });
        }
        let is_verbatim = !path.contains('%') && !path.contains("//");
        let mut decoded = Vec::new();
        for segment in relative.split('/').filter(|segment| !segment.is_empty()) {
            if is_verbatim {
                check_segment(segment.as_bytes(), show_dotfiles)?;
                continue;
            }
            decoded.push(b'/');
            let start = decoded.len();
            decode(segment.as_bytes(), &mut decoded)?;
            check_segment(&decoded[start..], show_dotfiles)?;
        }
        if is_verbatim {
            return Ok(SitePath { full: Cow::Borrowed(path.as_bytes()), names_directory });
        }
        if names_directory || decoded.is_empty() {
            decoded.push(b'/');
        }
        Ok(SitePath { full: Cow::Owned(decoded), names_directory })
    }

    /// The path with this name, without slashes at its ends.
    fn named(name: &[&[u8]], names_directory: bool) -> SitePath<'static> {
        let mut full = Vec::with_capacity(2 + name.iter().map(|part| part.len()).sum::<usize>());
        full.push(b'/');
        name.iter().for_each(|part| full.extend_from_slice(part));
        if names_directory && full.len() > 1 {
            full.push(b'/');
        }
        SitePath { full: Cow::Owned(full), names_directory }
    }

    /// Decodes and checks `path` as [`Self::parse`] does, for an application with its own rules: names may begin with a
    /// dot, and an encoded slash separates segments, since the application may treat it as a slash.
    ///
    /// # Errors
    /// [`Unnameable::Malformed`]: the path has dot segments, encoded or not, a NUL, or a broken escape.
    pub fn parse_forwarded(path: &str) -> Result<SitePath<'static>, Unnameable> {
        let relative = path.strip_prefix('/').ok_or(Unnameable::Malformed("the path does not begin with a slash"))?;
        let mut bytes = Vec::with_capacity(relative.len());
        for byte in percent_encoding::percent_decode_str(relative) {
            bytes.push(byte);
        }
        if bytes.contains(&0) {
            return Err(Unnameable::Malformed("the path has a NUL"));
        }
        let escapes = relative.bytes().filter(|byte| *byte == b'%').count();
        // An escape that cannot be decoded stays unchanged.
        if relative.len() - bytes.len() != 2 * escapes {
            return Err(Unnameable::Malformed("the path has a percent sign without two hexadecimal digits"));
        }
        SitePath::of_octets(&bytes)
    }

    /// The path with these decoded bytes, in which slashes separate segments.
    ///
    /// # Errors
    /// [`Unnameable::Malformed`]: the path has dot segments.
    pub fn of_octets(bytes: &[u8]) -> Result<SitePath<'static>, Unnameable> {
        let names_directory = bytes.is_empty() || bytes.ends_with(b"/");
        let mut full = Vec::with_capacity(bytes.len() + 2);
        for segment in bytes.split(|byte| *byte == b'/').filter(|segment| !segment.is_empty()) {
            check_segment(segment, true)?;
            full.push(b'/');
            full.extend_from_slice(segment);
        }
        if names_directory {
            full.push(b'/');
        }
        Ok(SitePath { full: Cow::Owned(full), names_directory })
    }

    /// The path without leading and trailing slashes; empty for the root itself.
    pub fn as_bytes(&self) -> &[u8] {
        // Of the root alone, the slash is both the first and the last.
        let end = self.full.len() - usize::from(self.names_directory);
        self.full.get(1..end).unwrap_or_default()
    }

    /// Whether the path ended with a slash, so that it can only name a directory.
    pub fn names_directory(&self) -> bool {
        self.names_directory
    }

    /// The path without its first `bytes` and the slash after them.
    pub fn beneath(&self, bytes: usize) -> SitePath<'_> {
        let rest = &self.full[if bytes == 0 { 0 } else { bytes + 1 }..];
        let full = Cow::Borrowed(if rest.is_empty() { &b"/"[..] } else { rest });
        SitePath { full, names_directory: self.names_directory }
    }

    /// The path beneath a directory of its own, whose name has no slashes at its ends. [`BOUNDARY`] stands behind the directory.
    pub fn within(&self, directory: &[u8]) -> SitePath<'static> {
        let name = self.as_bytes();
        // A path that is put behind an empty one brings the second slash.
        let end = if name.is_empty() { &BOUNDARY[..1] } else { BOUNDARY };
        SitePath::named(&[directory, end, name], self.names_directory)
    }

    /// The path of the entry `name` beside the file at this path.
    pub fn beside(&self, name: &str) -> SitePath<'static> {
        let own = self.as_bytes();
        let directory = memchr::memrchr(b'/', own).map_or(0, |slash| slash + 1);
        SitePath::named(&[&own[..directory], name.as_bytes()], false)
    }

    /// The path of the entry `name` in the directory at this path.
    pub fn child(&self, name: &str) -> SitePath<'static> {
        let own = self.as_bytes();
        let slash: &[u8] = if own.is_empty() { b"" } else { b"/" };
        SitePath::named(&[own, slash, name.as_bytes()], false)
    }

    /// The path of the precompressed sibling of the file at this path.
    pub fn sibling(&self, coding: Coding) -> SitePath<'static> {
        SitePath::named(&[&coding.sibling_of(self.as_bytes())], false)
    }

    /// The path of the file with this name and the extension `extension`: `/about` and `/about/` become `/about.html`.
    pub fn with_extension(&self, extension: &str) -> SitePath<'static> {
        SitePath::named(&[self.as_bytes(), b".", extension.as_bytes()], false)
    }

    /// The path with its leading slash and, if it names a directory, its trailing slash.
    pub fn full(&self) -> &[u8] {
        &self.full
    }

    /// This path with a trailing slash, as a reference for Location (RFC 9110 §10.2.2).
    ///
    /// The path is re-encoded from the checked segments. It begins with exactly one slash, so it cannot name another
    /// host, even if the client sent `//host` or `/\host`.
    pub fn with_slash(&self, query: Option<&str>) -> String {
        self.reference(if self.as_bytes().is_empty() { "" } else { "/" }, query)
    }

    /// This path without a trailing slash, as [`Self::with_slash`].
    pub fn without_slash(&self, query: Option<&str>) -> String {
        self.reference("", query)
    }

    fn reference(&self, end: &str, query: Option<&str>) -> String {
        let mut location = String::with_capacity(self.full.len() + 1);
        location.push('/');
        location.extend(percent_encode(self.as_bytes(), OUTSIDE_PCHAR));
        location.push_str(end);
        if let Some(query) = query {
            location.push('?');
            location.push_str(query);
        }
        location
    }
}

/// Whether all segments of a path are names as they stand: nothing is encoded, and no segment is empty or begins with a dot. It is a single pass over the bytes.
fn is_plain(relative: &[u8]) -> bool {
    let mut begins = true;
    relative.iter().all(|byte| {
        let is_plain = *byte != b'%' && !(begins && matches!(byte, b'/' | b'.'));
        begins = *byte == b'/';
        is_plain
    })
}

fn check_segment(segment: &[u8], show_dotfiles: bool) -> Result<(), Unnameable> {
    match segment {
        b"." | b".." => Err(Unnameable::Malformed("the path has a dot segment")),
        _ if !show_dotfiles && is_hidden(segment) => Err(Unnameable::NotFound),
        _ => Ok(()),
    }
}

/// Whether a segment of a path is hidden: it begins with a dot, and is not `.well-known` (RFC 8615).
pub fn is_hidden(segment: &[u8]) -> bool {
    segment.starts_with(b".") && segment != b".well-known"
}

fn decode(segment: &[u8], out: &mut Vec<u8>) -> Result<(), Unnameable> {
    let mut bytes = segment.iter();
    while let Some(&byte) = bytes.next() {
        let decoded = if byte == b'%' {
            match (bytes.next().and_then(hex), bytes.next().and_then(hex)) {
                (Some(high), Some(low)) => high << 4 | low,
                _ => {
                    return Err(Unnameable::Malformed("the path has a percent sign without two hexadecimal digits"));
                }
            }
        } else {
            byte
        };
        match decoded {
            0 => return Err(Unnameable::Malformed("the path has a NUL")),
            b'/' => return Err(Unnameable::NotFound),
            _ => out.push(decoded),
        }
    }
    Ok(())
}

fn hex(digit: &u8) -> Option<u8> {
    char::from(*digit).to_digit(16).map(|value| value as u8)
}

/// The bytes to percent-encode in a path: all but pchar (RFC 3986 §3.3) and the slash.
pub const OUTSIDE_PCHAR: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'/')
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~')
    .remove(b'!')
    .remove(b'$')
    .remove(b'&')
    .remove(b'\'')
    .remove(b'(')
    .remove(b')')
    .remove(b'*')
    .remove(b'+')
    .remove(b',')
    .remove(b';')
    .remove(b'=')
    .remove(b':')
    .remove(b'@');

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forwarded_paths_have_slashes_where_an_application_may_see_them() {
        for (path, expected) in [
            ("/", Ok("/")),
            ("/a/b/", Ok("/a/b/")),
            ("//a//b", Ok("/a/b")),
            ("/a%2Fb", Ok("/a/b")),
            ("/a%2f%2Fb%2F", Ok("/a/b/")),
            ("/.env", Ok("/.env")),
            ("/%61", Ok("/a")),
            ("/a/../b", Err(())),
            ("/a/%2e%2E/b", Err(())),
            ("/a%2F..%2fb", Err(())),
            ("/a/.", Err(())),
            ("/a%00", Err(())),
            ("/a%zz", Err(())),
            ("/a%2", Err(())),
        ] {
            let found = SitePath::parse_forwarded(path).map(|path| String::from_utf8(path.full().to_vec()).unwrap());
            assert_eq!(found.map_err(drop), expected.map(str::to_owned), "{path}");
        }
    }

    #[test]
    fn accepted_paths() {
        // raw, path, directory, Location with a slash
        for (raw, path, directory, location) in [
            ("/", &b""[..], true, "/"),
            ("/a", b"a", false, "/a/"),
            ("/a/", b"a", true, "/a/"),
            ("/a/b.html", b"a/b.html", false, "/a/b.html/"),
            ("/a%20b", b"a b", false, "/a%20b/"),
            ("/%61", b"a", false, "/a/"),
            ("/%c3%A9", b"\xc3\xa9", false, "/%C3%A9/"),
            ("/%ff", b"\xff", false, "/%FF/"),
            ("/100%25", b"100%", false, "/100%25/"),
            ("/%252e%252e/x", b"%2e%2e/x", false, "/%252e%252e/x/"),
            ("/a+b", b"a+b", false, "/a+b/"),
            ("/a:b@c;d=e,f!g$h&i'j(k)l*m~n", b"a:b@c;d=e,f!g$h&i'j(k)l*m~n", false, "/a:b@c;d=e,f!g$h&i'j(k)l*m~n/"),
            ("/a|b\"<>^`{}", b"a|b\"<>^`{}", false, "/a%7Cb%22%3C%3E%5E%60%7B%7D/"),
            ("/%0d%0aX:1", b"\r\nX:1", false, "/%0D%0AX:1/"),
            ("/a..b/c.../x.", b"a..b/c.../x.", false, "/a..b/c.../x./"),
            ("/.well-known/acme", b".well-known/acme", false, "/.well-known/acme/"),
            ("/%2ewell-known/x", b".well-known/x", false, "/.well-known/x/"),
            ("/a//b///c", b"a/b/c", false, "/a/b/c/"),
            ("/a//", b"a", true, "/a/"),
            // No Location names another host.
            ("//evil.example", b"evil.example", false, "/evil.example/"),
            ("///evil.example//", b"evil.example", true, "/evil.example/"),
            ("/\\evil.example", b"\\evil.example", false, "/%5Cevil.example/"),
            ("/%5cevil.example", b"\\evil.example", false, "/%5Cevil.example/"),
            ("/%09/evil.example", b"\t/evil.example", false, "/%09/evil.example/"),
            ("/https://evil.example", b"https:/evil.example", false, "/https:/evil.example/"),
        ] {
            let site_path = SitePath::parse(raw, false).unwrap_or_else(|error| panic!("{raw}: {error:?}"));
            assert_eq!(site_path.as_bytes(), path, "{raw}");
            assert_eq!(site_path.names_directory(), directory, "{raw}");
            assert_eq!(site_path.with_slash(None), location, "{raw}");
            assert_eq!(site_path.with_slash(Some("q=/?\\")), format!("{location}?q=/?\\"), "{raw}");
            let without = if location == "/" { "/" } else { location.trim_end_matches('/') };
            assert_eq!(site_path.without_slash(None), without, "{raw}");
        }
    }

    #[test]
    fn refused_paths() {
        use Unnameable::{Malformed, NotFound};
        const DOT: Unnameable = Malformed("the path has a dot segment");
        const NUL: Unnameable = Malformed("the path has a NUL");
        const PERCENT: Unnameable = Malformed("the path has a percent sign without two hexadecimal digits");
        for (raw, expected) in [
            ("", Malformed("the path does not begin with a slash")),
            ("a", Malformed("the path does not begin with a slash")),
            ("/.", DOT),
            ("/..", DOT),
            ("/../etc/passwd", DOT),
            ("/a/../b", DOT),
            ("/a/./b", DOT),
            ("/a/..", DOT),
            ("/a/../", DOT),
            ("/%2e%2E/x", DOT),
            ("/.%2e", DOT),
            ("/%2e", DOT),
            ("/%00", NUL),
            ("/a.html%00.png", NUL),
            ("/%", PERCENT),
            ("/%4", PERCENT),
            ("/%4/1", PERCENT),
            ("/%zz", PERCENT),
            ("/%+1", PERCENT),
            ("/%u0041", PERCENT),
            ("/a%2fb", NotFound),
            ("/..%2f..%2Fetc", NotFound),
            ("/%2f", NotFound),
            ("/.git/config", NotFound),
            ("/a/.env", NotFound),
            ("/%2egit/", NotFound),
            ("/...", NotFound),
            ("/.well-known2", NotFound),
            ("/.well-known/.git", NotFound),
        ] {
            assert_eq!(SitePath::parse(raw, false), Err(expected), "{raw}");
        }
    }

    #[test]
    fn dotfiles_can_be_shown_but_dot_segments_cannot() {
        assert_eq!(SitePath::parse("/.git/config", true).unwrap().as_bytes(), b".git/config");
        assert!(SitePath::parse("/%2e%2e/x", true).is_err());
        assert!(SitePath::parse("/a/../x", true).is_err());
    }
}
