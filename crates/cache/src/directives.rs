//! Cache-Control (RFC 9111 §5.2) of requests and responses.

use http::HeaderName;

use crate::Seconds;

/// The directives of a request, from Cache-Control, or from Pragma if there is no Cache-Control (RFC 9111 §5.4).
///
/// To ignore the directives of requests, pass the default, which has none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RequestDirectives {
    /// `no-cache`: a stored response must be validated first.
    pub no_cache: bool,
    /// `no-store`: neither this request nor its response is stored.
    pub no_store: bool,
    /// `only-if-cached`: if no stored response may be sent, the response is 504.
    pub only_if_cached: bool,
    /// `max-age`: the maximum age in seconds. An invalid value counts as 0, because the client requested some bound.
    pub max_age: Option<u32>,
    /// `min-fresh`: the response must stay fresh for this many seconds.
    pub min_fresh: Option<u32>,
    /// `max-stale`: the response may be stale by this many seconds. Without a value it is 2³¹, which allows any
    /// staleness.
    pub max_stale: Option<u32>,
    /// `stale-if-error` (RFC 5861 §4): if the origin fails, the response may be stale by this many seconds.
    pub stale_if_error: Option<u32>,
}

impl RequestDirectives {
    /// Reads the lines of Cache-Control and Pragma. Allocates nothing.
    pub fn parse<'a>(
        cache_control: impl Iterator<Item = &'a [u8]>,
        pragma: impl Iterator<Item = &'a [u8]>,
    ) -> RequestDirectives {
        let mut directives = RequestDirectives::default();
        let mut is_present = false;
        for line in cache_control {
            is_present = true;
            Members(line).for_each(|member| directives.add(&member));
        }
        if !is_present {
            let is_no_cache = |member: Member<'_>| member.name.eq_ignore_ascii_case(b"no-cache");
            directives.no_cache = pragma.flat_map(Members).any(is_no_cache);
        }
        directives
    }

    fn add(&mut self, member: &Member<'_>) {
        let Member { name, argument, .. } = member;
        for token in member.tokens_of_malformed() {
            self.no_cache |= token.eq_ignore_ascii_case(b"no-cache");
            self.no_store |= token.eq_ignore_ascii_case(b"no-store");
        }
        let is = |directive: &[u8]| name.eq_ignore_ascii_case(directive);
        if is(b"no-cache") {
            self.no_cache = true;
        } else if is(b"no-store") {
            self.no_store = true;
        } else if is(b"only-if-cached") {
            self.only_if_cached = true;
        } else if is(b"max-age") {
            self.max_age.get_or_insert(argument.seconds().unwrap_or(0));
        } else if is(b"min-fresh") {
            self.min_fresh = self.min_fresh.or(argument.seconds());
        } else if is(b"max-stale") {
            let any = (*argument == Argument::Absent).then_some(DELTA_MAX);
            self.max_stale = self.max_stale.or(any).or(argument.seconds());
        } else if is(b"stale-if-error") {
            self.stale_if_error = self.stale_if_error.or(argument.seconds());
        }
    }
}

/// Directives of a response.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    pub(crate) no_store: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    /// RFC 8246.
    pub(crate) immutable: bool,
    pub(crate) no_cache: Scope,
    pub(crate) private: Scope,
    pub(crate) max_age: Option<u32>,
    pub(crate) s_maxage: Option<u32>,
    /// When the response becomes stale, in seconds since 1970. This is not a directive, but the absolute form of
    /// X-Accel-Expires.
    pub(crate) expires: Option<Seconds>,
    /// RFC 5861 §3.
    pub(crate) stale_while_revalidate: Option<u32>,
    /// RFC 5861 §4.
    pub(crate) stale_if_error: Option<u32>,
}

/// The scope of a response's `no-cache` and `private` (RFC 9111 §5.2.2.4, §5.2.2.7).
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) enum Scope {
    #[default]
    Nothing,
    /// The named fields.
    Fields(Vec<HeaderName>),
    /// The whole response.
    Response,
}

impl ResponseDirectives {
    /// Reads the lines of a Cache-Control.
    pub(crate) fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut directives = ResponseDirectives::default();
        for member in lines.flat_map(Members) {
            directives.add(member.name, member.argument);
            member.tokens_of_malformed().for_each(|token| directives.prohibit(token));
        }
        directives
    }

    /// Adds a word of malformed text: words that forbid storing count, words that permit it do not.
    pub(crate) fn prohibit(&mut self, token: &[u8]) {
        let is = |directive: &[u8]| token.eq_ignore_ascii_case(directive);
        if is(b"no-store") {
            self.no_store = true;
        } else if is(b"private") {
            self.private = Scope::Response;
        } else if is(b"no-cache") {
            self.no_cache = Scope::Response;
        } else if is(b"must-revalidate") {
            self.must_revalidate = true;
        } else if is(b"proxy-revalidate") {
            self.proxy_revalidate = true;
        }
    }

    /// Whether no part of the response may be stored.
    pub(crate) fn forbids(&self) -> bool {
        self.no_store || self.private == Scope::Response
    }

    /// Adds a directive. If a numeric directive is repeated, the first counts. An invalid lifetime is 0 seconds, and an
    /// invalid permission grants nothing (RFC 9111 §4.2.1).
    pub(crate) fn add(&mut self, name: &[u8], argument: Argument<'_>) {
        let is = |directive: &[u8]| name.eq_ignore_ascii_case(directive);
        let is_readable = argument != Argument::Malformed;
        let seconds = |first: &mut Option<u32>| {
            first.get_or_insert(argument.seconds().unwrap_or(0));
        };
        if is(b"no-store") {
            self.no_store = true;
        } else if is(b"public") {
            self.public |= is_readable;
        } else if is(b"must-revalidate") {
            self.must_revalidate = true;
        } else if is(b"proxy-revalidate") {
            self.proxy_revalidate = true;
        } else if is(b"must-understand") {
            self.must_understand |= is_readable;
        } else if is(b"immutable") {
            self.immutable |= is_readable;
        } else if is(b"no-cache") {
            self.no_cache.widen(argument);
        } else if is(b"private") {
            self.private.widen(argument);
        } else if is(b"max-age") {
            seconds(&mut self.max_age);
        } else if is(b"s-maxage") {
            seconds(&mut self.s_maxage);
        } else if is(b"stale-while-revalidate") {
            seconds(&mut self.stale_while_revalidate);
        } else if is(b"stale-if-error") {
            seconds(&mut self.stale_if_error);
        }
    }

    /// The fields that `no-cache` and `private` name, which must not be stored.
    pub(crate) fn excluded_fields(&self) -> impl Iterator<Item = &HeaderName> {
        [&self.no_cache, &self.private].into_iter().flat_map(|scope| match scope {
            Scope::Fields(names) => &names[..],
            _ => &[],
        })
    }
}

impl Scope {
    /// Adds one occurrence. A malformed list of fields means the whole response.
    fn widen(&mut self, argument: Argument<'_>) {
        match (&mut *self, argument.names()) {
            (Scope::Response, _) => {}
            (Scope::Fields(all), Some(names)) => all.extend(names),
            (Scope::Nothing, Some(names)) => *self = Scope::Fields(names),
            (_, None) => *self = Scope::Response,
        }
    }
}

/// The maximum number of seconds. A greater number counts as this one (RFC 9111 §1.2.2).
pub(crate) const DELTA_MAX: u32 = 1 << 31;

/// delta-seconds (RFC 9111 §1.2.2). `None`: not a number.
pub(crate) fn delta_seconds(digits: &[u8]) -> Option<u32> {
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u32, |value, digit| {
        let digit = digit.is_ascii_digit().then(|| u32::from(digit - b'0'))?;
        Some(value.saturating_mul(10).saturating_add(digit).min(DELTA_MAX))
    })
}

/// One directive of a list.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Member<'a> {
    /// Empty if the text begins with something else.
    pub(crate) name: &'a [u8],
    pub(crate) argument: Argument<'a>,
    text: &'a [u8],
}

impl<'a> Member<'a> {
    /// The words of a malformed member, such as `public; no-store`, or `x="no-store` without a closing quote. Empty for
    /// a well-formed member.
    pub(crate) fn tokens_of_malformed(&self) -> impl Iterator<Item = &'a [u8]> {
        let text = if self.argument == Argument::Malformed { self.text } else { &[] };
        tokens(text)
    }
}

/// The words of malformed text.
pub(crate) fn tokens(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|byte| !is_tchar(*byte)).filter(|token| !token.is_empty())
}

/// The argument of a directive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Argument<'a> {
    Absent,
    Token(&'a [u8]),
    /// The bytes between the quotes.
    Quoted(&'a [u8]),
    /// An integer of a structured field.
    Integer(i64),
    /// A syntax error: an unclosed quote, or spaces around `=`.
    Malformed,
}

impl Argument<'_> {
    /// Accepts both forms of a number (RFC 9111 §5.2).
    fn seconds(&self) -> Option<u32> {
        match self {
            Argument::Token(text) | Argument::Quoted(text) => delta_seconds(text),
            Argument::Integer(value) => Some(u64::try_from(*value).ok()?.min(DELTA_MAX.into()) as u32),
            Argument::Absent | Argument::Malformed => None,
        }
    }

    /// A list of field names. `None`: it is not such a list.
    fn names(&self) -> Option<Vec<HeaderName>> {
        let (Argument::Token(list) | Argument::Quoted(list)) = self else { return None };
        let members = list.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).filter(|member| !member.is_empty());
        let names: Vec<_> = members.map(|member| HeaderName::from_bytes(member).ok()).collect::<Option<_>>()?;
        (!names.is_empty()).then_some(names)
    }
}

/// The directives of one line. A malformed directive ends at the next comma outside quotes.
pub(crate) struct Members<'a>(&'a [u8]);

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let start = self.0.iter().position(|byte| !matches!(byte, b' ' | b'\t' | b','))?;
        let whole = &self.0[start..];
        let name = self.take_token(start);
        let argument = match self.0 {
            [b'=', b'"', rest @ ..] => self.take_quoted(rest),
            [b'=', ..] => match self.take_token(1) {
                [] => Argument::Malformed,
                token => Argument::Token(token),
            },
            _ => Argument::Absent,
        };
        let is_whole = self.skip_to_comma() && !name.is_empty();
        let text = &whole[..whole.len() - self.0.len()];
        Some(Member { name, argument: if is_whole { argument } else { Argument::Malformed }, text })
    }
}

impl<'a> Members<'a> {
    pub(crate) fn of(line: &'a [u8]) -> Self {
        Members(line)
    }

    /// Takes the token that begins at `start`; it may be empty.
    fn take_token(&mut self, start: usize) -> &'a [u8] {
        let rest = &self.0[start..];
        let (token, rest) = rest.split_at(rest.iter().position(|byte| !is_tchar(*byte)).unwrap_or(rest.len()));
        self.0 = rest;
        token
    }

    /// Takes a quoted string, after its opening quote.
    fn take_quoted(&mut self, rest: &'a [u8]) -> Argument<'a> {
        match closing_quote(rest) {
            Some(end) => {
                self.0 = &rest[end + 1..];
                Argument::Quoted(&rest[..end])
            }
            None => {
                self.0 = &[];
                Argument::Malformed
            }
        }
    }

    /// Skips to the next comma outside quotes. False: more than white space was skipped.
    fn skip_to_comma(&mut self) -> bool {
        let mut is_whole = true;
        while let [byte, rest @ ..] = self.0 {
            match byte {
                b',' => break,
                b' ' | b'\t' => self.0 = rest,
                b'"' => {
                    is_whole = false;
                    self.0 = closing_quote(rest).map_or(&[], |end| &rest[end + 1..]);
                }
                _ => {
                    is_whole = false;
                    self.0 = rest;
                }
            }
        }
        is_whole
    }
}

/// The index of the closing quote of a quoted string (RFC 9110 §5.6.4). `text` starts after the opening quote.
pub(crate) fn closing_quote(text: &[u8]) -> Option<usize> {
    let mut at = 0;
    loop {
        match text.get(at)? {
            b'"' => return Some(at),
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
}

fn is_tchar(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(line: &str) -> RequestDirectives {
        RequestDirectives::parse([line.as_bytes()].into_iter(), [&b"no-cache"[..]].into_iter())
    }

    fn response(lines: &[&str]) -> ResponseDirectives {
        ResponseDirectives::parse(lines.iter().map(|line| line.as_bytes()))
    }

    #[test]
    fn directives_of_requests() {
        let none = RequestDirectives::default();
        for (line, expected) in [
            ("", none),
            ("no-cache", RequestDirectives { no_cache: true, ..none }),
            ("NO-STORE , only-if-cached", RequestDirectives { no_store: true, only_if_cached: true, ..none }),
            ("max-age=0, max-age=5", RequestDirectives { max_age: Some(0), ..none }),
            ("max-age=\"7\"", RequestDirectives { max_age: Some(7), ..none }),
            ("max-age", RequestDirectives { max_age: Some(0), ..none }),
            ("max-age=x", RequestDirectives { max_age: Some(0), ..none }),
            ("max-stale", RequestDirectives { max_stale: Some(DELTA_MAX), ..none }),
            ("max-stale=3", RequestDirectives { max_stale: Some(3), ..none }),
            ("max-stale=x, min-fresh=x, stale-if-error=x", none),
            (
                "min-fresh=4, stale-if-error=5",
                RequestDirectives { min_fresh: Some(4), stale_if_error: Some(5), ..none },
            ),
            (
                "extension=\"no-cache, no-store\", max-stale=99999999999",
                RequestDirectives { max_stale: Some(DELTA_MAX), ..none },
            ),
        ] {
            assert_eq!(request(line), expected, "{line}");
        }
    }

    #[test]
    fn pragma_counts_only_without_cache_control() {
        let parse = |cache_control: &[&'static [u8]], pragma: &[&'static [u8]]| {
            RequestDirectives::parse(cache_control.iter().copied(), pragma.iter().copied()).no_cache
        };
        assert!(parse(&[], &[b"x, No-Cache"]));
        assert!(!parse(&[b""], &[b"no-cache"]));
        assert!(!parse(&[], &[b"x=\"no-cache\"", b"no-caches"]));
    }

    #[test]
    fn a_number_of_seconds_is_digits_and_bounded() {
        for (text, expected) in [
            ("0", Some(0)),
            ("003600", Some(3600)),
            ("2147483647", Some(DELTA_MAX - 1)),
            ("2147483648", Some(DELTA_MAX)),
            ("2147483649", Some(DELTA_MAX)),
            ("99999999999999999999999999", Some(DELTA_MAX)),
            ("", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1a", None),
            ("'1'", None),
        ] {
            assert_eq!(delta_seconds(text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn lifetimes_of_responses() {
        for (lines, expected) in [
            (&["max-age=60"][..], Some(60)),
            (&["MaX-aGe=60"], Some(60)),
            (&["max-age=\"60\""], Some(60)),
            (&["foobar, max-age=60"], Some(60)),
            (&[",, ,max-age=60 ,"], Some(60)),
            (&["max-age=60\t,x"], Some(60)),
            // The first of several counts (RFC 9111 §4.2.1).
            (&["max-age=60, max-age=5"], Some(60)),
            (&["max-age=5", "max-age=60"], Some(5)),
            (&["max-age=x, max-age=60"], Some(0)),
            // A quoted string contains no directive.
            (&["extension=\"max-age=3600\", max-age=1"], Some(1)),
            (&["extension=\"\\\", max-age=3600\", max-age=1"], Some(1)),
            (&["max-age=1, extension=\"max-age=3600\""], Some(1)),
            (&["extension=\"max-age=3600"], None),
            (&["\"max-age=3600\""], None),
            (&["\"max-age=3600\", max-age=2"], Some(2)),
            // Invalid: the lifetime is 0.
            (&["max-age"], Some(0)),
            (&["max-age="], Some(0)),
            (&["max-age=-60"], Some(0)),
            (&["max-age=60.0"], Some(0)),
            (&["max-age='60'"], Some(0)),
            (&["max-age =60"], Some(0)),
            (&["max-age= 60"], Some(0)),
            (&["max-age=60;x"], Some(0)),
            (&["max-age=60 x"], Some(0)),
            (&["max-age=\"60"], Some(0)),
            (&["max-age=\"60\"0"], Some(0)),
            (&["max-age=60 \"x, max-age=5\", public"], Some(0)),
            (&["max-ages=60, xmax-age=60"], None),
        ] {
            assert_eq!(response(lines).max_age, expected, "{lines:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_forbids_and_permits_nothing() {
        for (line, no_store, private, no_cache) in [
            ("public; no-store; max-age=60", true, false, false),
            ("public; private; max-age=60", false, true, false),
            ("max-age=60 no-store", true, false, false),
            ("max-age=60; No-Store", true, false, false),
            ("max-age=60;private=\"a\"", false, true, false),
            ("max-age=60, x=\"a, no-store", true, false, false),
            ("x=\"a, private, max-age=60", false, true, false),
            ("\"no-store\", max-age=60", true, false, false),
            (";private, max-age=60", false, true, false),
            ("=no-store, max-age=60", true, false, false),
            ("max-age=60 \"x, no-store\", public", true, false, false),
            ("must-understand; no-store; max-age=60", true, false, false),
            ("max-age=60; no-cache", false, false, true),
            // Well-formed, or another word.
            ("x=\"no-store, private\", max-age=60", false, false, false),
            ("x=no-store, max-age=60", false, false, false),
            ("max-age=60; no-store-remote; privately; x-no-store", false, false, false),
        ] {
            let found = response(&[line]);
            let is_whole = |scope: &Scope| *scope == Scope::Response;
            let all = (found.no_store, is_whole(&found.private), is_whole(&found.no_cache));
            assert_eq!(all, (no_store, private, no_cache), "{line}");
            assert!(!found.must_understand, "{line}");
        }
        let revalidated = response(&["max-age=60; must-revalidate; proxy-revalidate"]);
        assert!(revalidated.must_revalidate && revalidated.proxy_revalidate);
        let permissions = response(&["public;x, must-understand;x, immutable;x"]);
        assert!(!permissions.public && !permissions.must_understand && !permissions.immutable);
        for line in ["max-age=0; no-store", "x=\"no-store"] {
            assert!(request(line).no_store, "{line}");
        }
    }

    #[test]
    fn fields_can_be_named() {
        let named = |names: &[&str]| Scope::Fields(names.iter().map(|name| name.parse().unwrap()).collect());
        for (lines, expected) in [
            (&["no-cache"][..], Scope::Response),
            (&["no-cache=\"Set-Cookie\""], named(&["set-cookie"])),
            (&["no-cache=\"a, b,\""], named(&["a", "b"])),
            (&["no-cache=a"], named(&["a"])),
            (&["no-cache=\"a\"", "no-cache=b"], named(&["a", "b"])),
            (&["no-cache=\"a\", no-cache"], Scope::Response),
            (&["no-cache, no-cache=\"a\""], Scope::Response),
            (&["no-cache=\"\""], Scope::Response),
            (&["no-cache=\"a b\""], Scope::Response),
            (&["no-cache=\"a"], Scope::Response),
            (&["no-cache = a"], Scope::Response),
            (&["private=\"a\""], Scope::Nothing),
        ] {
            assert_eq!(response(lines).no_cache, expected, "{lines:?}");
        }
        let both = response(&["private=\"a\", no-cache=\"b\""]);
        let excluded: Vec<_> = both.excluded_fields().map(HeaderName::as_str).collect();
        assert_eq!(excluded, ["b", "a"]);
    }

    #[test]
    fn flags_of_responses() {
        let all = response(&[
            "no-store, public, must-revalidate, proxy-revalidate, must-understand, immutable, private, no-transform",
            "s-maxage=1, stale-while-revalidate=2, stale-if-error=3",
        ]);
        let expected = ResponseDirectives {
            no_store: true,
            public: true,
            must_revalidate: true,
            proxy_revalidate: true,
            must_understand: true,
            immutable: true,
            no_cache: Scope::Nothing,
            private: Scope::Response,
            max_age: None,
            s_maxage: Some(1),
            expires: None,
            stale_while_revalidate: Some(2),
            stale_if_error: Some(3),
        };
        assert_eq!(all, expected);
        // A flag counts even if it has an argument.
        assert!(response(&["no-store=1"]).no_store);
    }
}
