//! Whether the body of a stored response can be read, before its head is sent: later, a disk that does not answer cuts the response.

use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::Store;
use super::answer::Answered;
use super::object::Object;
use crate::files::resolve::{Content, SiteFile};
use crate::response::{Body, Response};

/// Whether the first part of the body is in memory, or its file system does not tell.
pub(super) fn is_at_hand(response: &Response) -> bool {
    first_cold(response).is_none()
}

/// The body's file, and the part of it from the first byte that is not in memory. Samples are taken: Linux brings pages into memory, and drops them, in runs.
fn first_cold(response: &Response) -> Option<(&Arc<SiteFile>, Range<u64>)> {
    let Body::File { file, range } = &response.body else { return None };
    Some((file, cold_part(file, range)?))
}

/// Whether the first part of a range is in memory, or its file system does not tell.
pub(super) fn is_in_memory(file: &SiteFile, range: &Range<u64>) -> bool {
    cold_part(file, range).is_none()
}

/// The part of a range from the first byte that is not in memory.
fn cold_part(file: &SiteFile, range: &Range<u64>) -> Option<Range<u64>> {
    let Content::File(content) = &file.content else { return None };
    let end = range.end.min(range.start.saturating_add(MAX_SAMPLED));
    let samples = (range.start..end).step_by(READ_AHEAD as usize);
    let last = (!range.is_empty()).then(|| end - 1);
    let mut byte = [0];
    let mut is_cold = |at: &u64| {
        let read = preadv2(content, &mut [IoSliceMut::new(&mut byte)], *at, ReadWriteFlags::NOWAIT);
        read == Err(Errno::AGAIN)
    };
    samples.chain(last).find(&mut is_cold).map(|at| at..range.end)
}

impl Store {
    /// Whether the body of a response can be read, whose first part is then in memory. `false`: its disk failed, or does not answer in time.
    pub(super) async fn can_read(&self, object: &Object, answered: &Answered) -> bool {
        let Answered::Response(response, _) = answered else { return true };
        let Some((file, cold)) = first_cold(response) else { return true };
        let file = Arc::clone(file);
        let wanted = (cold.end - cold.start).min(READ_AHEAD) as usize;
        let read = self.disk(object.hash).run("read an object", move |_| {
            let Content::File(content) = &file.content else { return Ok(()) };
            content.read_exact_at(&mut vec![0; wanted], cold.start).inspect_err(|_| file.note_unreadable())
        });
        read.await.is_some()
    }
}

/// SPEC: as much as Linux reads ahead unless told otherwise (VM_READAHEAD_PAGES in include/linux/mm.h).
const READ_AHEAD: u64 = 128 << 10;

/// GUESS: bytes of a body that are looked for. Eight samples of a microsecond in all, where sending takes a hundred.
pub(super) const MAX_SAMPLED: u64 = 1 << 20;
