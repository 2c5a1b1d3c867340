//! Values by host name.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

/// Finds the site with a host name, for a caller that has names of its own.
#[derive(Clone)]
pub struct NameFinder(Arc<Find>);

type Find = dyn Fn(&str) -> Option<usize> + Send + Sync;

impl NameFinder {
    /// `find`: the number of the site with a name in lower case; the default has 0, and the others follow. `None`: no site has the name.
    pub fn new(find: impl Fn(&str) -> Option<usize> + Send + Sync + 'static) -> Self {
        Self(Arc::new(find))
    }
}

impl fmt::Debug for NameFinder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("NameFinder").finish_non_exhaustive()
    }
}

/// Values by host name. Order of precedence: an exact name, the longest wildcard, the default.
#[derive(Debug)]
pub(crate) struct Names<T> {
    exact: HashMap<Box<str>, T>,
    /// `example.org` for `*.example.org`, which stands for one label or more.
    wildcard: HashMap<Box<str>, T>,
    /// By the number of the site.
    found: Option<(NameFinder, Vec<T>)>,
    default: T,
}

impl<T> Names<T> {
    pub(crate) fn new(default: T) -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), found: None, default }
    }

    /// Values by the numbers that `finder` finds, for names that are not inserted.
    pub(crate) fn find_by(&mut self, finder: Option<&NameFinder>, values: Vec<T>) {
        self.found = finder.cloned().map(|finder| (finder, values));
    }

    pub(crate) fn insert(&mut self, name: &str, value: T) {
        let name = name.trim_end_matches('.').to_ascii_lowercase();
        match name.strip_prefix("*.") {
            Some(parent) => self.wildcard.insert(parent.into(), value),
            None => self.exact.insert(name.into(), value),
        };
    }

    /// Looks up a name in lower case, as rustls returns it.
    pub(crate) fn get(&self, name: Option<&str>) -> &T {
        name.and_then(|name| self.by_name(name)).unwrap_or(&self.default)
    }

    fn by_name(&self, name: &str) -> Option<&T> {
        let mut rest = name.strip_suffix('.').unwrap_or(name);
        if let Some(value) = self.exact.get(rest) {
            return Some(value);
        }
        while let Some((_, parent)) = rest.split_once('.') {
            if let Some(value) = self.wildcard.get(parent) {
                return Some(value);
            }
            rest = parent;
        }
        let (finder, values) = self.found.as_ref()?;
        values.get(finder.0(name)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_before_wildcard_before_default() {
        let mut names = Names::new(0);
        for (name, value) in [("Example.org", 1), ("*.example.org", 2), ("*.deep.example.org", 3)] {
            names.insert(name, value);
        }
        for (name, value) in [
            ("example.org", 1),
            ("example.org.", 1),
            ("a.example.org", 2),
            ("a.b.example.org", 2),
            ("deep.example.org", 2),
            ("a.deep.example.org", 3),
            ("badexample.org", 0),
            ("org", 0),
            ("", 0),
        ] {
            assert_eq!(*names.get(Some(name)), value, "{name}");
        }
        assert_eq!(*names.get(None), 0);
    }
}
