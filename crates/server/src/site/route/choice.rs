//! The choice of a route by path, by the rules of nginx' `location`:
//!
//! 1. the exact path;
//! 2. else the longest prefix, and within its route the same again; if that prefix is marked `^~`, it is final;
//! 3. else the first expression of the same level in the order of the file, and within its route the same again;
//! 4. else the longest prefix.
//!
//! A route that does not admit the request is passed over at each step, as if it were not there.

use std::collections::HashMap;
use std::iter::successors;

use regex::bytes::{RegexSet, RegexSetBuilder};

use super::path::RoutePath;
use crate::site::look_around::{LookAround, TooManySteps};
use crate::site::pattern::fold;

/// A route in the choice, by its number.
pub(super) type RouteNumber = usize;

/// All routes of a site that a path can choose, compiled.
#[derive(Debug)]
pub(super) struct Choice {
    top: Level,
    /// Levels of routes within others.
    within: HashMap<RouteNumber, Level>,
    /// All expressions of all levels.
    expressions: RegexSet,
    /// Whether one of them ignores case.
    folds: bool,
}

/// The routes within a route, or at the top.
#[derive(Debug, Default)]
struct Level {
    exact: HashMap<Box<[u8]>, Vec<RouteNumber>>,
    /// Ascending by text.
    prefixes: Vec<Prefix>,
    /// The place in `prefixes` of a directory, by its path without the slash at its end.
    directories: HashMap<Box<[u8]>, usize>,
    /// In the order of the file.
    expressions: Vec<Expression>,
}

#[derive(Debug)]
struct Prefix {
    text: Box<[u8]>,
    /// In the order of the file.
    routes: Vec<(RouteNumber, bool)>,
    /// The place of the longest other prefix of this one.
    shorter: Option<usize>,
}

#[derive(Debug)]
struct Expression {
    route: RouteNumber,
    pattern: Pattern,
}

#[derive(Debug)]
enum Pattern {
    /// Its patterns in the set; for one that ignores case, the last is for characters, and for folded paths.
    InSet {
        first: usize,
        last: usize,
    },
    LookAround(LookAround),
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
    /// The expressions are too large together, or one is none.
    pub(super) fn new(candidates: &[Candidate]) -> Result<Self, String> {
        let mut choice =
            Choice { top: Level::default(), within: HashMap::new(), expressions: RegexSet::empty(), folds: false };
        let mut patterns = Vec::new();
        for Candidate { route, path, within } in candidates {
            let level = match within {
                None => &mut choice.top,
                Some(outer) => choice.within.entry(*outer).or_default(),
            };
            match path {
                RoutePath::Exact(text) => level.exact.entry(text.clone()).or_default().push(*route),
                RoutePath::Prefix { text, is_final } => level.add_prefix(text, *route, *is_final),
                RoutePath::Expression { text, ignores_case } => {
                    let first = patterns.len();
                    match ignores_case {
                        false => patterns.push(format!("(?s-u:{text})")),
                        true => patterns.extend([format!("(?is-u:{text})"), format!("(?isu:{text})")]),
                    }
                    choice.folds |= ignores_case;
                    let pattern = Pattern::InSet { first, last: patterns.len() - 1 };
                    level.expressions.push(Expression { route: *route, pattern });
                }
                RoutePath::LookAround(text) => {
                    let pattern = Pattern::LookAround(LookAround::new(text)?);
                    level.expressions.push(Expression { route: *route, pattern });
                }
            }
        }
        choice.top.compile();
        choice.within.values_mut().for_each(Level::compile);
        let built = RegexSetBuilder::new(patterns).size_limit(EXPRESSIONS_SIZE).build();
        choice.expressions = built.map_err(|error| error.to_string())?;
        Ok(choice)
    }

    /// The route for a path with its slashes. `None`: none of them has it. `admits`: whether a route admits the request.
    pub(super) fn find<E: From<TooManySteps>>(
        &self,
        full: &[u8],
        admits: &mut dyn FnMut(RouteNumber) -> Result<bool, E>,
    ) -> Result<Option<RouteNumber>, E> {
        let mut search = Search { choice: self, full, admits, matched: None };
        Ok(search.within(&self.top)?.map(|found| found.route))
    }

    /// The route for a path among those within a route, or that route itself.
    pub(super) fn find_within<E: From<TooManySteps>>(
        &self,
        route: RouteNumber,
        full: &[u8],
        admits: &mut dyn FnMut(RouteNumber) -> Result<bool, E>,
    ) -> Result<RouteNumber, E> {
        let mut search = Search { choice: self, full, admits, matched: None };
        Ok(search.inside(route)?.route)
    }

    /// The patterns that match the path.
    fn matched(&self, full: &[u8]) -> Vec<usize> {
        let mut matched = Vec::new();
        if self.expressions.is_match(full) {
            matched.extend(self.expressions.matches(full).iter());
        }
        if self.folds && is_folded_otherwise(full) {
            let folded = fold(full);
            let patterns = self.expressions.matches(&folded);
            let levels = std::iter::once(&self.top).chain(self.within.values());
            let ignoring_case = levels.flat_map(|level| &level.expressions).filter_map(|one| match one.pattern {
                Pattern::InSet { first, last } if first != last => Some(last),
                Pattern::InSet { .. } | Pattern::LookAround(_) => None,
            });
            matched.extend(ignoring_case.filter(|last| patterns.matched(*last)));
        }
        matched
    }
}

/// Whether folding does more to the path than an expression does that ignores case.
fn is_folded_otherwise(full: &[u8]) -> bool {
    let ends_name = |at: usize| full.get(at + 1).is_none_or(|next| matches!(next, b'/' | b'.' | b' '));
    !full.is_ascii() || full.iter().enumerate().any(|(at, byte)| matches!(byte, b'.' | b' ') && ends_name(at))
}

/// Bound on the compiled expressions of a site, in bytes.
const EXPRESSIONS_SIZE: usize = 32 << 20;

struct Search<'a, E> {
    choice: &'a Choice,
    full: &'a [u8],
    admits: &'a mut dyn FnMut(RouteNumber) -> Result<bool, E>,
    /// The patterns that match, once they were looked for.
    matched: Option<Vec<usize>>,
}

/// A route that was found.
struct Found {
    route: RouteNumber,
    /// Whether expressions of outer levels do not go before it: an exact path or an expression chose it.
    is_final: bool,
}

impl<E: From<TooManySteps>> Search<'_, E> {
    fn within(&mut self, level: &Level) -> Result<Option<Found>, E> {
        if let Some(routes) = level.exact.get(self.full) {
            for route in routes {
                if (self.admits)(*route)? {
                    return self.inside(*route).map(|found| Some(Found { is_final: true, ..found }));
                }
            }
        }
        let mut found = None;
        let mut skips_expressions = false;
        if let Some((route, is_final)) = self.prefix(level)? {
            skips_expressions = is_final;
            found = Some(self.inside(route)?);
        }
        if skips_expressions || found.as_ref().is_some_and(|found| found.is_final) {
            return Ok(found);
        }
        for expression in &level.expressions {
            if self.matches(expression)? && (self.admits)(expression.route)? {
                return self.inside(expression.route).map(|found| Some(Found { is_final: true, ..found }));
            }
        }
        Ok(found)
    }

    /// The route, or one within it.
    fn inside(&mut self, route: RouteNumber) -> Result<Found, E> {
        let inner = match self.choice.within.get(&route) {
            Some(inner) => self.within(inner)?,
            None => None,
        };
        Ok(inner.unwrap_or(Found { route, is_final: false }))
    }

    /// The longest prefix whose route admits the request, and whether it is marked `^~`.
    fn prefix(&mut self, level: &Level) -> Result<Option<(RouteNumber, bool)>, E> {
        let own = level.longest(self.full);
        let whole = own.filter(|place| level.prefixes[*place].text.len() == self.full.len());
        // `/api/` has the path `/api` too, behind a prefix of that text.
        let directory = level.directories.get(self.full).copied();
        let shorter = |place: &usize| level.prefixes[*place].shorter;
        let others = successors(whole.map_or(own, |place| shorter(&place)), shorter);
        for place in whole.into_iter().chain(directory).chain(others) {
            for (route, is_final) in &level.prefixes[place].routes {
                if (self.admits)(*route)? {
                    return Ok(Some((*route, *is_final)));
                }
            }
        }
        Ok(None)
    }

    fn matches(&mut self, expression: &Expression) -> Result<bool, E> {
        let (choice, full) = (self.choice, self.full);
        match &expression.pattern {
            Pattern::InSet { first, last } => {
                let matched = self.matched.get_or_insert_with(|| choice.matched(full));
                Ok(matched.iter().any(|pattern| (*first..=*last).contains(pattern)))
            }
            Pattern::LookAround(look_around) => Ok(look_around.is_match(full)?),
        }
    }
}

impl Level {
    fn add_prefix(&mut self, text: &[u8], route: RouteNumber, is_final: bool) {
        match self.prefixes.iter_mut().find(|prefix| *prefix.text == *text) {
            Some(prefix) => prefix.routes.push((route, is_final)),
            None => self.prefixes.push(Prefix { text: text.into(), routes: vec![(route, is_final)], shorter: None }),
        }
    }

    fn compile(&mut self) {
        self.prefixes.sort_by(|one, other| one.text.cmp(&other.text));
        for place in 0..self.prefixes.len() {
            let text = self.prefixes[place].text.clone();
            let is_prefix = |other: &Prefix| text.starts_with(&other.text);
            self.prefixes[place].shorter = self.prefixes[..place].iter().rposition(is_prefix);
            if let Some(directory) = text.strip_suffix(b"/").filter(|directory| !directory.is_empty()) {
                self.directories.insert(directory.into(), place);
            }
        }
    }

    /// The place of the longest prefix of a path.
    fn longest(&self, full: &[u8]) -> Option<usize> {
        // Every text between the longest prefix and the path begins with that prefix.
        let mut place = self.prefixes.partition_point(|prefix| *prefix.text <= *full).checked_sub(1)?;
        while !full.starts_with(&self.prefixes[place].text) {
            place = self.prefixes[place].shorter?;
        }
        Some(place)
    }
}

#[cfg(test)]
#[path = "choice_tests.rs"]
mod tests;
