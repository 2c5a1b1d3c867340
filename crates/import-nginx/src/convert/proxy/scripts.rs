//! Locations that pass requests to a server of FastCGI, as rules with `fastcgi`: the script is found by the rule, and has to be a file.

use toml::Value;

use super::upstreams::Options;
use crate::convert::{Context, site::Settings, values};
use crate::syntax::Directive;

/// Variables that the rule makes itself.
const MADE_HERE: [&str; 25] = [
    "CONTENT_LENGTH",
    "CONTENT_TYPE",
    "DOCUMENT_ROOT",
    "DOCUMENT_URI",
    "GATEWAY_INTERFACE",
    "HTTPS",
    "HTTP_HOST",
    "HTTP_PROXY",
    "PATH_INFO",
    "PATH_TRANSLATED",
    "QUERY_STRING",
    "REDIRECT_STATUS",
    "REMOTE_ADDR",
    "REMOTE_PORT",
    "REMOTE_USER",
    "REQUEST_METHOD",
    "REQUEST_SCHEME",
    "REQUEST_URI",
    "SCRIPT_FILENAME",
    "SCRIPT_NAME",
    "SERVER_ADDR",
    "SERVER_NAME",
    "SERVER_PORT",
    "SERVER_PROTOCOL",
    "SERVER_SOFTWARE",
];

/// The front script of a `try_files`, such as `/index.php?$args`.
pub(super) fn front_of(try_files: &Directive) -> Option<&str> {
    let last = try_files.arguments.last()?;
    let path = last.split('?').next().unwrap_or(last);
    let is_script = path.starts_with('/') && path.ends_with(".php") && !path.contains('$') && !path.contains("/.");
    is_script.then_some(path)
}

/// Whether a directive says how scripts are run.
pub(super) fn is_about(name: &str) -> bool {
    matches!(
        name,
        "fastcgi_pass"
            | "fastcgi_param"
            | "fastcgi_index"
            | "fastcgi_split_path_info"
            | "fastcgi_read_timeout"
            | "fastcgi_connect_timeout"
            | "fastcgi_send_timeout"
            | "fastcgi_intercept_errors"
            | "fastcgi_hide_header"
            | "fastcgi_pass_header"
            | "fastcgi_buffers"
            | "fastcgi_buffer_size"
            | "fastcgi_busy_buffers_size"
            | "fastcgi_buffering"
            | "fastcgi_request_buffering"
            | "fastcgi_keep_conn"
            | "fastcgi_temp_file_write_size"
            | "fastcgi_max_temp_file_size"
    )
}

/// The directory of the scripts of a location. An error says why it is not known.
pub(super) fn root(settings: &Settings<'_>, block: &Directive) -> Result<String, String> {
    let own: Vec<_> = block.children().iter().filter(|inner| inner.name == "fastcgi_param").collect();
    let params = if own.is_empty() { settings.all("fastcgi_param") } else { own };
    let of_file =
        params.iter().rfind(|param| param.first() == "SCRIPT_FILENAME").and_then(|param| param.arguments.get(1));
    let Some(of_file) = of_file else {
        return Err("it has no fastcgi_param SCRIPT_FILENAME, by which PHP knows what to run".to_owned());
    };
    let plain = of_file.replace("${", "$").replace('}', "");
    let own = block.children().iter().find(|inner| inner.name == "root").map(Directive::first);
    let root = match plain.as_str() {
        "$document_root$fastcgi_script_name"
        | "$document_root/$fastcgi_script_name"
        | "$request_filename"
        | "$realpath_root$fastcgi_script_name" => own.or(settings.root()),
        other => other.strip_suffix("$fastcgi_script_name").filter(|root| !root.contains('$')),
    };
    let Some(root) = root.filter(|root| root.starts_with('/') && !root.contains('$')) else {
        return Err(format!(
            "the directory of its scripts is not known from SCRIPT_FILENAME {of_file}: set root of the rule's fastcgi"
        ));
    };
    Ok(root.to_owned())
}

/// The rule's `fastcgi`. An error says why there is none.
pub(super) fn table<'a>(
    context: &mut Context,
    settings: &Settings<'_>,
    front: Option<&str>,
    block: &Directive,
    all: &impl Fn(&str) -> Vec<&'a Directive>,
) -> Result<Value, String> {
    let mut table = toml::Table::new();
    let params = all("fastcgi_param");
    let root = root(settings, block)?;
    if settings.root() != Some(root.as_str()) {
        table.insert("root".to_owned(), root.into());
    }
    if let Some(front) = front {
        table.insert("front".to_owned(), front.into());
    }
    if let Some(index) = all("fastcgi_index").pop().filter(|index| index.first() != "index.php") {
        match index.first().ends_with(".php") && !index.first().contains(['/', '$']) {
            true => drop(table.insert("index".to_owned(), index.first().into())),
            false => context.report_with(index, "name a script: set index of the rule's fastcgi"),
        }
    }
    if let Some(split) = all("fastcgi_split_path_info").pop().filter(|split| !split.first().contains("\\.php)")) {
        context.report_with(split, "a script ends with the first name that ends in .php, and the rest is PATH_INFO");
    }
    let mut variables = toml::Table::new();
    for param in params {
        let [name, value, ..] = param.arguments.as_slice() else { continue };
        if MADE_HERE.contains(&name.as_str()) {
            continue;
        }
        if value.contains('$') || name.starts_with("HTTP_") {
            if !context.is_reported(param) {
                context.report_with(param, "variables are not supported in params, nor fields of clients");
            }
            continue;
        }
        variables.insert(name.clone(), value.as_str().into());
    }
    if !variables.is_empty() {
        table.insert("params".to_owned(), variables.into());
    }
    Ok(Value::Table(table))
}

/// Times of the upstream.
pub(super) fn options<'a>(context: &mut Context, all: &impl Fn(&str) -> Vec<&'a Directive>) -> Options {
    let mut keys: Vec<(&'static str, Value)> = vec![("protocol", "fastcgi".into())];
    for (name, own) in [
        ("fastcgi_connect_timeout", &["connect_timeout"][..]),
        ("fastcgi_read_timeout", &["answer_timeout", "stall_timeout"]),
    ] {
        let Some(directive) = all(name).pop() else { continue };
        match values::time(directive.first()).filter(|time| !time.0.is_zero()) {
            Some(time) => keys.extend(own.iter().map(|key| (*key, Value::from(time.to_string())))),
            None => context.report_with(directive, "a time is above 0"),
        }
    }
    Options { scheme: "fastcgi", keys, ..Options::default() }
}
