//! Archives of directories for download: `?archive=tar.zst`.
//!
//! ```text
//! walk: every directory is read, every file opened; what may not be read is left out; bounds ─► head ─► a thread writes the archive ─► the response
//! ```
//!
//! The walk keeps a name and a length for each member, so that bounds are known before the response begins. A file that has changed its length
//! since breaks the response off.

mod source;
mod tar;
mod walk;

use std::net::IpAddr;
use std::sync::Arc;

use percent_encoding::percent_encode;
use schemars::JsonSchema;
use sealion_http::path::OUTSIDE_PCHAR;
use sealion_http::{Coding, ContentType, Fields, Status};
use serde::{Deserialize, Serialize};
use smart_default::SmartDefault;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::spawn_blocking;

use crate::files::resolve::{Root, Unresolved};
use crate::limits::{Addresses, Admitted};
use crate::response::{Body, BodyStream, Response};
use crate::values::{At, Bounded, Problems, Size};

use source::ArchiveSource;
pub(super) use walk::Walk;

/// Archives of listed directories for download.
#[derive(Debug, Clone, PartialEq, SmartDefault, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct ArchiveConfig {
    /// Most bytes of the files in an archive. A directory with more is answered 403.
    #[default(Size(10 << 30).into())]
    pub max: At<Size>,
    /// Most files and directories in an archive. A directory with more is answered 403. Each takes about 150 bytes while the archive is sent.
    #[default(const { Bounded::new(100_000).expect("it is within its bounds") })]
    pub files: Bounded<1, 1_000_000>,
    /// Archives that are made at a time; further requests are answered 503. A client, an IPv4 address or an IPv6 /64, may have half of them, and
    /// one at least. A compressed one keeps a processor busy.
    #[default(const { Bounded::new(4).expect("it is within its bounds") })]
    pub concurrent: Bounded<1, 64>,
}

/// The bounds of a site's archives.
#[derive(Debug)]
pub(crate) struct Archives {
    max: u64,
    files: usize,
    permits: Arc<Semaphore>,
    /// Archives that one client may have at a time.
    of_client: u32,
    clients: Arc<Addresses>,
}

/// The permit to make an archive, until dropped.
#[derive(Debug)]
pub(super) struct Permit {
    _archive: OwnedSemaphorePermit,
    _client: Option<Admitted>,
}

/// The format of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Tar,
    TarGz,
    TarZst,
}

/// Why there is no archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Refused {
    /// The parameter names no format.
    Format,
    /// The site makes none of this directory.
    NotOffered,
    /// As many as the site permits, in all or for one client, are being made.
    Busy,
    /// The directory has more than so many files and directories.
    TooMany(usize),
    /// The files have more than so many bytes.
    TooLarge(u64),
}

/// Why a walk ends before its end.
#[derive(Debug)]
pub(super) enum NoArchive {
    Refused(Refused),
    /// A directory cannot be read.
    Unresolved(Unresolved),
}

impl From<Refused> for NoArchive {
    fn from(refused: Refused) -> Self {
        NoArchive::Refused(refused)
    }
}

impl From<Unresolved> for NoArchive {
    fn from(unresolved: Unresolved) -> Self {
        NoArchive::Unresolved(unresolved)
    }
}

impl ArchiveConfig {
    pub(super) fn build(&self, key: &str, problems: &mut Problems) -> Archives {
        if self.max.0 == 0 {
            problems.add(&self.max.span, &format!("{key}.max"), "permits no file: write for instance \"10GB\"");
        }
        Archives {
            max: self.max.0,
            files: self.files.usize(),
            permits: Arc::new(Semaphore::new(self.concurrent.usize())),
            of_client: self.concurrent.usize().div_ceil(2) as u32,
            clients: Arc::default(),
        }
    }
}

impl Archives {
    /// The permit to make an archive. It lasts until the archive is sent. `client`: `None` over a Unix socket, where clients have no address and
    /// share only the permits of the site.
    pub(super) fn begin(&self, client: Option<IpAddr>) -> Result<Permit, Refused> {
        let archive = Arc::clone(&self.permits).try_acquire_owned().map_err(|_| Refused::Busy)?;
        let of_client = client.map(|client| self.clients.admit(client, self.of_client).ok_or(Refused::Busy));
        Ok(Permit { _archive: archive, _client: of_client.transpose()? })
    }

    /// A walk through the directory `name` beneath `root`.
    pub(super) fn walk(&self, root: Arc<Root>, name: &[u8], indexes: Vec<String>, show_dotfiles: bool) -> Walk {
        Walk::new(root, name, indexes, show_dotfiles, self.files, self.max)
    }
}

impl Format {
    pub(super) const ALL: [Format; 3] = [Format::Tar, Format::TarGz, Format::TarZst];

    /// The name in a query, and the ending of the archive's name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Format::Tar => "tar",
            Format::TarGz => "tar.gz",
            Format::TarZst => "tar.zst",
        }
    }

    pub(super) fn of_name(name: &str) -> Result<Self, Refused> {
        Format::ALL.into_iter().find(|format| format.name() == name).ok_or(Refused::Format)
    }

    fn media_type(self) -> &'static str {
        match self {
            Format::Tar => "application/x-tar",
            Format::TarGz => "application/gzip",
            Format::TarZst => "application/zstd",
        }
    }

    fn coding(self) -> Option<Coding> {
        match self {
            Format::Tar => None,
            Format::TarGz => Some(Coding::Gzip),
            Format::TarZst => Some(Coding::Zstd),
        }
    }
}

impl Refused {
    /// The response, with the reason as text.
    pub(super) fn response(self) -> Response {
        let (status, reason) = match self {
            Refused::Format => (Status::BAD_REQUEST, "Archives have the formats tar, tar.gz and tar.zst.\n".to_owned()),
            Refused::NotOffered => (Status::FORBIDDEN, "There is no archive of this directory.\n".to_owned()),
            Refused::Busy => {
                (Status::SERVICE_UNAVAILABLE, "Too many archives are being made. Try again later.\n".to_owned())
            }
            Refused::TooMany(most) => (
                Status::FORBIDDEN,
                format!("There is no archive of this directory: it has more than {most} files and directories.\n"),
            ),
            Refused::TooLarge(most) => (
                Status::FORBIDDEN,
                format!("There is no archive of this directory: its files have more than {} in all.\n", Size(most)),
            ),
        };
        let mut response = Response { body: Body::Bytes(reason.into_bytes().into()), ..Response::plain(status) };
        if self == Refused::Busy {
            response.fields.retry_after = Some(RETRY_AFTER_SECONDS);
        }
        response
    }
}

/// The response with an archive of the files that `walk` found. `name`: the directory's name in the archive, without slashes.
///
/// # Errors
/// The task that sorts the members panicked.
pub(super) async fn response(walk: Walk, name: &[u8], format: Format, permit: Permit) -> Result<Response, Unresolved> {
    let mut fields = Fields { content_type: Some(ContentType::Plain(format.media_type())), ..Fields::default() };
    fields.extra.add("Content-Disposition", &disposition(name, format));
    fields.extra.add("X-Content-Type-Options", "nosniff");
    let prefix = [name, b"/"].concat();
    // For very many members it takes too long for a worker.
    let source = spawn_blocking(move || ArchiveSource::new(walk, prefix, format.coding(), permit)).await;
    let source = source.map_err(|error| Unresolved::panicked(&error))?;
    let length = format.coding().is_none().then_some(source.length());
    Ok(Response::new(Status::OK, fields, Body::Stream(BodyStream { length, source: Box::pin(source) })))
}

/// The value of Content-Disposition (RFC 6266): a name that is safe everywhere, and the name itself.
fn disposition(name: &[u8], format: Format) -> String {
    let safe = |octet: &u8| match octet {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' => char::from(*octet),
        _ => '_',
    };
    let plain: String = name.iter().map(safe).collect();
    let ending = format.name();
    let mut value = format!("attachment; filename=\"{plain}.{ending}\"");
    if plain.as_bytes() != name {
        let name = String::from_utf8_lossy(name);
        let encoded = percent_encode(name.as_bytes(), EXTENDED);
        value.push_str(&format!("; filename*=UTF-8''{encoded}.{ending}"));
    }
    value
}

/// The bytes to percent-encode in an extended parameter (RFC 8187 §3.2.1).
const EXTENDED: &percent_encoding::AsciiSet = &OUTSIDE_PCHAR
    .add(b'\'')
    .add(b'(')
    .add(b')')
    .add(b'*')
    .add(b',')
    .add(b'/')
    .add(b':')
    .add(b';')
    .add(b'=')
    .add(b'@')
    .add(b'%');

/// Archives take seconds to minutes.
const RETRY_AFTER_SECONDS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_archives() {
        for (name, expected) in [
            (&b"pub"[..], "attachment; filename=\"pub.tar.gz\""),
            (b"a b\"", "attachment; filename=\"a_b_.tar.gz\"; filename*=UTF-8''a%20b%22.tar.gz"),
            ("ü".as_bytes(), "attachment; filename=\"__.tar.gz\"; filename*=UTF-8''%C3%BC.tar.gz"),
            (b"\xff'\r\n", "attachment; filename=\"____.tar.gz\"; filename*=UTF-8''%EF%BF%BD%27%0D%0A.tar.gz"),
        ] {
            assert_eq!(disposition(name, Format::TarGz), expected);
        }
    }

    #[test]
    fn configuration() {
        let text = "max = '0B'";
        let mut problems = Problems::of_file("f".as_ref(), text);
        toml::from_str::<ArchiveConfig>(text).unwrap().build("site.listing.archive", &mut problems);
        assert!(problems.to_string().starts_with("f:1: site.listing.archive.max: permits no file"), "{problems}");
        assert!(toml::from_str::<ArchiveConfig>("files = 0").is_err());
        assert!(toml::from_str::<ArchiveConfig>("concurrent = 0").is_err());
    }

    #[test]
    fn permits_are_bounded_in_all_and_for_each_client() {
        let archives = |keys| toml::from_str::<ArchiveConfig>(keys).unwrap().build("", &mut Problems::of_arguments());
        let [a, b] = ["192.0.2.1", "192.0.2.2"].map(|address| Some(address.parse().unwrap()));
        let one = archives("concurrent = 1");
        let first = one.begin(a).unwrap();
        for client in [a, b, None] {
            assert_eq!(one.begin(client).unwrap_err(), Refused::Busy);
        }
        drop(first);
        drop(one.begin(b).unwrap());

        let four = archives("concurrent = 4");
        let of_a: Vec<Permit> = (0..2).map(|_| four.begin(a).unwrap()).collect();
        assert_eq!(four.begin(a).unwrap_err(), Refused::Busy, "half of them are for others");
        let of_others = (four.begin(b).unwrap(), four.begin(None).unwrap());
        drop(of_a);
        drop((four.begin(a).unwrap(), four.begin(a).unwrap()));
        drop(of_others);
    }
}
