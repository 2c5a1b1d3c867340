//! The variants of one file in content codings: precompressed siblings, and results of compression on request.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use sealion_http::accept_encoding::negotiate;
use sealion_http::request::FieldLines;
use sealion_http::{Coding, Codings};

use super::config::{Compress, Encoding};
use super::may_have_siblings;
use super::store::{Made, Store};
use crate::files::resolve::{Found, NotOpened, Root, SiteFile, State, Wait};
use crate::values::Mutex;

/// Finds the variants of a site's files.
#[derive(Debug)]
pub(crate) struct Coder {
    precompressed: Codings,
    compress: Option<Compress>,
    store: Option<Arc<Store>>,
    /// Siblings already logged as unusable, so that each state is logged once.
    logged: Mutex<LruCache<Box<[u8]>, State>>,
}

/// The variants of a file.
#[derive(Debug)]
pub(crate) struct Variants {
    siblings: [Sibling; 3],
    /// `None`: this file is not compressed on request.
    made: Option<[Made; 3]>,
}

#[derive(Debug, Default)]
struct Sibling {
    /// `None`: the sibling does not exist, or its metadata cannot be read.
    state: Option<State>,
    /// `None`: the sibling cannot be sent.
    file: Option<Arc<SiteFile>>,
}

/// The representation to send.
#[derive(Debug)]
pub(crate) enum Choice {
    /// The file without a content coding.
    Original,
    /// This variant.
    Variant(Arc<SiteFile>),
    /// The variant in this coding, after compressing it.
    Make(Coding),
}

impl Coder {
    pub(crate) fn new(encoding: &Encoding) -> Self {
        let Encoding { precompressed, compress } = encoding.clone();
        let store = compress.as_ref().map(|compress| Arc::new(Store::new(compress.memory)));
        Coder { precompressed, compress, store, logged: Mutex::new(LruCache::new(MAX_LOGGED)) }
    }

    /// The store for compression on request. `None`: off.
    pub(crate) fn store(&self) -> Option<&Arc<Store>> {
        self.store.as_ref()
    }

    /// The variants of `original`, the file `name`. `None`: it cannot have any. Sets `varies` of `original`.
    ///
    /// # Errors
    /// Only [`NotOpened::Waits`]: a sibling that cannot be opened is ignored.
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
        // A file that changed within the current clock tick may change again with the same time stamps. Compressing it
        // could combine the wrong content with its tag.
        let made = compress.filter(|_| original.is_settled()).map(|compress| {
            Coding::ALL.map(|coding| if compress.codings().contains(coding) { Made::NotYet } else { Made::Never })
        });
        if self.precompressed.is_empty() && compress.is_none() {
            return Ok(None);
        }
        Arc::get_mut(original).expect("the file was just opened and is not shared").varies = true;
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
            self.warn_once(
                &name,
                state,
                "older than its original, not sent: compress the original again (`sealion compress`)",
            );
            return Ok(unfit);
        }
        match root.resolve(&name, keep, wait) {
            // No coding produces zero bytes: the file is still being written, or was left incomplete.
            Ok(Found::File(file)) if file.len == 0 => {
                self.warn_once(&name, state, "empty, not sent: compress the original again (`sealion compress`)");
                Ok(unfit)
            }
            Ok(Found::File(mut file)) => {
                let sibling = Arc::get_mut(&mut file).expect("the file was just opened and is not shared");
                sibling.become_sibling(original, coding);
                Ok(Sibling { state: Some(*file.state()), file: Some(file) })
            }
            Ok(Found::Directory) => Ok(unfit),
            Err(NotOpened::Waits) => Err(NotOpened::Waits),
            Err(NotOpened::Unresolved(unresolved)) => {
                if let Some(cause) = unresolved.cause {
                    self.warn_once(&name, state, &format!("cannot be opened, not sent: {cause}"));
                }
                // The error may disappear without a change of the file, so the next revalidation tries again.
                Ok(Sibling::default())
            }
        }
    }

    fn warn_once(&self, name: &[u8], state: State, what: &str) {
        let mut logged = self.logged.lock();
        if logged.push(name.into(), state).is_none_or(|(before, at)| *before != *name || at != state) {
            tracing::warn!("{}: {what}", name.escape_ascii());
        }
    }

    /// Whether the siblings on disk are still the files in `variants`.
    pub(crate) fn are_unchanged(&self, variants: &Variants, root: &Root, name: &[u8], wait: Wait) -> bool {
        self.precompressed.iter().all(|coding| {
            root.state(&coding.sibling_of(name), wait)
                .is_ok_and(|state| state == variants.siblings[coding as usize].state)
        })
    }
}

impl Variants {
    /// Selects by Accept-Encoding. Siblings are preferred to compression on request, since they are usually smaller.
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

    /// Records a result. A file that one coding does not shrink is not tried with other codings.
    pub(crate) fn remember(&mut self, coding: Coding, result: &Made) {
        match (result, &mut self.made) {
            (Made::Never, made) => *made = None,
            (result, Some(made)) => made[coding as usize] = result.clone(),
            (_, None) => {}
        }
    }

    /// Whether every later change of the siblings will show; see [`SiteFile::is_settled`].
    pub(crate) fn are_settled(&self) -> bool {
        self.siblings.iter().filter_map(|sibling| sibling.file.as_ref()).all(|file| file.is_settled())
    }

    /// All variants that exist.
    pub(crate) fn files(&self) -> impl Iterator<Item = &Arc<SiteFile>> {
        let made = self.made.iter().flatten().filter_map(|made| match made {
            Made::Here(file) => Some(file),
            Made::NotYet | Made::Never => None,
        });
        self.siblings.iter().filter_map(|sibling| sibling.file.as_ref()).chain(made)
    }
}

/// Bounds the memory for logged messages; a sibling evicted from it is logged again.
const MAX_LOGGED: NonZeroUsize = NonZeroUsize::new(1000).unwrap();
