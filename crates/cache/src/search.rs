//! No-Vary-Search (draft-ietf-httpbis-no-vary-search): parameters of the query that do not select the response.

use std::collections::BTreeSet;

use http::{HeaderMap, HeaderName, HeaderValue};
use sfv::{BareItem, Dictionary, ListEntry, Parser};

/// How the query selects a response, where No-Vary-Search says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SearchVariance {
    parameters: Parameters,
    is_order_ignored: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Parameters {
    /// All but these select the response.
    Except(BTreeSet<Vec<u8>>),
    /// These alone select the response.
    Only(BTreeSet<Vec<u8>>),
}

const NO_VARY_SEARCH: HeaderName = HeaderName::from_static("no-vary-search");

impl SearchVariance {
    /// The variance of a response. `None`: the whole query selects it, as without the field. A field that is invalid or longer than 1 KiB counts as absent.
    #[must_use]
    pub fn of(fields: &HeaderMap) -> Option<Self> {
        let lines: Vec<_> = fields.get_all(NO_VARY_SEARCH).iter().map(HeaderValue::as_bytes).collect();
        let text = lines.join(&b", "[..]);
        if text.is_empty() || text.len() > MAX_FIELD {
            return None;
        }
        let dictionary = Parser::new(&text).parse::<Dictionary>().ok()?;
        let is_order_ignored = match dictionary.get("key-order") {
            None => false,
            Some(ListEntry::Item(item)) => match item.bare_item {
                BareItem::Boolean(is_ignored) => is_ignored,
                _ => return None,
            },
            Some(ListEntry::InnerList(_)) => return None,
        };
        let parameters = match (dictionary.get("params"), dictionary.get("except")) {
            (None, None) => Parameters::Except(BTreeSet::new()),
            (Some(ignored), None) => Parameters::Except(names(ignored)?),
            (None, Some(selecting)) => Parameters::Only(names(selecting)?),
            (Some(_), Some(_)) => return None,
        };
        let is_default = matches!(&parameters, Parameters::Except(names) if names.is_empty()) && !is_order_ignored;
        (!is_default).then_some(SearchVariance { parameters, is_order_ignored })
    }

    /// A text that is the same for two queries if and only if they are equivalent by one and the same variance. It has printable ASCII alone.
    #[must_use]
    pub fn key(&self, query: Option<&[u8]>) -> String {
        let mut key = String::from(if self.is_order_ignored { "k" } else { "o" });
        let (kind, names) = match &self.parameters {
            Parameters::Except(names) => ('-', names),
            Parameters::Only(names) => ('+', names),
        };
        key.push(kind);
        for name in names {
            spell(name, &mut key);
            key.push(',');
        }
        key.push(':');
        for (name, value) in self.selecting(query) {
            spell(&name, &mut key);
            key.push('=');
            spell(&value, &mut key);
            key.push('&');
        }
        key
    }

    /// Bytes of memory that it takes, about.
    #[must_use]
    pub fn memory(&self) -> usize {
        let (Parameters::Except(names) | Parameters::Only(names)) = &self.parameters;
        let of_names = names.iter().map(|name| 2 * size_of::<Vec<u8>>() + name.capacity().max(MIN_ALLOCATION));
        size_of::<Self>() + of_names.sum::<usize>()
    }

    /// Names and values of the parameters that select the response.
    fn selecting(&self, query: Option<&[u8]>) -> Vec<(Vec<u8>, Vec<u8>)> {
        // As application/x-www-form-urlencoded is parsed.
        let parts = query.unwrap_or_default().split(|byte| *byte == b'&').filter(|part| !part.is_empty());
        let pairs = parts.map(|part| {
            let end = part.iter().position(|byte| *byte == b'=').unwrap_or(part.len());
            (decoded(&part[..end]), decoded(part.get(end + 1..).unwrap_or_default()))
        });
        let mut pairs: Vec<_> = pairs
            .filter(|(name, _)| match &self.parameters {
                Parameters::Except(ignored) => !ignored.contains(name),
                Parameters::Only(selecting) => selecting.contains(name),
            })
            .collect();
        if self.is_order_ignored {
            // The order of values under one name counts.
            pairs.sort_by(|(one, _), (other, _)| one.cmp(other));
        }
        pairs
    }
}

/// The names of an inner list of strings.
fn names(entry: &ListEntry) -> Option<BTreeSet<Vec<u8>>> {
    let ListEntry::InnerList(list) = entry else { return None };
    list.items.iter().map(|item| Some(decoded(item.bare_item.as_string()?.as_str().as_bytes()))).collect()
}

/// A name or a value, without plus and percent signs of the form encoding. Bytes that are not UTF-8 stay as they are: the specification replaces all of them
/// by one character, but applications tell them apart.
fn decoded(part: &[u8]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part;
    while let [first, behind @ ..] = rest {
        rest = behind;
        let digit = |at: usize| char::from(*behind.get(at)?).to_digit(16);
        match (first, digit(0), digit(1)) {
            (b'%', Some(high), Some(low)) => {
                bytes.push((high * 16 + low) as u8);
                rest = &behind[2..];
            }
            (b'+', ..) => bytes.push(b' '),
            _ => bytes.push(*first),
        }
    }
    bytes
}

/// Appends a text whose separators differ from the separators of a key.
fn spell(text: &[u8], out: &mut String) {
    for &byte in text {
        match byte {
            b'-' | b'.' | b'_' | b'~' => out.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => out.push(char::from(byte)),
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
}

/// Bytes of the smallest piece of memory.
const MIN_ALLOCATION: usize = 24;

/// The key of a response has all names of the field.
const MAX_FIELD: usize = 1 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    fn variance(field: &str) -> Option<SearchVariance> {
        let mut fields = HeaderMap::new();
        fields.insert(NO_VARY_SEARCH, HeaderValue::from_bytes(field.as_bytes()).unwrap());
        SearchVariance::of(&fields)
    }

    fn are_equivalent(field: &str, one: Option<&str>, other: Option<&str>) -> bool {
        let variance = variance(field).unwrap_or_else(|| panic!("{field} counts"));
        variance.key(one.map(str::as_bytes)) == variance.key(other.map(str::as_bytes))
    }

    #[test]
    fn the_field_is_parsed_as_in_the_examples_of_the_specification() {
        let all_but = |names: &[&str]| Parameters::Except(names.iter().map(|name| name.as_bytes().to_vec()).collect());
        let only = |names: &[&str]| Parameters::Only(names.iter().map(|name| name.as_bytes().to_vec()).collect());
        for (field, parameters, is_order_ignored) in [
            (r#"params=("a")"#, all_but(&["a"]), false),
            (r#"except=("x")"#, only(&["x"]), false),
            ("except=()", only(&[]), false),
            ("key-order", all_but(&[]), true),
            ("key-order=?1", all_but(&[]), true),
            (r#"except=("x"), key-order"#, only(&["x"]), true),
            (r#"params=("utm_source" "utm_medium")"#, all_but(&["utm_medium", "utm_source"]), false),
            (r#"params=("%C3%A9+%E6%B0%97")"#, all_but(&["é 気"]), false),
            // Entries of later specifications are ignored.
            (r#"params=("a"), future=1"#, all_but(&["a"]), false),
        ] {
            assert_eq!(variance(field), Some(SearchVariance { parameters, is_order_ignored }), "{field}");
        }
    }

    #[test]
    fn an_invalid_field_counts_as_absent() {
        for field in [
            "",
            "params=()",
            "key-order=?0",
            r#"key-order="not a boolean""#,
            r#"params="not an inner list""#,
            "params=(not-a-string)",
            "params=?0",
            "params=?1",
            "params",
            r#"params=?1, except=("x")"#,
            r#"params=("a"), except=("x")"#,
            "params=(), except=()",
            r#"except="not an inner list""#,
            "except=(not-a-string)",
            "except=?1",
            r#"params=("a") key-order"#,
            r#"params=("a""#,
            r#"params=("a"),"#,
            r#"key-order, params=("a" 1)"#,
        ] {
            assert_eq!(variance(field), None, "{field}");
        }
        let long = format!("params=(\"{}\")", "a".repeat(MAX_FIELD));
        assert_eq!(variance(&long), None);
    }

    #[test]
    fn lines_of_the_field_are_one_dictionary() {
        let mut fields = HeaderMap::new();
        fields.append(NO_VARY_SEARCH, HeaderValue::from_static("key-order"));
        fields.append(NO_VARY_SEARCH, HeaderValue::from_static("params=(\"a\")"));
        assert_eq!(SearchVariance::of(&fields), variance(r#"key-order, params=("a")"#));
        fields.append(NO_VARY_SEARCH, HeaderValue::from_static("except=(\"a\")"));
        assert_eq!(SearchVariance::of(&fields), None);
    }

    #[test]
    fn queries_are_compared_as_in_the_examples_of_the_specification() {
        for (one, other) in [
            (None, Some("")),
            (Some("a=x"), Some("%61=%78")),
            (Some("a=é"), Some("a=%C3%A9")),
            (Some("a=x&&&&"), Some("a=x")),
            (Some("a="), Some("a")),
            (Some("a=%20"), Some("a= &")),
            (Some("a=+"), Some("a= &")),
        ] {
            assert!(are_equivalent("key-order", one, other), "{one:?} {other:?}");
        }
        for query in ["é 気=1", "é+気=2", "%C3%A9%20気=3", "%C3%A9+%E6%B0%97=4"] {
            assert!(are_equivalent(r#"params=("%C3%A9+%E6%B0%97")"#, Some(query), None), "{query}");
        }
    }

    #[test]
    fn a_parameter_that_selects_is_never_ignored() {
        for (field, one, other, expected) in [
            (r#"params=("utm")"#, "a=1&utm=2", "a=1", true),
            (r#"params=("utm")"#, "a=1&utm=2", "a=2", false),
            (r#"params=("utm")"#, "a=1&b=2", "b=2&a=1", false),
            (r#"params=("utm")"#, "a=1&UTM=2", "a=1", false),
            (r#"except=("id")"#, "id=1&utm=2&x", "x=9&id=1", true),
            (r#"except=("id")"#, "id=1", "id=2", false),
            (r#"except=("id")"#, "id=1&id=2", "id=2&id=1", false),
            ("except=()", "id=1", "x", true),
            ("key-order", "a=1&b=2", "b=2&a=1", true),
            // The order of values under one name counts.
            ("key-order", "a=1&a=2", "a=2&a=1", false),
            ("key-order", "a=1", "a=1&a=1", false),
            // Separators that are encoded are no separators.
            ("key-order", "a=1%26b=2", "a=1&b=2", false),
            ("key-order", "a%3D1", "a=1", false),
            // Bytes that are not UTF-8.
            (r#"params=("utm")"#, "id=%f5", "id=%f6", false),
            (r#"params=("utm")"#, "id=%f5", "id=%ef%bf%bd", false),
            (r#"params=("utm")"#, "%f5=1", "%f6=1", false),
            (r#"params=("utm")"#, "id=%f5&utm=1", "id=%F5", true),
        ] {
            assert_eq!(are_equivalent(field, Some(one), Some(other)), expected, "{field}: {one} {other}");
        }
    }

    #[test]
    fn keys_of_different_variances_differ() {
        let key = |field: &str| variance(field).unwrap().key(Some(b"a=1"));
        let fields =
            ["key-order", r#"params=("b")"#, r#"except=("a")"#, r#"except=("a"), key-order"#, r#"params=("b,c")"#];
        let keys: BTreeSet<_> = fields.iter().map(|field| key(field)).collect();
        assert_eq!(keys.len(), fields.len(), "{keys:?}");
        assert!(keys.iter().all(|key| key.bytes().all(|byte| byte.is_ascii_graphic())));
    }
}
