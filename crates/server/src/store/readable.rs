//! Whether the body of a stored response can be read, before its head is sent: later, a disk that does not answer cuts the response.

use std::fs::File;
use std::io::IoSliceMut;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::Store;
use super::answer::Answered;
use super::object::Object;
use crate::files::resolve::Content;
use crate::response::{Body, Response};

/// Whether the first part of the body is in memory, or its file system does not tell.
pub(super) fn is_at_hand(response: &Response) -> bool {
    let Body::File { file, range } = &response.body else { return true };
    let Content::File(file) = &file.content else { return true };
    first_cold(file, range).is_none()
}

/// Where the first byte lies that is not in memory. Samples are taken: Linux brings pages into memory, and drops them, in runs.
fn first_cold(file: &File, range: &Range<u64>) -> Option<u64> {
    let end = range.end.min(range.start.saturating_add(MAX_SAMPLED));
    let samples = (range.start..end).step_by(READ_AHEAD as usize);
    let last = (!range.is_empty()).then(|| end - 1);
    let mut byte = [0];
    samples.chain(last).find(|at| {
        let read = preadv2(file, &mut [IoSliceMut::new(&mut byte)], *at, ReadWriteFlags::NOWAIT);
        read == Err(Errno::AGAIN)
    })
}

impl Store {
    /// Whether the body of a response can be read, whose first part is then in memory. `false`: its disk failed, or does not answer in time.
    pub(super) async fn can_read(&self, object: &Object, answered: &Answered) -> bool {
        let Answered::Response(response, _) = answered else { return true };
        let Body::File { file, range } = &response.body else { return true };
        let Content::File(content) = &file.content else { return true };
        let Some(start) = first_cold(content, range) else { return true };
        let file = Arc::clone(file);
        let wanted = (range.end - start).min(READ_AHEAD) as usize;
        let read = self.disk(object.hash).run("read an object", move |_| {
            let Content::File(content) = &file.content else { return Ok(()) };
            content.read_exact_at(&mut vec![0; wanted], start).inspect_err(|_| file.note_unreadable())
        });
        read.await.is_some()
    }
}

/// SPEC: as much as Linux reads ahead unless told otherwise (VM_READAHEAD_PAGES in include/linux/mm.h).
const READ_AHEAD: u64 = 128 << 10;

/// GUESS: bytes of a body that are looked for. Eight samples of a microsecond in all, where sending takes a hundred.
const MAX_SAMPLED: u64 = 1 << 20;
