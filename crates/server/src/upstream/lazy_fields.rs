//! Fields that are mostly passed on as they are: they become a map only for a lookup or a change.

use std::ops::Deref;
use std::sync::OnceLock;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use sealion_http::FieldSection;

/// Fields in a form of their own, or as a map.
#[derive(Debug, Clone)]
pub(crate) struct LazyFields<F> {
    /// `None`: the map counts.
    own: Option<F>,
    map: OnceLock<Box<HeaderMap>>,
}

/// Fields in a form of their own.
pub(crate) trait Own {
    fn to_map(&self) -> HeaderMap;
}

/// A map of field lines. The values share their memory.
pub(super) fn map_of_lines(octets: &Bytes) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(16);
    for (name, value) in FieldSection::from_lines(octets).iter() {
        let value = HeaderValue::from_maybe_shared(octets.slice_ref(value));
        if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), value) {
            map.append(name, value);
        }
    }
    map
}

impl<F: Own> LazyFields<F> {
    pub(super) fn new(own: F) -> Self {
        LazyFields { own: Some(own), map: OnceLock::new() }
    }

    /// The fields in their own form. `None`: they were changed since, and are a map.
    pub(super) fn own(&self) -> Option<&F> {
        self.own.as_ref()
    }

    /// The same.
    pub(super) fn into_own(self) -> Result<F, HeaderMap> {
        match self.own {
            Some(own) => Ok(own),
            None => Err(self.map.into_inner().map_or_else(HeaderMap::new, |map| *map)),
        }
    }

    pub(crate) fn into_map(mut self) -> HeaderMap {
        std::mem::take(self.map_mut())
    }

    /// The map, for a change. It costs as much as all else that is done for a request to an upstream: see first whether there is anything to change.
    pub(crate) fn map_mut(&mut self) -> &mut HeaderMap {
        self.map();
        self.own = None;
        self.map.get_mut().expect("it was made above")
    }

    fn map(&self) -> &HeaderMap {
        self.map.get_or_init(|| Box::new(self.own.as_ref().map(Own::to_map).unwrap_or_default()))
    }
}

impl<F> From<HeaderMap> for LazyFields<F> {
    fn from(map: HeaderMap) -> Self {
        LazyFields { own: None, map: Box::new(map).into() }
    }
}

impl<F: Own> Deref for LazyFields<F> {
    type Target = HeaderMap;

    fn deref(&self) -> &HeaderMap {
        self.map()
    }
}
