//! How often each form may occur, per 1,000 sentences.

/// The goals: quinn, ripgrep, h2 and pingora are below them. The last form has no
/// such goal: 4 is what most parts have.
const GOALS: [f64; 7] = [0.6, 0.6, 1.5, 0.6, 0.3, 0.6, 4.0];

/// By part, in the order of `Form`: the count of the part rounded up, or the goal where that is reached. A part that is
/// not listed has the goals. Limits only go down.
#[rustfmt::skip]
const LIMITS: &[(&str, [f64; 7])] = &[
    ("crates/ktls",         [ 0.6,  1.0,  1.5,  0.6,  0.3,  0.6,  6.0]),
];

pub(super) fn of(part: &str) -> [f64; 7] {
    LIMITS.iter().find(|(name, _)| *name == part).map_or(GOALS, |(_, limits)| *limits)
}

#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    LIMITS.iter().map(|(name, _)| *name)
}
