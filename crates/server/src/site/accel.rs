//! Files that an application has this server send, by a field of its response: X-Accel-Redirect (nginx) and X-Sendfile (Apache, lighttpd, Caddy).
//!
//! ```text
//! application ─► X-Accel-Redirect: /protected/a.pdf ─► the routes of the site ─┐
//!             ─► X-Sendfile: /srv/private/a.pdf ─► a directory of sendfile_from ┴► file, with fields of the application
//! ```

use std::num::NonZeroU64;
use std::path::PathBuf;
use std::sync::Arc;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode, percent_encode};
use schemars::JsonSchema;
use sealion_http::extra_fields::{ExtraFields, is_value};
use sealion_http::path::SitePath;
use sealion_http::{ContentType, Status};
use serde::{Deserialize, Serialize};

use super::SiteConfig;
use crate::files::cache::{FileCache, Files};
use crate::files::resolve::Root;
use crate::response::Response;
use crate::values::{At, Problems};

/// Fields that let an application have the server do something. None of them reaches a client.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct AccelConfig {
    /// Fields that have no effect, and reach no client either: `x-accel-redirect`, `x-accel-limit-rate`, `x-accel-charset`.
    pub ignore: Vec<At<String>>,
    /// Directories whose files `X-Sendfile: /srv/private/a.pdf` sends [default: X-Sendfile is passed to clients]
    pub sendfile_from: Vec<At<PathBuf>>,
}

/// The key `accel`.
#[derive(Debug)]
pub(crate) struct Accel {
    ignored: Vec<Instruction>,
    sendfile_from: Vec<SendfileRoot>,
}

/// A directory of `sendfile_from`.
#[derive(Debug)]
struct SendfileRoot {
    /// Its path as configured and as the kernel has it, without a slash at the end.
    names: Vec<Vec<u8>>,
    files: Files,
}

/// A field that has an effect here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Instruction {
    Redirect,
    LimitRate,
    Charset,
}

impl Instruction {
    const ALL: [Self; 3] = [Instruction::Redirect, Instruction::LimitRate, Instruction::Charset];

    fn name(self) -> &'static str {
        match self {
            Instruction::Redirect => "x-accel-redirect",
            Instruction::LimitRate => "x-accel-limit-rate",
            Instruction::Charset => "x-accel-charset",
        }
    }
}

/// Where a response leads.
#[derive(Debug)]
pub(super) struct AccelRedirect {
    pub(super) target: AccelTarget,
    pub(super) kept: KeptFields,
}

/// The target of [`AccelRedirect`].
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AccelTarget {
    /// A path of the site, encoded.
    Path { raw: String, query: Option<String> },
    /// The name of a route, with its at sign.
    Named(String),
    /// The path of a file in the file system.
    File(Vec<u8>),
    /// A value of X-Accel-Redirect that is no path of a site.
    Unsafe(String),
}

/// Fields of the application that the file is sent with.
#[derive(Debug, Default)]
pub(super) struct KeptFields {
    content_type: Option<ContentType>,
    charset: Option<String>,
    /// Whether the application refuses ranges.
    pub(super) refuses_ranges: bool,
    cookies: ExtraFields,
    /// Cache-Control, Expires and Content-Disposition.
    others: ExtraFields,
}

/// Fields that nginx, too, copies to the response with the file, beside Content-Type, Accept-Ranges and Set-Cookie.
const KEPT: [&str; 3] = ["content-disposition", "cache-control", "expires"];

/// The prefix of nginx' own fields.
const PREFIX: &[u8] = b"x-accel-";

const SENDFILE: &str = "x-sendfile";

impl AccelConfig {
    /// `site`: the settings of the route. `None`: there are problems.
    pub(super) fn build(
        &self,
        site: &SiteConfig,
        cache: &Arc<FileCache>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Accel> {
        let before = problems.len();
        let mut ignored = Vec::new();
        for name in &self.ignore {
            match Instruction::ALL.into_iter().find(|own| own.name().eq_ignore_ascii_case(name)) {
                Some(instruction) => ignored.push(instruction),
                None => {
                    let what = format_args!(
                        "{:?} has no effect anyway: write x-accel-redirect, x-accel-limit-rate or x-accel-charset",
                        name.value
                    );
                    problems.add(&name.span, &format!("{key}.ignore"), what);
                }
            }
        }
        let key = format!("{key}.sendfile_from");
        let roots = self.sendfile_from.iter().filter_map(|path| SendfileRoot::open(path, site, cache, &key, problems));
        let sendfile_from = roots.collect();
        (problems.len() == before).then_some(Accel { ignored, sendfile_from })
    }
}

impl SendfileRoot {
    fn open(
        path: &At<PathBuf>,
        site: &SiteConfig,
        cache: &Arc<FileCache>,
        key: &str,
        problems: &mut Problems,
    ) -> Option<Self> {
        let resolved = problems.resolve(path);
        let absolute = match std::path::absolute(&resolved) {
            Ok(absolute) => absolute,
            Err(error) => {
                problems.add(&path.span, key, error);
                return None;
            }
        };
        let root = Root::open(&absolute).map_err(|error| problems.add(&path.span, key, error)).ok()?;
        // An application may name a file by its real path.
        let real = absolute.canonicalize().ok();
        let names = std::iter::once(absolute).chain(real).map(|path| {
            let bytes = path.into_os_string().into_encoded_bytes();
            bytes.strip_suffix(b"/").map(<[u8]>::to_vec).unwrap_or(bytes)
        });
        let mut names: Vec<_> = names.collect();
        names.dedup();
        // The application decides which files are sent: scripts are downloads here.
        let files = site.files(root, &Arc::from([]), "site", cache, problems);
        Some(SendfileRoot { names, files })
    }

    /// The path of a file beneath the directory.
    fn beneath<'p>(&self, path: &'p [u8]) -> Option<&'p [u8]> {
        self.names.iter().find_map(|name| path.strip_prefix(name.as_slice())?.strip_prefix(b"/"))
    }
}

impl Accel {
    /// Takes the fields for this server out of an application's response, and has it follow them. Returns where the response leads.
    pub(super) fn take(&self, response: &mut Response) -> Option<AccelRedirect> {
        let extra = &response.fields.extra;
        let is_ours = |name: &str| {
            let begins = name.get(..PREFIX.len()).is_some_and(|start| start.as_bytes().eq_ignore_ascii_case(PREFIX));
            begins || !self.sendfile_from.is_empty() && name.eq_ignore_ascii_case(SENDFILE)
        };
        if response.status == Status::SWITCHING_PROTOCOLS || !extra.iter().any(|(name, _)| is_ours(name)) {
            return None;
        }
        let (mut own, mut others) = (ExtraFields::default(), ExtraFields::with_capacity(extra.lines().len()));
        for (name, value) in extra.iter() {
            let of_kind = if is_ours(name) { &mut own } else { &mut others };
            of_kind.add_octets(name, value);
        }
        response.fields.extra = others;
        if let Some(rate) = self.value(&own, Instruction::LimitRate).and_then(decimal) {
            response.rate = NonZeroU64::new(rate);
        }
        let charset = self.value(&own, Instruction::Charset).and_then(charset);
        let Some(target) = self.target(&own) else {
            if let Some(charset) = charset {
                set_charset(&mut response.fields.extra, &charset);
            }
            return None;
        };
        Some(AccelRedirect { target, kept: KeptFields::of(&response.fields.extra, charset) })
    }

    fn value<'f>(&self, fields: &'f ExtraFields, instruction: Instruction) -> Option<&'f [u8]> {
        first(fields, instruction.name()).filter(|_| !self.ignored.contains(&instruction))
    }

    fn target(&self, fields: &ExtraFields) -> Option<AccelTarget> {
        if let Some(value) = self.value(fields, Instruction::Redirect) {
            return Some(AccelTarget::of_uri(value));
        }
        first(fields, SENDFILE).map(|path| AccelTarget::File(path.to_vec()))
    }

    /// The files that a path of the file system is among, and the same path beneath their directory.
    pub(super) fn files_of(&self, path: &[u8]) -> Option<(&Files, SitePath<'static>)> {
        let found = self.sendfile_from.iter().filter_map(|root| Some((&root.files, root.beneath(path)?)));
        // Of directories within another, the innermost one.
        let (files, name) = found.min_by_key(|(_, name)| name.len())?;
        Some((files, SitePath::of_octets(name).ok().filter(|path| !path.names_directory())?))
    }
}

impl AccelTarget {
    /// The value is a path, percent-encoded or not, and a query behind a question mark.
    fn of_uri(value: &[u8]) -> Self {
        let unsafe_uri = || AccelTarget::Unsafe(value.escape_ascii().to_string());
        if value.starts_with(b"@") {
            return match std::str::from_utf8(value) {
                Ok(name) => AccelTarget::Named(name.to_owned()),
                Err(_) => unsafe_uri(),
            };
        }
        let (path, query) = match memchr::memchr(b'?', value) {
            Some(at) => (&value[..at], Some(&value[at + 1..])),
            None => (value, None),
        };
        let decoded: Vec<u8> = percent_decode(path).collect();
        if !decoded.starts_with(b"/") || decoded.contains(&0) {
            return unsafe_uri();
        }
        let Ok(path) = SitePath::of_octets(&decoded) else { return unsafe_uri() };
        let end = if path.names_directory() && !path.as_bytes().is_empty() { "/" } else { "" };
        let raw = path.without_slash(None) + end;
        AccelTarget::Path { raw, query: query.map(|query| percent_encode(query, OUTSIDE_QUERY).to_string()) }
    }
}

/// Bytes that no query of a request has as they are.
const OUTSIDE_QUERY: &AsciiSet = &CONTROLS.add(b' ').add(b'#').add(b'"').add(b'<').add(b'>');

impl KeptFields {
    fn of(fields: &ExtraFields, charset: Option<String>) -> Self {
        let mut kept = KeptFields { charset, ..KeptFields::default() };
        for (name, value) in fields.iter() {
            match name.to_ascii_lowercase().as_str() {
                "content-type" => kept.content_type = custom_type(value).or(kept.content_type),
                "accept-ranges" => kept.refuses_ranges = value.eq_ignore_ascii_case(b"none"),
                "set-cookie" => kept.cookies.add_octets(name, value),
                lower if KEPT.contains(&lower) => kept.others.add_octets(name, value),
                _ => {}
            }
        }
        kept
    }

    /// The type that a file is sent with, whose own type is `of_file`.
    pub(super) fn type_of(&self, of_file: &ContentType) -> Option<ContentType> {
        let Some(charset) = &self.charset else { return self.content_type.clone() };
        let mut own = Vec::new();
        match &self.content_type {
            Some(own_type) => own_type.write(&mut own),
            None => own.extend_from_slice(of_file.essence().as_bytes()),
        }
        with_charset(&own, charset).as_deref().and_then(custom_type).or_else(|| self.content_type.clone())
    }

    /// Adds them to the response that the target gave.
    pub(super) fn add_to(&self, response: &mut Response) {
        let fields = &mut response.fields;
        fields.extra.extend(&self.cookies);
        // They are about the file that was not sent.
        if response.status.code() >= 400 {
            return;
        }
        if let Some(own) = &fields.content_type
            && !matches!(own, ContentType::ByteRanges(_))
        {
            fields.content_type = self.type_of(own).or(fields.content_type.take());
        }
        for (name, _) in self.others.iter() {
            fields.extra.remove(name);
        }
        fields.extra.extend(&self.others);
        if self.refuses_ranges && std::mem::take(&mut fields.accept_ranges) {
            fields.extra.add("Accept-Ranges", "none");
        }
    }
}

fn first<'f>(fields: &'f ExtraFields, name: &str) -> Option<&'f [u8]> {
    fields.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn decimal(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

/// A character encoding that Content-Type may name.
fn charset(value: &[u8]) -> Option<String> {
    let is_fit = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.' | b':' | b'+');
    let name = std::str::from_utf8(value).ok()?;
    (!name.is_empty() && value.iter().all(is_fit) && !name.eq_ignore_ascii_case("off")).then(|| name.to_owned())
}

fn custom_type(value: &[u8]) -> Option<ContentType> {
    let value = std::str::from_utf8(value).ok().filter(|value| !value.is_empty() && is_value(value))?;
    Some(ContentType::Custom(value.into()))
}

/// A type of text with its character encoding. `None`: it is no text, or has one.
fn with_charset(media_type: &[u8], charset: &str) -> Option<Vec<u8>> {
    let lower = media_type.to_ascii_lowercase();
    let has_one = memchr::memmem::find(&lower, b"charset=").is_some();
    (lower.starts_with(b"text/") && !has_one).then(|| [media_type, b"; charset=", charset.as_bytes()].concat())
}

fn set_charset(fields: &mut ExtraFields, charset: &str) {
    if let Some(value) = first(fields, "content-type").and_then(|own| with_charset(own, charset)) {
        fields.remove("content-type");
        fields.add_octets("content-type", &value);
    }
}

#[cfg(test)]
#[path = "accel_tests.rs"]
mod tests;
