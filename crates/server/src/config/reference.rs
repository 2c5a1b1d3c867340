//! The configuration reference, generated from the schema of the configuration structs.

use std::fmt::Write;
use std::ops::Range;
use std::sync::LazyLock;

use schemars::{Schema, schema_for};
use serde_json::{Map, Value};
use toml::de::{DeTable, DeValue};

use super::Config;

/// A key of a table, as shown in the reference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Key {
    /// Its table, in the file's notation: `[limits]`, `[[site]]`.
    pub table: String,
    /// The name without its table.
    pub name: String,
    /// The form of its value.
    pub kind: String,
    /// Its default; `None`: it is required, or has no effect without a value.
    pub default: Option<String>,
    /// The doc comment of the key.
    pub doc: String,
}

/// A table with its keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Table {
    /// The name in the file's notation.
    pub name: String,
    /// The doc comment of the table.
    pub doc: String,
    /// The keys in source order.
    pub keys: Vec<Key>,
}

/// The tables of the whole schema, in source order.
pub(crate) fn tables() -> Vec<Table> {
    let schema = schema_for!(Config);
    let mut reference = Reference { definitions: definitions(&schema), tables: Vec::new(), shown: Vec::new() };
    let root = schema.as_value().clone();
    let (tables, keys): (Vec<_>, Vec<_>) = properties(&root).partition(|(_, value)| reference.is_table(value));
    let keys = keys.into_iter().map(|(name, value)| reference.key(TOP, name, value, None)).collect();
    reference.tables.push(Table { name: TOP.to_owned(), doc: "Keys before the first table.".to_owned(), keys });
    for (name, property) in tables {
        reference.add_table(name, property);
    }
    reference.tables
}

/// The place of keys outside tables.
const TOP: &str = "top of the file";

/// The keys with a list where only a table can be: serde takes the elements of such a list for the values of the table's keys, by their position.
pub(super) fn lists_for_tables(document: &DeTable<'_>) -> Vec<(Range<usize>, String)> {
    static SCHEMA: LazyLock<Schema> = LazyLock::new(|| schema_for!(Config));
    static REFERENCE: LazyLock<Reference> =
        LazyLock::new(|| Reference { definitions: definitions(&SCHEMA), tables: Vec::new(), shown: Vec::new() });
    let mut found = Vec::new();
    REFERENCE.find_lists(document, SCHEMA.as_value(), &mut Vec::new(), &mut found);
    found
}

/// The reference as a page.
pub fn markdown() -> String {
    let mut page = String::from(
        "# Configuration reference\n\n\
         Every key of `sealion.toml` with its default. `sealion check --config sealion.toml` checks a file without starting a \
         server.\n\
         Generated from the code by `sealion reference`; a test keeps this page up to date.\n\n\
         Times have a unit (`500ms`, `10s`, `2h`), and so do sizes (`512B`, `64KiB`, `10MB`). Relative paths start at the \
         directory of the file. `\"${NAME}\"` in a text is a variable of the environment, `\"${NAME:-text}\"` has a default, and `$${` \
         stands for `${`. The keys of `[server]`, `[limits]`, `[http2]`, `[access_log]`, `[metrics]` and `[privileges]`, `address` \
         of `[[listen]]` and `min_version` of `[tls]` are also options of `sealion serve` and environment variables, which \
         override the file: see `sealion serve --help`.\n",
    );
    for table in tables() {
        // Writing to a String cannot fail.
        let heading = if table.name == TOP { TOP.to_owned() } else { format!("`{}`", table.name) };
        let _ = write!(page, "\n## {heading}\n\n{}\n", table.doc);
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
                key.doc.replace('|', "\\|")
            );
        }
    }
    page
}

struct Reference {
    definitions: Map<String, Value>,
    tables: Vec<Table>,
    /// Tables of routes by their schema. The tables of sites, and of routes within routes, are there already.
    shown: Vec<(Value, String)>,
}

impl Reference {
    /// Adds the table `name` and its subtables.
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
        self.shown.push((schema.clone(), table.name.clone()));
        let mut inner = Vec::new();
        for (key, value) in properties(&schema) {
            if self.is_table(value) {
                let inner_name = format!("{name}.{key}");
                match self.table_like(value).filter(|_| inner_name.starts_with("site.route")) {
                    Some(same) => table.keys.push(Key {
                        table: table.name.clone(),
                        name: key.clone(),
                        kind: format!("as {same}"),
                        default: None,
                        doc: doc(value).unwrap_or_default().replace('\n', " "),
                    }),
                    None => inner.push((inner_name, value.clone())),
                }
                continue;
            }
            let default = schema.get("default").and_then(|all| all.get(key));
            table.keys.push(self.key(&table.name, key, value, default));
        }
        self.tables.push(table);
        for (name, value) in inner {
            self.add_table(&name, &value);
        }
    }

    /// The table with the same keys as `value` that is there already.
    fn table_like(&self, value: &Value) -> Option<String> {
        let schema = self.resolve(value);
        let schema = schema.get("items").map_or_else(|| schema.clone(), |items| self.resolve(items));
        let same = self.shown.iter().find(|(shown, _)| shown.get("properties") == schema.get("properties"));
        same.map(|(_, name)| format!("`{name}`"))
    }

    fn key(&self, table: &str, name: &str, value: &Value, default: Option<&Value>) -> Key {
        let (doc, described) = split_default(&doc(value).unwrap_or_default());
        let default = self.default_of(value, default);
        Key {
            table: table.to_owned(),
            name: name.to_owned(),
            kind: self.kind(value),
            default: described.or(default.map(|default| format!("`{default}`"))),
            doc,
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

    /// Whether the value is a table with fixed keys, or a list of such tables.
    fn is_table(&self, value: &Value) -> bool {
        let schema = self.resolve(value);
        let schema = schema.get("items").map_or_else(|| schema.clone(), |items| self.resolve(items));
        schema.get("properties").is_some()
    }

    /// The form of the value, in a few words.
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

    /// Resolves references; an optional value resolves to the schema of its content.
    fn resolve(&self, value: &Value) -> Value {
        self.resolved(value).clone()
    }

    fn resolved<'v>(&'v self, value: &'v Value) -> &'v Value {
        if let Some(name) = value.get("$ref").and_then(Value::as_str).and_then(|path| path.rsplit('/').next()) {
            return self.definitions.get(name).map_or(&Value::Null, |schema| self.resolved(schema));
        }
        if let Some([only]) = value.get("allOf").and_then(Value::as_array).map(Vec::as_slice) {
            return self.resolved(only);
        }
        if let Some([some, null]) = value.get("anyOf").and_then(Value::as_array).map(Vec::as_slice)
            && type_of(null) == "null"
        {
            return self.resolved(some);
        }
        value
    }

    /// Adds the keys of a table that have a list where the schema has a table.
    fn find_lists(
        &self,
        table: &DeTable<'_>,
        schema: &Value,
        path: &mut Vec<String>,
        found: &mut Vec<(Range<usize>, String)>,
    ) {
        for (key, value) in table {
            let own = schema.get("properties").and_then(|all| all.get(&**key.get_ref()));
            let Some(own) = own.or(schema.get("additionalProperties")).map(|own| self.resolved(own)) else { continue };
            path.push(key.get_ref().to_string());
            match value.get_ref() {
                DeValue::Table(table) => self.find_lists(table, own, path, found),
                DeValue::Array(_) if type_of(own) == "object" => found.push((value.span(), path.join("."))),
                DeValue::Array(values) => {
                    let items = own.get("items").map_or(&Value::Null, |items| self.resolved(items));
                    for value in values {
                        match value.get_ref() {
                            DeValue::Table(table) => self.find_lists(table, items, path, found),
                            DeValue::Array(_) if type_of(items) == "object" => {
                                found.push((value.span(), path.join(".")));
                            }
                            _ => {}
                        }
                    }
                }
                _ => {}
            }
            path.pop();
        }
    }
}

/// Splits off a default in words at the end of the help text.
fn split_default(doc: &str) -> (String, Option<String>) {
    let doc = doc.replace('\n', " ");
    match doc.trim_end().strip_suffix(']').and_then(|doc| doc.rsplit_once(" [default: ")) {
        Some((doc, default)) => (format!("{doc}."), Some(default.to_owned())),
        None => (doc, None),
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
