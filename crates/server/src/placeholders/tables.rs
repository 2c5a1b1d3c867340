//! Tables from values to values: `[[map]]` by text or expression, `[[split]]` by shares of a hash.

use std::collections::{BTreeMap, HashMap};
use std::hash::Hasher;
use std::net::IpAddr;

use ipnet::IpNet;
use regex::bytes::{Regex, RegexBuilder};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use siphasher::sip::SipHasher13;

use super::{Asked, Form, Groups, Known, Template, Unfit};
use crate::values::{At, Problems, Secret};

/// A table from a value of the request to another, for `{map.NAME}`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MapConfig {
    /// Name, for `{map.NAME}`.
    pub name: At<String>,
    /// Value to look up, with placeholders: `{header.x-tenant}`.
    pub from: At<String>,
    /// Value for all others [default: empty]
    #[serde(default)]
    pub default: Option<At<Secret>>,
    /// Values by text (`"a" = "1"`), network (`"in 10.0.0.0/8" = "2"`), beginning (`"^~ /img/" = "3"`) or expression (`"~ ^b" = "4"`, `"~* ^b"` ignores
    /// case). A text goes before the narrowest network, a network before the longest beginning, a beginning before the first expression of the file. Values
    /// may have placeholders; the value of an expression may name its groups.
    #[serde(default)]
    pub entries: BTreeMap<String, At<Secret>>,
    /// Whether texts and beginnings ignore the case of ASCII letters. Expressions do with `~*`.
    #[serde(default)]
    pub ignore_case: bool,
}

/// Shares of a value, for `{split.NAME}`: a canary, or a test of two variants.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SplitConfig {
    /// Name, for `{split.NAME}`.
    pub name: At<String>,
    /// Value that is hashed, with placeholders: `{client}`. The same value gets the same share, on every server.
    pub from: At<String>,
    /// Results with their shares: `{ new = "5%", old = "*" }`. `*` is the rest.
    pub shares: BTreeMap<String, At<String>>,
}

/// The tables of a configuration.
#[derive(Debug, Default)]
pub(crate) struct Tables {
    maps: Vec<Map>,
    splits: Vec<Split>,
}

#[derive(Debug)]
struct Map {
    name: Box<str>,
    from: Template,
    default: Template,
    exact: HashMap<Box<[u8]>, Template>,
    /// The narrowest first.
    networks: Vec<(IpNet, Template)>,
    /// The longest first.
    beginnings: Vec<(Box<[u8]>, Template)>,
    expressions: Vec<(Groups, Template)>,
    /// Whether `exact` and `beginnings` are in lower case, for values in any case.
    ignores_case: bool,
    /// Whether none of its values begins with text of a client.
    begins_urls: bool,
}

#[derive(Debug)]
struct Split {
    name: Box<str>,
    from: Template,
    /// Ends of the shares, in ten thousandths.
    shares: Vec<(u64, Box<str>)>,
}

/// All shares together.
pub(crate) const WHOLE: u64 = 10_000;

impl Tables {
    /// Validates the tables. A table may use the tables before it.
    pub(crate) fn build(maps: &[MapConfig], splits: &[SplitConfig], problems: &mut Problems) -> Self {
        let mut tables = Tables::default();
        for config in splits {
            tables.check_name(&config.name, "split", problems);
            let split = Split::build(config, &tables, problems);
            tables.splits.extend(split);
        }
        for config in maps {
            tables.check_name(&config.name, "map", problems);
            let map = Map::build(config, &tables, problems);
            tables.maps.extend(map);
        }
        tables
    }

    fn check_name(&self, name: &At<String>, table: &str, problems: &mut Problems) {
        let is_name =
            !name.is_empty() && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        let key = format!("{table}.name");
        if !is_name {
            problems.add(&name.span, &key, "write letters, digits, hyphens and underscores");
        }
        let is_known = if table == "map" { self.map(name).is_some() } else { self.split(name).is_some() };
        if is_known {
            problems.add(&name.span, &key, format_args!("{} is there twice: rename one", name.value));
        }
    }

    /// The place of a map.
    pub(super) fn map(&self, name: &str) -> Option<usize> {
        self.maps.iter().position(|map| *map.name == *name)
    }

    /// The place of a split.
    pub(super) fn split(&self, name: &str) -> Option<usize> {
        self.splits.iter().position(|split| *split.name == *name)
    }

    /// The names of all tables, as placeholders have them.
    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let maps = self.maps.iter().map(|map| format!("map.{}", map.name));
        maps.chain(self.splits.iter().map(|split| format!("split.{}", split.name)))
    }

    /// Appends the value of a map.
    pub(super) fn append_mapped(
        &self,
        place: usize,
        asked: &Asked<'_>,
        form: Form,
        out: &mut Vec<u8>,
    ) -> Result<(), Unfit> {
        let map = &self.maps[place];
        let from = map.from.render(asked, Form::Plain)?;
        let (groups, value) = map.find(&from);
        let asked = Asked { groups, looked_up: Some(&from), ..*asked };
        out.extend_from_slice(&value.render(&asked, form)?);
        Ok(())
    }

    /// Appends the share of a value.
    pub(super) fn append_share(&self, place: usize, asked: &Asked<'_>, out: &mut Vec<u8>) -> Result<(), Unfit> {
        let split = &self.splits[place];
        let from = split.from.render(asked, Form::Plain)?;
        out.extend_from_slice(split.find(&from).as_bytes());
        Ok(())
    }

    /// The value that a map looks up, and its results.
    pub(super) fn map_templates(&self, place: usize) -> impl Iterator<Item = &Template> {
        let map = &self.maps[place];
        std::iter::once(&map.from).chain(map.values())
    }

    /// The value that a split hashes.
    pub(super) fn split_template(&self, place: usize) -> &Template {
        &self.splits[place].from
    }

    /// All texts that the values of a map can become. `None`: a client decides about one of them.
    pub(super) fn texts(&self, place: usize) -> Option<Vec<String>> {
        // Without a default, a value that the map does not name leads nowhere.
        let values = self.maps[place].values().filter(|value| value.as_text() != Some(""));
        let texts: Option<Vec<Vec<String>>> = values.map(|value| value.all_texts(self)).collect();
        Some(texts?.concat())
    }
}

impl Tables {
    /// Whether a URL may begin with the value of a map: none of its values begins with text of a client.
    pub(super) fn map_begins_urls(&self, place: usize) -> bool {
        self.maps[place].begins_urls
    }

    /// The results of a split.
    pub(super) fn shares(&self, place: usize) -> Vec<&str> {
        self.splits[place].shares.iter().map(|(_, result)| &**result).collect()
    }
}

impl Map {
    fn build(config: &MapConfig, tables: &Tables, problems: &mut Problems) -> Option<Self> {
        let known = Known::of_request(None, tables);
        let from = Template::parse(&config.from, known, "map.from", problems);
        let default = match &config.default {
            None => Some(Template::literal("")),
            Some(default) => Template::parse_text(default.reveal(), &default.span, known, "map.default", problems),
        };
        let mut map = Map {
            name: config.name.as_str().into(),
            from: from?,
            default: default?,
            exact: HashMap::new(),
            networks: Vec::new(),
            beginnings: Vec::new(),
            expressions: Vec::new(),
            ignores_case: config.ignore_case,
            begins_urls: true,
        };
        let is_of_url = map.from.is_url();
        let folded = |text: &str| if config.ignore_case { text.to_ascii_lowercase() } else { text.to_owned() };
        let mut entries: Vec<_> = config.entries.iter().collect();
        entries.sort_by_key(|(_, value)| value.span.start);
        for (text, value) in entries {
            let groups = match expression(text).map(|expression| in_bytes(&expression)) {
                None => None,
                Some(Ok(regex)) => Some(Groups { path: Some(regex), is_of_url, ..Groups::default() }),
                Some(Err(error)) => {
                    let what = format_args!("{text:?} is not a regular expression: {error}");
                    problems.add(&value.span, "map.entries", what);
                    continue;
                }
            };
            let known = Known { groups: groups.as_ref(), ..known };
            let Some(template) = Template::parse_text(value.reveal(), &value.span, known, "map.entries", problems)
            else {
                continue;
            };
            if let Some(groups) = groups {
                map.expressions.push((groups, template));
            } else if let Some(beginning) = text.strip_prefix("^~ ") {
                map.beginnings.push((folded(beginning).into_bytes().into(), template));
            } else if let Some(network) = text.strip_prefix("in ") {
                let address = || network.parse::<IpAddr>().ok().map(IpNet::from);
                match network.parse::<IpNet>().ok().or_else(address) {
                    Some(network) => map.networks.push((network, template)),
                    None => {
                        let what = format_args!("{network:?} is not a network: write for instance \"in 10.0.0.0/8\"");
                        problems.add(&value.span, "map.entries", what);
                    }
                }
            } else if map.exact.insert(folded(text).into_bytes().into(), template).is_some() {
                let what = format_args!("{text:?} is there twice in another case: remove one");
                problems.add(&value.span, "map.entries", what);
            }
        }
        map.networks.sort_by_key(|(network, _)| std::cmp::Reverse(network.prefix_len()));
        map.beginnings.sort_by_key(|(beginning, _)| std::cmp::Reverse(beginning.len()));
        let begins_urls = map.values().all(|value| value.names_scheme(tables));
        Some(Map { begins_urls, ..map })
    }

    fn values(&self) -> impl Iterator<Item = &Template> {
        let values = self.exact.values().chain(self.networks.iter().map(|(_, value)| value));
        let values = values.chain(self.beginnings.iter().map(|(_, value)| value));
        values.chain(self.expressions.iter().map(|(_, value)| value)).chain([&self.default])
    }

    /// The template for a value, and the expression whose groups it may name.
    fn find(&self, from: &[u8]) -> (Option<&Groups>, &Template) {
        let lower = self.ignores_case.then(|| from.to_ascii_lowercase());
        let text = lower.as_deref().unwrap_or(from);
        let network = || {
            let address = (!self.networks.is_empty()).then(|| std::str::from_utf8(from).ok()?.parse::<IpAddr>().ok());
            let address = address.flatten()?.to_canonical();
            Some(&self.networks.iter().find(|(network, _)| network.contains(&address))?.1)
        };
        let beginning = || Some(&self.beginnings.iter().find(|(beginning, _)| text.starts_with(beginning))?.1);
        if let Some(found) = self.exact.get(text).or_else(network).or_else(beginning) {
            return (None, found);
        }
        let matches = |groups: &Groups| groups.path.as_ref().is_some_and(|regex| regex.is_match(from));
        let expression = self.expressions.iter().find(|(groups, _)| matches(groups));
        expression.map_or((None, &self.default), |(groups, value)| (Some(groups), value))
    }
}

/// The expression of `~ expression` or `~* expression`, for bytes. `None`: the text is a plain text.
pub(crate) fn expression(text: &str) -> Option<String> {
    match text.strip_prefix("~* ") {
        Some(expression) => Some(format!("(?i){expression}")),
        None => text.strip_prefix("~ ").map(str::to_owned),
    }
}

/// Compiles a regular expression for paths and for values of requests. It matches bytes, as file names and fields are: `.` and `[^/]` also match what is
/// not UTF-8, which `(?u)` would not.
///
/// # Errors
/// The syntax error, in one line.
pub(crate) fn in_bytes(text: &str) -> Result<Regex, String> {
    let built = RegexBuilder::new(text).unicode(false).dot_matches_new_line(true).size_limit(REGEX_SIZE).build();
    built.map_err(|error| {
        let error = error.to_string();
        let last = error.lines().last().unwrap_or_default();
        let remedy = if last.contains("Unicode not allowed") { ": write (?u) in front of the expression" } else { "" };
        format!("{last}{remedy}")
    })
}

/// Bound on a compiled expression, in bytes. Usual ones have a few thousand, and a list of agents a million.
const REGEX_SIZE: usize = 10 << 20;

impl Split {
    fn build(config: &SplitConfig, tables: &Tables, problems: &mut Problems) -> Option<Self> {
        let known = Known::of_request(None, tables);
        let from = Template::parse(&config.from, known, "split.from", problems)?;
        let mut shares: Vec<_> = config.shares.iter().collect();
        // The rest comes last.
        shares.sort_by_key(|(_, share)| (share.value == "*", share.span.start));
        let mut end = 0;
        let mut ends = Vec::new();
        for (result, share) in shares {
            match share.as_str() {
                "*" => end = WHOLE.max(end),
                text => match share_of(text) {
                    Some(width) => end += width,
                    None => {
                        problems.add(
                            &share.span,
                            "split.shares",
                            "write a share in per cent, for instance \"2.5%\", or \"*\" for the rest",
                        );
                        return None;
                    }
                },
            }
            ends.push((end, result.as_str().into()));
        }
        if end != WHOLE {
            let what = "do not make up the whole: give one of them \"*\", the rest";
            problems.add(&config.from.span, "split.shares", what);
            return None;
        }
        Some(Split { name: config.name.as_str().into(), from, shares: ends })
    }

    fn find(&self, from: &[u8]) -> &str {
        // Without a key of its own, so that all servers agree.
        let mut hasher = SipHasher13::new();
        hasher.write(from);
        let at = hasher.finish() % WHOLE;
        self.shares.iter().find(|(end, _)| at < *end).map_or("", |(_, result)| result)
    }
}

/// A share in ten thousandths, of per cent with at most two digits behind the point: `2.5%`.
pub(crate) fn share_of(text: &str) -> Option<u64> {
    let text = text.strip_suffix('%')?;
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || whole.len() > 3 || part.len() > 2 || !digits(whole) || !digits(part) {
        return None;
    }
    let number = format!("{whole}{part:0<2}").parse().ok()?;
    (number <= WHOLE).then_some(number)
}

#[cfg(test)]
impl Tables {
    /// The share of a value in the first split.
    pub(super) fn share_for_tests(&self, from: &str) -> &str {
        self.splits[0].find(from.as_bytes())
    }
}
