//! Redirects whose targets have a group of an expression right behind the host: `^/blog(/.*)?$` with `https://blog.example.org$1`.
//!
//! A value there is part of the host, and has no slash. The slash that ends the host becomes text of the target.

use super::pcre::{self, Item, Kind};
use crate::syntax::Directive;

/// The rewrites that stand for one, in their order; none: it stands for itself.
pub(super) fn of_rewrite(rewrite: &Directive) -> Vec<Directive> {
    let [expression, to, flags @ ..] = rewrite.arguments.as_slice() else { return Vec::new() };
    let mut own = Vec::new();
    for (expression, to) in apart(expression, to) {
        let arguments = [expression, to].into_iter().chain(flags.iter().cloned()).collect();
        own.push(Directive { arguments, ..rewrite.clone() });
    }
    own
}

/// The expressions and targets that stand for one of each, in their order; none: they stand for themselves.
pub(super) fn apart(expression: &str, to: &str) -> Vec<(String, String)> {
    let Some(Target { host, number, rest }) = Target::of(to) else { return Vec::new() };
    let Some(items) = pcre::items(expression) else { return Vec::new() };
    let Some((open, close)) = group(&items, number) else { return Vec::new() };
    let text = |items: &[Item]| items.iter().map(|item| item.text.as_str()).collect::<String>();
    let (before, inner, after) = (&items[..open], &items[open + 1..close], &items[close + 1..]);
    let is_optional = after.first().is_some_and(|item| item.kind == Kind::Quantifier);
    let behind = if is_optional { &after[1..] } else { after };
    let with = |inner: &str| format!("{}/{}{inner}){}", text(before), items[open].text, text(behind));
    let without = format!("{}{}){}", text(before), items[open].text, text(behind));
    let (to_path, to_host) = (format!("{host}/${number}{rest}"), format!("{host}{rest}"));
    match inner {
        [slash, others @ ..] if slash.text == "/" && is_sequence(others) => match after.first() {
            Some(item) if item.kind == Kind::Quantifier && item.text != "?" => Vec::new(),
            _ if is_optional => vec![(with(&text(others)), to_path), (without, to_host)],
            _ => vec![(with(&text(others)), to_path)],
        },
        // It has other paths too, which would name another host.
        [any, times] if any.text == "." && !is_optional && behind.iter().all(|item| item.kind == Kind::End) => {
            let mut all = vec![(with(".*"), to_path)];
            match times.text.as_str() {
                "*" => all.push((without, to_host)),
                "+" => {}
                _ => return Vec::new(),
            }
            all.push((expression.to_owned(), to.to_owned()));
            all
        }
        _ => Vec::new(),
    }
}

/// Whether items behind a first one leave it in its place: no alternative, and no quantifier of it.
fn is_sequence(items: &[Item]) -> bool {
    items.first().is_none_or(|item| item.kind != Kind::Quantifier) && items.iter().all(|item| item.kind != Kind::Or)
}

/// The places of the parentheses of a group, which has no other group around it.
fn group(items: &[Item], number: usize) -> Option<(usize, usize)> {
    let (mut depth, mut count, mut found) = (0_usize, 0, None);
    for (at, item) in items.iter().enumerate() {
        match item.kind {
            Kind::Open => {
                let is_counted = !item.text.starts_with("(?") || item.text.ends_with('>');
                count += usize::from(is_counted);
                if is_counted && count == number {
                    found = Some(at).filter(|_| depth == 0);
                    found?;
                }
                depth += 1;
            }
            Kind::Close => {
                depth = depth.checked_sub(1)?;
                if let Some(open) = found.filter(|_| depth == 0) {
                    return Some((open, at));
                }
            }
            Kind::Or if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// A target with a group right behind its host.
struct Target<'a> {
    host: &'a str,
    number: usize,
    rest: &'a str,
}

impl<'a> Target<'a> {
    fn of(to: &'a str) -> Option<Self> {
        let (scheme, _) = to.split_once("://")?;
        let begin = scheme.len() + 3;
        let end = to[begin..].find(['/', '?', '#']).map_or(to.len(), |end| begin + end);
        let is_number = |text: &str| text.starts_with(|c: char| c.is_ascii_digit() && c != '0');
        let mut places = to[begin..end].match_indices('$').map(|(at, _)| begin + at);
        let dollar = places.find(|at| is_number(to[at + 1..].trim_start_matches('{')))?;
        let is_braced = to[dollar + 1..].starts_with('{');
        let digit = dollar + 1 + usize::from(is_braced);
        let rest = to.get(digit + 1..)?;
        let rest = if is_braced { rest.strip_prefix('}')? } else { rest };
        let is_behind_host = dollar > begin && (rest.is_empty() || rest.starts_with(['/', '?', '#', '$']));
        is_behind_host.then_some(Target { host: &to[..dollar], number: to[digit..=digit].parse().ok()?, rest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slash_behind_a_host_is_text_of_the_target() {
        for (expression, to, expected) in [
            ("^/b(/.*)?$", "https://h$1", &[("^/b/(.*)$", "https://h/$1"), ("^/b()$", "https://h")][..]),
            ("^/b(/.+)$", "https://h${1}?x=1", &[("^/b/(.+)$", "https://h/$1?x=1")]),
            (
                "^/(a|b)(/.*)$",
                "$scheme://$host$2$is_args$args",
                &[("^/(a|b)/(.*)$", "$scheme://$host/$2$is_args$args")],
            ),
            (
                "^/b(.*)$",
                "https://h$1",
                &[("^/b/(.*)$", "https://h/$1"), ("^/b()$", "https://h"), ("^/b(.*)$", "https://h$1")],
            ),
            ("^/b/(.*)$", "https://h/$1", &[]),
            ("^/([a-z]+)$", "https://$1.h/", &[]),
            ("^/([a-z]+)$", "https://h.$1", &[]),
            ("^/b(/.*|x)$", "https://h$1", &[]),
            ("^/b(/*x)$", "https://h$1", &[]),
            ("^/b(/x)*$", "https://h$1", &[]),
            ("^/b|(/x)$", "https://h$1", &[]),
        ] {
            let expected: Vec<_> = expected.iter().map(|(own, to)| ((*own).to_owned(), (*to).to_owned())).collect();
            assert_eq!(apart(expression, to), expected, "{expression} {to}");
        }
    }
}
