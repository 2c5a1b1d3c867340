//! Coded forms of stored responses: the content in a content coding, made once behind the request that asked for it first.
//!
//! ```text
//! hit ─► site/compression.rs: a coding ─► CodedForms::form ─┬─ this worker has the form ─► sent as any file, with its length
//!                                                      └─ it has not: coded while it is sent
//!                                                            └─ behind it: read from the disk, or made and stored
//! ```
//!
//! A form is an object of its own: it takes room, and purges cover it. Its key is the key of the response and whatever identifies its content: a response that
//! is replaced has other forms. Freshness, preconditions and ranges come from the response.

use std::io;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use http::header::{CONTENT_ENCODING, DATE, ETAG, HeaderValue, LAST_MODIFIED};
use lru::LruCache;
use sealion_http::Coding;
use tokio::sync::oneshot;
use tokio::task::yield_now;

use super::disk::Disk;
use super::front::HitLines;
use super::key::{Key, add_form};
use super::object::{Head, Object, Stored};
use super::purge::Verdict;
use super::readable::is_in_memory;
use super::rule::Rules;
use super::{Store, now_s};
use crate::files::coding::stream::STEP;
use crate::files::resolve::{Content, SiteFile};
use crate::response::{CodedForms, ContentEncoder, MakeEncoder, read_range};

/// A stored response whose content may be sent in a coding.
#[derive(Debug)]
pub(crate) struct Coded {
    pub(super) rules: Arc<Rules>,
    pub(super) object: Arc<Object>,
}

/// A form that only this task is making.
struct Making {
    coded: Coded,
    coding: Coding,
    key: Vec<u8>,
    hash: u128,
    /// Whether another attempt soon would end alike.
    is_settled: bool,
}

/// Forms that are being made, and forms that are not made for a while.
#[derive(Debug)]
pub(super) struct Forms(Mutex<LruCache<u128, Attempt>>);

#[derive(Debug, Clone, Copy)]
enum Attempt {
    UnderWay,
    Ended(Instant),
}

impl Default for Forms {
    fn default() -> Self {
        Forms(Mutex::new(LruCache::new(MOST_FORMS)))
    }
}

impl Forms {
    /// Whether the caller may make the form.
    fn begin(&self, hash: u128) -> bool {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match forms.get(&hash) {
            Some(Attempt::UnderWay) => false,
            Some(Attempt::Ended(at)) if at.elapsed() < RESTS => false,
            _ => {
                forms.put(hash, Attempt::UnderWay);
                true
            }
        }
    }

    fn end(&self, hash: u128, is_settled: bool) {
        let mut forms = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match is_settled {
            true => drop(forms.put(hash, Attempt::Ended(Instant::now()))),
            false => drop(forms.pop(&hash)),
        }
    }
}

impl CodedForms for Coded {
    fn form(self: Box<Self>, coding: Coding, level: u8, encoder: &dyn Fn() -> MakeEncoder) -> Option<Arc<SiteFile>> {
        let store = &self.rules.store;
        if self.object.body.len > MAX_CONTENT || !store.has_disk() {
            return None;
        }
        let mut key = Key::default();
        self.write_key(key.begin(self.rules.number), coding, level);
        let kept = store.find_kept(&mut store.front().borrow_mut(), key.in_front(), now_s());
        if let Some((Stored::Object(object), lines)) = kept
            && object.is_checked()
        {
            let body = &object.body;
            if !matches!(lines, HitLines::First) || is_in_memory(body, &(0..body.len)) {
                return Some(Arc::clone(body));
            }
        }
        let hash = store.hash(key.in_store());
        if store.forms.begin(hash) {
            let key = key.in_store().to_vec();
            Making { coded: *self, coding, key, hash, is_settled: false }.start(encoder());
        }
        None
    }
}

impl Coded {
    fn write_key(&self, key: &mut Vec<u8>, coding: Coding, level: u8) {
        let Object { key: own, head, body, checksum, .. } = &*self.object;
        key.extend_from_slice(own);
        let validator = [ETAG, LAST_MODIFIED, DATE].iter().find_map(|name| head.fields.get(name));
        let content = format!("{}{level} {:x} {checksum:08x} ", coding.token(), body.len);
        add_form(key, content.as_bytes(), validator.map_or(b"", HeaderValue::as_bytes));
    }
}

impl Making {
    /// Reads the form from the disk, or makes and stores it, behind the request. `encoder`: gives one, if there is memory for it and so many bytes of output.
    fn start(self, encoder: MakeEncoder) {
        // Without a runtime the process is ending.
        if let Ok(runtime) = tokio::runtime::Handle::try_current() {
            runtime.spawn(async move {
                let mut making = self;
                if !making.load().await {
                    making.make(encoder).await;
                }
            });
        }
    }

    /// Has this worker keep the form that the disk has. `false`: the disk does not have it.
    async fn load(&mut self) -> bool {
        let Coded { rules, object } = &self.coded;
        let store = &rules.store;
        let mut key = Key::default();
        key.begin(rules.number).extend_from_slice(&self.key);
        let Some(Stored::Object(form)) = store.load(rules, &key, now_s()).await else { return false };
        // A purge before the last validation of the response says nothing of its form, which is written again.
        let is_kept = store.verdict(&form) == Verdict::Valid;
        if !is_kept && form.times.made < object.times.made {
            return false;
        }
        // The next hit may have it from memory.
        let is_whole = is_kept && store.is_sound(&form).await;
        let Content::File(_) = &form.body.content else { return true };
        let length = form.body.len.min(READ_AHEAD);
        self.is_settled = !is_whole || read_range(Arc::clone(&form.body), 0..length).await.is_err();
        true
    }

    /// Makes the form, and stores it.
    async fn make(mut self, encoder: MakeEncoder) {
        let Coded { rules, object } = &self.coded;
        let store = &rules.store;
        let disk = Arc::clone(store.disk(self.hash));
        let length = object.body.len;
        if store.verdict(object) != Verdict::Valid || !disk.may_store(Some(length)).await {
            return;
        }
        let Some(encoder) = encoder(length as usize) else { return };
        // A form that is no smaller, or whose content was misread, ends alike at the next attempt.
        let Ok(Some(bytes)) = encode(object, encoder).await else {
            self.is_settled = true;
            return;
        };
        let form = Arc::new(form_of(object, self.coding, &self.key, self.hash, bytes));
        let (written, is_written) = oneshot::channel();
        let own = (Arc::clone(&disk), Arc::clone(store), Arc::clone(&form));
        disk.write_later(form.memory(), move || {
            let (disk, store, form) = own;
            write(&disk, &store, &form);
            let _ = written.send(());
        });
        drop(form);
        if is_written.await.is_ok() {
            self.load().await;
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.coded.rules.store.forms.end(self.hash, self.is_settled);
    }
}

/// The content of a response in a coding. `None`: it is no smaller, or its content is not the stored one.
async fn encode(object: &Object, encoder: ContentEncoder) -> io::Result<Option<Vec<u8>>> {
    let ContentEncoder { mut encoder, memory } = encoder;
    let (mut out, mut checksum, mut at) = (Vec::new(), 0, 0);
    while at < object.body.len {
        let end = object.body.len.min(at + STEP as u64);
        let part = read_range(Arc::clone(&object.body), at..end).await.map_err(io::Error::other)?;
        checksum = crc32c::crc32c_append(checksum, &part);
        encoder.write(&part)?;
        out.append(&mut encoder.take());
        if out.len() as u64 >= object.body.len {
            return Ok(None);
        }
        at = end;
        // Others take their turns before the next step.
        yield_now().await;
    }
    out.append(&mut encoder.finish()?);
    drop(memory);
    let is_fit = checksum == object.checksum && (out.len() as u64) < object.body.len;
    Ok(is_fit.then_some(out))
}

/// The object of a form.
fn form_of(object: &Object, coding: Coding, key: &[u8], hash: u128, bytes: Vec<u8>) -> Object {
    let mut fields = object.head.fields.clone();
    fields.insert(CONTENT_ENCODING, HeaderValue::from_static(coding.token()));
    let head = Head { fields, ..object.head.clone() };
    let (length, checksum) = (bytes.len() as u64, crc32c::crc32c(&bytes));
    let body = SiteFile::of_content(Content::Memory(bytes.into()), length);
    Object::new(key.into(), hash, object.times, head, body, checksum)
}

/// Writes a form, for the writer of its disk.
fn write(disk: &Disk, store: &Store, form: &Object) {
    let Content::Memory(bytes) = &form.body.content else { return };
    match disk.write(bytes, &form.metadata(), form.hash, form.times) {
        Ok(_) => store.changed(form.hash),
        Err(error) => disk.failed("store a coded form", &error),
    }
}

/// The longest content that has forms: a longer one is coded at each request.
const MAX_CONTENT: u64 = 16 << 20;

/// Bytes of a form that are brought into memory before it is sent for the first time.
const READ_AHEAD: u64 = 128 << 10;

/// Forms that are remembered as being made, or as not worth making for a while.
const MOST_FORMS: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");

/// How long a form is not tried again.
const RESTS: Duration = Duration::from_secs(60);
