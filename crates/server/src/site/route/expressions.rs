//! The expressions of a level of routes: one automaton finds the expressions that match a path.
//!
//! The automaton is made at the start, so that a path takes one step for each of its bytes and no memory. If it would be large, or an expression needs more
//! than an automaton has (a Unicode word boundary), a [`RegexSet`] matches instead, which makes its states when it comes to them.

use regex::bytes::{RegexSet, RegexSetBuilder};
use regex_automata::dfa::dense::{self, DFA};
use regex_automata::dfa::{Automaton, StartKind};
use regex_automata::util::primitives::StateID;
use regex_automata::util::{start, syntax};
use regex_automata::{Anchored, MatchKind, nfa::thompson};

use super::choice::RouteNumber;
use crate::site::look_around::{LookAround, TooManySteps};
use crate::site::pattern::fold;

/// Expressions in the order of the file.
#[derive(Debug, Default)]
pub(super) struct Expressions {
    all: Vec<Expression>,
    /// The expressions with look-around, if there are any.
    look_arounds: Option<Set>,
    /// The patterns of all others. `None`: there are no others.
    patterns: Option<Patterns>,
    /// The expression of each pattern.
    owners: Vec<Owner>,
    /// Whether one of them ignores case.
    folds: bool,
}

#[derive(Debug)]
struct Expression {
    route: RouteNumber,
    /// `None`: it is among the patterns.
    look_around: Option<LookAround>,
}

/// The expression that a pattern is of.
#[derive(Debug, Clone, Copy)]
struct Owner {
    expression: usize,
    of: Of,
}

/// The paths that a pattern is matched with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Of {
    /// As they are.
    Bytes,
    /// As they are, and folded: it ignores case, of characters too.
    Folded,
}

#[derive(Debug)]
enum Patterns {
    Automaton(Box<Dense>),
    Set(RegexSet),
}

/// An automaton with its state at the beginning of a path.
#[derive(Debug)]
struct Dense {
    automaton: DFA<Vec<u32>>,
    start: StateID,
}

/// An expression as it is configured.
#[derive(Debug)]
pub(super) enum Source {
    Pattern { text: String, ignores_case: bool },
    LookAround(LookAround),
}

impl Expressions {
    /// Compiles the expressions of a level. `room`: bytes that are left for the automata of a site.
    ///
    /// # Errors
    /// The expressions are too large together, or one is invalid.
    pub(super) fn new(sources: Vec<(RouteNumber, Source)>, room: &mut usize) -> Result<Self, String> {
        let mut expressions = Expressions::default();
        let mut texts = Vec::new();
        for (number, (route, source)) in sources.into_iter().enumerate() {
            let mut add = |text, of| {
                texts.push(text);
                expressions.owners.push(Owner { expression: number, of });
            };
            let look_around = match source {
                Source::LookAround(look_around) => {
                    expressions.look_arounds.get_or_insert_default().insert(number);
                    Some(look_around)
                }
                Source::Pattern { text, ignores_case: false } => {
                    add(format!("(?s-u:{text})"), Of::Bytes);
                    None
                }
                Source::Pattern { text, ignores_case: true } => {
                    add(format!("(?is-u:{text})"), Of::Bytes);
                    add(format!("(?isu:{text})"), Of::Folded);
                    expressions.folds = true;
                    None
                }
            };
            expressions.all.push(Expression { route, look_around });
        }
        if !texts.is_empty() {
            expressions.patterns = Some(Patterns::new(&texts, room)?);
        }
        Ok(expressions)
    }

    /// The expressions that may match a path: all that match, and all with look-around. `None`: no expression does.
    pub(super) fn candidates(&self, path: &[u8]) -> Option<Set> {
        let mut found = self.look_arounds.clone();
        let Some(patterns) = &self.patterns else { return found };
        patterns.each_match(path, |pattern| found.get_or_insert_default().insert(self.owners[pattern].expression));
        if self.folds && is_folded_otherwise(path) {
            patterns.each_match(&fold(path), |pattern| {
                if let Owner { expression, of: Of::Folded } = self.owners[pattern] {
                    found.get_or_insert_default().insert(expression);
                }
            });
        }
        found
    }

    /// The route of a candidate, if its expression matches.
    pub(super) fn route_of(&self, candidate: usize, path: &[u8]) -> Result<Option<RouteNumber>, TooManySteps> {
        let Expression { route, look_around } = &self.all[candidate];
        let matches = look_around.as_ref().map_or(Ok(true), |look_around| look_around.is_match(path))?;
        Ok(matches.then_some(*route))
    }
}

/// Whether folding does more to the path than an expression does that ignores case.
fn is_folded_otherwise(path: &[u8]) -> bool {
    // Paths are short: one loop costs less than a search with vectors.
    let mut next = b'/';
    path.iter().rev().any(|byte| {
        let ends_name = matches!(next, b'/' | b'.' | b' ');
        next = *byte;
        !byte.is_ascii() || ends_name && matches!(byte, b'.' | b' ')
    })
}

impl Patterns {
    fn new(texts: &[String], room: &mut usize) -> Result<Self, String> {
        if let Some(dense) = Dense::new(texts, *room) {
            *room -= dense.automaton.memory_usage().min(*room);
            return Ok(Patterns::Automaton(Box::new(dense)));
        }
        let built = RegexSetBuilder::new(texts).size_limit(SET_SIZE).build();
        built.map(Patterns::Set).map_err(|error| error.to_string())
    }

    /// Calls `found` with each pattern that matches, at least once.
    fn each_match(&self, path: &[u8], found: impl FnMut(usize)) {
        match self {
            Patterns::Automaton(dense) => dense.each_match(path, found),
            Patterns::Set(set) if set.is_match(path) => set.matches(path).iter().for_each(found),
            Patterns::Set(_) => {}
        }
    }
}

impl Dense {
    /// `None`: it would be too large, or an automaton cannot tell whether one of them matches.
    fn new(texts: &[String], room: usize) -> Option<Self> {
        let size = room.min(AUTOMATON_SIZE);
        let config = dense::Config::new()
            .match_kind(MatchKind::All)
            .start_kind(StartKind::Unanchored)
            .accelerate(false)
            .dfa_size_limit(Some(size))
            .determinize_size_limit(Some(size));
        // As `regex::bytes` has them.
        let syntax = syntax::Config::new().utf8(false);
        let nfa = thompson::Config::new().utf8(false).nfa_size_limit(Some(AUTOMATON_SIZE));
        let automaton = dense::Builder::new().configure(config).syntax(syntax).thompson(nfa).build_many(texts).ok()?;
        let start = automaton.start_state(&start::Config::new().anchored(Anchored::No)).ok()?;
        Some(Dense { automaton, start })
    }

    fn each_match(&self, path: &[u8], mut found: impl FnMut(usize)) {
        let Dense { automaton, start } = self;
        let mut matched = |state| {
            (0..automaton.match_len(state)).map(|index| automaton.match_pattern(state, index)).for_each(|pattern| {
                found(pattern.as_usize());
            });
        };
        let mut state = *start;
        for byte in path {
            state = automaton.next_state(state, *byte);
            if automaton.is_special_state(state) {
                if automaton.is_match_state(state) {
                    matched(state);
                } else if automaton.is_dead_state(state) {
                    return;
                }
            }
        }
        let end = automaton.next_eoi_state(state);
        if automaton.is_match_state(end) {
            matched(end);
        }
    }
}

/// Bound on the automata of a site, in bytes.
pub(super) const AUTOMATA_SIZE: usize = 4 << 20;

/// Bound on one automaton, and on the memory to make it.
const AUTOMATON_SIZE: usize = 1 << 20;

/// Bound on the compiled expressions of a set, in bytes.
const SET_SIZE: usize = 32 << 20;

/// Numbers of expressions. A few take no memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Set {
    few: [u64; FEW],
    more: Vec<u64>,
}

/// Words of a set without memory of its own.
const FEW: usize = 4;

impl Set {
    fn insert(&mut self, number: usize) {
        let (word, bit) = (number / 64, 1 << (number % 64));
        match self.few.get_mut(word) {
            Some(few) => *few |= bit,
            None => {
                self.more.resize(self.more.len().max(word - FEW + 1), 0);
                self.more[word - FEW] |= bit;
            }
        }
    }

    /// The numbers, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> {
        let words = self.few.iter().chain(&self.more).enumerate();
        words.filter(|(_, bits)| **bits != 0).flat_map(|(word, bits)| {
            let without_lowest = |bits: &u64| Some(bits & (bits - 1)).filter(|rest| *rest != 0);
            let rests = std::iter::successors(Some(*bits), without_lowest);
            rests.map(move |rest| word * 64 + rest.trailing_zeros() as usize)
        })
    }
}

#[cfg(test)]
#[path = "expressions_tests.rs"]
mod tests;
