//! `map`, `geo` and `split_clients`, as `[[map]]`, conditions and `[[split]]`. A table is written when a text first names it.

use ipnet::IpNet;

use super::condition::Condition;
use super::context::Context;
use super::values;
use super::variables::Variables;
use crate::syntax::Directive;
use crate::toml_text::Table;

/// The placeholder of a variable that a table makes.
pub(super) fn placeholder(context: &mut Context, name: &str) -> Option<String> {
    if let Some((_, known)) = context.tables_written.iter().find(|(own, _)| own == name) {
        return known.clone();
    }
    let block = context.tables.iter().find(|block| block.arguments.last().is_some_and(|last| last[1..] == *name))?;
    let block = block.clone();
    // A table that names itself has no value.
    context.tables_written.push((name.to_owned(), None));
    let written = match block.name.as_str() {
        "map" => map(context, &block, name),
        "split_clients" => split(context, &block, name),
        _ => None,
    };
    context.tables_written.retain(|(own, _)| own != name);
    context.tables_written.push((name.to_owned(), written.clone()));
    if written.is_none() && block.name != "geo" {
        context.report_with(&block, "its keys or values have no counterpart in [[map]]: write the table by hand");
    }
    written
}

/// A table with its name, and the value that it is of.
fn begun(context: &mut Context, block: &Directive, name: &str) -> Option<Table> {
    let from = context.variables.clone().template(context, block.first()).ok()?;
    let mut table = Table::default();
    table.comment(&block.place);
    table.set("name", name);
    table.set("from", from);
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
    for entry in block.children() {
        let value = entry.arguments.first();
        match (entry.name.as_str(), value) {
            ("volatile" | "hostnames", None) => continue,
            ("include", _) => return None,
            (_, None) => return None,
            (key, Some(value)) => {
                let value = context.variables.clone().template(context, value).ok()?;
                match key {
                    "default" if value.is_empty() => {}
                    "default" => table.set("default", value),
                    _ => entries.set(&key_of(key)?, value),
                }
            }
        }
    }
    *table.table("entries") = entries;
    context.root.push("map", table);
    Some(format!("{{map.{name}}}"))
}

/// The key of an entry: a text, an expression, or a host with a wildcard.
fn key_of(key: &str) -> Option<String> {
    if let Some(expression) = key.strip_prefix("~*") {
        return Some(format!("~* {}", values::regex_of_pcre(expression, false)?));
    }
    if let Some(expression) = key.strip_prefix('~') {
        return Some(format!("~ {}", values::regex_of_pcre(expression, false)?));
    }
    let key = key.strip_prefix('\\').unwrap_or(key);
    Some(match (key.strip_prefix("*."), key.strip_suffix(".*")) {
        (Some(domain), _) => format!(r"~* \.{}$", values::literally(domain)),
        (_, Some(start)) => format!(r"~* ^{}\.", values::literally(start)),
        _ => key.to_owned(),
    })
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

/// Gives the variables of all `geo` blocks their cases, by the client's networks.
pub(super) fn geo(context: &Context, variables: &mut Variables) {
    for block in context.tables.iter().filter(|block| block.name == "geo") {
        let [name] = block.arguments.as_slice() else { continue };
        let mut default = String::new();
        let mut networks: Vec<(IpNet, String)> = Vec::new();
        let mut is_known = true;
        for entry in block.children() {
            let value = entry.first().to_owned();
            match (entry.name.as_str(), values::network(&entry.name)) {
                ("default", _) => default = value,
                (_, Some(network)) => networks.push((network, value)),
                _ => is_known = false,
            }
        }
        let mut results: Vec<&String> = networks.iter().map(|(_, value)| value).collect();
        results.sort();
        results.dedup();
        let mut cases = vec![(client(networks.iter().filter(|(_, value)| *value != default)).not(), default.clone())];
        for result in results.into_iter().filter(|result| **result != default) {
            let own: Vec<_> = networks.iter().filter(|(_, value)| value == result).collect();
            // The narrowest network counts.
            let is_narrower = |other: &IpNet| own.iter().any(|(own, _)| own.contains(other) && own != other);
            let mut inner =
                networks.iter().filter(|(network, value)| value != result && is_narrower(network)).peekable();
            let condition = client(own.iter().copied());
            let condition = match inner.peek() {
                Some(_) => condition.and(client(inner).not()),
                None => condition,
            };
            cases.push((condition, result.clone()));
        }
        variables.insert(name, if is_known { cases } else { Vec::new() });
    }
}

fn client<'a>(networks: impl Iterator<Item = &'a (IpNet, String)>) -> Condition {
    let networks: Vec<String> = networks.map(|(network, _)| values::short(*network)).collect();
    Condition::key("client", networks)
}

/// All values of the table that a text of one placeholder names. `None`: it has others.
pub(super) fn values(context: &Context, text: &str) -> Option<Vec<String>> {
    let name = ["{map.", "{split."].iter().find_map(|start| text.strip_prefix(start)?.strip_suffix('}'))?;
    let block = context.tables.iter().find(|block| block.arguments.last().is_some_and(|last| last[1..] == *name))?;
    let entries = block.children().iter().filter(|entry| !matches!(entry.name.as_str(), "volatile" | "hostnames"));
    let values: Vec<String> = entries.map(|entry| entry.first().to_owned()).collect();
    (!values.iter().any(|value| value.contains('$'))).then_some(values)
}
