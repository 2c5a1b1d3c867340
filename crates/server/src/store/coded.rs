//! Coded forms of stored responses: the content in a content coding, made once behind the request that asked for it first.
//!
//! ```text
//! hit ─► site/compression.rs: a coding ─► CodedForms::form ─┬─ this worker has the form ─► sent as any file, with its length
//!                                                      └─ it has not: coded while it is sent
//!                                                            └─ behind it: read from the disk, or made and stored
//! ```
//!
//! A form is written to its file while it is made, so a long content takes no more memory than a short one. A form is an object of its own: it takes room, and purges cover it. Its key is the key of the response and whatever identifies its content: a response that
//! is replaced has other forms. Freshness, preconditions and ranges come from the response.

use std::mem;
use std::num::NonZeroUsize;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::header::{CONTENT_ENCODING, DATE, ETAG, HeaderValue, LAST_MODIFIED};
use lru::LruCache;
use sealion_http::Coding;
use tokio::sync::Semaphore;
use tokio::task::yield_now;

use super::directory::Temporary;
use super::disk::Disk;
use super::front::HitLines;
use super::key::{Key, add_form};
use super::now_s;
use super::object::{Head, Object, Stored};
use super::purge::Verdict;
use super::readable::{MAX_SAMPLED, is_in_memory};
use super::rule::Rules;
use crate::files::coding::stream::STEP;
use crate::files::resolve::{Content, SiteFile};
use crate::response::{CodedForms, ContentEncoder, MakeEncoder, read_range};
use crate::values::Mutex;

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
pub(super) struct Forms {
    attempts: Mutex<LruCache<u128, Attempt>>,
    /// The turn of the long content that is being coded.
    long: Semaphore,
}

#[derive(Debug, Clone, Copy)]
enum Attempt {
    UnderWay,
    Ended(Instant),
}

impl Default for Forms {
    fn default() -> Self {
        Forms { attempts: Mutex::new(LruCache::new(MOST_FORMS)), long: Semaphore::new(1) }
    }
}

impl Forms {
    /// Whether the caller may make the form.
    fn begin(&self, hash: u128) -> bool {
        let mut forms = self.attempts.lock();
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
        let mut forms = self.attempts.lock();
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
    /// Reads the form from the disk, or makes and stores it, behind the request. `encoder`: gives one, if there is memory for it.
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
        let disk = store.disk(self.hash);
        let length = object.body.len;
        // Without its turn it is coded at each request.
        let turn = (length > LONG).then(|| store.forms.long.try_acquire());
        if matches!(turn, Some(Err(_)))
            || store.verdict(object) != Verdict::Valid
            || !disk.may_store(Some(length)).await
        {
            return;
        }
        let Some(encoder) = encoder() else { return };
        let written = match encode(object, encoder, disk).await {
            Ok(form) if store.verdict(object) == Verdict::Valid => form.finish(&self).await,
            Ok(_) | Err(Unmade::NotWritten) => false,
            Err(Unmade::Useless) => {
                self.is_settled = true;
                false
            }
        };
        drop(turn);
        if written {
            store.changed(self.hash);
            self.load().await;
        }
    }
}

impl Drop for Making {
    fn drop(&mut self) {
        self.coded.rules.store.forms.end(self.hash, self.is_settled);
    }
}

/// Why a form was not made.
enum Unmade {
    /// It is no smaller, or its content was misread: another attempt soon would end alike.
    Useless,
    /// The disk failed.
    NotWritten,
}

/// A form on its way to its file.
struct FormFile {
    disk: Arc<Disk>,
    /// `None`: nothing is written yet.
    temporary: Option<Temporary>,
    written: u64,
    checksum: u32,
    unwritten: Vec<u8>,
}

impl FormFile {
    fn new(disk: &Arc<Disk>) -> Self {
        FormFile { disk: Arc::clone(disk), temporary: None, written: 0, checksum: 0, unwritten: Vec::new() }
    }

    fn len(&self) -> u64 {
        self.written + self.unwritten.len() as u64
    }

    fn push(&mut self, mut bytes: Vec<u8>) {
        self.checksum = crc32c::crc32c_append(self.checksum, &bytes);
        self.unwritten.append(&mut bytes);
    }

    /// Writes the bytes that wait.
    async fn write(&mut self) -> Result<(), Unmade> {
        let (temporary, bytes, at) = (self.temporary.take(), mem::take(&mut self.unwritten), self.written);
        self.written = at + bytes.len() as u64;
        let written = self.disk.run(WHAT, move |disk| {
            let temporary = temporary.map_or_else(|| disk.create(None), Ok)?;
            temporary.file.write_all_at(&bytes, at)?;
            Ok(temporary)
        });
        self.temporary = Some(written.await.ok_or(Unmade::NotWritten)?);
        Ok(())
    }

    /// Gives the form its place. `false`: the disk failed, or has a newer one.
    async fn finish(mut self, making: &Making) -> bool {
        if self.write().await.is_err() {
            return false;
        }
        let Some(temporary) = self.temporary.take() else { return false };
        let (hash, times) = (making.hash, making.coded.object.times);
        let metadata = making.head().metadata(&making.key);
        let body = (self.written, self.checksum);
        let finished = self.disk.run(WHAT, move |disk| disk.finish(temporary, &metadata, hash, times, body));
        finished.await.flatten().is_some()
    }
}

impl Making {
    /// The head of the form.
    fn head(&self) -> Head {
        let mut head = self.coded.object.head.clone();
        head.fields.insert(CONTENT_ENCODING, HeaderValue::from_static(self.coding.token()));
        head
    }
}

/// Encodes the content of a response, and writes all but the end.
async fn encode(object: &Object, encoder: ContentEncoder, disk: &Arc<Disk>) -> Result<FormFile, Unmade> {
    let ContentEncoder { mut encoder, memory } = encoder;
    let mut form = FormFile::new(disk);
    let (mut checksum, mut at) = (0, 0);
    while at < object.body.len {
        let end = object.body.len.min(at + STEP as u64);
        let part = read_range(Arc::clone(&object.body), at..end).await.map_err(|_| Unmade::Useless)?;
        checksum = crc32c::crc32c_append(checksum, &part);
        encoder.write(&part).map_err(|_| Unmade::Useless)?;
        form.push(encoder.take());
        if form.len() >= object.body.len {
            return Err(Unmade::Useless);
        }
        if form.unwritten.len() >= WRITTEN_AT_ONCE {
            form.write().await?;
        }
        at = end;
        // Others take their turns before the next step.
        yield_now().await;
    }
    form.push(encoder.finish().map_err(|_| Unmade::Useless)?);
    drop(memory);
    let is_fit = checksum == object.checksum && form.len() < object.body.len;
    if is_fit { Ok(form) } else { Err(Unmade::Useless) }
}

const WHAT: &str = "store a coded form";

/// GUESS: the longest content that has forms; a longer one is coded at each request. It keeps a core busy for half a minute.
const MAX_CONTENT: u64 = 1 << 30;

/// GUESS: the length above which a single content is coded at a time, since it takes a core for a second or more.
const LONG: u64 = 16 << 20;

/// Bytes of a form that wait for its file.
const WRITTEN_AT_ONCE: usize = 256 << 10;

/// Bytes of a form that are brought into memory before it is sent for the first time: as many as are looked for.
const READ_AHEAD: u64 = MAX_SAMPLED;

/// Forms that are remembered as being made, or as not worth making for a while.
const MOST_FORMS: NonZeroUsize = NonZeroUsize::new(16_384).expect("not zero");

/// How long a form is not tried again.
const RESTS: Duration = Duration::from_secs(60);
