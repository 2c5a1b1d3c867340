//! A file that was opened, and its content.

use std::borrow::Cow;
use std::fmt;
use std::fs::File;
use std::io::{self, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::{Errno, ReadWriteFlags, preadv2};
use sealion_http::Coding;
use sealion_http::content_type::ContentType;
use sealion_http::etag::EntityTag;
use sealion_tls::Part;

use super::state::{State, hashed_tag, is_past};
use super::{Content, NotOpened, SiteFile, Unresolved, Wait};
#[cfg(test)]
use super::{EntityTags, state::file_system_time};

impl SiteFile {
    /// Content outside a root, of `len` bytes: the content of a stored response, whose fields are kept with it.
    pub(crate) fn of_content(content: Content, len: u64) -> Arc<Self> {
        Arc::new(Self::beneath_no_root(content, len))
    }

    /// As [`Self::of_content`], with a value that is dropped when the content is no longer being sent.
    pub(crate) fn of_content_until_closed(
        content: Content,
        len: u64,
        until_closed: Arc<dyn fmt::Debug + Send + Sync>,
    ) -> Arc<Self> {
        Arc::new(SiteFile { _until_closed: Some(until_closed), ..Self::beneath_no_root(content, len) })
    }

    fn beneath_no_root(content: Content, len: u64) -> Self {
        SiteFile {
            content,
            len,
            modified: None,
            etag: EntityTag::from_fingerprint([0; 8]),
            content_type: ContentType::of_name(b""),
            coding: None,
            is_sibling: false,
            varies: false,
            state: State([0; 7]),
            read_at: [0; 2],
            is_unreadable: AtomicBool::new(false),
            _until_closed: None,
        }
    }

    /// A range of it, as a connection sends it.
    pub(crate) fn part(&self, range: &Range<u64>) -> Part<'_> {
        match &self.content {
            Content::File(file) => Part::File { file, range: range.clone() },
            Content::Memory(bytes) => Part::Bytes(&bytes[range.start as usize..range.end as usize]),
        }
    }

    /// Records that a response was cut short because this could not be read.
    pub(crate) fn note_unreadable(&self) {
        self.is_unreadable.store(true, Ordering::Relaxed);
    }

    /// Whether a response was cut short because this could not be read.
    pub(crate) fn is_unreadable(&self) -> bool {
        self.is_unreadable.load(Ordering::Relaxed)
    }

    /// The same content with its length, which is known by now.
    pub(crate) fn with_len(&self, len: u64) -> Option<Arc<Self>> {
        match &self.content {
            Content::File(file) => Some(Arc::new(SiteFile {
                _until_closed: self._until_closed.clone(),
                ..Self::beneath_no_root(Content::File(Arc::clone(file)), len)
            })),
            Content::Memory(_) => None,
        }
    }

    /// Whether every later change will show in the change time. Within a clock tick it may not: content read between
    /// two changes could have the time stamps of the second.
    pub(crate) fn is_settled(&self) -> bool {
        is_past(self.state.changed(), self.read_at)
    }

    /// Makes it the precompressed sibling of `original` in `coding`. Its tag differs from the original's even if size
    /// and time are equal.
    pub(crate) fn become_sibling(&mut self, original: &SiteFile, coding: Coding) {
        self.etag = self.tag_in(coding.token());
        self.content_type = original.content_type.clone();
        self.coding = Some(coding);
        self.is_sibling = true;
        self.varies = true;
    }

    /// The entity tag of the content as a representation in the coding with this token.
    pub(crate) fn tag_in(&self, coding: &str) -> EntityTag {
        let tag = hashed_tag(&[self.etag.opaque(), coding.as_bytes()].concat());
        if self.etag.is_weak() { tag.weakened() } else { tag }
    }

    /// Whether the bytes still match the validators. Bytes in memory always do.
    pub(crate) fn is_intact(&self) -> bool {
        match &self.content {
            Content::Memory(_) => true,
            Content::File(file) => file.metadata().is_ok_and(|metadata| State::of(&metadata) == self.state),
        }
    }

    pub(crate) fn state(&self) -> &State {
        &self.state
    }

    /// Reads all bytes as described by the validators. May block.
    ///
    /// # Errors
    /// The file cannot be read, or has changed since.
    pub(crate) fn read_as_it_was(&self) -> io::Result<Cow<'_, [u8]>> {
        match &self.content {
            Content::Memory(bytes) => Ok(Cow::Borrowed(bytes)),
            Content::File(file) => match read_whole(file, &self.state, Wait::Yes) {
                Ok(Some(bytes)) => Ok(Cow::Owned(bytes.into_vec())),
                Ok(None) => Err(io::Error::other("file changed while it was read")),
                Err(NotOpened::Unresolved(Unresolved { cause: Some(cause), .. })) => Err(cause),
                Err(error) => Err(io::Error::other(format!("{error:?}"))),
            },
        }
    }

    /// The variant of this file with `bytes` in `coding`. Its entity tag is a digest of the bytes, so it is strong even if the
    /// encoder is not deterministic.
    pub(crate) fn encoded(&self, bytes: Box<[u8]>, coding: Coding) -> Arc<Self> {
        Arc::new(SiteFile {
            len: bytes.len() as u64,
            modified: self.modified,
            etag: hashed_tag(&bytes),
            content_type: self.content_type.clone(),
            coding: Some(coding),
            is_sibling: false,
            varies: true,
            content: Content::Memory(bytes),
            state: self.state,
            read_at: self.read_at,
            is_unreadable: AtomicBool::new(false),
            _until_closed: None,
        })
    }
}

#[cfg(any(test, fuzzing))]
impl SiteFile {
    pub(crate) fn read(&self, range: std::ops::Range<u64>) -> Vec<u8> {
        match &self.content {
            Content::Memory(bytes) => bytes[range.start as usize..range.end as usize].to_vec(),
            Content::File(file) => {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                std::os::unix::fs::FileExt::read_exact_at(&**file, &mut bytes, range.start).unwrap();
                bytes
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn of(file: File) -> Arc<Self> {
        let state = State::of(&file.metadata().unwrap());
        Arc::new(SiteFile {
            content: Content::File(Arc::new(file)),
            len: state.len(),
            modified: None,
            etag: state.entity_tag(EntityTags::default(), file_system_time()),
            content_type: ContentType::of_name(b""),
            coding: None,
            is_sibling: false,
            varies: false,
            state,
            read_at: file_system_time(),
            is_unreadable: AtomicBool::new(false),
            _until_closed: None,
        })
    }
}

/// Reads the whole file. `None`: it changed in the meantime.
pub(super) fn read_whole(file: &File, state: &State, wait: Wait) -> Result<Option<Box<[u8]>>, NotOpened> {
    let flags = if wait == Wait::No { ReadWriteFlags::NOWAIT } else { ReadWriteFlags::empty() };
    let mut bytes = vec![0; state.len() as usize].into_boxed_slice();
    let mut read = 0;
    while read < bytes.len() {
        match preadv2(file, &mut [IoSliceMut::new(&mut bytes[read..])], read as u64, flags) {
            Ok(0) => return Ok(None),
            Ok(more) => read += more,
            Err(Errno::INTR) => {}
            // Some file systems do not support RWF_NOWAIT.
            Err(Errno::AGAIN | Errno::OPNOTSUPP) if wait == Wait::No => return Err(NotOpened::Waits),
            Err(errno) => return Err(Unresolved::broken(errno.into()).into()),
        }
    }
    let after = file.metadata().map_err(Unresolved::broken)?;
    Ok((State::of(&after) == *state).then_some(bytes))
}
