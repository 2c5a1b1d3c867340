//! What there is of one file in content codings: files beside it, and what was made of it.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use sealion_http::{Coding, Codings};
use sealion_http::accept_encoding::negotiate;
use sealion_http::request::FieldLines;

use super::config::{Compress, Encoding};
use super::may_have_siblings;
use super::store::{Made, Store};
use crate::files::resolve::{Found, NotOpened, Root, SiteFile, State, Wait};

/// Finds and makes the variants of the files of a site.
#[derive(Debug)]
pub(crate) struct Coder {
    precompressed: Codings,
    compress: Option<Compress>,
    store: Option<Arc<Store>>,
    /// What the log was told of, so that it is told once.
    told: Mutex<LruCache<Box<[u8]>, State>>,
}

/// What is known of the variants of a file.
#[derive(Debug)]
pub(crate) struct Variants {
    siblings: [Sibling; 3],
    /// `None`: this file is not compressed.
    made: Option<[Made; 3]>,
}

#[derive(Debug, Default)]
struct Sibling {
    /// `None`: there is none, or it could not be told.
    state: Option<State>,
    /// `None`: it cannot be sent.
    file: Option<Arc<SiteFile>>,
}

/// What to send.
#[derive(Debug)]
pub(crate) enum Choice {
    /// The file as it is.
    Original,
    /// This instead.
    Variant(Arc<SiteFile>),
    /// What is not made yet.
    Make(Coding),
}

impl Coder {
    /// What the configuration says.
    pub(crate) fn new(encoding: &Encoding) -> Self {
        let Encoding { precompressed, compress } = encoding.clone();
        let store = compress.as_ref().map(|compress| Arc::new(Store::new(compress.memory)));
        Coder { precompressed, compress, store, told: Mutex::new(LruCache::new(MOST_TOLD)) }
    }

    /// Where what was made is kept.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// The variants of `original`, called `name`; `None` if there can be none. Says to `original` whether it is one of several.
    ///
    /// # Errors
    /// [`NotOpened::Waits`] alone: a sibling that cannot be opened is none.
    pub(crate) fn variants(
        &self,
        root: &Root,
        name: &[u8],
        original: &mut Arc<SiteFile>,
        keep: u64,
        wait: Wait,
    ) -> Result<Option<Box<Variants>>, NotOpened> {
        if !may_have_siblings(name, &original.content_type) {
            return Ok(None);
        }
        let mut siblings = [const { Sibling { state: None, file: None } }; 3];
        for coding in self.precompressed.iter() {
            siblings[coding as usize] = self.sibling(root, name, original, coding, keep, wait)?;
        }
        let compress = self.compress.as_ref().filter(|compress| compress.takes(&original.content_type, original.len));
        // One that changed just now may change again without a sign of it: what was made of it might be of another state.
        let made = compress.filter(|_| original.is_settled()).map(|compress| {
            Coding::ALL.map(|coding| if compress.codings.contains(coding) { Made::NotYet } else { Made::Never })
        });
        if self.precompressed.is_empty() && compress.is_none() {
            return Ok(None);
        }
        Arc::get_mut(original).expect("nobody else has it yet").varies = true;
        Ok(Some(Box::new(Variants { siblings, made })))
    }

    fn sibling(
        &self,
        root: &Root,
        name: &[u8],
        original: &SiteFile,
        coding: Coding,
        keep: u64,
        wait: Wait,
    ) -> Result<Sibling, NotOpened> {
        let name = coding.sibling_of(name);
        let Some(state) = root.state(&name, wait)? else { return Ok(Sibling::default()) };
        let unfit = Sibling { state: Some(state), file: None };
        if state.is_older_than(original.state()) {
            self.tell_once(
                &name,
                state,
                "older than its original, hence not sent: compress that again (`sealion compress`)",
            );
            return Ok(unfit);
        }
        match root.resolve(&name, keep, wait) {
            // No coding makes nothing of something: somebody is still writing, or did not finish.
            Ok(Found::File(file)) if file.len == 0 => {
                self.tell_once(&name, state, "empty, hence not sent: compress the original again");
                Ok(unfit)
            }
            Ok(Found::File(mut file)) => {
                let sibling = Arc::get_mut(&mut file).expect("nobody else has it yet");
                sibling.content_type = original.content_type.clone();
                sibling.coding = Some(coding);
                sibling.varies = true;
                Ok(Sibling { state: Some(*file.state()), file: Some(file) })
            }
            Ok(Found::Directory) => Ok(unfit),
            Err(NotOpened::Waits) => Err(NotOpened::Waits),
            Err(NotOpened::Unresolved(unresolved)) => {
                if let Some(cause) = unresolved.cause {
                    self.tell_once(&name, state, &format!("cannot be opened, hence not sent: {cause}"));
                }
                // What is wrong may pass without a change of the file: it is tried again.
                Ok(Sibling::default())
            }
        }
    }

    fn tell_once(&self, name: &[u8], state: State, what: &str) {
        let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
        if told.push(name.into(), state).is_none_or(|(before, at)| *before != *name || at != state) {
            tracing::warn!("{}: {what}", name.escape_ascii());
        }
    }

    /// Whether the siblings are those of `variants`.
    pub(crate) fn are_unchanged(&self, variants: &Variants, root: &Root, name: &[u8], wait: Wait) -> bool {
        self.precompressed.iter().all(|coding| {
            root.state(&coding.sibling_of(name), wait)
                .is_ok_and(|state| state == variants.siblings[coding as usize].state)
        })
    }
}

impl Variants {
    /// What a client wants that sent `accept`. A sibling goes before what could be made: somebody made it with more time.
    pub(crate) fn choose(&self, accept: &FieldLines<'_>) -> Choice {
        let codings = |of: &dyn Fn(Coding) -> bool| Coding::ALL.into_iter().filter(|coding| of(*coding)).collect();
        let siblings: Codings = codings(&|coding| self.siblings[coding as usize].file.is_some());
        if let Some(coding) = negotiate(accept, siblings)
            && let Some(file) = &self.siblings[coding as usize].file
        {
            return Choice::Variant(Arc::clone(file));
        }
        let Some(made) = &self.made else { return Choice::Original };
        let makeable: Codings = codings(&|coding| !matches!(made[coding as usize], Made::Never));
        match negotiate(accept, makeable).map(|coding| (coding, &made[coding as usize])) {
            Some((_, Made::Here(file))) => Choice::Variant(Arc::clone(file)),
            Some((coding, Made::NotYet)) => Choice::Make(coding),
            Some((_, Made::Never)) | None => Choice::Original,
        }
    }

    /// Takes note of what was made. A file that one coding does not make smaller is not tried with another.
    pub(crate) fn remember(&mut self, coding: Coding, result: &Made) {
        match (result, &mut self.made) {
            (Made::Never, made) => *made = None,
            (result, Some(made)) => made[coding as usize] = result.clone(),
            (_, None) => {}
        }
    }

    /// Whether all later changes of the siblings would show; see [`SiteFile::is_settled`].
    pub(crate) fn are_settled(&self) -> bool {
        self.siblings.iter().filter_map(|sibling| sibling.file.as_ref()).all(|file| file.is_settled())
    }

    /// All of them.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<SiteFile>> {
        let made = self.made.iter().flatten().filter_map(|made| match made {
            Made::Here(file) => Some(file),
            Made::NotYet | Made::Never => None,
        });
        self.siblings.iter().filter_map(|sibling| sibling.file.as_ref()).chain(made)
    }
}

/// GUESS: an operator reads no more.
const MOST_TOLD: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
