//! Values by host name.

use std::collections::HashMap;

/// Values by host name. Order of precedence: an exact name, the longest wildcard, the default.
#[derive(Debug)]
pub(crate) struct Names<T> {
    exact: HashMap<Box<str>, T>,
    /// `example.org` for `*.example.org`, which stands for one label or more.
    wildcard: HashMap<Box<str>, T>,
    default: T,
}

impl<T> Names<T> {
    pub(crate) fn new(default: T) -> Self {
        Self { exact: HashMap::new(), wildcard: HashMap::new(), default }
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
        None
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
