//! A range of a file in memory.

use std::future::poll_fn;
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use sealion_tls::content::Reader;

use crate::files::resolve::SiteFile;

/// Reads a range of a file, without blocking the thread.
pub(crate) async fn read_range(file: Arc<SiteFile>, range: Range<u64>) -> Result<Bytes, sealion_tls::Error> {
    let parts = [file.part(&range)];
    let mut reader = Reader::new(&parts);
    let (mut buffer, mut filled) = (vec![0; (range.end - range.start) as usize], 0);
    poll_fn(|cx| reader.poll_fill(cx, &mut buffer, &mut filled)).await?;
    buffer.truncate(filled);
    Ok(buffer.into())
}
