//! Numbers of sites for workers' counters.

use crate::values::Mutex;

/// The number of a site, which stays the same across reloads. Sites beyond the limit share the last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SiteNumber(u8);

/// Names by number.
static NAMES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// The number of sites with separate counters. A site takes 200 bytes in every worker, and 500 for each protocol and
/// class of status that its responses have; these have 27 samples of `/metrics`.
const MAX_SITES: u8 = 100;

/// The label of responses by sites without a number, and of responses without a site.
pub(super) const OTHER: &str = "other";

impl SiteNumber {
    /// All numbers.
    pub(crate) const COUNT: usize = MAX_SITES as usize + 1;

    /// The number for responses without a site.
    pub(crate) const NONE: SiteNumber = SiteNumber(MAX_SITES);

    /// The number of the site with this name.
    pub(crate) fn of(name: &str) -> Self {
        let mut names = NAMES.lock();
        let place = names.iter().position(|known| known == name).unwrap_or_else(|| {
            if names.len() < usize::from(MAX_SITES) {
                names.push(name.to_owned());
                return names.len() - 1;
            }
            usize::from(MAX_SITES)
        });
        SiteNumber(u8::try_from(place).unwrap_or(MAX_SITES))
    }

    /// All sites with a name, then the number for all others.
    pub(crate) fn all() -> Vec<(Self, String)> {
        let names = NAMES.lock();
        let numbered = (0..MAX_SITES).map(SiteNumber).zip(names.iter().cloned());
        numbered.chain([(Self::NONE, OTHER.to_owned())]).collect()
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}
