//! The choice of a route by path, by the rules of nginx' `location`:
//!
//! 1. the exact path;
//! 2. else the longest prefix, and within its route the same again; if that prefix is marked `^~`, it is final;
//! 3. else the first expression of the same level in the order of the file, and within its route the same again;
//! 4. else the longest prefix.
//!
//! A route that does not admit the request is passed over at each step, as if it were not there.

use std::collections::BTreeMap;

use super::expressions::{AUTOMATA_SIZE, Expressions, Source};
use super::path::{Folder, RoutePath};
use super::texts::{PrefixRoute, Text, Texts, Walk};
use crate::site::look_around::{LookAround, TooManySteps};

/// A route in the choice, by its number.
pub(in crate::site) type RouteNumber = usize;

/// All routes of a site that a path can choose, compiled.
#[derive(Debug)]
pub(super) struct Choice {
    top: Level,
    /// Levels of routes within others, by the number of the outer route.
    within: Vec<Option<Box<Level>>>,
}

/// The routes within a route, or at the top.
#[derive(Debug)]
struct Level {
    texts: Texts,
    expressions: Expressions,
}

/// A route for the choice.
pub(super) struct Candidate {
    pub(super) route: RouteNumber,
    pub(super) path: RoutePath,
    /// The route that it lies within.
    pub(super) within: Option<RouteNumber>,
}

impl Choice {
    /// Compiles the choice. `candidates`: in the order of the file.
    ///
    /// # Errors
    /// The expressions are too large together, or one is invalid.
    pub(super) fn new(candidates: &[Candidate]) -> Result<Self, String> {
        let mut levels: BTreeMap<Option<RouteNumber>, Vec<&Candidate>> = BTreeMap::new();
        for candidate in candidates {
            levels.entry(candidate.within).or_default().push(candidate);
        }
        let mut room = AUTOMATA_SIZE;
        let mut choice = Choice { top: Level::new(&[], &mut room)?, within: Vec::new() };
        for (outer, candidates) in levels {
            let level = Level::new(&candidates, &mut room)?;
            match outer {
                None => choice.top = level,
                Some(outer) => {
                    choice.within.resize_with(outer + 1, || None);
                    choice.within[outer] = Some(Box::new(level));
                }
            }
        }
        Ok(choice)
    }

    /// The route for a path with its slashes. `None`: no route has it. `admits`: whether a route admits the request.
    pub(super) fn find<E: From<TooManySteps>>(
        &self,
        full: &[u8],
        admits: &mut dyn FnMut(RouteNumber) -> Result<bool, E>,
    ) -> Result<Option<RouteNumber>, E> {
        let mut search = Search { choice: self, full, admits };
        Ok(search.within(&self.top)?.map(|found| found.route))
    }

    /// The route for a path among the routes within a route, or that route itself.
    pub(super) fn find_within<E: From<TooManySteps>>(
        &self,
        route: RouteNumber,
        full: &[u8],
        admits: &mut dyn FnMut(RouteNumber) -> Result<bool, E>,
    ) -> Result<RouteNumber, E> {
        let mut search = Search { choice: self, full, admits };
        Ok(search.inside(route)?.route)
    }
}

struct Search<'a, E> {
    choice: &'a Choice,
    full: &'a [u8],
    admits: &'a mut dyn FnMut(RouteNumber) -> Result<bool, E>,
}

/// A route that was found.
struct Found {
    route: RouteNumber,
    /// Whether expressions of outer levels do not go before it: an exact path or an expression chose it.
    is_final: bool,
}

impl<E: From<TooManySteps>> Search<'_, E> {
    fn within(&mut self, level: &Level) -> Result<Option<Found>, E> {
        let walk = level.texts.walk(self.full);
        for route in walk.exact {
            if (self.admits)(*route)? {
                return self.inside(*route).map(|found| Some(Found { is_final: true, ..found }));
            }
        }
        let (found, skips_expressions) = self.longest_prefix(level, &walk)?;
        if skips_expressions || found.as_ref().is_some_and(|found| found.is_final) {
            return Ok(found);
        }
        let Some(candidates) = level.expressions.candidates(self.full) else { return Ok(found) };
        for candidate in candidates.iter() {
            if let Some(route) = level.expressions.route_of(candidate, self.full)?
                && (self.admits)(route)?
            {
                return self.inside(route).map(|found| Some(Found { is_final: true, ..found }));
            }
        }
        Ok(found)
    }

    /// The route of the longest prefix, and whether it goes before expressions.
    fn longest_prefix(&mut self, level: &Level, walk: &Walk<'_>) -> Result<(Option<Found>, bool), E> {
        if !walk.has_prefix() {
            return Ok((None, false));
        }
        for (prefix, is_folder) in level.texts.prefixes(walk) {
            for PrefixRoute { route, is_final, folder } in &prefix.routes {
                if !(is_folder && *folder == Folder::Excluded) && (self.admits)(*route)? {
                    return Ok((Some(self.inside(*route)?), *is_final));
                }
            }
        }
        Ok((None, false))
    }

    /// The route, or one within it.
    fn inside(&mut self, route: RouteNumber) -> Result<Found, E> {
        let inner = match self.choice.within.get(route) {
            Some(Some(inner)) => self.within(inner)?,
            _ => None,
        };
        Ok(inner.unwrap_or(Found { route, is_final: false }))
    }
}

impl Level {
    /// `candidates`: in the order of the file.
    fn new(candidates: &[&Candidate], room: &mut usize) -> Result<Self, String> {
        let (mut texts, mut expressions) = (BTreeMap::new(), Vec::new());
        for Candidate { route, path, .. } in candidates {
            let mut text = |bytes: &[u8], prefix: Option<(bool, Folder)>| {
                let text: &mut (Vec<_>, Vec<_>) = texts.entry(Box::from(bytes)).or_default();
                match prefix {
                    Some((is_final, folder)) => text.0.push(PrefixRoute { route: *route, is_final, folder }),
                    None => text.1.push(*route),
                }
            };
            match path {
                RoutePath::Exact(bytes) => text(bytes, None),
                RoutePath::Prefix { text: bytes, is_final, folder } => text(bytes, Some((*is_final, *folder))),
                RoutePath::Expression { text, ignores_case } => {
                    let source = Source::Pattern { text: text.clone(), ignores_case: *ignores_case };
                    expressions.push((*route, source));
                }
                RoutePath::LookAround(text) => expressions.push((*route, Source::LookAround(LookAround::new(text)?))),
            }
        }
        let texts = texts.into_iter().map(|(bytes, (prefix, exact))| Text { bytes, prefix, exact }).collect();
        Ok(Level { texts: Texts::new(texts), expressions: Expressions::new(expressions, room)? })
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
