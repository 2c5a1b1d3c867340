//! Numbers of sites, by which workers count.

use std::sync::{Mutex, PoisonError};

/// The number of a site, which keeps it across reloads. Sites beyond the bound share the last one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteNumber(u8);

/// Names by number.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Sites that are counted by themselves. They take 48 bytes each in every worker, and five samples of `/metrics`.
const MOST: u8 = 100;

/// The label of responses that no site, or none with a number of its own, has answered.
const OTHER: &str = "other";

impl SiteNumber {
    /// All numbers.
    pub(crate) const COUNT: usize = MOST as usize + 1;

    /// Of responses without a site.
    pub(crate) const NONE: SiteNumber = SiteNumber(MOST);

    /// The number of the site with this name.
    pub(crate) fn of(name: &str) -> Self {
        let mut names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
            if names.len() < usize::from(MOST) {
                names.push(name.to_owned());
                return names.len() - 1;
            }
            usize::from(MOST)
        });
        SiteNumber(u8::try_from(place).unwrap_or(MOST))
    }

    /// All sites with a name, then the one that stands for the others.
    pub(crate) fn all() -> Vec<(Self, String)> {
        let names = NAMES.lock().unwrap_or_else(PoisonError::into_inner);
        let numbered = (0..MOST).map(SiteNumber).zip(names.iter().cloned());
        numbered.chain([(Self::NONE, OTHER.to_owned())]).collect()
    }

    #[inline]
    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}
