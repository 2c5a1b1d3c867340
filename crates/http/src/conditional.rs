//! Conditional requests (RFC 9110 §13): preconditions, and whether a range may be sent.

use crate::date::WholeSeconds;
use crate::etag::{Comparison, Tag, is_any};
use crate::request::{Conditions, FieldLines, Singleton};

/// The validators of a representation (RFC 9110 §8.8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Validators<'a> {
    /// A strong entity tag changes whenever the representation does; a weak one may not.
    pub etag: Option<Tag<'a>>,
    /// Last-Modified, not later than Date (RFC 9110 §8.8.2.1). `None`: out of range for an HTTP-date.
    pub modified: Option<WholeSeconds>,
    /// Whether other representations exist. They can share the date (RFC 9110 §8.8.2.2).
    pub varies: bool,
}

impl Validators<'_> {
    /// Whether a list of entity tags has the tag. `*` matches a representation without one too.
    fn is_in(&self, list: &FieldLines<'_>, comparison: Comparison) -> bool {
        self.etag.map_or_else(|| is_any(list), |etag| etag.is_in(list, comparison))
    }
}

/// The result of evaluating the preconditions of a GET or HEAD.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// All preconditions hold: perform the request.
    Proceed,
    /// Send 304 (Not Modified).
    NotModified,
    /// Send 412 (Precondition Failed).
    PreconditionFailed,
}

/// Evaluates the preconditions of a GET or HEAD in the order of RFC 9110 §13.2.2.
pub fn evaluate(conditions: &Conditions<'_>, validators: &Validators<'_>) -> Verdict {
    if conditions.if_match.is_present() {
        if !validators.is_in(&conditions.if_match, Comparison::Strong) {
            return Verdict::PreconditionFailed;
        }
    } else if modified_after(validators, &conditions.if_unmodified_since) == Some(true) {
        return Verdict::PreconditionFailed;
    }
    let unchanged = if conditions.if_none_match.is_present() {
        validators.is_in(&conditions.if_none_match, Comparison::Weak)
    } else {
        modified_after(validators, &conditions.if_modified_since) == Some(false)
    };
    if unchanged { Verdict::NotModified } else { Verdict::Proceed }
}

/// Whether If-Range allows Range to be honoured (RFC 9110 §13.1.5). `now` is the value of Date.
///
/// A date matches only if it equals Last-Modified and that second is over, since a file that changes twice within a second
/// keeps its date. A date never matches a file with several codings: they may share it, and ranges of two codings do not fit
/// together. A repeated If-Range never matches.
pub fn range_applies(if_range: &Singleton<'_>, validators: &Validators<'_>, now: WholeSeconds) -> bool {
    match if_range {
        Singleton::Absent => true,
        Singleton::Repeated => false,
        Singleton::Once(value) => {
            validators.etag.is_some_and(|etag| etag.equals_strongly(value))
                || !validators.varies
                    && validators.modified.is_some_and(|modified| parse_date(value) == Some(modified) && modified < now)
        }
    }
}

/// Whether the file was modified after the date in `field`. `None`: ignore the field, because it is absent, repeated or not a
/// date, or because the file has no date (RFC 9110 §13.1.3 and §13.1.4).
fn modified_after(validators: &Validators<'_>, field: &Singleton<'_>) -> Option<bool> {
    Some(validators.modified? > parse_date(field.value()?)?)
}

fn parse_date(value: &[u8]) -> Option<WholeSeconds> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const BEFORE: &str = "Sun, 06 Nov 1994 08:49:36 GMT";
    const MODIFIED: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    const AFTER: &str = "Sun, 06 Nov 1994 08:49:38 GMT";
    const OURS: &str = "\"0000000000000000\"";
    const WEAK: &str = "W/\"0000000000000000\"";

    fn validators() -> Validators<'static> {
        Validators { etag: Tag::parse(OURS.as_bytes()), modified: MODIFIED.parse().ok(), varies: false }
    }

    fn conditions<'a>(fields: &[(&str, &'a str)]) -> Conditions<'a> {
        let mut conditions = Conditions::default();
        fields.iter().for_each(|(name, value)| conditions.add(name, value.as_bytes()));
        conditions
    }

    #[test]
    fn order_of_rfc_9110_section_13_2_2() {
        use Verdict::{NotModified, PreconditionFailed, Proceed};
        const IM: &str = "If-Match";
        const INM: &str = "If-None-Match";
        const IMS: &str = "If-Modified-Since";
        const IUS: &str = "If-Unmodified-Since";
        let rows: &[(&[(&str, &str)], Verdict)] = &[
            (&[], Proceed),
            (&[(IM, OURS)], Proceed),
            (&[(IM, "*")], Proceed),
            (&[(IM, "\"x\"")], PreconditionFailed),
            (&[(IM, WEAK)], PreconditionFailed),
            (&[(IM, "")], PreconditionFailed),
            (&[(IM, "\"x\""), (IM, OURS)], Proceed),
            (&[(IUS, BEFORE)], PreconditionFailed),
            (&[(IUS, MODIFIED)], Proceed),
            (&[(IUS, AFTER)], Proceed),
            (&[(IUS, "yesterday")], Proceed),
            (&[(IUS, BEFORE), (IUS, BEFORE)], Proceed),
            // If-Match overrides If-Unmodified-Since.
            (&[(IM, OURS), (IUS, BEFORE)], Proceed),
            (&[(IM, "\"x\""), (IUS, AFTER)], PreconditionFailed),
            (&[(INM, OURS)], NotModified),
            (&[(INM, WEAK)], NotModified),
            (&[(INM, "*")], NotModified),
            (&[(INM, "\"x\"")], Proceed),
            (&[(INM, "\"x\""), (INM, OURS)], NotModified),
            (&[(IMS, BEFORE)], Proceed),
            (&[(IMS, MODIFIED)], NotModified),
            (&[(IMS, AFTER)], NotModified),
            (&[(IMS, "Sunday, 06-Nov-94 08:49:37 GMT")], NotModified),
            (&[(IMS, "Sun Nov  6 08:49:37 1994")], NotModified),
            (&[(IMS, "0")], Proceed),
            (&[(IMS, "")], Proceed),
            (&[(IMS, AFTER), (IMS, AFTER)], Proceed),
            // If-None-Match overrides If-Modified-Since.
            (&[(INM, "\"x\""), (IMS, AFTER)], Proceed),
            (&[(INM, OURS), (IMS, BEFORE)], NotModified),
            // The first two steps come before the second two.
            (&[(IM, "\"x\""), (INM, OURS)], PreconditionFailed),
            (&[(IM, OURS), (INM, OURS)], NotModified),
            (&[(IUS, BEFORE), (IMS, AFTER)], PreconditionFailed),
            (&[(IUS, AFTER), (IMS, AFTER)], NotModified),
        ];
        for (fields, verdict) in rows {
            assert_eq!(evaluate(&conditions(fields), &validators()), *verdict, "{fields:?}");
        }
        let untagged = Validators { etag: None, ..validators() };
        assert_eq!(evaluate(&conditions(&[(IM, "*")]), &untagged), Proceed);
        assert_eq!(evaluate(&conditions(&[(IM, OURS)]), &untagged), PreconditionFailed);
        assert_eq!(evaluate(&conditions(&[(INM, "*")]), &untagged), NotModified);
        assert_eq!(evaluate(&conditions(&[(INM, OURS), (IMS, AFTER)]), &untagged), Proceed);
        let undated = Validators { modified: None, ..validators() };
        assert_eq!(evaluate(&conditions(&[(IMS, AFTER)]), &undated), Proceed);
        assert_eq!(evaluate(&conditions(&[(IUS, BEFORE)]), &undated), Proceed);
    }

    #[test]
    fn if_range() {
        let rows: &[(&[&str], &str, bool)] = &[
            (&[], MODIFIED, true),
            (&[OURS], MODIFIED, true),
            (&[WEAK], AFTER, false),
            (&["\"x\""], AFTER, false),
            (&["*"], AFTER, false),
            (&["\"x\", \"0000000000000000\""], AFTER, false),
            (&[""], AFTER, false),
            (&[MODIFIED], AFTER, true),
            (&["Sun Nov  6 08:49:37 1994"], AFTER, true),
            (&[MODIFIED], MODIFIED, false),
            (&[BEFORE], AFTER, false),
            (&[AFTER], AFTER, false),
            (&[OURS, OURS], AFTER, false),
        ];
        for (lines, now, expected) in rows {
            let mut if_range = Singleton::default();
            lines.iter().for_each(|line| if_range.add(line.as_bytes()));
            let now = now.parse().unwrap();
            assert_eq!(range_applies(&if_range, &validators(), now), *expected, "{lines:?} at {now:?}");
            let varying = Validators { varies: true, ..validators() };
            let by_tag = lines.is_empty() || *lines == [OURS];
            assert_eq!(range_applies(&if_range, &varying, now), by_tag, "{lines:?}, one of several codings");
        }
    }
}
