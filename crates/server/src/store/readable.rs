//! Whether the body of a stored response can be read, before its head is sent: later, a disk that does not answer cuts the response.

use std::io::IoSliceMut;
use std::os::unix::fs::FileExt;
use std::sync::Arc;

use rustix::io::{Errno, ReadWriteFlags, preadv2};

use super::Store;
use super::answer::Answered;
use super::object::Object;
use crate::files::resolve::Content;
use crate::response::{Body, Response};

/// Whether the beginning of the body is in memory, or its file system does not tell.
pub(super) fn is_at_hand(response: &Response) -> bool {
    let Body::File { file, range } = &response.body else { return true };
    let Content::File(file) = &file.content else { return true };
    let read = preadv2(file, &mut [IoSliceMut::new(&mut [0])], range.start, ReadWriteFlags::NOWAIT);
    range.is_empty() || read != Err(Errno::AGAIN)
}

impl Store {
    /// Whether the body of an answer can be read, whose beginning is then in memory. `false`: its disk failed, or does not answer in time.
    pub(super) async fn can_read(&self, object: &Object, answered: &Answered) -> bool {
        let Answered::Response(response, _) = answered else { return true };
        let Body::File { file, range } = &response.body else { return true };
        if is_at_hand(response) {
            return true;
        }
        let (file, start) = (Arc::clone(file), range.start);
        let wanted = (range.end - range.start).min(READ_AHEAD) as usize;
        let read = self.disk(object.hash).run("read an object", move |_| {
            let Content::File(content) = &file.content else { return Ok(()) };
            content.read_exact_at(&mut vec![0; wanted], start).inspect_err(|_| file.note_unreadable())
        });
        read.await.is_some()
    }
}

/// SPEC: as much as Linux reads ahead unless told otherwise (VM_READAHEAD_PAGES in include/linux/mm.h).
const READ_AHEAD: u64 = 128 << 10;
