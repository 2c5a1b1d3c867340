//! Numbers of routes for workers' counters.

use super::sites::OTHER;
use crate::values::Mutex;

/// The number of a route, which stays the same across reloads. Routes beyond the limit share the last number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RouteNumber(u16);

/// Names of site and route, by number.
static NAMES: Mutex<Vec<(String, String)>> = Mutex::new(Vec::new());

/// The number of routes with separate counters. A route that was used takes 500 bytes in every worker, and thirty samples of `/metrics`.
const MAX_ROUTES: u16 = 200;

impl RouteNumber {
    /// All numbers.
    pub(crate) const COUNT: usize = MAX_ROUTES as usize + 1;

    /// The number of the route of a site with these names.
    pub(crate) fn of(site: &str, route: &str) -> Self {
        let mut names = NAMES.lock();
        let place = names.iter().position(|known| known.0 == site && known.1 == route).unwrap_or_else(|| {
            if names.len() < usize::from(MAX_ROUTES) {
                names.push((site.to_owned(), route.to_owned()));
                return names.len() - 1;
            }
            usize::from(MAX_ROUTES)
        });
        RouteNumber(u16::try_from(place).unwrap_or(MAX_ROUTES))
    }

    /// All routes with the names of their sites and their own, then the number for all others.
    pub(crate) fn all() -> Vec<(Self, String, String)> {
        let names = NAMES.lock();
        let numbered = (0..MAX_ROUTES).zip(names.iter().cloned());
        let numbered = numbered.map(|(number, (site, route))| (RouteNumber(number), site, route));
        let others = (RouteNumber(MAX_ROUTES), OTHER.to_owned(), OTHER.to_owned());
        numbered.chain([others]).collect()
    }

    #[inline]
    pub(super) fn index(self) -> usize {
        usize::from(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_route_keeps_its_number_and_those_beyond_the_bound_share_one() {
        let first = RouteNumber::of("numbers.example", "/a");
        for n in 0..2 * MAX_ROUTES {
            RouteNumber::of("numbers.example", &format!("/{n}"));
        }
        assert_eq!(RouteNumber::of("numbers.example", "/a"), first);
        assert_eq!(RouteNumber::of("numbers.example", "/one too many").index(), RouteNumber::COUNT - 1);
        let all = RouteNumber::all();
        assert_eq!(all.len(), RouteNumber::COUNT);
        assert_eq!(all.last().map(|(_, site, route)| (site.as_str(), route.as_str())), Some(("other", "other")));
    }
}
