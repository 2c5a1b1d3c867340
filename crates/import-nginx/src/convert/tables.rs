//! `map`, `geo` and `split_clients`, as `[[map]]` and `[[split]]`. A table is written when a text first names it.

use toml::Value;

use super::condition::{Condition, decoded};
use super::context::Context;
use super::{path, values};
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The placeholder of a variable that a table makes.
pub(super) fn placeholder(context: &mut Context, name: &str) -> Option<String> {
    if let Some((_, known)) = context.tables_written.iter().find(|(own, _)| own == name) {
        return known.clone();
    }
    let block = table_of(context, name)?;
    let block = block.clone();
    // A table that names itself has no value.
    context.tables_written.push((name.to_owned(), None));
    let written = match block.name.as_str() {
        "map" => map(context, &block, name),
        "geo" => geo(context, &block, name),
        "split_clients" => split(context, &block, name),
        _ => None,
    };
    context.tables_written.retain(|(own, _)| own != name);
    context.tables_written.push((name.to_owned(), written.clone()));
    if written.is_none() {
        context.report_with(&block, "its keys or values have no counterpart in [[map]]: write the table by hand");
    }
    written
}

/// The block that makes a variable.
fn table_of<'c>(context: &'c Context, name: &str) -> Option<&'c Directive> {
    context.tables.iter().find(|block| block.arguments.last().and_then(|last| last.strip_prefix('$')) == Some(name))
}

/// Whether a text has one of these placeholders, or a table that it names.
pub(super) fn names(context: &Context, text: &str, placeholders: &[&str]) -> bool {
    let tables = text.split("{map.").skip(1).filter_map(|rest| rest.split('}').next());
    let named =
        |name: &str| context.root.list("map").find(|table| table.get("name").and_then(Value::as_str) == Some(name));
    placeholders.iter().any(|own| text.contains(own))
        || tables.filter_map(named).any(|table| names(context, &table.to_string(), placeholders))
}

/// A table with its name, and the value that it is of.
fn begun(context: &mut Context, block: &Directive, name: &str) -> Option<Table> {
    let from = context.variables.clone().template(context, block.first()).ok()?;
    // No table knows the response, nor the server: a client may name another.
    if from.contains("{upstream.") || ["$server_name", "${server_name}"].iter().any(|name| block.first().contains(name))
    {
        return None;
    }
    let mut table = Table::default();
    table.comment(&block.place);
    table.set("name", name);
    table.set("from", decoded(&from));
    Some(table)
}

fn map(context: &mut Context, block: &Directive, name: &str) -> Option<String> {
    let mut table = begun(context, block, name)?;
    let mut entries = Table::default();
    let has_case =
        |key: &str| !key.starts_with('~') && key != "default" && key.contains(|c: char| c.is_ascii_alphabetic());
    if block.children().iter().any(|entry| entry.first() != "" && has_case(&entry.name)) {
        // Texts of nginx have no case.
        table.set("ignore_case", true);
    }
    let has_hosts = block.children().iter().any(|entry| entry.name == "hostnames");
    let mut all: Vec<&Directive> = block.children().iter().collect();
    if has_hosts {
        // The longest name goes first, then the longest beginning, then expressions.
        all.sort_by_key(|entry| {
            let name = entry.name.as_str();
            (name.starts_with('~'), name.ends_with(".*"), std::cmp::Reverse(name.len()))
        });
    }
    for entry in all {
        let value = entry.arguments.first();
        match (entry.name.as_str(), value) {
            ("volatile" | "hostnames", None) => continue,
            ("include", _) => return None,
            (_, None) => return None,
            (key, Some(value)) => {
                let mut variables = context.variables.clone();
                if key.starts_with('~') {
                    (variables.groups, variables.named) = path::groups(key.trim_start_matches(['~', '*']));
                }
                let value = variables.template(context, value).ok()?;
                match key {
                    "default" if value.is_empty() => {}
                    "default" => table.set("default", value),
                    key if has_hosts && !key.starts_with('~') && !key.is_empty() => entries.set(&of_host(key), value),
                    _ => own_keys(&table, key)?.into_iter().for_each(|key| entries.set(&key, value.clone())),
                }
            }
        }
    }
    // nginx compares no expression with an empty text.
    if entries.get("").is_none() && entries.keys().any(values::matches_nothing) {
        let default = table.get("default").cloned().unwrap_or_else(|| "".into());
        entries.set("", default);
    }
    *table.table("entries") = entries;
    context.root.push("map", table);
    Some(format!("{{map.{name}}}"))
}

/// The keys of an entry. A media type has several names, and the server sends the registered one.
fn own_keys(table: &Table, key: &str) -> Option<Vec<String>> {
    const NAMES: [(&str, &str); 3] = [
        ("application/javascript", "text/javascript"),
        ("application/x-javascript", "text/javascript"),
        ("text/xml", "application/xml"),
    ];
    let is_of_type = table.get("from").and_then(Value::as_str) == Some("{type}");
    let mut keys = vec![key_of(key)?];
    for (name, registered) in NAMES.into_iter().filter(|_| is_of_type) {
        if key == name {
            keys.push(registered.to_owned());
        } else if key.starts_with('~') && key.contains(name) {
            keys.push(key_of(&key.replace(name, registered))?);
        }
    }
    Some(keys)
}

/// The key of a host, which may begin or end with a wildcard. The last dot of a value does not count.
fn of_host(key: &str) -> String {
    let literally = values::literally;
    let own = match (key.strip_prefix("*."), key.strip_prefix('.'), key.strip_suffix(".*")) {
        (Some(domain), ..) => format!(r".*\.{}\.?", literally(domain)),
        (_, Some(domain), _) => format!(r"(?:.*\.)?{}\.?", literally(domain)),
        (.., Some(start)) => format!(r"{}\..+", literally(start)),
        _ => format!(r"{}\.?", literally(key)),
    };
    format!("~* ^{own}$")
}

/// The key of an entry: a text or an expression.
fn key_of(key: &str) -> Option<String> {
    if let Some(expression) = key.strip_prefix("~*") {
        return Some(format!("~* {}", values::regex_of_pcre(expression, false)?));
    }
    if let Some(expression) = key.strip_prefix('~') {
        return Some(format!("~ {}", values::regex_of_pcre(expression, false)?));
    }
    Some(key.strip_prefix('\\').unwrap_or(key).to_owned())
}

fn split(context: &mut Context, block: &Directive, name: &str) -> Option<String> {
    let mut table = begun(context, block, name)?;
    let mut shares = Table::default();
    for entry in block.children() {
        // `""` is a value, too.
        shares.set(entry.first(), entry.name.as_str());
    }
    *table.table("shares") = shares;
    context.root.push("split", table);
    Some(format!("{{split.{name}}}"))
}

/// `geo`, by the client's networks or the networks of another address.
fn geo(context: &mut Context, block: &Directive, name: &str) -> Option<String> {
    let mut table = match block.arguments.len() {
        1 => {
            let mut table = Table::default();
            table.comment(&block.place);
            table.set("name", name);
            table.set("from", "{client}");
            table
        }
        _ => begun(context, block, name)?,
    };
    let mut entries = Table::default();
    for entry in block.children() {
        if entry.name == "ranges" && entry.arguments.is_empty() {
            continue;
        }
        let value = context.variables.clone().template(context, entry.arguments.first()?).ok()?;
        match entry.name.as_str() {
            "default" if value.is_empty() => {}
            "default" => table.set("default", value),
            own if own.contains('-') => {
                let networks = values::networks_of_range(own)?;
                networks.for_each(|network| entries.set(&format!("in {}", values::short(network)), value.clone()));
            }
            own => entries.set(&format!("in {}", values::short(values::network(own)?)), value),
        }
    }
    *table.table("entries") = entries;
    context.root.push("map", table);
    Some(format!("{{map.{name}}}"))
}

/// The template of a variable with a value for each case; exactly one case holds. `None`: a case asks for more than a value.
pub(super) fn of_cases(context: &mut Context, cases: &[(Condition, String)]) -> Option<String> {
    let known = format!("{cases:?}");
    if let Some((_, written)) = context.tables_written.iter().find(|(own, _)| *own == known) {
        return written.clone();
    }
    let ((_, last), others) = cases.split_last()?;
    let written =
        others.iter().rev().try_fold(last.clone(), |other, (case, value)| select(context, case, value, &other));
    context.tables_written.push((known, written.clone()));
    written
}

/// A template that is `yes` where a condition holds, and else `no`.
fn select(context: &mut Context, condition: &Condition, yes: &str, no: &str) -> Option<String> {
    let all = |context: &mut Context, all: &[Condition], yes: &str, no: &str| {
        all.iter().rev().try_fold(yes.to_owned(), |rest, one| select(context, one, &rest, no))
    };
    match condition {
        _ if yes == no => Some(yes.to_owned()),
        Condition::Always => Some(yes.to_owned()),
        Condition::Not(inner) => select(context, inner, no, yes),
        Condition::All(list) => all(context, list, yes, no),
        Condition::Any(list) => list.iter().rev().try_fold(no.to_owned(), |rest, one| select(context, one, yes, &rest)),
        Condition::Is(table) => {
            let (family, wanted) = table.iter().next()?;
            let (from, wanted) = match (family.as_str(), wanted) {
                ("host" | "method" | "scheme", wanted) => (format!("{{{family}}}"), wanted),
                ("value", Value::Table(inner)) => inner.iter().next().map(|(name, wanted)| (name.clone(), wanted))?,
                ("header" | "cookie", Value::Table(inner)) => {
                    inner.iter().next().map(|(name, wanted)| (format!("{{{family}.{name}}}"), wanted))?
                }
                _ => return None,
            };
            chosen(context, &from, wanted, (yes, no))
        }
    }
}

/// Writes a table that is `yes` for the values that are wanted, and returns its placeholder.
fn chosen(context: &mut Context, from: &str, wanted: &Value, (yes, no): (&str, &str)) -> Option<String> {
    let mut table = Table::default();
    let name = format!("import-{}", context.next_number());
    table.set("name", name.as_str());
    table.set("from", from);
    let mut entries = Table::default();
    let texts: Vec<&str> = match wanted {
        // An empty value is absent.
        Value::Boolean(_) => vec![""],
        Value::String(text) => vec![text],
        Value::Array(texts) => texts.iter().map(Value::as_str).collect::<Option<_>>()?,
        _ => return None,
    };
    let (own, others) = if *wanted == Value::Boolean(true) { (no, yes) } else { (yes, no) };
    for text in texts {
        let is_other = ["^~ ", "in ", "~~ "].iter().any(|sign| text.starts_with(sign)) || text.starts_with("*.");
        if is_other {
            return None;
        }
        entries.set(text, own);
    }
    if !others.is_empty() {
        table.set("default", others);
    }
    *table.table("entries") = entries;
    context.root.push("map", table);
    Some(format!("{{map.{name}}}"))
}

/// The placeholder of a table with other results than a variable's.
pub(super) fn changed(context: &mut Context, variable: &str, change: impl Fn(&str) -> String) -> Option<String> {
    let block = context.tables.iter().find(|block| block.arguments.last().is_some_and(|last| last == variable))?;
    let mut block = block.clone();
    let name = format!("{}-changed", variable.trim_start_matches('$'));
    *block.arguments.last_mut()? = format!("${name}");
    for entry in block.block.iter_mut().flatten() {
        if let [value] = entry.arguments.as_mut_slice() {
            *value = change(value);
        }
    }
    if !context.tables.iter().any(|known| known.arguments == block.arguments) {
        context.tables.push(block);
    }
    placeholder(context, &name)
}

/// Whether a variable of a `map` has the same value for all clients that ask the same.
pub(super) fn is_shared(context: &Context, name: &str) -> bool {
    let block = table_of(context, name);
    block.is_some_and(|block| block.name == "map" && !block.first().contains("_addr"))
}

/// The text of requests over TLS where a map by the scheme has it.
pub(super) fn over_tls(context: &Context, template: &str) -> Option<String> {
    let name = template.strip_prefix("{map.")?.strip_suffix('}')?;
    let block = table_of(context, name)?;
    let secure = match block.first() {
        "$scheme" => "https",
        "$https" => "on",
        _ => return None,
    };
    let entry = |key: &str| block.children().iter().find(|entry| entry.name == key);
    entry(secure).or_else(|| entry("default")).map(|entry| entry.first().to_owned())
}

/// All values of the table that a text of one placeholder names. `None`: it has others.
pub(super) fn values(context: &Context, text: &str) -> Option<Vec<String>> {
    let name = ["{map.", "{split."].iter().find_map(|start| text.strip_prefix(start)?.strip_suffix('}'))?;
    let block = table_of(context, name)?;
    let entries = block.children().iter().filter(|entry| !matches!(entry.name.as_str(), "volatile" | "hostnames"));
    let mut all = Vec::new();
    for value in entries.map(Directive::first) {
        match value.strip_prefix('$') {
            None if value.contains('$') => return None,
            None => all.push(value.to_owned()),
            // The value of another table.
            Some(name) => all.extend(values(context, &format!("{{map.{name}}}"))?),
        }
    }
    Some(all)
}
