//! A stored response in memory.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};

use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_cache::Lifetime;
use sealion_http::{ExtraFields, Status};

use super::KEPT_IN_MEMORY;
use super::check::Check;
use super::directory::{Opened, read_exact_at};
use super::disk::Times;
use super::format::{Kind, Metadata};
use super::rule::Rules;
use super::slices::Sliced;
use crate::files::disk_threads::DiskThreads;
use crate::files::resolve::{Content, SiteFile, Wait};

/// A stored response.
#[derive(Debug)]
pub(crate) struct Object {
    pub(super) key: Box<[u8]>,
    pub(super) hash: u128,
    /// Its version in the index, or [`NOT_INDEXED`].
    version: AtomicU32,
    /// The times of its last validation, if it was validated. Its file does not tell when it was requested: after loading, that is when it was made.
    pub(super) times: Times,
    pub(super) head: Head,
    pub(super) body: Arc<SiteFile>,
    /// CRC-32C of the body.
    pub(super) checksum: u32,
    /// Whether a loss of power may have damaged the body.
    pub(super) is_suspect: bool,
    /// The check of a body in a file, once it is asked for.
    pub(super) check: OnceLock<Arc<Check>>,
}

/// A stored response without its body.
#[derive(Debug, Clone)]
pub(crate) struct Head {
    pub(super) status: Status,
    /// The fields of the origin.
    pub(super) fields: HeaderMap,
    /// The fields as clients get them, except fields that differ from one response to the next.
    pub(super) lines: ExtraFields,
    pub(super) lifetime: Lifetime,
    /// Names for purges by tag.
    pub(super) tags: Box<[Box<str>]>,
    /// Groups of its origin that are invalidated together (RFC 9875).
    pub(super) groups: Box<[Box<str>]>,
    /// The response that it is a slice of (206).
    pub(super) sliced: Option<Arc<Sliced>>,
}

impl Head {
    /// Whether it is a part of a response that cannot be put together: slices have another size, or none, by now.
    pub(super) fn is_lost_part(&self) -> bool {
        self.status == Status::PARTIAL_CONTENT && self.sliced.is_none()
    }

    /// The metadata to write behind the body of an object with this key.
    pub(super) fn metadata(&self, key: &[u8]) -> Metadata {
        let field = |(name, value): (&HeaderName, &HeaderValue)| (name.as_str().to_owned(), value.as_bytes().to_vec());
        Metadata {
            key: key.to_vec(),
            kind: Kind::Response {
                status: self.status.code(),
                fields: self.fields.iter().map(field).collect(),
                lifetime: self.lifetime.to_bytes().to_vec(),
            },
        }
    }
}

/// The entry under a key.
#[derive(Debug, Clone)]
pub(super) enum Stored {
    Object(Arc<Object>),
    /// The request fields that select among the responses of the URL.
    Variants(Arc<[HeaderName]>),
}

impl Object {
    pub(super) fn new(
        key: Box<[u8]>,
        hash: u128,
        times: Times,
        head: Head,
        body: Arc<SiteFile>,
        checksum: u32,
    ) -> Self {
        let (version, check) = (AtomicU32::new(NOT_INDEXED), OnceLock::new());
        Object { key, hash, version, times, head, body, checksum, is_suspect: false, check }
    }

    pub(super) fn version(&self) -> Option<u32> {
        Some(self.version.load(Ordering::Acquire)).filter(|version| *version != NOT_INDEXED)
    }

    pub(super) fn set_version(&self, version: u32) {
        self.version.store(version, Ordering::Release);
    }

    /// The same, stale from now on.
    pub(super) fn made_stale(&self, now: u64) -> Self {
        let head = Head { lifetime: self.head.lifetime.made_stale(now), ..self.head.clone() };
        self.with(self.times, head)
    }

    /// The same, to be validated before it is sent again.
    pub(super) fn made_doubtful(&self, now: u64) -> Self {
        let head = Head { lifetime: self.head.lifetime.made_doubtful(now), ..self.head.clone() };
        self.with(self.times, head)
    }

    /// The same, with the fields that clients get by this rule.
    pub(super) fn made_by(&self, rules: &Rules) -> Self {
        let Head { status, ref fields, lifetime, .. } = self.head;
        self.with(self.times, rules.head(&self.key, status, fields.clone(), lifetime))
    }

    /// The same body with another head.
    pub(super) fn with(&self, times: Times, head: Head) -> Self {
        let Object { ref key, hash, ref body, checksum, is_suspect, ref check, .. } = *self;
        let object = Object::new(key.clone(), hash, times, head, Arc::clone(body), checksum);
        Object { is_suspect, check: check.clone(), ..object }
    }

    /// Bytes of memory that it takes.
    pub(super) fn memory(&self) -> usize {
        let body = match &self.body.content {
            Content::Memory(bytes) => bytes.len(),
            Content::File(_) => 0,
        };
        let fields: usize = self.head.fields.iter().map(|(name, value)| name.as_str().len() + value.len() + 64).sum();
        size_of::<Self>() + self.key.len() + self.head.lines.lines().len() + fields + body
    }

    /// Whether it holds a descriptor.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.body.content, Content::File(_))
    }

    /// The metadata to write behind the body.
    pub(super) fn metadata(&self) -> Metadata {
        self.head.metadata(&self.key)
    }
}

impl Stored {
    /// Loads a file. A short body is read into memory, which checks it. `is_suspect`: a loss of power may have damaged a long body. `Ok(None)`: the file is
    /// damaged.
    ///
    /// # Errors
    /// The file cannot be read; `WouldBlock`: not without blocking.
    pub(super) fn load(
        opened: Opened,
        is_suspect: bool,
        rules: &Rules,
        wait: Wait,
        threads: &Arc<DiskThreads>,
    ) -> io::Result<Option<Self>> {
        let Opened { file, footer, metadata, .. } = opened;
        let Metadata { key, kind } = metadata;
        let (status, fields, lifetime) = match kind {
            Kind::Response { status, fields, lifetime } => (status, fields, lifetime),
            Kind::Variants { names, .. } => {
                let names: Option<Arc<[HeaderName]>> =
                    names.iter().map(|name| HeaderName::try_from(name.as_str()).ok()).collect();
                return Ok(names.map(Stored::Variants));
            }
        };
        let mut map = HeaderMap::with_capacity(fields.len());
        for (name, value) in &fields {
            let (Ok(name), Ok(value)) = (HeaderName::try_from(name.as_str()), HeaderValue::from_bytes(value)) else {
                return Ok(None);
            };
            map.append(name, value);
        }
        let lifetime = lifetime.as_slice().try_into().ok().and_then(Lifetime::from_bytes);
        let (Some(status), Some(lifetime)) = (Status::new(status), lifetime) else { return Ok(None) };
        let body = if footer.body <= KEPT_IN_MEMORY {
            let mut bytes = vec![0; footer.body as usize];
            read_exact_at(&file, &mut bytes, 0, wait)?;
            if crc32c::crc32c(&bytes) != footer.body_checksum {
                return Ok(None);
            }
            SiteFile::of_content(Content::Memory(bytes.into()), footer.body)
        } else {
            threads.site_file(Arc::new(file), footer.body)
        };
        let head = rules.head(&key, status, map, lifetime);
        let times = Times { made: footer.stored, asked: footer.stored };
        let object = Object::new(key.into(), footer.hash, times, head, body, footer.body_checksum);
        Ok(Some(Stored::Object(Arc::new(Object { is_suspect, ..object }))))
    }
}

/// CRC-32C of the first `length` bytes. `read` learns of each part.
pub(super) fn checksum(file: &File, length: u64, mut read: impl FnMut(u64)) -> io::Result<u32> {
    let mut buffer = vec![0; 1 << 18];
    let (mut checksum, mut at) = (0, 0);
    while at < length {
        let part = usize::try_from(length - at).map_or(buffer.len(), |left| left.min(buffer.len()));
        file.read_exact_at(&mut buffer[..part], at)?;
        checksum = crc32c::crc32c_append(checksum, &buffer[..part]);
        at += part as u64;
        read(part as u64);
    }
    Ok(checksum)
}

const NOT_INDEXED: u32 = u32::MAX;
