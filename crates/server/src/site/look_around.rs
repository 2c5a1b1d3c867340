//! Expressions with look-around, as `import-nginx` takes them over. They are matched by backtracking, whose steps are bounded.

use fancy_regex::{BytesMode, Regex, RegexBuilder};
use sealion_http::Status;

/// An expression with look-around, for paths as bytes.
#[derive(Debug)]
pub(super) struct LookAround(Regex);

/// Whether an expression matches is not known: that takes too many steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TooManySteps;

/// The sign before an expression with look-around.
pub(super) const SIGN: &str = "~~ ";

/// Steps back that one match may take: a long path with a bad expression takes about a millisecond.
const MAX_STEPS: usize = 10_000;

/// Bound on a compiled expression, in bytes.
const SIZE: usize = 1 << 20;

impl LookAround {
    /// Compiles an expression. It means the same as without look-around: `.` matches any byte, and classes are ASCII classes.
    ///
    /// # Errors
    /// The syntax error.
    pub(super) fn new(text: &str) -> Result<Self, String> {
        let mut builder = RegexBuilder::new(text);
        builder.bytes_mode(BytesMode::Ascii).dot_matches_new_line(true);
        builder.backtrack_limit(MAX_STEPS).delegate_size_limit(SIZE);
        let built = builder.build().map_err(|error| error.to_string());
        built.map(LookAround).map_err(|error| error.lines().last().unwrap_or_default().to_owned())
    }

    /// The expression.
    pub(super) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Whether a value matches.
    ///
    /// # Errors
    /// It takes too many steps to tell.
    pub(super) fn is_match(&self, value: &[u8]) -> Result<bool, TooManySteps> {
        self.0.is_match(value).map_err(|_| TooManySteps)
    }
}

impl From<TooManySteps> for Status {
    fn from(TooManySteps: TooManySteps) -> Self {
        Status::INTERNAL_SERVER_ERROR
    }
}

impl From<TooManySteps> for () {
    fn from(TooManySteps: TooManySteps) {}
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn look_around_is_matched_over_bytes() {
        let matches = |text: &str, value: &[u8]| LookAround::new(text).unwrap().is_match(value);
        for (text, value, expected) in [
            (r"/\.(?!well-known/)", &b"/.env"[..], true),
            (r"/\.(?!well-known/)", b"/.well-known/x", false),
            (r"(?<!\.min)\.png$", b"/a.png", true),
            (r"(?<!\.min)\.png$", b"/a.min.png", false),
            (r"^/.(?=\xe9)", b"/\xff\xe9", true),
            (r"^/a.(?=b)", b"/a\nb", true),
            (r"(?i)^/A(?!b)", b"/ac", true),
        ] {
            assert_eq!(matches(text, value), Ok(expected), "{text} {}", value.escape_ascii());
        }
        assert!(LookAround::new("(?!").is_err());
    }

    #[test]
    fn a_match_that_takes_too_many_steps_is_an_error() {
        let slow = LookAround::new(r"^/(?:(?=a)a|(?=a)a)*b$").unwrap();
        assert_eq!(slow.is_match(b"/aaab"), Ok(true));
        assert_eq!(slow.is_match(&[b"/".as_slice(), &[b'a'; 60]].concat()), Err(TooManySteps));
    }
}
