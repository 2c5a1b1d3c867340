//! The reference of all keys, made of the schema that the code reads by.

use std::fmt::Write;

use schemars::{Schema, schema_for};
use serde_json::{Map, Value};

use super::Config;

/// A key of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// The table it stands in as the file writes it: `[limits]`, `[[site]]`.
    pub table: String,
    /// Its name.
    pub name: String,
    /// What its value looks like.
    pub kind: String,
    /// What holds without it; `None`: it has to be there, or nothing holds.
    pub default: Option<String>,
    /// What it does.
    pub doc: String,
}

/// A table with its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// As the file writes it.
    pub name: String,
    /// What it is about.
    pub doc: String,
    /// In the order of the code.
    pub keys: Vec<Key>,
}

/// All tables.
pub(crate) fn tables() -> Vec<Table> {
    let schema = schema_for!(Config);
    let mut reference = Reference { definitions: definitions(&schema), tables: Vec::new() };
    let root = schema.as_value().clone();
    for (name, property) in properties(&root) {
        reference.add_table(name, property);
    }
    reference.tables
}

/// The reference as a page.
pub(crate) fn markdown() -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         Every key of `sealion.toml` with its default. `sealion check --config sealion.toml` says what is wrong with a file without starting \
         anything.\n\
         Made by `sealion reference` from the code; a test holds this page to it.\n\n\
         Times have a unit (`500ms`, `10s`, `2h`), sizes too (`512B`, `64KiB`, `10MB`). Relative paths begin at the directory of the file. Keys \
         of `[server]`, `[limits]`, `[listen]`, `[access_log]` and `[metrics]` are also options of `sealion serve` and environment variables, which go \
         before the file: see `sealion serve --help`.\n",
    );
    for table in tables() {
        // Writing to a String cannot fail.
        let _ = write!(page, "\n## `{}`\n\n{}\n", table.name, table.doc);
        if table.keys.is_empty() {
            continue;
        }
        page.push_str("\n| key | value | default | |\n|---|---|---|---|\n");
        for key in &table.keys {
            let default = key.default.as_deref().unwrap_or_default();
            let _ = writeln!(
                page,
                "| `{}` | {} | {default} | {} |",
                key.name,
                key.kind.replace('|', "\\|"),
                key.doc.replace('\n', " ").replace('|', "\\|")
            );
        }
    }
    page
}

struct Reference {
    definitions: Map<String, Value>,
    tables: Vec<Table>,
}

impl Reference {
    /// Adds the table called `name`, and the tables in it.
    fn add_table(&mut self, name: &str, property: &Value) {
        let schema = self.resolve(property);
        let (schema, many) = match schema.get("items") {
            Some(items) => (self.resolve(items), true),
            None => (schema, false),
        };
        let mut table = Table {
            name: if many { format!("[[{name}]]") } else { format!("[{name}]") },
            doc: doc(property).or_else(|| doc(&schema)).unwrap_or_default(),
            keys: Vec::new(),
        };
        let mut inner = Vec::new();
        for (key, value) in properties(&schema) {
            if self.is_table(value) {
                inner.push((format!("{name}.{key}"), value.clone()));
                continue;
            }
            let (doc, told) = split_default(&doc(value).unwrap_or_default());
            let default = self.default_of(value, schema.get("default").and_then(|all| all.get(key)));
            table.keys.push(Key {
                table: table.name.clone(),
                name: key.clone(),
                kind: self.kind(value),
                default: told.or(default.map(|default| format!("`{default}`"))),
                doc,
            });
        }
        self.tables.push(table);
        for (name, value) in inner {
            self.add_table(&name, &value);
        }
    }

    fn default_of(&self, value: &Value, from_table: Option<&Value>) -> Option<String> {
        let default = value.get("default").or(from_table)?;
        match default {
            Value::Null => None,
            Value::Array(values) if values.is_empty() => None,
            Value::Object(fields) if fields.is_empty() => None,
            default => Some(default.to_string()),
        }
    }

    /// Whether the value is a table of known keys, or a list of such.
    fn is_table(&self, value: &Value) -> bool {
        let schema = self.resolve(value);
        let schema = schema.get("items").map_or_else(|| schema.clone(), |items| self.resolve(items));
        schema.get("properties").is_some()
    }

    /// What the value looks like, in a word or some.
    fn kind(&self, value: &Value) -> String {
        let schema = self.resolve(value);
        if let Some(format @ ("time" | "size")) = schema.get("format").and_then(Value::as_str) {
            return format.to_owned();
        }
        for choice in ["oneOf", "anyOf", "enum"] {
            if let Some(options) = schema.get(choice).and_then(Value::as_array) {
                let options: Vec<String> =
                    options.iter().map(|option| self.option(option)).filter(|option| option != "null").collect();
                return options.join(" or ");
            }
        }
        if let Some(constant) = schema.get("const") {
            return format!("`{constant}`");
        }
        match type_of(&schema).as_str() {
            "array" => format!("list of {}", schema.get("items").map_or_else(String::new, |items| self.kind(items))),
            "object" => match schema.get("additionalProperties").filter(|more| more.is_object()) {
                Some(more) => format!("table of {}", self.kind(more)),
                None => "table".to_owned(),
            },
            "integer" => match (schema.get("minimum"), schema.get("maximum")) {
                (Some(least), Some(most)) => format!("number from {least} to {most}"),
                _ => "number".to_owned(),
            },
            "boolean" => "`true` or `false`".to_owned(),
            other => other.to_owned(),
        }
    }

    fn option(&self, option: &Value) -> String {
        match option {
            Value::String(word) => format!("`\"{word}\"`"),
            Value::Null => "null".to_owned(),
            schema => self.kind(schema),
        }
    }

    /// The schema itself, or the one it names; an optional one counts as what it may hold.
    fn resolve(&self, value: &Value) -> Value {
        if let Some(name) = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
            return self.definitions.get(name).map_or(Value::Null, |schema| self.resolve(schema));
        }
        if let Some([only]) = value.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            return self.resolve(only);
        }
        if let Some([some, null]) = value.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
            && type_of(null) == "null"
        {
            return self.resolve(some);
        }
        value.clone()
    }
}

/// A default that depends on something is told in words at the end.
fn split_default(doc: &str) -> (String, Option<String>) {
    match doc.trim_end().strip_suffix(']').and_then(|doc| doc.rsplit_once(" [default: ")) {
        Some((doc, default)) => (format!("{doc}."), Some(default.to_owned())),
        None => (doc.to_owned(), None),
    }
}

fn definitions(schema: &Schema) -> Map<String, Value> {
    schema.as_value().get("$defs").and_then(Value::as_object).cloned().unwrap_or_default()
}

fn properties(schema: &Value) -> impl Iterator<Item = (&String, &Value)> {
    schema.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn doc(schema: &Value) -> Option<String> {
    schema.get("description").and_then(Value::as_str).map(str::to_owned)
}

fn type_of(schema: &Value) -> String {
    match schema.get("type") {
        Some(Value::String(name)) => name.clone(),
        Some(Value::Array(names)) => {
            let names: Vec<&str> = names.iter().filter_map(Value::as_str).filter(|name| *name != "null").collect();
            names.join(" or ")
        }
        _ => "value".to_owned(),
    }
}
